"""The history of a cluster as its clients saw it, and its anomalies: those of Jepsen's Kafka
workload under their names.

An attempt to send has three outcomes. ``ok``: the message must be in the log. ``failed`` for good:
it must not be there. Unknown: it may be there or not. The final read of everything decides. Names
in addition to Jepsen's:

* ``phantom``: a value that was never sent.
* ``skipped``: a subscription did not get a message that it had to get.
* ``ack-lost``: a message came again after the receipt of its acknowledgement.
* ``disagreement``: two final reads differ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

__all__ = ["Anomaly", "Attempt", "Oracle", "Outcome", "Place", "Promises", "Subscription"]

# Reports of one kind of anomaly; the first ones matter.
_REPORTED_MAX: Final = 5


class Place(NamedTuple):
    """The position of a message. Places of one partition compare in the order of its log."""

    partition: int
    ledger: int
    entry: int
    in_batch: int

    def __str__(self) -> str:
        partition = f"p{self.partition} " if self.partition >= 0 else ""
        index = f"[{self.in_batch}]" if self.in_batch else ""
        return f"{partition}{self.ledger}:{self.entry}{index}"


class Outcome(Enum):
    UNKNOWN = "unknown"
    OK = "ok"
    FAILED = "failed"


@dataclass(slots=True)
class Attempt:
    """One ``send`` of one value by one producer session."""

    producer: str
    """The producer's name at the broker.

    Sessions under one name are one producer, sessions under two names are two.
    """
    session: int
    number: int
    """The place of this attempt in the order in which its producer sent."""
    value: str
    key: str | None = None
    """Messages of one key go to one partition."""
    outcome: Outcome = Outcome.UNKNOWN
    place: Place | None = None
    """The place in the receipt.

    None without a receipt, and None when the message was stored already.
    """


@dataclass(frozen=True, slots=True)
class Anomaly:
    name: str
    what: str
    value: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


@dataclass(frozen=True, slots=True)
class Promises:
    """What a run must keep."""

    deduplication: bool
    trimmed: bool
    """What every subscription has acknowledged may be gone at the end."""


@dataclass(slots=True)
class Subscription:
    """What is known of one durable subscription from outside."""

    name: str
    in_order: bool
    """Its messages go to one consumer at a time."""
    delivered: Counter[Place] = field(default_factory=Counter)
    sessions: list[list[Place]] = field(default_factory=list)
    """Deliveries of each consumer session, in their order."""
    tried: set[Place] = field(default_factory=set)
    tried_up_to: dict[int, Place] = field(default_factory=dict)
    confirmed: set[Place] = field(default_factory=set)
    confirmed_up_to: dict[int, Place] = field(default_factory=dict)
    final: list[Place] = field(default_factory=list)

    def may_be_acknowledged(self, place: Place) -> bool:
        limit = self.tried_up_to.get(place.partition)
        return place in self.tried or (limit is not None and place <= limit)

    def is_acknowledged(self, place: Place) -> bool:
        """Return whether the broker answered the acknowledgement with a receipt."""
        limit = self.confirmed_up_to.get(place.partition)
        return place in self.confirmed or (limit is not None and place <= limit)

    def try_up_to(self, place: Place) -> None:
        self.tried_up_to[place.partition] = max(place, self.tried_up_to.get(place.partition, place))

    def confirm_up_to(self, place: Place) -> None:
        self.confirmed_up_to[place.partition] = max(
            place, self.confirmed_up_to.get(place.partition, place)
        )

    def moved(self, partition: int) -> None:
        """Note that a seek moved a partition.

        What was acknowledged there may come again, and any of it may be skipped.
        """
        self.try_up_to(Place(partition, 1 << 62, 0, 0))
        self.confirmed = {place for place in self.confirmed if place.partition != partition}
        self.confirmed_up_to.pop(partition, None)


class Oracle:
    """The history of one topic. ``values`` is what any client ever saw at a place."""

    def __init__(self, promises: Promises) -> None:
        self.promises = promises
        self.attempts: list[Attempt] = []
        self.values: dict[Place, str] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.tails: list[list[Place]] = []
        """The places that each reader session saw, in its order."""
        self.finals: list[list[Place]] = []
        """The places of each final read of everything."""
        self.first_left: dict[int, Place] | None = None
        """The beginning of each partition's log after all final reads.

        ``None``: nothing is trimmed.

        Messages before it may have been trimmed during the reads, so the reads may have gaps there.
        A partition without a place is empty.
        """
        self.log: list[Place] = []
        """The log at the end of the run, once it was judged."""
        self.anomalies: list[Anomaly] = []
        self.watch: Callable[[Place, str], object] = lambda place, who: None
        """Called at once for each message that any client sees."""
        self.watch_receipts: Callable[[str, Place], object] = lambda subscription, place: None
        """Called at once for each receipt of an acknowledgement, with the name of the
        subscription.
        """
        self._reported: Counter[str] = Counter()

    def report(self, name: str, what: str, value: str = "") -> None:
        self._reported[name] += 1
        if self._reported[name] <= _REPORTED_MAX:
            self.anomalies.append(Anomaly(name, what, value))

    # -- events

    def attempt(
        self, producer: str, session: int, number: int, value: str, key: str | None = None
    ) -> Attempt:
        made = Attempt(producer, session, number, value, key)
        self.attempts.append(made)
        return made

    def stored(self, attempt: Attempt, place: Place | None) -> None:
        attempt.outcome, attempt.place = Outcome.OK, place
        if place is not None:
            self.saw(place, attempt.value, f"the receipt of {attempt.producer}")

    def saw(self, place: Place, value: str, who: str) -> None:
        self.watch(place, who)
        known = self.values.setdefault(place, value)
        if known != value:
            self.report(
                "inconsistent-offsets",
                f"{who} has {value} at {place}, where {known} was seen",
                value,
            )

    def delivered(
        self, subscription: Subscription, session: list[Place], place: Place, value: str
    ) -> None:
        self.saw(place, value, f"a consumer of {subscription.name}")
        subscription.delivered[place] += 1
        session.append(place)

    # -- judgement, once everything has healed and was read

    def judge(self) -> list[Anomaly]:
        """Run all checks. Return the anomalies."""
        assert self.finals, "without a final read nothing can be judged"
        log, *others = [self._left(final) for final in self.finals]
        self.log = log
        for other in others:
            self._compare(log, other)
        partitions = _by_partition(log)
        self._judge_log(partitions)
        self._judge_sends(partitions)
        self._judge_order(partitions)
        for tail in self.tails:
            self._judge_tail(partitions, tail)
        for subscription in self.subscriptions.values():
            self._judge_subscription(subscription, partitions)
        return self.anomalies

    def _left(self, final: list[Place]) -> list[Place]:
        """Return what was not trimmed of a final read.

        Every subscription must have finished with what was trimmed.
        """
        first_left = self.first_left
        if first_left is None:
            return final
        left: list[Place] = []
        for place in final:
            first = first_left.get(place.partition)
            if first is not None and place >= first:
                left.append(place)
                continue
            for subscription in self.subscriptions.values():
                if not subscription.may_be_acknowledged(place):
                    what = (
                        f"{self.values[place]} at {place} was trimmed, and no consumer "
                        f"acknowledged it for {subscription.name}"
                    )
                    self.report("skipped", what, self.values[place])
        return left

    def _compare(self, log: Sequence[Place], other: Sequence[Place]) -> None:
        ones, others = dict.fromkeys(log), dict.fromkeys(other)
        starts = {partition: places[0] for partition, places in _by_partition(other).items()}
        for place in [place for place in ones if place not in others]:
            if self.promises.trimmed and place < starts.get(place.partition, place):
                continue
            self.report(
                "disagreement",
                f"{self.values[place]} at {place} came in the first final read, not in another",
                self.values[place],
            )
        for place in [place for place in others if place not in ones]:
            self.report(
                "disagreement",
                f"{self.values[place]} at {place} came in a final read, not in the first",
                self.values[place],
            )

    def _judge_log(self, partitions: dict[int, list[Place]]) -> None:
        by_value: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            by_value.setdefault(attempt.value, []).append(attempt)
        for log in partitions.values():
            self._increases("int-nonmonotonic-poll", "a final read", log)
        # Not only what is there at the end: everything that any client ever saw.
        for place, value in self.values.items():
            attempts = by_value.get(value)
            if attempts is None:
                self.report("phantom", f"{value} at {place} was never sent", value)
            elif all(attempt.outcome is Outcome.FAILED for attempt in attempts):
                self.report(
                    "G1a", f"{value} is at {place}, though sending it failed for good", value
                )
        if self.promises.deduplication:
            first: dict[str, Place] = {}
            for place, value in self.values.items():
                was = first.setdefault(value, place)
                if was != place:
                    self.report("duplicate", f"{value} is at {was} and at {place}", value)

    def _judge_sends(self, partitions: dict[int, list[Place]]) -> None:
        places = {place for log in partitions.values() for place in log}
        values = {self.values[place] for place in places}
        for attempt in self.attempts:
            if attempt.outcome is not Outcome.OK:
                continue
            place = attempt.place
            there = place in places if place is not None else attempt.value in values
            if there or (self.promises.trimmed and self._was_trimmed(attempt, partitions)):
                continue
            log = partitions.get(place.partition, []) if place is not None else []
            name = "lost-write" if place is not None and log and place <= log[-1] else "unseen"
            where = f"at {place}" if place is not None else "as stored before"
            self.report(
                name,
                f"{attempt.value} of {attempt.producer} was acknowledged {where} and is not in "
                "the log",
                attempt.value,
            )

    def _was_trimmed(self, attempt: Attempt, partitions: dict[int, list[Place]]) -> bool:
        """Return whether it may be trimmed: it was before the first that is left, and every
        subscription may have acknowledged it.
        """
        known = [attempt.place] if attempt.place is not None else []
        for place in known or [
            place for place, value in self.values.items() if value == attempt.value
        ]:
            log = partitions.get(place.partition)
            before = not log or place < log[0]
            if before and all(
                subscription.may_be_acknowledged(place)
                for subscription in self.subscriptions.values()
            ):
                return True
        return False

    def _judge_order(self, partitions: dict[int, list[Place]]) -> None:
        """Check each producer: its receipts, and the first place of each value, are in the order of
        its sends.
        """
        positions: dict[tuple[str, int, int], Place] = {}
        number_of: dict[str, tuple[str, int]] = {}
        partition_of: dict[str, int] = {}
        for attempt in self.attempts:
            number_of.setdefault(attempt.value, (attempt.producer, attempt.number))
            if attempt.place is None:
                continue
            if (
                attempt.key is not None
                and partition_of.setdefault(attempt.key, attempt.place.partition)
                != attempt.place.partition
            ):
                what = (
                    f"{attempt.value} with key {attempt.key} lies at {attempt.place}, others "
                    f"in partition {partition_of[attempt.key]}"
                )
                self.report("key-moved", what, attempt.value)
            key = (attempt.producer, attempt.session, attempt.place.partition)
            before = positions.get(key)
            if before is not None and attempt.place <= before:
                self.report(
                    "nonmonotonic-send",
                    f"{attempt.value} got {attempt.place}, after {before} was given to an earlier "
                    "send",
                    attempt.value,
                )
            positions[key] = attempt.place
        for partition, log in partitions.items():
            last: dict[str, int] = {}
            # A value that was sent again after a lost answer may have had its first place in a
            # ledger that is trimmed by now.
            seen = {
                value
                for place, value in self.values.items()
                if place.partition == partition and log and place < log[0]
            }
            for place in log:
                value = self.values[place]
                producer, number = number_of.get(value, ("", 0))
                if not producer or value in seen:
                    continue
                seen.add(value)
                if number < last.get(producer, -1):
                    self.report(
                        "reorder",
                        f"{value} lies at {place}, behind number {last[producer]} of the same "
                        "producer",
                        value,
                    )
                last[producer] = max(number, last.get(producer, -1))

    def _judge_tail(self, partitions: dict[int, list[Place]], tail: Sequence[Place]) -> None:
        """Check that a reader session saw a part of the log without a gap.

        At its start, what was trimmed since may be missing.
        """
        for partition, seen in _by_partition(tail).items():
            self._increases("nonmonotonic-poll", "a reader", seen)
            log = partitions.get(partition, [])
            kept = [place for place in seen if log and place >= log[0]]
            if not self.promises.trimmed:
                kept = seen
            if not kept:
                continue
            start = bisect_right(log, kept[0]) - 1
            expected = log[max(start, 0) : max(start, 0) + len(kept)]
            if kept != expected:
                at = next(
                    (
                        index
                        for index, place in enumerate(kept)
                        if index >= len(expected) or place != expected[index]
                    ),
                    0,
                )
                want = expected[at] if at < len(expected) else None
                name = "poll-skip" if want is not None and want < kept[at] else "aborted-read"
                self.report(
                    name,
                    f"a reader came to {kept[at]} where the log has {want}",
                    self.values[kept[at]],
                )

    def _judge_subscription(
        self, subscription: Subscription, partitions: dict[int, list[Place]]
    ) -> None:
        log_places = {place for log in partitions.values() for place in log}
        for place in subscription.delivered:
            log = partitions.get(place.partition, [])
            if place not in log_places and not (
                self.promises.trimmed and (not log or place < log[0])
            ):
                self.report(
                    "aborted-read",
                    f"{self.values[place]} at {place} was delivered and is not in the log",
                    self.values[place],
                )
        for log in partitions.values():
            for place in log:
                if (
                    not subscription.may_be_acknowledged(place)
                    and not subscription.delivered[place]
                ):
                    self.report(
                        "skipped",
                        f"{self.values[place]} at {place} never came to {subscription.name}",
                        self.values[place],
                    )
        final = set(subscription.final)
        for place in subscription.final:
            if subscription.is_acknowledged(place):
                self.report(
                    "ack-lost",
                    f"{self.values[place]} at {place} came again to {subscription.name} after the "
                    "receipt of its acknowledgement",
                    self.values[place],
                )
        for log in partitions.values():
            for place in log:
                if place not in final and not subscription.may_be_acknowledged(place):
                    self.report(
                        "unseen",
                        f"{self.values[place]} at {place} was not acknowledged and never came to "
                        f"{subscription.name} again",
                        self.values[place],
                    )
        if subscription.in_order:
            self._judge_gaps(subscription, partitions)

    def _judge_gaps(self, subscription: Subscription, partitions: dict[int, list[Place]]) -> None:
        """Check that a session of the only consumer skips nothing but what was acknowledged or
        delivered before.

        Order holds for messages that come for the first time, and so it holds for each key.
        """
        delivered: set[Place] = set()
        for session in subscription.sessions:
            for partition, places in _by_partition(session).items():
                log = partitions.get(partition, [])
                here: set[Place] = set()
                for before, after in pairwise(places):
                    here.add(before)
                    between = log[
                        bisect_right(log, before) : max(
                            bisect_right(log, before), bisect_right(log, after) - 1
                        )
                    ]
                    for place in between:
                        if (
                            place not in delivered
                            and place not in here
                            and not subscription.may_be_acknowledged(place)
                        ):
                            self.report(
                                "poll-skip",
                                f"a consumer of {subscription.name} came from {before} to {after} "
                                f"without {place}",
                                self.values[place],
                            )
            delivered.update(session)

    def _increases(self, name: str, who: str, places: Iterable[Place]) -> None:
        for before, after in pairwise(places):
            if after <= before:
                self.report(name, f"{who} came from {before} to {after}", self.values[after])


def _by_partition(places: Iterable[Place]) -> dict[int, list[Place]]:
    found: dict[int, list[Place]] = {}
    for place in places:
        found.setdefault(place.partition, []).append(place)
    return found
