"""The search for orphans: what it finds, what it deletes, and when it concludes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.registry import BrokerRegistry
from pulsarish.broker.topics.orphan_plan import (
    LedgersWithoutReference,
    Orphan,
    OrphanKind,
    OrphanNotes,
    ledger_orphan,
    owners_of,
)
from pulsarish.broker.topics.orphan_search import OrphanSearch
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import (
    BundleOwner,
    CompactedView,
    CursorRecord,
    NamespacePolicies,
    PartitionedTopic,
    RestoredTree,
    TopicLedger,
    TopicPolicies,
    TopicRecord,
)
from pulsarish.model.errors import CorruptData
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record

TOPIC = TopicName.parse("persistent://public/default/t")
HOUR_MS = 3_600_000


async def _nothing() -> None:
    pass


def ledger(
    ledger_id: int, kind: PurposeKind = PurposeKind.TOPIC, owner: str = TOPIC.full, **fields: Any
) -> LedgerMetadata:
    return LedgerMetadata(
        ledger_id, 1, 1, 1, LedgerPurpose(kind, owner), (Segment(0, ("b~1",)),), **fields
    )


# -- the core


def test_what_is_named_is_taken_out() -> None:
    ledgers = LedgersWithoutReference()
    ledgers.add([])
    ledgers.add([1, 5, 9])
    ledgers.add([10_000])
    ledgers.name([5, 6, 10_000, 77_777])
    ledgers.check()
    assert ledgers.left() == [1, 9]


@pytest.mark.parametrize(
    ("kind", "owner", "found"),
    [
        (PurposeKind.TOPIC, TOPIC.full, [paths.topic(TOPIC)]),
        (PurposeKind.COMPACTED, TOPIC.full, [paths.topic(TOPIC)]),
        (PurposeKind.CURSOR, f"{TOPIC.full}#s", [paths.topic(TOPIC)]),
        (
            PurposeKind.CURSOR,
            f"{TOPIC.full}#s#x",
            [paths.topic(TOPIC), paths.topic(TopicName.parse(f"{TOPIC.full}#s"))],
        ),
        (PurposeKind.DIAGNOSTIC, TOPIC.full, []),
        (PurposeKind.SCHEMA, TOPIC.full, []),
        (PurposeKind.TOPIC, "anything://at/all", []),
        (PurposeKind.TOPIC, "non-persistent://public/default/t", []),
    ],
)
def test_who_may_name_a_ledger(kind: PurposeKind, owner: str, found: list[str]) -> None:
    assert owners_of(LedgerPurpose(kind, owner)) == found


@pytest.mark.parametrize(
    ("age_ms", "is_old"), [(HOUR_MS - 1, False), (HOUR_MS, True), (-5, False), (-HOUR_MS, True)]
)
def test_a_young_ledger_is_no_orphan(age_ms: int, is_old: bool) -> None:
    now_ms = 5 * HOUR_MS
    found = ledger_orphan(
        ledger(1, created_ms=now_ms - age_ms), 0, 7, now_ms=now_ms, min_age_ms=HOUR_MS
    )
    assert (found is not None) is is_old


def test_an_orphan_of_no_topic_is_never_deleted() -> None:
    stray = ledger(1, PurposeKind.DIAGNOSTIC, "a test")
    found = ledger_orphan(stray, 0, 7, now_ms=1, min_age_ms=0)
    assert found is not None
    assert not found.is_deletable
    assert "only an operator can judge it" in found.why


def orphan(version: int = 0, created: int = 7, path: str = "/a") -> Orphan:
    return Orphan(OrphanKind.LEDGER, path, "", version, created, is_deletable=True)


def test_an_orphan_is_due_when_it_was_found_unchanged_for_the_grace_time() -> None:
    notes = OrphanNotes()
    assert notes.note([orphan()], now=0.0, now_ms=5) == list(notes.found.values())
    assert notes.due(now=0.0, grace_seconds=0.0) == [], "found once"
    assert notes.note([orphan()], now=9.0, now_ms=14) == []
    assert notes.due(now=9.0, grace_seconds=10.0) == []
    assert notes.note([orphan()], now=10.0, now_ms=15) == []
    (due,) = notes.due(now=10.0, grace_seconds=10.0)
    assert due.first_found_ms == 5


@pytest.mark.parametrize("other", [orphan(version=1), orphan(created=8), orphan(path="/b")])
def test_a_changed_or_another_orphan_counts_from_the_start(other: Orphan) -> None:
    notes = OrphanNotes()
    notes.note([orphan()], now=0.0, now_ms=5)
    assert len(notes.note([other], now=10.0, now_ms=15)) == 1
    assert notes.due(now=10.0, grace_seconds=10.0) == []


def test_what_a_search_does_not_find_is_forgotten() -> None:
    notes = OrphanNotes()
    notes.note([orphan()], now=0.0, now_ms=5)
    notes.note([], now=10.0, now_ms=15)
    notes.note([orphan()], now=20.0, now_ms=25)
    assert notes.due(now=20.0, grace_seconds=10.0) == []


# -- a tree


class Leading:
    """The part of ``Ownership`` that a search asks."""

    serving = True
    is_leader = True

    def __init__(self, records: Records, world: World) -> None:
        self.leader = self
        self.registry = BrokerRegistry(
            world,
            records,
            lost=lambda _: None,
            registered=lambda _: None,
            why_end=lambda: "it is alone",
            returned=_nothing,
            listed=lambda: None,
        )


Scenario = Callable[[World, Records, OrphanSearch], Awaitable[None]]


def play(scenario: Scenario, **options: Any) -> None:
    sim = Simulation(1)

    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        for root in (*paths.ROOTS, paths.NON_PERSISTENT):
            await records.ensure(root)
        await records.compare_and_set(
            paths.namespace("public", "default"), NamespacePolicies(), None
        )
        await create_topic(records, TOPIC, created_ms=1)
        config = BrokerConfig(orphan_min_age_seconds=0.0, orphan_grace_seconds=10.0, **options)
        search = OrphanSearch(world, config, records, cast("Ownership", Leading(records, world)))
        await scenario(world, records, search)

    sim.run(lambda: sim.node("broker").run(work), 600.0)


async def put(records: Records, path: str, record: msgspec.Struct) -> None:
    await records.make_parents(path)
    await records.commit([Op("create", path, encode_record(record))])


async def twice(world: World, search: OrphanSearch) -> None:
    await search.round()
    await world.clock.sleep(10.0)
    await search.round()


def kinds(search: OrphanSearch) -> list[tuple[str, str]]:
    return sorted((each.kind.value, each.path) for each in search.notes.found.values())


async def there(records: Records) -> list[int]:
    found = await records.nodes([paths.ledger(number) for number in range(10)])
    return [number for number, node in enumerate(found) if node is not None]


async def make_ledgers(records: Records) -> None:
    """Make ledgers 0 to 9: 0 to 6 are named by a record, 7 and 8 by none, and 9 is of no topic."""
    for number in range(9):
        await put(records, paths.ledger(number), ledger(number))
    await put(records, paths.ledger(9), ledger(9, PurposeKind.DIAGNOSTIC, "a test"))
    await records.update(
        paths.topic(TOPIC),
        TopicRecord,
        lambda found: msgspec.structs.replace(
            found,
            ledgers=(TopicLedger(0), TopicLedger(1)),
            deleting=(2,),
            compacted=CompactedView(0, 5, ledger_id=3),
        ),
    )
    await put(
        records,
        paths.cursor(TOPIC, "s"),
        CursorRecord(0, cursor_ledger=4, delayed=(5,), deleting=(6,)),
    )


def test_ledgers_that_no_record_names_are_reported_and_stay() -> None:
    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await make_ledgers(records)
        await twice(world, search)
        assert kinds(search) == [("ledger", paths.ledger(number)) for number in (7, 8, 9)]
        assert search.counts()["ledger"] == 3
        assert await there(records) == list(range(10))
        assert search.deleted_count == 0

    play(scenario)


def test_ledgers_that_no_record_names_are_deleted_at_the_second_look_if_that_is_on() -> None:
    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await make_ledgers(records)
        await search.round()
        await search.round()
        assert await there(records) == list(range(10)), "the grace time is not over"
        await world.clock.sleep(10.0)
        await search.round()
        assert await there(records) == [0, 1, 2, 3, 4, 5, 6, 9]
        assert search.deleted_count == 2
        assert kinds(search) == [("ledger", paths.ledger(9))]

    play(scenario, orphan_deletion_enabled=True)


async def asked(world: World, search: OrphanSearch) -> None:
    """Ask for a search, and wait until none is under way."""
    search.ask()
    while search.is_searching:
        await world.clock.sleep(0.1)


def test_searches_that_are_asked_for_run_at_once_and_keep_the_grace_time() -> None:
    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await make_ledgers(records)
        search.start()
        began_at = world.clock.monotonic()
        await asked(world, search)
        assert [each for each in kinds(search) if each[0] == "ledger"]
        while world.clock.monotonic() < began_at + 9.0:
            await asked(world, search)
        assert search.searches_count > 2
        assert await there(records) == list(range(10)), "the grace time is not over"
        await world.clock.sleep(2.0)
        await asked(world, search)
        assert await there(records) == [0, 1, 2, 3, 4, 5, 6, 9]

    play(scenario, orphan_deletion_enabled=True)


def test_a_search_that_is_asked_for_begins_after_the_one_under_way() -> None:
    """The one under way may have read already what has changed since."""

    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await make_ledgers(records)
        search.start()
        search.ask()
        await world.clock.sleep(1.0)
        assert search.is_searching
        assert search.searches_count == 0
        await asked(world, search)
        assert search.searches_count == 2

    play(scenario, sweeper_topics_per_second=0.1, sweeper_page_topics=1)


def test_a_search_that_is_asked_for_and_fails_concludes_nothing() -> None:
    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await make_ledgers(records)
        search.start()
        await asked(world, search)
        found = kinds(search)
        await records.commit([Op("put", paths.cursor(TOPIC, "s"), b"{")])
        await world.clock.sleep(11.0)
        await asked(world, search)
        assert paths.cursor(TOPIC, "s") in search.failure
        assert (kinds(search), search.searches_count) == (found, 1)
        assert await there(records) == list(range(10))

    play(scenario, orphan_deletion_enabled=True)


def test_nothing_is_deleted_because_of_restored_metadata() -> None:
    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await make_ledgers(records)
        await put(records, paths.RESTORED, RestoredTree("sum", 1, 2))
        await twice(world, search)
        assert await there(records) == list(range(10))
        assert len(search.notes.found) == 3

    play(scenario, orphan_deletion_enabled=True)


def test_a_record_that_cannot_be_read_ends_the_search() -> None:
    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await make_ledgers(records)
        await search.round()
        await world.clock.sleep(10.0)
        await records.commit([Op("put", paths.cursor(TOPIC, "s"), b"{")])
        with pytest.raises(CorruptData):
            await search.round()
        assert await there(records) == list(range(10))
        assert search.searches_count == 1

    play(scenario, orphan_deletion_enabled=True)


def test_a_broker_that_stops_leading_deletes_nothing() -> None:
    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await make_ledgers(records)
        await search.round()
        await world.clock.sleep(10.0)
        search.stop()
        await search.round()
        assert search.notes.found == {}
        assert await there(records) == list(range(10))

    play(scenario, orphan_deletion_enabled=True)


def test_what_lies_below_a_topic_without_a_record_is_found_and_goes_in_one_commit() -> None:
    gone = TopicName.parse("persistent://public/default/gone")

    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await put(records, paths.ledger(1), ledger(1, PurposeKind.CURSOR, f"{gone.full}#s"))
        await put(records, paths.cursor(gone, "s"), CursorRecord(0, cursor_ledger=1))
        path = paths.topic(gone)
        await put(records, paths.topic_policies(path), TopicPolicies())
        await put(records, f"{paths.schemas(path)}/0000000000-abc", TopicPolicies())
        await search.round()
        assert kinds(search) == [
            ("cursor", paths.cursor(gone, "s")),
            ("policies", paths.topic_policies(path)),
            ("schema", paths.schemas(path)),
            ("topic", path),
        ]
        await world.clock.sleep(10.0)
        await search.round()
        assert (await records.nodes([path, paths.topic(TOPIC)]))[0] is None
        assert await there(records) == [1], "its cursor named it until now"
        await twice(world, search)
        assert await there(records) == []

    play(scenario, orphan_deletion_enabled=True)


def test_what_lies_below_a_namespace_that_does_not_exist() -> None:
    """Topics may hold messages, so they stay. The owner's node of no live broker goes."""
    lost = TopicName.parse("persistent://public/lost/t")

    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await create_topic(records, lost, created_ms=1)
        await put(records, paths.partitioned_topic(lost), PartitionedTopic(2))
        free = paths.bundle_owner("public", "lost", "0x00_0x80")
        owned = paths.bundle_owner("public", "lost", "0x80_0xff")
        used = paths.bundle_owner("public", "default", "0x00_0xff")
        await put(records, free, BundleOwner("broker", "broker~1"))
        await put(records, owned, BundleOwner("broker", "broker~2"))
        await put(records, used, BundleOwner("", ""))
        await put(records, paths.broker("broker~2"), NamespacePolicies())
        await search.round()
        stay = [
            ("partitioned", paths.partitioned_topic(lost)),
            ("topic", paths.topic(lost)),
        ]
        assert kinds(search) == [("bundle-owner", free), *stay]
        await world.clock.sleep(10.0)
        await search.round()
        assert kinds(search) == stay
        nodes = await records.nodes([free, owned, used, paths.topic(lost)])
        assert [node is not None for node in nodes] == [False, True, True, True]

    play(scenario, orphan_deletion_enabled=True)


