"""Programs that seek in the log while it is written, trimmed and moved from broker to broker; and
what they must have received.

A *seeker* has a durable subscription. It moves the subscription by seeks only and never
acknowledges. Wherever its sessions begin, on whichever broker, they must begin at the target of one
of the seeks that may count last. A *wanderer* is a reader that does the same without a
subscription. Any other beginning is ``seek-missed``. A message that is skipped after the beginning
is ``poll-skip``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer, AsyncReader
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import Timeout
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.oracle import Oracle, Outcome, Place
from pulsarish.sim.cluster.stage import LAST_SECONDS, Stage, place_of, text_of

__all__ = [
    "SUBSCRIPTION",
    "Seek",
    "Seeker",
    "judge_seeks",
    "seek_about",
    "seek_at_last",
    "subscribe",
    "wander",
]

SUBSCRIPTION: Final = "seeker"
_KEPT_MAX: Final = 40
_SESSION_SECONDS: Final = 5.0
_SEEK_PAUSE_SECONDS: Final = 0.1
_SHARED_MAX: Final = 20
"""Messages that a consumer without acknowledgements gets, under each policy that operators set
(``cluster/operator.py``).
"""


@dataclass(slots=True)
class Seek:
    """The target of a seek, and what was known of the partition when it was requested and when it
    was answered.
    """

    kind: Literal["earliest", "latest", "place", "time"]
    inclusive: bool = False
    place: Place | None = None
    batch_size: int = 0
    time_ms: int = 0
    last_known: Place | None = None
    """The last place that any client had seen when it began."""
    attempts_before_end: int | None = None
    """Sends that had begun when it was answered; ``None``: it was not."""


@dataclass(slots=True)
class _Stretch:
    """What came from one start on. ``starts``: the seeks that may have decided where that was."""

    starts: tuple[Seek, ...]
    shares: bool = False
    """Order is not promised.

    Either the session before still has a consumer at the broker, with messages that this one does
    not get. Or a shared subscription gets a message that arrived damaged once more, later.
    """
    places: list[Place] = field(default_factory=list)


@dataclass(slots=True)
class Seeker:
    """One durable subscription of one partition.

    With ``durable`` unset, a reader; each of its sessions chooses its own start.
    """

    rng: random.Random
    durable: bool
    inclusive: bool
    subscription: str = SUBSCRIPTION
    kind: ConsumerType = ConsumerType.Exclusive
    meets_damage: bool = False
    """Whether faults of the run damage messages on their way to it."""
    possible: list[Seek] = field(default_factory=lambda: [Seek("earliest")])
    former: list[Seek] = field(default_factory=list)
    """Seeks that were followed by other ones.

    A former owner that does not know yet that it was replaced may use them.
    """
    stretches: list[_Stretch] = field(default_factory=list)
    stamps: dict[Place, int] = field(default_factory=dict)
    """Publish times in ms by the producers' clocks."""
    known: list[MessageId] = field(default_factory=list)

    def begin(self, *, session: bool = False) -> None:
        """Let another start count from now on.

        ``session``: the start of a new session, where the last seek of the one before left it.
        """
        self.stretches.append(
            _Stretch(
                tuple(self.possible),
                shares=(session or self.meets_damage) and self.kind is ConsumerType.Shared,
            )
        )

    def came(self, stage: Stage, message: Message) -> Place:
        place = place_of(message.message_id())
        assert place is not None
        stage.counts.read += 1
        stage.oracle.saw(place, text_of(message), "a seeker")
        stage.trace(f"seeker got {text_of(message)} at {place}")
        self.stamps[place] = message.publish_timestamp()
        stretch = self.stretches[-1]
        if stage.owner_may_be_stale():
            stretch.starts += tuple(seek for seek in self.former if seek not in stretch.starts)
        stretch.places.append(place)
        if len(self.known) < _KEPT_MAX:
            self.known.append(message.message_id())
        else:
            self.known[self.rng.randrange(_KEPT_MAX)] = message.message_id()
        return place

    def moved(self, possible: list[Seek]) -> None:
        """Note that a seek is done: one of these counts now."""
        self.former += self.possible
        self.possible = possible

    def draw(self, stage: Stage, partition: int) -> tuple[Seek, MessageId | int]:
        """Return a seek and what to ask the client for."""
        last = max(
            (place for place in stage.oracle.values if place.partition == partition), default=None
        )
        kind = (
            self.rng.choice(("earliest", "latest", "place", "place", "time", "time"))
            if self.known
            else "earliest"
        )
        message_id = self.rng.choice(self.known) if self.known else MessageId.earliest
        if kind == "place":
            return Seek(
                "place",
                self.inclusive,
                place_of(message_id),
                message_id.batch_size(),
                last_known=last,
            ), message_id
        if kind == "time":
            place = place_of(message_id)
            assert place is not None
            time_ms = self.stamps[place] + self.rng.choice((0, 0, 1, 50))
            return Seek("time", time_ms=time_ms, last_known=last), time_ms
        if kind == "latest":
            return Seek("latest", last_known=last), MessageId.latest
        return Seek("earliest", last_known=last), MessageId.earliest


