"""The consumers of a soak, which acknowledge with receipts while the faults come: on each topic a
shared subscription, on every second topic a failover or key-shared one, too.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pulsarish
from pulsarish.chaos.soak_deliveries import Deliveries, Overlap, Session
from pulsarish.chaos.soak_history import SoakHistory, TopicHistory
from pulsarish.chaos.soak_load import KEYS, Payloads
from pulsarish.model.errors import PulsarishError

__all__ = ["SoakConsumers", "keyed_topics"]

_CONSUMERS: Final = 2  # of each subscription
_BATCH_MAX: Final = 500
_POLICY: Final = pulsarish.ConsumerBatchReceivePolicy(_BATCH_MAX, -1, 500)
_RETRY_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 1.0
_JOIN_SECONDS: Final = 60.0
_OVERLAP_SECONDS: Final = 15.0
"""How long a former owner may go on delivering after a fault: its session, and a margin."""
_UNDER_WAY_SECONDS: Final = 60.0
"""How long a message may be under way to a consumer: as long as a fault lasts, and a margin."""
_AGAIN_MS: Final = 10_000
_AGAIN_NEXT_MS: Final = 1_000


def keyed_topics(topics: Sequence[str]) -> frozenset[str]:
    """Return the topics that have a key-shared subscription: every fourth one."""
    return frozenset(topics[3::4])


@dataclass(slots=True)
class _Subscription:
    deliveries: Deliveries
    kind: pulsarish.ConsumerType
    lock: threading.Lock = field(default_factory=threading.Lock)

    def subscribe(self, client: pulsarish.Client) -> pulsarish.Consumer:
        return client.subscribe(
            self.deliveries.topic.topic,
            self.deliveries.name,
            consumer_type=self.kind,
            initial_position=pulsarish.InitialPosition.Earliest,
            ack_receipt_enabled=True,
            batch_receive_policy=_POLICY,
        )

    def begin_session(self, since: float) -> Session:
        with self.lock:
            return self.deliveries.begin_session(since)


class SoakConsumers:
    """``elapsed`` returns the seconds since the beginning of the run."""

    def __init__(
        self,
        client: pulsarish.Client,
        history: SoakHistory,
        payloads: Payloads,
        elapsed: Callable[[], float],
    ) -> None:
        self._client = client
        self._payloads = payloads
        self._elapsed = elapsed
        self._ending = threading.Event()
        self._overlaps: list[Overlap] = []
        self._errors: Counter[str] = Counter()
        self._died: list[str] = []
        keyed = keyed_topics([topic.topic for topic in history.topics])
        self._subscriptions: list[_Subscription] = []
        for number, topic in enumerate(history.topics):
            self._add(topic, pulsarish.ConsumerType.Shared, keys=0)
            if topic.topic in keyed:
                self._add(topic, pulsarish.ConsumerType.KeyShared, keys=KEYS)
            elif number % 2:
                self._add(topic, pulsarish.ConsumerType.Failover, keys=1)
        self._threads = [
            threading.Thread(
                target=self._consume, args=(each, each.subscribe(client)), daemon=True, name="soak"
            )
            for each in self._subscriptions
            for _ in range(_CONSUMERS)
        ]
        for thread in self._threads:
            thread.start()

    def _add(self, topic: TopicHistory, kind: pulsarish.ConsumerType, *, keys: int) -> None:
        name = f"soak-{kind.name.lower()}"
        deliveries = Deliveries(topic, name, keys=keys, overlaps=self._overlaps)
        self._subscriptions.append(_Subscription(deliveries, kind))

    # -- while the faults come

    def begin_overlap(self) -> None:
        """From now on two brokers may take themselves for the owner of a topic."""
        self._overlaps.append(Overlap(self._elapsed()))

    def end_overlap(self) -> None:
        """The fault is healed: the former owner learns of it within its session time-out."""
        self._overlaps[-1].until = self._elapsed() + _OVERLAP_SECONDS

    def _consume(self, subscription: _Subscription, consumer: pulsarish.Consumer) -> None:
        """Receive and acknowledge until the end, in a thread of its own."""
        try:
            self._consume_until_end(subscription, consumer)
        except Exception as mistake:  # noqa: BLE001 - a thread that dies in silence proves nothing
            deliveries = subscription.deliveries
            self._died.append(
                f"a consumer of {deliveries.name} of {deliveries.topic.topic} ended: {mistake!r}"
            )

    def _consume_until_end(self, subscription: _Subscription, consumer: pulsarish.Consumer) -> None:
        since = self._elapsed()
        while not self._ending.is_set():
            try:
                self._receive_all(subscription, consumer, since)
                consumer.close()
                return
            except PulsarishError as error:
                self._errors[type(error).__name__] += 1
            while not self._ending.wait(_RETRY_SECONDS):
                since = self._elapsed()
                try:
                    consumer.close()
                    consumer = subscription.subscribe(self._client)
                except PulsarishError as error:
                    self._errors[type(error).__name__] += 1
                else:
                    break

    def _receive_all(
        self, subscription: _Subscription, consumer: pulsarish.Consumer, since: float
    ) -> None:
        count, session = consumer.subscribed_count(), subscription.begin_session(since)
        while not self._ending.is_set():
            looked_at, now_count = self._elapsed(), consumer.subscribed_count()
            if now_count != count:
                count, session = now_count, subscription.begin_session(since)
            since = looked_at
            messages = consumer.batch_receive()
            if messages:
                is_one = consumer.subscribed_count() == count
                numbers = self._note(subscription, messages, session if is_one else None)
                self._acknowledge(subscription, consumer, messages, numbers)
            if len(messages) < _BATCH_MAX:
                # The consumer held nothing more, so what comes next was under way at most.
                session.since = max(session.since, looked_at - _UNDER_WAY_SECONDS)

    def _note(
        self,
        subscription: _Subscription,
        messages: Sequence[pulsarish.Message],
        session: Session | None,
    ) -> list[int]:
        """Note deliveries; return the messages' numbers."""
        numbers = [self._payloads.number(message.data()) for message in messages]
        with subscription.lock:
            for message, number in zip(messages, numbers, strict=True):
                place = message.message_id()
                subscription.deliveries.delivered(
                    number,
                    (0, place.ledger_id(), place.entry_id(), place.batch_index()),
                    session,
                )
        return numbers

    def _acknowledge(
        self,
        subscription: _Subscription,
        consumer: pulsarish.Consumer,
        messages: Sequence[pulsarish.Message],
        numbers: Sequence[int],
    ) -> None:
        if subscription.kind is pulsarish.ConsumerType.Failover:
            consumer.acknowledge_cumulative(messages[-1])
            with subscription.lock:
                subscription.deliveries.receipted_up_to(numbers[-1], self._elapsed())
            return
        # Every second one first, so that cursors have holes.
        for first in (1, 0):
            if some := list(messages[first::2]):
                consumer.acknowledge(some)
                with subscription.lock:
                    subscription.deliveries.receipted(
                        (number for number in numbers[first::2] if number >= 0), self._elapsed()
                    )

    # -- the end

    def wait_for_all(self, silence_seconds: float) -> None:
        """Wait until all that was confirmed is delivered, or nothing came for so long: what is then
        missing counts as not delivered, whatever another owner delivers later.
        """
        delivered, came = -1, time.monotonic()
        while any(self._missing_counts()) and time.monotonic() - came < silence_seconds:
            if (now := sum(each.deliveries.delivered_count for each in self._subscriptions)) != (
                delivered
            ):
                delivered, came = now, time.monotonic()
            time.sleep(_POLL_SECONDS)
        for each in self._subscriptions:
            with each.lock:
                each.deliveries.note_missing()

    def _missing_counts(self) -> list[int]:
        found = []
        for each in self._subscriptions:
            with each.lock:
                found.append(each.deliveries.missing_count())
        return found

    def stop(self) -> list[str]:
        """End all consumers; return which ended before, or do not end, in words."""
        self._ending.set()
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        wrong = list(self._died)
        if count := sum(thread.is_alive() for thread in self._threads):
            wrong.append(
                f"{count} consumers have not ended within {_JOIN_SECONDS:g} s: they wait for an "
                "answer of a broker"
            )
        return wrong

    def receive_again(self) -> None:
        """Subscribe again: what has a receipt must not come, whichever broker owns the topics."""
        since = self._elapsed()
        consumers = [each.subscribe(self._client) for each in self._subscriptions]
        wait_ms = _AGAIN_MS
        for subscription, consumer in zip(self._subscriptions, consumers, strict=True):
            sessions: dict[int, Session] = {}
            try:
                while True:
                    count = consumer.subscribed_count()
                    message = consumer.receive(timeout_millis=wait_ms)
                    if count not in sessions or consumer.subscribed_count() != count:
                        # One that comes while the consumer subscribes again has its own session.
                        sessions[count] = subscription.begin_session(since)
                    self._note(subscription, [message], sessions[count])
            except pulsarish.Timeout:
                wait_ms = _AGAIN_NEXT_MS  # the others have had that time, too
            finally:
                consumer.close()

    def wrong(self) -> list[str]:
        """Return what breaks a promise, in words; hand over the details to the topics."""
        wrong = []
        for each in self._subscriptions:
            each.deliveries.topic.anomalies += each.deliveries.anomalies
            wrong += each.deliveries.wrong()
        return wrong

    def rows(self) -> dict[str, Any]:
        """Return the counters of each subscription, for JSON."""
        return {
            f"{each.deliveries.topic.topic} {each.deliveries.name}": each.deliveries.row()
            for each in self._subscriptions
        }

    def summary(self) -> dict[str, Any]:
        """Return the sums of all subscriptions, and the errors that consumers got."""
        rows = [each.deliveries.row() for each in self._subscriptions]
        names = [name for name, value in rows[0].items() if isinstance(value, int)]
        total = {name: sum(row[name] for row in rows) for name in names}
        return {**total, "errors": dict(sorted(self._errors.items()))}