async def change_before_deletion(
    world: World, search: OrphanSearch, change: Callable[[], Awaitable[None]]
) -> None:
    """Search until orphans are due. Make a ``change`` that it does not see, then delete."""
    await search.round()
    await world.clock.sleep(10.0)
    delete_due: Callable[[], Awaitable[None]] = vars(OrphanSearch)["_delete_due"].__get__(search)

    async def later() -> None:
        await change()
        await delete_due()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_delete_due", later)
        await search.round()


def test_a_topic_that_is_created_again_after_the_search_stays() -> None:
    """A leader that stood still for long deletes what it found before. The new nodes have the
    versions of those that it found.
    """
    again = TopicName.parse("persistent://public/default/again")

    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        path = paths.topic(again)
        await records.ensure(path)

        async def create_again() -> None:
            await records.delete(path)
            await create_topic(records, again, created_ms=1)
            await put(records, paths.cursor(again, "s"), CursorRecord(0))

        await change_before_deletion(world, search, create_again)
        assert None not in await records.nodes([path, paths.cursor(again, "s")])
        assert search.deleted_count == 0

    play(scenario, orphan_deletion_enabled=True)


def test_the_owner_of_a_bundle_that_is_taken_after_the_search_stays() -> None:
    bundle = paths.bundle_owner("public", "lost", "0x00_0x80")

    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await put(records, bundle, BundleOwner("broker", "broker~1"))

        async def take_again() -> None:
            await records.delete(bundle)
            await put(records, bundle, BundleOwner("broker", "broker~2"))

        await change_before_deletion(world, search, take_again)
        assert (await records.nodes([bundle]))[0] is not None
        assert search.deleted_count == 0

    play(scenario, orphan_deletion_enabled=True)