async def seek_about(stage: Stage, world: World, seeker: Seeker, *, first: bool = False) -> None:
    """Run one session of a durable seeker. ``first`` only makes its subscription."""
    async with stage.connected(world, LAST_SECONDS if first else _SESSION_SECONDS) as client:
        topic = (await client.get_topic_partitions(stage.topic))[0]
        consumer = await subscribe(client, topic, seeker)
        if not first:
            seeker.begin(session=True)
            await _move_about(stage, world, seeker, consumer)


async def subscribe(client: AsyncClient, topic: str, seeker: Seeker) -> AsyncConsumer:
    """Return a consumer of a durable seeker's subscription."""
    return await client.subscribe(
        topic,
        seeker.subscription,
        consumer_type=seeker.kind,
        initial_position=InitialPosition.Earliest,
        receiver_queue_size=seeker.rng.choice((1, 10)),
        start_message_id_inclusive=seeker.inclusive,
    )


async def wander(stage: Stage, world: World, seeker: Seeker) -> None:
    """Run one session of a reader that starts at a message that it knows."""
    async with stage.connected(world) as client:
        topic = (await client.get_topic_partitions(stage.topic))[0]
        start = seeker.rng.choice([MessageId.earliest, *seeker.known])
        kind: Literal["place", "earliest"] = (
            "place" if start is not MessageId.earliest else "earliest"
        )
        seeker.possible = [Seek(kind, seeker.inclusive, place_of(start))]
        options = {
            "receiver_queue_size": seeker.rng.choice((1, 10)),
            "start_message_id_inclusive": seeker.inclusive,
        }
        reader = await client.create_reader(topic, start, **options)  # type: ignore[arg-type]
        seeker.begin()
        await _move_about(stage, world, seeker, reader)


async def _move_about(
    stage: Stage, world: World, seeker: Seeker, receiving: AsyncConsumer | AsyncReader
) -> None:
    rng, clock = seeker.rng, world.clock
    ends = rng.uniform(1.0, 8.0) + clock.monotonic()
    partition = -1
    while not stage.over and clock.monotonic() < ends:
        last: Message | None = None
        for _ in range(rng.randrange(12)):
            try:
                last = await _next(receiving, 400)
            except Timeout:
                break
            partition = seeker.came(stage, last).partition
        if (
            last is not None
            and seeker.kind is ConsumerType.Failover
            and isinstance(receiving, AsyncConsumer)
        ):
            # The acknowledgement does not matter once the seek is done: the consumer continues from
            # the target of the seek.
            seeker.possible.append(
                Seek("place", False, place_of(last.message_id()), last.message_id().batch_size())
            )
            await receiving.acknowledge_cumulative(last)
        if seeker.known:
            partition = seeker.known[0].partition()
        seek, target = seeker.draw(stage, partition)
        if seeker.durable:
            seeker.possible.append(seek)
        stage.trace(
            f"seek {'durable' if seeker.durable else 'reader'} to {seek.kind} "
            f"{seek.place or seek.time_ms or ''}"
        )
        await receiving.seek(target)
        seek.attempts_before_end = len(stage.oracle.attempts)
        stage.counts.seeks += 1
        stage.trace("seek done")
        seeker.moved([seek])
        seeker.begin()
        await clock.sleep(rng.expovariate(1 / _SEEK_PAUSE_SECONDS))


async def _next(receiving: AsyncConsumer | AsyncReader, timeout_millis: int) -> Message:
    if isinstance(receiving, AsyncReader):
        return await receiving.read_next(timeout_millis)
    return await receiving.receive(timeout_millis)


async def seek_at_last(stage: Stage, world: World, seeker: Seeker, log: Sequence[Place]) -> None:
    """Check, once everything has healed, that a session begins where the last seek left it.

    After a seek to the earliest all of ``log`` comes.
    """
    async with stage.connected(world, LAST_SECONDS) as client:
        topic = (await client.get_topic_partitions(stage.topic))[0]
        consumer = await subscribe(client, topic, seeker)
        seeker.begin()
        for _ in range(5):
            try:
                seeker.came(stage, await consumer.receive(1_000))
            except Timeout:
                break
        seek = Seek("earliest")
        await consumer.seek(MessageId.earliest)
        seeker.possible = [seek]
        seeker.begin()
        wanted = [place for place in log if place.partition <= 0]
        if seeker.kind is ConsumerType.Shared:
            wanted = wanted[:_SHARED_MAX]
        missing = dict.fromkeys(wanted)
        deadline = world.clock.monotonic() + LAST_SECONDS
        while True:
            try:
                missing.pop(seeker.came(stage, await consumer.receive(1_000)), None)
            except Timeout:
                if not missing:
                    break
                if world.clock.monotonic() > deadline:
                    raise


