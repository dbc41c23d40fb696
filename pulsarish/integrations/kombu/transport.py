"""The transport: one client of Pulsarish for each connection of kombu."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import kombu
from kombu.transport import virtual

from pulsarish.client.api.blocking_client import Client
from pulsarish.client.api.blocking_producer import Producer
from pulsarish.client.api.worker_options import EXTEND_SECONDS
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.integrations.kombu.addresses import Address, parse_address
from pulsarish.integrations.kombu.channel import Channel
from pulsarish.integrations.kombu.envelope import content_of, due_ms, priority_of, properties_of
from pulsarish.integrations.kombu.sources import (
    Accepts,
    ReaderSource,
    Receives,
    SubscriptionSource,
)
from pulsarish.model.errors import (
    AlreadyClosed,
    ConnectError,
    ConsumerBusy,
    ForkedProcess,
    PulsarishError,
)
from pulsarish.runtime.background import monotonic, start_thread
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.version import program_version

__all__ = ["Transport"]

_log = get_logger("integrations.kombu")

_PRODUCERS_MAX: Final = 64
_OPERATION_SECONDS: Final = 10
_REQUEUE_MS: Final = 100
_WAIT_SECONDS: Final = 0.5
"""A signal that comes just before a thread falls asleep is handled after this time."""


def _retryable(root: type[PulsarishError]) -> tuple[type[PulsarishError], ...]:
    """Return all classes of errors after which the same request may be tried again."""
    found = (root,) if root.retryable else ()
    return found + tuple(each for child in root.__subclasses__() for each in _retryable(child))


def _url_of(connection: kombu.Connection) -> str:
    """Return the URL of a connection, of which kombu keeps the parts when it was one of a list."""
    host = connection.hostname or "127.0.0.1"
    if "://" in host:
        return str(host)
    return f"{host}:{connection.port or Transport.default_port}/{connection.virtual_host or ''}"


class Transport(virtual.Transport):
    """Connects kombu, and so Celery, to Pulsarish.

    Options, in ``transport_options`` of kombu or ``broker_transport_options`` of Celery:

    * ``client``: more arguments of ``pulsarish.Client``, such as ``authentication``.
    * ``delay_at_broker``: whether brokers keep tasks with an ETA until they are due; ``True``.
    * ``requeue_delay_ms``: after this time a message that was requeued comes again; 100.
    """

    Channel = Channel
    can_parse_url = True
    default_port = 6660
    driver_type = "pulsarish"
    driver_name = "pulsarish"
    implements = virtual.Transport.implements.extend(
        asynchronous=False,
        exchange_type=frozenset({"direct", "topic", "fanout"}),
        heartbeats=False,
    )
    connection_errors = (
        *virtual.Transport.connection_errors,
        ConnectError,
        AlreadyClosed,
        ForkedProcess,
        *_retryable(PulsarishError),
    )
    recoverable_connection_errors = connection_errors

    def __init__(self, client: kombu.Connection, **arguments: Any) -> None:
        super().__init__(client, **arguments)
        self.address: Address = parse_address(_url_of(client), tls=bool(client.ssl))
        # kombu adds options of its own to these.
        self._options: Mapping[str, Any] = client.transport_options or {}
        self._clock = SystemClock()
        self._client: Client | None = None
        self._producers: OrderedDict[str, Producer] = OrderedDict()
        self._declared: set[tuple[str, str]] = set()
        self._changed = threading.Condition()
        self.changes_count = 0
        self._failure: PulsarishError | None = None
        self._ended = threading.Event()
        self._extended: threading.Event | None = None
        """The end of the connection that a thread extends, if there is one."""

    # -- the connection

    def establish_connection(self) -> Transport:
        """Connect and look a topic up, so that an error shows here.

        Raises ``ConnectError`` and the other errors of a client.
        """
        given = {"operation_timeout_seconds": _OPERATION_SECONDS, **self._options.get("client", {})}
        client = Client(self.address.service_url, **given)
        try:
            client.get_topic_partitions(self.address.exchange_topic("none"))
        except BaseException:
            client.shutdown()
            raise
        self._client, self._failure = client, None
        self._ended = threading.Event()
        super().establish_connection()
        return self

    def close_connection(self, connection: object) -> None:
        """Close the channels, then the client: what is published is sent first."""
        self._ended.set()
        client, self._client = self._client, None
        self._forget()
        try:
            super().close_connection(connection)
            if client is not None:
                client.close()
        except ForkedProcess:
            pass  # the parent closes it
        except PulsarishError:
            if client is not None:
                client.shutdown()
            raise

    def _collect(self, connection: object) -> None:
        """Drop a connection that is lost, or that belongs to the parent of this process."""
        self._ended.set()
        client, self._client = self._client, None
        self._forget()
        self._avail_channels.clear()
        channels, self.channels[:] = self.channels[:], []
        for channel in channels:
            channel.closed, channel.connection = True, None
        if client is None:
            return
        with suppress(ForkedProcess):  # the parent closes it, and has its threads
            client.shutdown()
            for channel in channels:
                channel.end_sources()

    def _forget(self) -> None:
        self._producers.clear()
        self._declared.clear()

    @property
    def _opened(self) -> Client:
        if self._client is None:
            raise AlreadyClosed("this connection to Pulsarish is closed: make a new one")
        return self._client

    def driver_version(self) -> str:
        return program_version()

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return the service URL, which holds no password, and the namespace."""
        return f"{self.address.service_url}/{self.address.namespace}"

    # -- publishing

    def publish(self, topic: str, message: Mapping[str, Any], routing_key: str) -> None:
        """Store a message. Raises the errors of ``Producer.send``."""
        producer = self._producers.get(topic)
        if producer is None:
            producer = self._opened.create_producer(topic, batching_enabled=False)
            self._producers[topic] = producer
            if len(self._producers) > _PRODUCERS_MAX:
                self._producers.popitem(last=False)[1].close()
        self._producers.move_to_end(topic)
        delays = self._options.get("delay_at_broker", True)
        producer.send(
            content_of(message),
            properties=properties_of(message, routing_key),
            deliver_at=due_ms(message, self._clock.wall_ms()) if delays else None,
            priority=priority_of(message),
        )

    # -- subscriptions

    def ensure_subscription(self, topic: str, subscription: str, condition: str | None) -> None:
        """Create a subscription, so that the topic keeps what comes from now on."""
        if (topic, subscription) not in self._declared:
            self._consumer(topic, subscription, condition).close()
            self._declared.add((topic, subscription))

    def delete_subscription(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription. Without ``force`` it stays while others use it."""
        self._declared.discard((topic, subscription))
        consumer = self._consumer(topic, subscription, None)
        try:
            consumer.unsubscribe(force=force)
        except ConsumerBusy as error:
            _log.info("subscription kept", topic=topic, subscription=subscription, reason=error)
            consumer.close()

    def subscribe(
        self,
        topic: str,
        subscription: str,
        condition: str | None,
        accepts: Accepts | None,
        receiver: Receives,
    ) -> SubscriptionSource:
        """Return a source of messages that are shared with other consumers."""
        consumer = self._consumer(topic, subscription, condition)
        self._declared.add((topic, subscription))
        if self._extended is not self._ended:
            self._extended = self._ended
            start_thread("pulsarish-kombu-extend", partial(self._extend, self._ended))
        return SubscriptionSource(consumer, accepts, receiver)

    def read(self, topic: str, accepts: Accepts | None, receiver: Receives) -> ReaderSource:
        """Return a source of all that is published to a topic from now on."""
        return ReaderSource(self._opened.create_reader(topic, MessageId.latest), accepts, receiver)

    def _consumer(self, topic: str, subscription: str, condition: str | None) -> Any:
        # A queue of size 0: a message that this process has no use for yet stays with the broker.
        return self._opened.subscribe(
            topic,
            subscription,
            ConsumerType.Shared,
            receiver_queue_size=0,
            initial_position=InitialPosition.Latest,
            negative_ack_redelivery_delay_ms=self._options.get("requeue_delay_ms", _REQUEUE_MS),
            filter=condition,
        )

    def _extend(self, ended: threading.Event) -> None:
        """Keep brokers from giving what is worked on to others, in a thread."""
        while not ended.wait(EXTEND_SECONDS):
            for channel in list(self.channels):
                try:
                    channel.extend()
                except PulsarishError as error:
                    _log.warning("work on messages not extended", reason=error)

    # -- receiving

    def drain_events(self, connection: object, timeout: float | None = None) -> None:
        """Deliver one message.

        Raises ``TimeoutError`` when none came in time, and why no more come.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            seen = self.changes_count
            for channel in self.channels[:]:
                if channel.deliver_next():
                    # The next channel has the next turn.
                    self.channels.append(self.channels.pop(0))
                    return
            if not self.wait(seen, deadline):
                raise TimeoutError("no message came in time")

    def wake(self) -> None:
        """Have ``wait`` return: a message came, or there is room for one."""
        with self._changed:
            self.changes_count += 1
            self._changed.notify_all()

    def wait(self, seen: int, deadline: float | None) -> bool:
        """Wait for a change after the ``seen`` ones. Return whether there was one in time.

        Raises why no more messages come.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            left = _WAIT_SECONDS if deadline is None else deadline - monotonic()
            with self._changed:
                if self.changes_count != seen:
                    return True
                if left <= 0:
                    return False
                self._changed.wait(min(left, _WAIT_SECONDS))

    def fail(self, error: PulsarishError) -> None:
        """Have the program raise why a queue receives no more, in a source's thread."""
        self._failure = error
        self.wake()
