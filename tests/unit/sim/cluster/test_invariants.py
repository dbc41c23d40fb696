"""Each invariant is shown a cluster that breaks it, so that it is known to see."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata import paths
from pulsarish.metadata.records import CursorRecord, TopicLedger, TopicRecord, UnderReplicated
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.cluster import disk_audit
from pulsarish.sim.cluster.cluster import LEDGER_OPTIONS, SimCluster, draw_cluster
from pulsarish.sim.cluster.core_checks import check_cores
from pulsarish.sim.cluster.disk_audit import look_at_disks, look_for_garbage
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record
from pulsarish.wire.record import encode_record_head
from tests.support.brokers import ConsumeClient, PublishClient, entry, find

TOPIC = TopicName.parse("persistent://public/default/t")
OPEN, RECOVERING, CLOSED = LedgerState.OPEN, LedgerState.IN_RECOVERY, LedgerState.CLOSED
Written = tuple[str, msgspec.Struct | None]
"""``None``: the node is deleted."""


def ledger(
    ledger_id: int,
    state: LedgerState = OPEN,
    last_entry: int = -1,
    segments: tuple[Segment, ...] = (),
) -> Written:
    purpose = LedgerPurpose(PurposeKind.TOPIC, TOPIC.full)
    record = LedgerMetadata(
        ledger_id,
        3,
        3,
        2,
        purpose,
        segments or (Segment(0, ("a", "b", "c")),),
        state,
        last_entry,
        10 * last_entry,
    )
    return paths.ledger(ledger_id), record


def topic(*ledgers: TopicLedger) -> Written:
    return paths.topic(TOPIC), TopicRecord(ledgers=ledgers)


def done(ledger_id: int, entries: int) -> TopicLedger:
    return TopicLedger(ledger_id, entries, 10, closed_ms=1)


def verdicts(
    *script: Written,
    repair: bool = False,
    look: Callable[[Invariants], object] = Invariants.look_at_lists,
) -> list[str]:
    """The names of what the invariants say when these records are written one after the other, and
    at a ``look`` in the end.
    """
    sim, found = Simulation(1), list[str]()
    cluster = SimCluster(sim, replace(draw_cluster(random.Random(1)), repair=repair))
    invariants = Invariants(cluster, lambda name, what: found.append(name))

    async def write(world: World) -> None:
        for path, record in script:
            for above in paths.parents(path):
                if (await world.metadata.get_many([above]))[0] is None:
                    await world.metadata.commit([Op("create", above)])
            there = (await world.metadata.get_many([path]))[0] is not None
            change = (
                Op("delete", path)
                if record is None
                else Op("put" if there else "create", path, encode_record(record))
            )
            await world.metadata.commit([change])

    sim.run(lambda: sim.node("writer").run(write), 100)
    look(invariants)
    return [*found, *("orphan" for _ in invariants.orphans())]


SEGMENTS = (Segment(0, ("a", "b", "c")), Segment(5, ("a", "b", "d")))

SOUND = {
    "a life": [
        ledger(1),
        topic(TopicLedger(1)),
        ledger(1, CLOSED, 4),
        ledger(2),
        topic(done(1, 5), TopicLedger(2)),
    ],
    "recovered": [
        ledger(1),
        topic(TopicLedger(1)),
        ledger(1, RECOVERING),
        ledger(1, CLOSED, 4),
        ledger(2),
        topic(done(1, 5), TopicLedger(2)),
    ],
    "trimmed": [
        ledger(1),
        topic(TopicLedger(1)),
        ledger(1, CLOSED, 4),
        ledger(2),
        topic(done(1, 5), TopicLedger(2)),
        (paths.topic(TOPIC), TopicRecord(ledgers=(TopicLedger(2),), deleting=(1,))),
    ],
    "made anew": [
        ledger(1),
        topic(TopicLedger(1)),
        (paths.topic(TOPIC), TopicRecord(deleting=(1,))),
        (paths.ledger(1), None),
        (paths.topic(TOPIC), None),
        ledger(2),
        topic(TopicLedger(2)),
    ],
    "another ensemble": [ledger(1), topic(TopicLedger(1)), ledger(1, OPEN, segments=SEGMENTS)],
}
BROKEN = {
    "closed twice": (
        [ledger(1), topic(TopicLedger(1)), ledger(1, CLOSED, 4), ledger(1, CLOSED, 3)],
        "NoDivergence",
    ),
    "open again": (
        [ledger(1), topic(TopicLedger(1)), ledger(1, RECOVERING), ledger(1)],
        "NoDivergence",
    ),
    "the list says less": (
        [
            ledger(1),
            topic(TopicLedger(1)),
            ledger(1, CLOSED, 4),
            ledger(2),
            topic(done(1, 4), TopicLedger(2)),
        ],
        "NoDivergence",
    ),
    "backwards": (
        [
            ledger(1),
            ledger(2),
            topic(TopicLedger(2)),
            ledger(2, CLOSED, 3),
            topic(done(2, 4), TopicLedger(1)),
        ],
        "EntryOrderMaintained",
    ),
    "into the middle": (
        [
            ledger(1),
            ledger(3),
            ledger(1, CLOSED, 0),
            topic(done(1, 1), TopicLedger(3)),
            ledger(2),
            ledger(2, CLOSED, 0),
            topic(done(1, 1), done(2, 1), TopicLedger(3)),
        ],
        "EntryOrderMaintained",
    ),
    "trimmed and there again": (
        [
            ledger(1),
            topic(TopicLedger(1)),
            ledger(1, CLOSED, 4),
            ledger(2),
            topic(done(1, 5), TopicLedger(2)),
            topic(TopicLedger(2)),
            topic(done(1, 5), TopicLedger(2)),
        ],
        "EntryOrderMaintained",
    ),
    "deleted and there again": (
        [ledger(1), topic(TopicLedger(1)), (paths.topic(TOPIC), None), topic(TopicLedger(1))],
        "EntryOrderMaintained",
    ),
    "two open": (
        [ledger(1), topic(TopicLedger(1)), ledger(2), topic(TopicLedger(1), TopicLedger(2))],
        "OnlyOneLedgerOpenAtATime",
    ),
    "not listed": (
        [ledger(1), topic(TopicLedger(1)), ledger(2), ledger(2, CLOSED, 3)],
        "AllNonEmptyLedgersInLedgerList",
    ),
    "an old segment": (
        [
            ledger(1),
            topic(TopicLedger(1)),
            ledger(1, OPEN, segments=SEGMENTS),
            ledger(1, OPEN, segments=(Segment(0, ("a", "b", "x")), SEGMENTS[1])),
        ],
        "segment-changed",
    ),
    "deleted in use": (
        [ledger(1), topic(TopicLedger(1)), (paths.ledger(1), None)],
        "deleted-in-use",
    ),
    "nobody's": ([topic(TopicLedger(1)), ledger(1), ledger(2)], "orphan"),
}


@pytest.mark.parametrize("case", SOUND)
def test_what_is_sound_is_not_reported(case: str) -> None:
    assert verdicts(*SOUND[case]) == []


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_reported_by_its_name(case: str) -> None:
    script, name = BROKEN[case]
    assert name in verdicts(*script)


def test_where_lost_copies_are_mended_one_member_changes_at_a_time() -> None:
    before = [topic(TopicLedger(1)), ledger(1, OPEN, segments=SEGMENTS)]

    def after(*segments: Segment) -> list[str]:
        return verdicts(*before, ledger(1, OPEN, segments=segments), repair=True)

    one, two = Segment(0, ("a", "b", "x")), Segment(0, ("a", "y", "x"))
    assert "segment-changed" not in after(one, SEGMENTS[1])
    assert "segment-changed" in after(two, SEGMENTS[1])


def test_ledgers_of_cursors_are_somebodys() -> None:
    record = CursorRecord(1, cursor_ledger=2, deleting=(3,), delayed=(5,))
    cursor = (paths.cursor(TOPIC, "s"), record)
    ledgers = [ledger(number) for number in range(1, 6)]
    assert verdicts(*ledgers, topic(TopicLedger(1)), cursor) == ["orphan"]


SEALED = [
    ledger(1),
    topic(TopicLedger(1)),
    ledger(1, CLOSED, 4),
    ledger(2),
    topic(done(1, 5), TopicLedger(2)),
]


def test_what_is_shown_above_the_end_of_a_ledger_is_found() -> None:
    assert verdicts(*SEALED, look=lambda invariants: invariants.seen(1, 4, "a reader")) == []
    assert verdicts(*SEALED, look=lambda invariants: invariants.seen(1, 5, "a reader")) == [
        "above-LAC"
    ]
    assert verdicts(*SEALED, look=lambda invariants: invariants.seen(7, 0, "a reader")) == [
        "above-LAC"
    ]


def test_a_cursor_that_nobody_has_is_a_leaked_node() -> None:
    cursor = (paths.cursor(TOPIC, "reader-1"), CursorRecord(1))
    assert (
        verdicts(*SEALED, cursor, look=lambda invariants: invariants.look_at_nodes(["reader-1"]))
        == []
    )
    assert verdicts(
        *SEALED, cursor, look=lambda invariants: invariants.look_at_nodes(["work"])
    ) == ["leaked-node"]


def test_what_is_left_of_a_topic_is_its_nodes_and_the_ledgers_that_it_had() -> None:
    left: list[str] = []
    verdicts(*SEALED, look=lambda invariants: left.extend(invariants.left_of(TOPIC)))
    assert left == [paths.topic(TOPIC), "ledger 1", "ledger 2"]


def test_what_is_left_of_a_former_topic_of_a_name_are_ledgers_that_nothing_names() -> None:
    left: list[int] = []
    anew = topic(TopicLedger(3)), ledger(3)
    verdicts(
        *SEALED,
        (paths.topic(TOPIC), None),
        (paths.ledger(1), None),
        *anew,
        look=lambda invariants: left.extend(invariants.forgotten(TOPIC)),
    )
    assert left == [2]


@pytest.mark.parametrize(
    ("state", "gone", "lacks"),
    [(CLOSED, (), True), (CLOSED, ("a", "b", "c"), False), (OPEN, (), False)],
)
def test_a_ledger_that_lacks_copies_is_to_be_mended_once_it_is_closed_unless_nobody_has_it(
    state: LedgerState, gone: tuple[str, ...], lacks: bool
) -> None:
    found: list[str] = []
    lacking = (paths.underreplicated(1), UnderReplicated(1, ("a",)))
    verdicts(
        ledger(1, state, 4),
        lacking,
        look=lambda invariants: found.extend(invariants.missing_copies(gone)),
    )
    assert found == ([paths.underreplicated(1)] if lacks else [])


# -- disks


class _Listener:
    def confirmed(self, last_entry: int) -> None:
        pass

    def stopped(self, error: PulsarishError) -> None:
        raise error


def after_writing(
    look: Callable[[SimCluster, LedgerMetadata, Callable[[str, str], None]], Awaitable[Any]],
) -> list[str]:
    """Write a ledger of five entries to three of four bookies, then ``look``; the names of what it
    reported.
    """
    sim, found = Simulation(3), list[str]()
    cluster = SimCluster(sim, replace(draw_cluster(random.Random(1)), bookies=4, brokers=1))

    async def write(world: World) -> LedgerMetadata:
        client = LedgerClient(world, LEDGER_OPTIONS)
        await client.start()
        purpose = LedgerPurpose(PurposeKind.DIAGNOSTIC, "test")
        writer = await client.create(
            ensemble_size=3, write_quorum=3, ack_quorum=3, purpose=purpose, listener=_Listener()
        )
        for number in range(5):
            writer.append(b"%d" % number)
        while writer.last_add_confirmed < 4:
            await world.clock.sleep(0.01)
        return await writer.close()

    async def scenario() -> None:
        cluster.boot()
        await asyncio.sleep(3)
        record = await sim.node("writer").run(write)
        await look(cluster, record, lambda name, what: found.append(name))

    sim.run(scenario, 100)
    return sorted(dict.fromkeys(found))


def test_disks_that_hold_everything_are_sound() -> None:
    async def look(
        cluster: SimCluster, record: LedgerMetadata, report: Callable[[str, str], None]
    ) -> None:
        assert await look_at_disks(cluster, [record], [], report) == 5

    assert after_writing(look) == []


def _with_stranger(record: LedgerMetadata, cluster: SimCluster) -> LedgerMetadata:
    """A member holds nothing: the bookie that was not written to has its place."""
    mine = record.segments[0].members
    (stranger,) = [
        bookie.instance_id for _, bookie in cluster.bookies_up() if bookie.instance_id not in mine
    ]
    return msgspec.structs.replace(record, segments=(Segment(0, (stranger, *mine[1:])),))


def test_an_entry_with_too_few_copies_is_found_unless_a_machine_was_destroyed() -> None:
    async def look(
        cluster: SimCluster, record: LedgerMetadata, report: Callable[[str, str], None]
    ) -> None:
        await look_at_disks(cluster, [_with_stranger(record, cluster)], [], report)

    async def excused(
        cluster: SimCluster, record: LedgerMetadata, report: Callable[[str, str], None]
    ) -> None:
        moved = _with_stranger(record, cluster)
        destroyed = [
            name
            for name, bookie in cluster.bookies_up()
            if bookie.instance_id == moved.segments[0].members[0]
        ]
        await look_at_disks(cluster, [moved], destroyed, report)

    assert after_writing(look) == ["AllCommittedEntriesReachAckQuorum"]
    assert after_writing(excused) == []


def test_where_lost_copies_are_mended_every_copy_counts() -> None:
    async def look(
        cluster: SimCluster, record: LedgerMetadata, report: Callable[[str, str], None]
    ) -> None:
        moved = msgspec.structs.replace(_with_stranger(record, cluster), ack_quorum=2)
        await look_at_disks(cluster, [moved], [], report)
        await look_at_disks(cluster, [record], [], report, repaired=True)
        await look_at_disks(
            cluster, [moved], [], lambda name, what: report("repaired " + name, what), repaired=True
        )

    assert after_writing(look) == ["repaired missing-copies"]


def test_an_entry_that_nobody_has_is_found() -> None:
    async def look(
        cluster: SimCluster, record: LedgerMetadata, report: Callable[[str, str], None]
    ) -> None:
        await look_at_disks(cluster, [msgspec.structs.replace(record, last_entry=5)], [], report)

    assert after_writing(look) == ["AllAckedEntriesAreReadable"]


def test_copies_that_differ_are_found() -> None:
    async def look(
        cluster: SimCluster, record: LedgerMetadata, report: Callable[[str, str], None]
    ) -> None:
        bookie, *_ = [
            bookie
            for _, bookie in cluster.bookies_up()
            if bookie.instance_id in record.segments[0].members
        ]
        content = bytes(bookie.store.cache.get(record.ledger_id, 3) or b"")
        assert content, "it is in the cache still"
        forged = encode_record_head(record.ledger_id, 3, 2, 4, b"X") + b"X"
        cache = bookie.store.cache
        for generation in (cache.active, cache.flushing):
            if generation is not None and record.ledger_id in generation.ledgers:
                generation.ledgers[record.ledger_id][3] = memoryview(forged)
        await look_at_disks(cluster, [record], [], report)

    assert after_writing(look) == ["NoOutOfOrderEntries"]


def test_a_deleted_ledger_that_bookies_keep_is_garbage_until_they_have_looked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def look(
        cluster: SimCluster, record: LedgerMetadata, report: Callable[[str, str], None]
    ) -> None:
        path = paths.ledger(record.ledger_id)
        await cluster.sim.nodes["writer"].run(
            lambda world: world.metadata.commit([Op("delete", path)])
        )
        await asyncio.sleep(15)
        await look_for_garbage(cluster, lambda name, what: report("later " + name, what))

    async def at_once(
        cluster: SimCluster, record: LedgerMetadata, report: Callable[[str, str], None]
    ) -> None:
        path = paths.ledger(record.ledger_id)
        await cluster.sim.nodes["writer"].run(
            lambda world: world.metadata.commit([Op("delete", path)])
        )
        await look_for_garbage(cluster, report)

    assert after_writing(look) == []
    assert after_writing(at_once) == [], "it is gone when it is looked for again"
    monkeypatch.setattr(disk_audit, "_GARBAGE_AGAIN_SECONDS", 0.01)
    assert after_writing(at_once) == ["garbage"]


# -- progress


def _permits_wake_nobody(_was: object) -> object:
    def flow(_subscription: Subscription, consumer: Any, permits: int) -> None:
        consumer.permits += permits

    return flow


def _not_moving(seconds: int) -> list[str]:
    """A consumer asks for more after it has taken four of ten messages; what is reported in that
    time.
    """
    sim, found = Simulation(3), list[str]()
    settings = replace(draw_cluster(random.Random(1)), bookies=3, brokers=1, partitions=0)
    cluster = SimCluster(sim, settings)
    invariants = Invariants(cluster, lambda name, what: found.append(name))

    async def client(world: World) -> None:
        address = await find(world, ["broker0"], TOPIC.full)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC.full, permits=4)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC.full)
        await publish.send([(1, entry("p", number)) for number in range(10)])
        await consume.take(4)
        await consume.flow(1, 100)
        for _ in range(seconds):
            await world.clock.sleep(1.0)
            invariants.look_at_progress()

    async def scenario() -> None:
        cluster.boot()
        await asyncio.sleep(3)
        await sim.node("client").run(client)

    sim.run(scenario, 100)
    return found


def test_a_subscription_that_could_move_and_does_not_is_found_once() -> None:
    with replaced(Subscription, "flow", _permits_wake_nobody):
        assert _not_moving(5) == ["no-progress"]
    assert _not_moving(5) == []


# -- memory


class _Sound:
    __module__ = "pulsarish.toy"
    __slots__ = ("inner",)

    def __init__(self, inner: object = None) -> None:
        self.inner = inner

    def check(self) -> None:
        pass


class _Unsound(_Sound):
    __module__ = "pulsarish.toy"

    def check(self) -> None:
        raise AssertionError("2 is not 3")


class _World(_Sound):
    __module__ = "pulsarish.runtime.toy"


def test_every_core_below_a_root_is_asked_once_and_the_world_is_left_alone() -> None:
    shared = _Sound()
    shared.inner = shared
    assert check_cores([_Sound({1: [shared, (shared,)]}), _World(_Unsound())]) == 2
    with pytest.raises(AssertionError, match="2 is not 3") as caught:
        check_cores([_Sound([_Sound({"x": _Unsound()})])])
    assert caught.value.__notes__ == ["of a _Unsound"]