# -- judgement


def judge_seeks(oracle: Oracle, seeker: Seeker, log: Sequence[Place]) -> None:
    """Compare what came with the log of the partition, whose beginning may have been trimmed
    since.
    """
    index_of = {place: index for index, place in enumerate(log)}
    for stretch in seeker.stretches:
        at: int | None = None  # index of the place before; -1: it was trimmed since
        for place in stretch.places:
            index = index_of.get(place)
            if index is None:
                if log and place > log[0]:
                    oracle.report(
                        "aborted-read",
                        f"a seeker got {oracle.values[place]} at {place}, which is not in the log",
                    )
                at = -1
                continue
            follows = at is not None and index == at + 1
            if stretch.shares:
                # A broker may notice late that a consumer left. Until then no other consumer gets
                # what that one had.
                follows = any(
                    _began_before(oracle, seek, log[0])
                    or any(
                        _explains(oracle, seeker, seek, log, earlier)
                        for earlier in range(index + 1)
                    )
                    for seek in stretch.starts
                )
            if not follows and not any(
                _explains(oracle, seeker, seek, log, index) for seek in stretch.starts
            ):
                name = "seek-missed" if at is None else "poll-skip"
                before = log[index - 1] if index else None
                after = log[at] if at is not None and at >= 0 else "the start"
                what = (
                    f"{oracle.values[place]} at {place} came after {after}, behind {before} "
                    "in the log"
                )
                oracle.report(
                    name, f"{what}; started by {_described(stretch.starts)}", oracle.values[place]
                )
            at = index


def _may_be_trimmed(oracle: Oracle, seeker: Seeker, seek: Seek, first: Place) -> bool:
    """Return whether a seek by time may have found an entry that is trimmed since.

    Clocks of producers differ, so the first entry that is left can be older than the requested
    time.
    """
    gone = (
        place for place in oracle.values if place.partition == first.partition and place < first
    )
    return any(seeker.stamps.get(place, seek.time_ms) >= seek.time_ms for place in gone)


def _described(starts: Sequence[Seek]) -> str:
    return " or ".join(f"{seek.kind} {seek.place or seek.time_ms or ''}".strip() for seek in starts)


def _explains(oracle: Oracle, seeker: Seeker, seek: Seek, log: Sequence[Place], index: int) -> bool:
    """Return whether the target of the seek may begin at this place of the log.

    A subscription begins again with whole entries.
    """
    place, before = log[index], log[index - 1] if index else None
    if seek.kind == "earliest":
        return before is None
    if seek.kind == "place":
        assert seek.place is not None
        if seeker.durable and place[:3] == seek.place[:3] and place.in_batch == 0:
            return seek.inclusive or seek.place.in_batch + 1 < seek.batch_size
        if seek.inclusive:
            return place >= seek.place and (before is None or before < seek.place)
        return place > seek.place and (before is None or before <= seek.place)
    if seek.kind == "time":
        stamp, stamp_before = (
            seeker.stamps.get(place),
            seeker.stamps.get(before) if before is not None else None,
        )
        is_new = seek.last_known is None or place > seek.last_known
        if before is None and _may_be_trimmed(oracle, seeker, seek, place):
            return True
        return (stamp is None or stamp >= seek.time_ms or is_new) and (
            stamp_before is None or stamp_before < seek.time_ms
        )
    if seek.last_known is not None and place <= seek.last_known:
        return False
    return not _was_sent_before(oracle, seek, place)


def _began_before(oracle: Oracle, seek: Seek, first: Place) -> bool:
    """Return whether the target of a seek to the latest is trimmed by now.

    The first place that is left explains the other seeks.
    """
    return seek.kind == "latest" and _was_sent_before(oracle, seek, first)


def _was_sent_before(oracle: Oracle, seek: Seek, place: Place) -> bool:
    """Return whether a message that was sent after the seek's answer is before a place of its
    partition.
    """
    later = (
        oracle.attempts[seek.attempts_before_end :] if seek.attempts_before_end is not None else []
    )
    return any(
        attempt.outcome is Outcome.OK
        and attempt.place is not None
        and attempt.place.partition == place.partition
        and attempt.place < place
        for attempt in later
    )
