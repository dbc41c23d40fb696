"""Lost metadata that are made again from the copies of bookies: what counts, and what is left."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pulsarish.metadata import paths
from pulsarish.metadata.backup.backup import TreeReader, check_not_being_restored
from pulsarish.metadata.backup.ledger_copies import (
    BookieCopies,
    HeldRecord,
    decode_copies,
    encode_copies,
    merge_copies,
)
from pulsarish.metadata.backup.rebuild import Rebuild
from pulsarish.metadata.backup.restore import read_tree
from pulsarish.metadata.backup.tree_plan import _kept_by, plan_tree
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import (
    AgeRecord,
    ClusterRecord,
    Cookie,
    CursorRecord,
    LedgerIds,
    NamespacePolicies,
    PartitionedTopic,
    RestoredTree,
    TopicLedger,
    TopicPolicies,
    TopicRecord,
)
from pulsarish.metadata.tree_age import confirm_tree
from pulsarish.metadata.tree_state import TreeState
from pulsarish.model.errors import (
    CorruptData,
    InvalidArgument,
    NotAllowedError,
    NotFound,
    ServiceNotReady,
)
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.model.position import ID_MAX
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Op, World
from pulsarish.wire.json_record import encode_record
from tests.unit.metadata.backup.test_restore import Interfering, in_world, put, records_of

TOPIC = TopicName.parse("persistent://public/default/t")


def delayed(ledger_id: int, owner: str) -> LedgerMetadata:
    """A ledger of delayed messages."""
    found = ledger(ledger_id, owner=owner, kind=PurposeKind.CURSOR)
    purpose = msgspec.structs.replace(found.purpose, delayed=True)
    return msgspec.structs.replace(found, purpose=purpose)


OPEN, CLOSED = LedgerState.OPEN, LedgerState.CLOSED


def ledger(
    ledger_id: int,
    state: LedgerState = CLOSED,
    *,
    owner: str = TOPIC.full,
    kind: PurposeKind = PurposeKind.TOPIC,
    last: int = 9,
    member: str = "b1~1",
) -> LedgerMetadata:
    return LedgerMetadata(
        ledger_id,
        1,
        1,
        1,
        LedgerPurpose(kind, owner),
        (Segment(0, (member,)),),
        state,
        last_entry=last if state is CLOSED else -1,
        length_bytes=100 if state is CLOSED else 0,
        created_ms=5,
    )


def copy(metadata: LedgerMetadata, version: int = 0, epoch: int = 0) -> HeldRecord:
    return HeldRecord(epoch, version, encode_record(metadata))


def bookie(
    number: int, *copies: tuple[int, HeldRecord], cluster_id: str = "c", **known: Any
) -> BookieCopies:
    cookie = Cookie(f"b{number}", f"b{number}~1", cluster_id, "/j", "/l", "/i", created_ms=number)
    records = dict(copies)
    return BookieCopies(cookie, records, **{"held": tuple(records), **known})


def test_the_highest_version_of_the_highest_epoch_counts() -> None:
    open_ledger, closed = ledger(1, OPEN), ledger(1)
    for older, newer in (
        (copy(open_ledger, 0), copy(closed, 2)),
        (copy(closed, 9, epoch=1), copy(open_ledger, 0, epoch=2)),
    ):
        for order in ((older, newer), (newer, older)):
            bookies = [bookie(number, (1, each)) for number, each in enumerate(order)]
            known = merge_copies(bookies)
            assert encode_record(known.ledgers[1]) == newer.data
            assert known.conflicts == {}


def test_different_records_of_one_version_are_left_out() -> None:
    known = merge_copies(
        [
            bookie(1, (1, copy(ledger(1, last=3), 2)), (2, copy(ledger(2)))),
            bookie(2, (1, copy(ledger(1, last=4), 2))),
            bookie(3, (1, copy(ledger(1, OPEN), 1))),
        ]
    )
    assert list(known.ledgers) == [2]
    assert known.conflicts == {1: ["b1~1", "b2~1"]}
    assert known.unrecorded == {}


def test_a_copy_that_cannot_be_read_does_not_hide_an_older_one() -> None:
    wrong_id, torn = HeldRecord(0, 5, encode_record(ledger(7))), HeldRecord(0, 5, b'{"led')
    for bad in (wrong_id, torn):
        known = merge_copies([bookie(1, (1, bad)), bookie(2, (1, copy(ledger(1, OPEN))))])
        assert list(known.ledgers) == [1]
        assert "b1~1" in known.unreadable[1]
        known = merge_copies([bookie(1, (1, bad))])
        assert known.ledgers == {}
        assert known.unrecorded == {1: ["b1~1"]}


def test_what_a_bookie_remembers_as_deleted_comes_back_only_when_asked_for() -> None:
    bookies = [
        bookie(1, (1, copy(ledger(1))), (2, copy(ledger(2))), held=(2,), deleted=(1,)),
        bookie(2, (1, copy(ledger(1))), held=(1, 3)),
    ]
    known = merge_copies(bookies)
    assert (list(known.ledgers), known.deleted) == ([2], [1])
    assert known.unrecorded == {3: ["b2~1"]}
    assert list(merge_copies(bookies, include_deleted=True).ledgers) == [1, 2]


def test_a_file_of_copies_is_read_whole_or_not_at_all() -> None:
    copies = bookie(1, (1, copy(ledger(1))), used=(1, 2))
    data = encode_copies(copies)
    assert decode_copies(data, "x") == copies
    for broken in (data[:-5], b"", b"{}", data.replace(b"records-1", b"records-9")):
        with pytest.raises(CorruptData, match="x"):
            decode_copies(broken, "x")


def test_the_chain_has_the_ledgers_in_order_and_the_open_ones_open() -> None:
    known = merge_copies(
        [
            bookie(
                1,
                (3, copy(ledger(3, OPEN))),
                (1, copy(ledger(1))),
                (2, copy(ledger(2, last=-1))),
                (4, copy(ledger(4, OPEN))),
            )
        ]
    )
    plan = plan_tree(known.ledgers, [bookie(1)], 77)
    (topic,) = plan.topics
    assert topic.record.ledgers == (
        TopicLedger(1, 10, 100, 77),
        TopicLedger(2),
        TopicLedger(3),
        TopicLedger(4),
    )
    assert topic.record.highest_ledger == 4
    marked = {each: metadata.restored for each, metadata in plan.ledgers.items()}
    assert marked == {1: False, 2: False, 3: True, 4: True}
    namespace = msgspec.json.decode(
        plan.nodes[paths.namespace("public", "default")], type=NamespacePolicies
    )
    assert namespace.policies["retention"]["retentionTimeInMinutes"] == -1
    assert namespace.policies["retention"]["retentionSizeInMB"] == -1
    assert namespace.policies["inactive_topic"]["deleteWhileInactive"] is False


def test_a_closed_ledger_of_positions_counts_before_newer_ones_of_delayed_messages() -> None:
    """An orderly stop of the broker, or the recovery by the next owner, closes it."""
    ledgers = [
        ledger(1),
        *(ledger(each, owner=f"{TOPIC.full}#s", kind=PurposeKind.CURSOR) for each in (3, 4)),
        *(delayed(each, f"{TOPIC.full}#s") for each in (2, 5, 6)),
        delayed(7, f"{TOPIC.full}#only"),
    ]
    plan = plan_tree(dict(sorted((each.ledger_id, each) for each in ledgers)), [bookie(1)], 77)
    (topic,) = plan.topics
    found = {name: each.cursor_ledger for name, each in topic.cursors.items()}
    assert found == {"s": 4, "only": -1}
    assert list(plan.unattached) == [2, 3, 5, 6, 7]


def test_subscriptions_come_back_with_the_ledger_that_is_still_written() -> None:
    cursor = PurposeKind.CURSOR
    hashed = "persistent://public/default/a#b"
    ledgers = [
        ledger(1),
        ledger(2, owner=hashed),
        ledger(3, OPEN, owner=f"{TOPIC.full}#s", kind=cursor),
        ledger(4, owner=f"{TOPIC.full}#s", kind=cursor),  # delayed messages
        ledger(5, owner=f"{hashed}#s#1", kind=cursor),
        ledger(6, owner="persistent://public/default/gone#s", kind=cursor),
        ledger(7, owner=TOPIC.full, kind=PurposeKind.COMPACTED),
        ledger(8, owner="free text", kind=PurposeKind.DIAGNOSTIC),
    ]
    plan = plan_tree({each.ledger_id: each for each in ledgers}, [bookie(1)], 77)
    cursors = {
        (topic.name.full, name): (each.mark_ledger, each.mark_entry, each.cursor_ledger)
        for topic in plan.topics
        for name, each in topic.cursors.items()
    }
    assert cursors == {(TOPIC.full, "s"): (1, -1, 3), (hashed, "s#1"): (2, -1, 5)}
    assert list(plan.unattached) == [4, 6, 7, 8]


def test_partitions_bring_their_topic_back() -> None:
    partition = TopicName.parse("persistent://public/default/p").with_partition
    ledgers = [ledger(1, owner=partition(2).full), ledger(2, owner=partition(0).full)]
    plan = plan_tree({each.ledger_id: each for each in ledgers}, [bookie(1)], 77)
    path = paths.partitioned_topic(partition(0).partitioned)
    assert msgspec.json.decode(plan.nodes[path], type=PartitionedTopic).partitions == 3


BOOKIES = [
    bookie(1, (1, copy(ledger(1), 1)), (2, copy(ledger(2, OPEN))), used=(1, 2, 50), deleted=(60,)),
    bookie(2, (2, copy(ledger(2, OPEN))), held=(2, 70, ID_MAX)),
]


def test_an_empty_tree_is_made_again_marked_and_goes_on_with_fresh_ids() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        task = Rebuild(records, world.clock, BOOKIES, ids_held=[80], ledger_id_gap=10)
        planned = await task.plan()
        assert await read_tree(TreeReader(records, world.clock)) == {}
        report = await task.run()
        assert (planned.ledgers, planned.topics) == (report.ledgers, report.topics)
        assert report.ledgers == [1, 2]
        ids = await records.get(paths.LEDGER_IDS, LedgerIds)
        assert ids is not None
        assert ids[0].next_id == 91, "the id that a peer made up does not count"
        assert report.known.unrecorded == {70: ["b2~1"], ID_MAX: ["b2~1"]}
        cluster = await records.get(paths.CLUSTER, ClusterRecord)
        assert cluster is not None
        assert cluster[0].cluster_id == "c"
        for each in BOOKIES:
            stored = await records.get(paths.cookie(each.cookie.bookie_id), Cookie)
            assert stored is not None
            assert stored[0].instance_id == each.cookie.instance_id
        mark = await records.get(paths.RESTORED, RestoredTree)
        assert mark is not None
        assert mark[0].restored_ms > 0
        topic = await records.get(paths.topic(TOPIC), TopicRecord)
        assert topic is not None
        nodes = await records.nodes([paths.topic_incarnation(TOPIC, topic[0].incarnation)])
        assert nodes[0] is not None
        before = await read_tree(TreeReader(records, world.clock))
        again = await Rebuild(records, world.clock, BOOKIES, ledger_id_gap=0).run()
        assert (again.ledgers, again.topics, again.made) == ([], [], [])
        after = await read_tree(TreeReader(records, world.clock))
        before.pop(paths.RESTORED), after.pop(paths.RESTORED)
        assert before == after

    in_world(work)


def test_the_confirmation_begins_an_epoch_above_that_of_the_copies() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await Rebuild(records, world.clock, [bookie(1, (1, copy(ledger(1), 3, epoch=6)))]).run()
        await confirm_tree(records)
        age = await records.get(paths.AGE, AgeRecord)
        assert age is not None
        assert age[0].epoch == 7

    in_world(work)


def test_a_mark_of_an_older_tree_ends_and_what_was_seen_still_counts() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        seen = TreeState(4, 5, 6)
        await put(records, paths.RESTORED, RestoredTree("", 0, 9, older=True, seen=seen))
        await Rebuild(records, world.clock, BOOKIES).run()
        mark = await records.get(paths.RESTORED, RestoredTree)
        assert mark is not None
        assert (mark[0].older, mark[0].seen) == (False, seen)

    in_world(work)


def test_nothing_that_is_there_is_overwritten_and_nothing_is_made_outside_its_topic() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        old = TopicRecord((TopicLedger(1),), highest_ledger=1, deleting=(3,))
        await put(records, paths.topic(TOPIC), old)
        await records.ensure(paths.cursors(TOPIC))
        await put(records, paths.cursor(TOPIC, "s"), CursorRecord(1, cursor_ledger=5))
        await put(records, paths.ledger(1), ledger(1, OPEN))
        await put(records, paths.namespace("public", "default"), NamespacePolicies(bundles=16))
        before = await read_tree(TreeReader(records, world.clock))
        cursor = PurposeKind.CURSOR
        ledgers = [
            *(ledger(each) for each in (1, 2, 3)),
            *(ledger(each, owner=f"{TOPIC.full}#s", kind=cursor) for each in (4, 5)),
            ledger(6, kind=PurposeKind.COMPACTED),
            ledger(7, owner=f"{TOPIC.full}-2"),
        ]
        copies = [(each.ledger_id, copy(each, 9)) for each in ledgers]
        report = await Rebuild(records, world.clock, [bookie(1, *copies)]).run()
        after = await read_tree(TreeReader(records, world.clock))
        assert {path: after[path] for path in before} == before
        assert report.topics == [f"{TOPIC.full}-2"]
        assert report.ledgers == [3, 5, 7]
        assert report.outside == dict.fromkeys((2, 4, 6), TOPIC.full)

    in_world(work)


def test_a_topic_of_an_old_backup_is_extended_only_when_asked_for_and_only_at_its_end() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        old = TopicRecord((TopicLedger(2, 5, 50, 1), TopicLedger(4)), highest_ledger=5)
        await put(records, paths.topic(TOPIC), old)
        ended = TopicName.parse(f"{TOPIC.full}-ended")
        await put(records, paths.topic(ended), TopicRecord(terminated=True))
        ledgers = [ledger(each) for each in (2, 3, 4, 5, 6)] + [ledger(7, OPEN)]
        ledgers.append(ledger(8, owner=ended.full))
        bookies = [bookie(1, *((each.ledger_id, copy(each)) for each in ledgers))]
        task = Rebuild(records, world.clock, bookies, extend_topics=True)
        assert (await task.plan()).extended == {TOPIC.full: [6, 7]}
        report = await task.run()
        assert report.ledgers == [2, 4, 6, 7]
        assert list(report.outside) == [3, 5, 8]
        found = await records.get(paths.topic(TOPIC), TopicRecord)
        assert found is not None
        assert [each.ledger_id for each in found[0].ledgers] == [2, 4, 6, 7]
        assert found[0].ledgers[:2] == old.ledgers
        assert found[0].highest_ledger == 7
        again = await Rebuild(records, world.clock, bookies, extend_topics=True).run()
        assert (again.extended, again.ledgers) == ({}, [])

    in_world(work)


def test_a_partition_that_policies_would_have_trimmed_is_not_made() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await put(records, paths.namespace("public", "default"), NamespacePolicies(bundles=16))
        partition = TopicName.parse("persistent://public/default/p").with_partition
        path = paths.partitioned_topic(partition(0).partitioned)
        await put(records, path, PartitionedTopic(2))
        trims = TopicPolicies({"retention": {"retentionTimeInMinutes": 0}})
        await put(records, paths.topic_policies(path), trims)
        copies = [(each, copy(ledger(each, owner=partition(each).full))) for each in (0, 1)]
        bookies = [bookie(1, *copies)]
        report = await Rebuild(records, world.clock, bookies).run()
        assert report.held_back == {each: partition(each).full for each in (0, 1)}
        assert (report.topics, report.ledgers) == ([], [])
        await records.update(
            paths.topic_policies(path),
            TopicPolicies,
            lambda _found: TopicPolicies(_kept_by()),
        )
        report = await Rebuild(records, world.clock, bookies).run()
        assert (report.held_back, report.ledgers) == ({}, [0, 1])

    in_world(work)


def test_topics_made_in_a_namespace_that_is_there_keep_everything() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await put(records, paths.namespace("public", "default"), NamespacePolicies(bundles=16))
        partition = TopicName.parse("persistent://public/default/p").with_partition
        elsewhere = TopicName.parse("persistent://public/other/t")
        owners = (TOPIC, partition(0), partition(1), elsewhere)
        copies = [(each, copy(ledger(each, owner=name.full))) for each, name in enumerate(owners)]
        await Rebuild(records, world.clock, [bookie(1, *copies)]).run()
        for path in (paths.topic(TOPIC), paths.partitioned_topic(partition(0).partitioned)):
            found = await records.get(paths.topic_policies(path), TopicPolicies)
            assert found is not None
            assert found[0].policies["retention"]["retentionTimeInMinutes"] == -1
            assert found[0].policies["inactive_topic"]["deleteWhileInactive"] is False
        other = paths.topic_policies(paths.topic(elsewhere))
        assert await records.get(other, TopicPolicies) is None, "its namespace keeps everything"

    in_world(work)


def test_a_member_that_was_not_given_refuses_unless_it_is_given_up() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        bookies = [bookie(1, (1, copy(ledger(1, member="b9~1"))))]
        with pytest.raises(NotAllowedError, match="--without b9~1"):
            await Rebuild(records, world.clock, bookies).run()
        assert await read_tree(TreeReader(records, world.clock)) == {}
        report = await Rebuild(records, world.clock, bookies, without=["b9~1"]).run()
        assert report.absent_bookies == ["b9~1"]

    in_world(work)


def test_what_cannot_be_right_is_refused_and_changes_nothing() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        one = bookie(1, (1, copy(ledger(1))))
        for bookies, says in (
            ([one, bookie(2, cluster_id="other")], "of one cluster"),
            ([one, one], "given twice"),
        ):
            with pytest.raises(InvalidArgument, match=says):
                await Rebuild(records, world.clock, bookies).run()
        with pytest.raises(NotFound, match="no copy"):
            await Rebuild(records, world.clock, [bookie(1)]).run()
        assert await read_tree(TreeReader(records, world.clock)) == {}
        await put(records, paths.CLUSTER, ClusterRecord("other", 1))
        with pytest.raises(InvalidArgument, match="the tree is of cluster other"):
            await Rebuild(records, world.clock, [one]).run()
        await records.delete(paths.CLUSTER)
        await put(records, paths.RESTORED, RestoredTree("0" * 64, 1))
        with pytest.raises(NotAllowedError, match="not finished"):
            await Rebuild(records, world.clock, [one]).run()
        await records.delete(paths.RESTORED)
        await records.ensure(paths.BROKERS)
        await world.metadata.commit([Op("create_ephemeral", paths.broker("broker-1~1"), b"{}")])
        with pytest.raises(NotAllowedError, match="broker-1~1"):
            await Rebuild(records, world.clock, [one]).run()

    in_world(work)


@pytest.mark.parametrize("commits", range(1, 30, 2))
def test_an_interrupted_rebuild_keeps_nodes_from_starting_and_goes_on(commits: int) -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        dying = Records(Interfering(world, commits=commits), world.clock, world.random)  # type: ignore[arg-type]
        try:
            await Rebuild(dying, world.clock, BOOKIES).run()
        except KeyboardInterrupt:
            with pytest.raises(ServiceNotReady, match="rebuild-metadata"):
                await check_not_being_restored(records)
            await Rebuild(records, world.clock, BOOKIES).run()
        await check_not_being_restored(records)
        for wanted in (paths.topic(TOPIC), paths.ledger(1), paths.ledger(2), paths.cookie("b2")):
            assert (await records.nodes([wanted]))[0] is not None

    in_world(work)
