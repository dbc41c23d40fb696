"""A producer of a topic and all its partitions: chooses the partition, checks for room, completes
messages.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pulsarish.client.checks import check_flag, check_names, check_number, shown
from pulsarish.client.connection.context import ClientContext, retrying
from pulsarish.client.enums import KeyForm, PartitionsRoutingMode, ProducerAccessMode
from pulsarish.client.messages.entry_encoder import NO_EXTRAS, Extras
from pulsarish.client.messages.options import ProducerOptions, make_extras
from pulsarish.client.messages.pending_entries import Callback
from pulsarish.client.producer.routing import OutgoingMessage, Router, make_router
from pulsarish.client.producer.topic_producer import OnReturn, TopicProducer
from pulsarish.client.schemas.schema import message_key
from pulsarish.client.stats import ProducerStats, latency_of
from pulsarish.model.errors import (
    AlreadyClosed,
    InvalidArgument,
    OperationNotSupported,
    ProducerQueueIsFull,
    PulsarishError,
)

if TYPE_CHECKING:
    from pulsarish.client.producer.encryption import Encryption

__all__ = ["PartitionedProducer"]

_BESIDE = (
    "properties",
    "partition_key",
    "ordering_key",
    "event_timestamp",
    "deliver_at",
    "deliver_after",
    "replication_clusters",
    "disable_replication",
    "expires_after",
    "priority",
)


def _encryption_of(options: ProducerOptions[Any], parts: ClientContext) -> Encryption | None:
    if options.crypto_key_reader is None:
        return None
    # Programs that do not encrypt need not wait for the import.
    from pulsarish.client.producer.encryption import Encryption

    return Encryption(options.encryption_keys, options.crypto_key_reader, parts.clock.monotonic)


class PartitionedProducer:
    """Opened by ``open``.

    ``add`` may be called from any thread when the client's ``LoopBridge`` allows that; all else
    runs in the loop.
    """

    def __init__(
        self,
        options: ProducerOptions[Any],
        parts: ClientContext,
        children: list[TopicProducer],
        router: Router | None,
    ) -> None:
        self.options = options
        self.children = children
        self._parts = parts
        self._router = router
        self._wants_message = options.message_routing_mode is PartitionsRoutingMode.CustomPartition
        self._turn = parts.random.randrange(len(children))
        self.message_key = message_key(options.schema)

    @classmethod
    async def open(
        cls,
        options: ProducerOptions[Any],
        parts: ClientContext,
        *,
        first_epoch: int = 0,
        on_return: OnReturn | None = None,
    ) -> PartitionedProducer:
        """Open a producer on every partition, or with ``lazy_start_partitioned_producers`` on the
        first one. ``first_epoch`` and ``on_return``: see
        ``TopicProducer``.

        Raises the broker's refusal, ``Timeout``, or ``CryptoError`` for a key that cannot encrypt;
        then no producer stays open.
        """
        encryption = _encryption_of(options, parts)
        topic = options.topic
        count, address = 0, ""
        if topic.partition < 0:
            located = await retrying(
                parts, f"lookup of {topic}", lambda: parts.lookup.locate(topic.full)
            )
            count, address = located.partitions, located.address
        if count:
            pending = max(1, min(options.max_pending_messages, options.max_pending_across // count))
            topics = [(topic.with_partition(index), index) for index in range(count)]
        else:
            pending = options.max_pending_messages
            topics = [(topic, topic.partition)]
        router = None
        if count:
            router = make_router(
                options.message_routing_mode,
                options.hashing_scheme,
                count,
                parts.random,
                message_router=options.message_router,
            )
        # As in Apache Pulsar: exclusive producers have all partitions or none.
        shared = options.access_mode is ProducerAccessMode.Shared
        lazy = count > 0 and shared and options.lazy_start
        children = [
            TopicProducer(
                name,
                options,
                parts,
                max_pending_messages=pending,
                partition=index,
                first_epoch=first_epoch,
                on_return=on_return,
                encryption=encryption,
                lazy=lazy and index > 0,
            )
            for name, index in topics
        ]
        # The first one alone: the broker may choose its name, which the others then share, as in
        # Apache Pulsar.
        first = children[0]
        try:
            await first.open(address)
            for child in children[1:]:
                child.name = first.name
            await asyncio.gather(*(child.open() for child in children[1:] if child.is_started))
        except BaseException as error:
            reason = (
                error
                if isinstance(error, PulsarishError)
                else AlreadyClosed("the producer was not opened")
            )
            for child in children:
                child.shutdown(reason)
            raise
        return cls(options, parts, children, router)

    # Publishing a message.

    def prepared(
        self, content: Any, sequence_id: int | None, *beside: Any
    ) -> tuple[bytes, Extras | None, int | None]:
        """Return the payload, the extras and the sequence id of a message.

        ``beside``: the arguments of ``extras_or_none``. Raises ``InvalidArgument`` or
        ``OperationNotSupported``.
        """
        payload = self.encode(content)
        extras = self.extras_or_none(*beside)
        if self.message_key is not None or content is None:
            extras = self.extras_of(content, extras)
        return payload, extras, self.check_sequence_id(sequence_id)

    def extras_or_none(
        self,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = None,
        expires_after: timedelta | None = None,
        priority: int | None = None,
    ) -> Extras | None:
        """Return what accompanies the content, ``None`` when nothing does.

        Raises ``InvalidArgument`` or ``OperationNotSupported``.
        """
        if disable_replication is not None:
            # There is one cluster, so a message stays in it anyway.
            check_flag("disable_replication", disable_replication)
        if replication_clusters:
            raise OperationNotSupported(
                "replication_clusters is not supported: there is one cluster; leave it out"
            )
        given = (
            properties,
            partition_key,
            ordering_key,
            event_timestamp,
            deliver_at,
            deliver_after,
            expires_after,
            priority,
        )
        if given.count(None) == len(given):
            return None
        return make_extras(*given, self._parts.clock.wall_ms)

    def in_order(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Return the arguments of ``extras_or_none`` from arguments by name.

        Raises ``InvalidArgument`` for an unknown name.
        """
        check_names("send_soon", arguments, ("sequence_id", *_BESIDE))
        return [arguments.get(name) for name in _BESIDE]

    def encode(self, content: Any) -> bytes:
        """Return the payload of a content; empty for ``None``, which no schema encodes.

        Raises ``InvalidArgument`` when the schema rejects it.
        """
        if content is None:
            return b""
        payload: object = self.options.schema.encode(content)
        if type(payload) is not bytes:
            raise InvalidArgument(
                f"schema made {shown(payload)} of type {type(payload).__name__} of the content: "
                "its encode must make bytes"
            )
        return payload

    def extras_of(self, content: Any, extras: Extras | None) -> Extras:
        """Return the extras with what the content itself says: that it is null, or its key where
        the schema makes one.

        Raises ``InvalidArgument`` if both the program and the schema give a key.
        """
        extras = extras or NO_EXTRAS
        if content is None:
            return replace(extras, is_null=True)
        assert self.message_key is not None
        if extras.partition_key is not None:
            raise InvalidArgument(
                "partition_key is given, and the producer's schema makes the key of the content: "
                "leave it out"
            )
        key, is_null = self.message_key(content)
        if key is None:
            return replace(extras, key_form=KeyForm.NULL, is_null=is_null)
        return replace(
            extras, partition_key=b64encode(key).decode(), key_form=KeyForm.BASE64, is_null=is_null
        )

    def check_sequence_id(self, sequence_id: int | None) -> int | None:
        return None if sequence_id is None else check_number("sequence_id", sequence_id, 0)

    def choose(self, payload: bytes, extras: Extras | None) -> TopicProducer:
        """Return the producer of the message's partition."""
        children = self.children
        if self._router is None:
            return children[0]
        key = extras.partition_key if extras is not None else None
        message = None
        if self._wants_message:
            message = OutgoingMessage(payload, key, dict((extras or NO_EXTRAS).properties or {}))
        index = self._router.route(message, key)
        if index < 0:
            # Fill one partition's batch before the next, so that round robin does not make every
            # batch small.
            if not children[self._turn].core.is_filling:
                self._turn = (self._turn + 1) % len(children)
            index = self._turn
        return children[index]

    def add(
        self,
        child: TopicProducer,
        payload: bytes,
        callback: Callback,
        extras: Extras | None,
        sequence_id: int | None,
        *,
        now: bool = False,
    ) -> bool:
        """Queue a message on the partition; returns ``False`` when there is no room.

        ``now``: do not wait for more messages.

        Raises the reason why the producer is closed, or ``MessageTooBig``.
        """
        with child.lock:
            if child.failure is not None:
                # One error object serves all calls: clear its traceback, or it would grow with each
                # of them.
                raise child.failure.with_traceback(None)
            core = child.core
            if not core.has_room:
                return False
            news = core.add(payload, callback, extras, sequence_id)
            if child.messages is not None:
                number = core.newest_sequence_id if sequence_id is None else sequence_id
                child.messages.queued(number, len(payload))
            if now:
                core.seal()
        if news:
            child.notice.give()
        return True

    @property
    def is_roomy(self) -> bool:
        """Whether the queue of some partition has enough room to wake a caller that waits for
        it.
        """
        return any(child.failure is not None or child.core.is_roomy for child in self.children)

    def full(self, child: TopicProducer) -> ProducerQueueIsFull:
        return ProducerQueueIsFull(
            f"{child.core.pending_count} messages on {child.topic} wait for their receipts, "
            "which is max_pending_messages:"
            " wait, raise it, or set block_if_queue_full=True"
        )

    # Questions of the program.

    @property
    def is_closed(self) -> bool:
        return all(child.failure is not None for child in self.children)

    @property
    def name(self) -> str:
        return self.children[0].name

    @property
    def last_sequence_id(self) -> int:
        return max(child.core.last_sequence_id for child in self.children)

    def stats(self) -> ProducerStats:
        """Return the sums of all partitions; may be called from any thread."""
        counts = [child.counts for child in self.children]
        return ProducerStats(
            self.options.topic.full,
            self.name,
            sum(each.sent for each in counts),
            sum(child.core.answered_bytes for child in self.children),
            sum(each.failed for each in counts),
            sum(child.core.pending_count for child in self.children),
            latency_of([each.latency for each in counts]),
        )

    @property
    def is_connected(self) -> bool:
        return all(child.is_open or not child.is_started for child in self.children)

    async def flush(self) -> None:
        for child in self.children:
            if child.failure is not None:
                raise child.failure.with_traceback(None)
        await asyncio.gather(*(child.flush() for child in self.children))

    async def close(self) -> None:
        await asyncio.gather(*(child.close() for child in self.children))

    def shutdown(self, error: PulsarishError) -> None:
        for child in self.children:
            child.shutdown(error)

    def watch_room(self, freed: Any) -> None:
        """Call ``freed()`` in the loop whenever messages were completed."""
        for child in self.children:
            child.completed = freed