def test_the_owner_of_a_bundle_that_is_taken_at_the_last_moment_stays() -> None:
    """A leader may stand still between its last look and the deletion, too."""
    bundle = paths.bundle_owner("public", "lost", "0x00_0x80")

    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await put(records, bundle, BundleOwner("broker", "broker~1"))
        await search.round()
        await world.clock.sleep(10.0)
        delete = records.delete

        async def after_a_pause(path: str, *arguments: Any, **named: Any) -> bool:
            await delete(bundle)
            await put(records, bundle, BundleOwner("broker", "broker~2"))
            return await delete(path, *arguments, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "delete", after_a_pause)
            await search.round()
        node = (await records.nodes([bundle]))[0]
        assert node is not None
        assert b"broker~2" in node.data
        assert search.deleted_count == 0

    play(scenario, orphan_deletion_enabled=True)


def test_a_ledger_that_is_made_again_after_the_search_stays() -> None:
    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await put(records, paths.ledger(7), ledger(7))

        async def make_again() -> None:
            await records.delete(paths.ledger(7))
            await put(records, paths.ledger(7), ledger(7, PurposeKind.DIAGNOSTIC, "a test"))

        await change_before_deletion(world, search, make_again)
        assert await there(records) == [7]
        assert search.deleted_count == 0

    play(scenario, orphan_deletion_enabled=True)


def test_an_orphan_that_cannot_be_deleted_does_not_keep_the_others() -> None:
    odd = paths.topic(TopicName.parse("persistent://public/default/odd"))

    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await put(records, f"{odd}/not/known", TopicPolicies())
        await put(records, paths.ledger(7), ledger(7))
        await twice(world, search)
        assert (await records.nodes([odd]))[0] is not None
        assert await there(records) == []

    play(scenario, orphan_deletion_enabled=True)


def test_a_search_under_way_follows_a_change_of_its_rate() -> None:
    async def scenario(world: World, records: Records, search: OrphanSearch) -> None:
        await make_ledgers(records)
        started_at = world.clock.monotonic()
        searching = asyncio.ensure_future(search.round())
        await world.clock.sleep(1.0)
        msgspec.structs.force_setattr(search._config, "sweeper_topics_per_second", 1_000.0)
        await searching
        # The first pause was by the former rate. There are three more, for three ledgers.
        assert world.clock.monotonic() - started_at < 150.0

    play(scenario, sweeper_topics_per_second=0.01, sweeper_page_topics=1)
