"""Make lost metadata again from what bookies know of them.

Only nodes that are absent are made; what is there is right. So an older backup may be restored
before. A ledger whose topic is there already and does not name it is not made: it stays unknown to
the tree, which refuses to be confirmed without an operator's word. On an operator's word those
behind the topic's last ledger are added to its chain.

As a restore does, this marks the tree before anything else, so that bookies delete nothing, and
raises the counter of ledger ids above all ids that occur. To finish an interrupted rebuild, run it
again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.backup.backup import TreeReader
from pulsarish.metadata.backup.ledger_copies import BookieCopies, KnownLedgers, merge_copies
from pulsarish.metadata.backup.restore import LEDGER_ID_GAP, read_tree
from pulsarish.metadata.backup.tree_plan import PlannedTopic, TreePlan, plan_tree
from pulsarish.metadata.id_counter import next_id_above
from pulsarish.metadata.record_store import ATTEMPTS_MAX, Records
from pulsarish.metadata.records import (
    AgeRecord,
    ClusterRecord,
    Cookie,
    CursorRecord,
    LedgerIds,
    RestoredTree,
    TopicRecord,
)
from pulsarish.metadata.tree_age import REBUILT
from pulsarish.model.errors import (
    CorruptData,
    InvalidArgument,
    MetadataUnavailable,
    NotAllowedError,
    NotFound,
)
from pulsarish.model.ledger_metadata import PurposeKind
from pulsarish.model.position import ID_MAX
from pulsarish.model.topic_name import TopicName, decode_segment
from pulsarish.runtime.seams import Clock, Conflict, ConflictReason, Op
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["Rebuild", "RebuildReport"]

_NAMES_SHOWN: Final = 10
_TOPIC_DEPTH: Final = 4  # /topics/tenant/namespace/topic


@dataclass(slots=True)
class RebuildReport:
    """What a rebuild makes, and what it knows to be missing."""

    known: KnownLedgers
    next_ledger_id: int = 0
    made: list[str] = field(default_factory=list)
    """Nodes of the cluster, bookies, tenants, namespaces and partitioned topics."""
    ledgers: list[int] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    subscriptions: list[tuple[str, str]] = field(default_factory=list)
    """Topics and names of those whose position is in a ledger."""
    unattached: dict[int, str] = field(default_factory=dict)
    """Ledgers that are made and to which nothing refers, and what they belong to."""
    outside: dict[int, str] = field(default_factory=dict)
    """Ledgers that are not made, because their topic is there and does not name them."""
    extended: dict[str, list[int]] = field(default_factory=dict)
    """Ledgers that are added to topics that are there, by topic."""
    held_back: dict[int, str] = field(default_factory=dict)
    """Ledgers that are not made, because the policies of their partitioned topic are there and
    would have them trimmed.
    """
    absent_bookies: list[str] = field(default_factory=list)
    """Members of ledgers that were given up for this rebuild."""


class Rebuild:
    """One rebuild.

    Args:
        bookies: what bookies know.
        without: the instance ids of bookies whose disks are lost.
        ids_held: ids that registered bookies hold.
        include_deleted: make ledgers, too, that bookies remember as deleted.
        extend_topics: add ledgers to topics that are there and end before them.
        progress: called with the step, how much of it is done, and of how much.
    """

    def __init__(
        self,
        records: Records,
        clock: Clock,
        bookies: Sequence[BookieCopies],
        *,
        without: Sequence[str] = (),
        ids_held: Sequence[int] = (),
        ledger_id_gap: int = LEDGER_ID_GAP,
        include_deleted: bool = False,
        extend_topics: bool = False,
        progress: Callable[[str, int, int], None] = lambda _what, _done, _all: None,
    ) -> None:
        self._records = records
        self._clock = clock
        self._bookies = bookies
        self._without = without
        self._ids_held = ids_held
        self._gap = ledger_id_gap
        self._include_deleted = include_deleted
        self._extend_topics = extend_topics
        self._progress = progress
        self._reader = TreeReader(records, clock)

    async def plan(self) -> RebuildReport:
        """Return what ``run`` would make. Changes nothing. Raises as ``run``."""
        return (await self._plan())[0]

    async def run(self) -> RebuildReport:
        """Make what is absent.

        Raises ``NotAllowedError`` while brokers are registered, a restore is not finished, or
        bookies are missing that ledgers name; ``InvalidArgument`` for bookies of several clusters,
        or of another one than the tree; ``NotFound`` when bookies know nothing; ``CorruptData``
        when the tree is not right afterwards; ``MetadataUnavailable``.
        """
        report, plan, there = await self._plan()
        await self._mark(is_finished=False)
        await self._refuse_brokers()  # a broker may have come before it could see the mark
        await self._raise_ledger_ids(report.next_ledger_id)
        await self._raise_age(report.known.epoch)
        nodes = {path: plan.nodes[path] for path in report.made}
        nodes |= {paths.ledger(each): encode_record(plan.ledgers[each]) for each in report.ledgers}
        for done, (path, data) in enumerate(nodes.items()):
            await self._create(path, [Op("create", path, data)])
            self._progress("writing", done + 1, len(nodes) + len(report.topics))
        for topic in plan.topics:
            path = paths.topic(topic.name)
            if path not in there:
                await self._create(path, self._ops_of(topic))
                self._progress("writing topics", len(nodes), len(nodes) + len(report.topics))
            elif topic.name.full in report.extended:
                await self._extend(topic, report.extended[topic.name.full])
        after = await read_tree(self._reader, lambda count: self._progress("verifying", count, 0))
        wrong = [path for path, data in nodes.items() if after.get(path) != data]
        wrong += [name for topic in plan.topics if (name := paths.topic(topic.name)) not in after]
        if wrong:
            raise CorruptData(
                f"{wrong[0]} is not as it was written: another program changed it. Stop that "
                "program, and run the same command again"
            )
        await self._mark(is_finished=True)
        return report

    async def _plan(self) -> tuple[RebuildReport, TreePlan, dict[str, bytes]]:
        await self._refuse_brokers()
        there = await read_tree(
            self._reader, lambda count: self._progress("reading the target", count, 0)
        )
        self._check_cluster(there)
        known = merge_copies(self._bookies, include_deleted=self._include_deleted)
        if not known.ledgers:
            raise NotFound(
                "these bookies have no copy of any ledger's record: releases before this one kept "
                "none"
            )
        report = RebuildReport(known)
        plan = plan_tree(known.ledgers, self._bookies, self._clock.wall_ms(), there)
        report.absent_bookies = self._absent_bookies(plan, there)
        report.next_ledger_id = self._next_ledger_id(there)
        report.made = [path for path in plan.nodes if path not in there]
        self._choose_ledgers(report, plan, there)
        for topic in plan.topics:
            if paths.topic(topic.name) not in there:
                report.topics.append(topic.name.full)
                report.subscriptions += [(topic.name.full, name) for name in topic.cursors]
        return report, plan, there

    def _check_cluster(self, there: Mapping[str, bytes]) -> None:
        by_instance: dict[str, Cookie] = {}
        for bookie in self._bookies:
            cookie = bookie.cookie
            if cookie.instance_id in by_instance:
                raise InvalidArgument(f"bookie {cookie.instance_id} was given twice")
            by_instance[cookie.instance_id] = cookie
            stored = there.get(path := paths.cookie(cookie.bookie_id))
            if stored and (
                (other := decode_record(stored, Cookie, path).instance_id) != cookie.instance_id
            ):
                raise InvalidArgument(
                    f"the tree knows bookie {cookie.bookie_id} as {other}, and its directories "
                    f"are of {cookie.instance_id}: give the directories of the former"
                )
        ids = {cookie.cluster_id: name for name, cookie in by_instance.items()}
        if data := there.get(paths.CLUSTER):
            ids[decode_record(data, ClusterRecord, paths.CLUSTER).cluster_id] = "the tree"
        if len(ids) > 1:
            shown = ", ".join(f"{who} is of cluster {each}" for each, who in ids.items())
            raise InvalidArgument(
                f"{shown}: give the bookies of one cluster, and its own tree or an empty chroot"
            )
        if data := there.get(paths.RESTORED):
            mark = decode_record(data, RestoredTree, paths.RESTORED)
            if not mark.restored_ms and mark.backup_sha256 not in ("", REBUILT):
                raise NotAllowedError(
                    "a restore of this tree is not finished: run it again with the same file first"
                )

    async def _refuse_brokers(self) -> None:
        brokers = await self._reader.children(paths.BROKERS)
        if brokers:
            names = ", ".join(path.rpartition("/")[2] for path in brokers)
            raise NotAllowedError(
                f"brokers are registered in the tree ({names}): stop all brokers, then rebuild"
            )

    def _absent_bookies(self, plan: TreePlan, there: Mapping[str, bytes]) -> list[str]:
        """Return members that neither the tree nor the bookies given know.

        Their copies may be the newest, and only bookies with a cookie are asked before an open
        ledger is closed. Raises ``NotAllowedError`` unless all of them are given up.
        """
        known = {bookie.cookie.instance_id for bookie in self._bookies} | {
            decode_record(data, Cookie, path).instance_id
            for path, data in there.items()
            if path.startswith(paths.COOKIES + "/") and data
        }
        absent = sorted(
            {
                member
                for metadata in plan.ledgers.values()
                for segment in metadata.segments
                for member in segment.members
                if member not in known
            }
        )
        missing = [each for each in absent if each not in self._without]
        if missing:
            raise NotAllowedError(
                f"ledgers name bookies that were not given: {', '.join(missing[:_NAMES_SHOWN])}. "
                "Give their directories or saved records with --bookie, too; of one whose disks "
                f"are lost: --without {missing[0]}"
            )
        return absent

    def _next_ledger_id(self, there: Mapping[str, bytes]) -> int:
        """Return the next id that may be given out: above all that occur anywhere."""
        saved = there.get(paths.LEDGER_IDS)
        counter = 0 if not saved else decode_record(saved, LedgerIds, paths.LEDGER_IDS).next_id
        used = {*self._ids_held}
        for bookie in self._bookies:
            used.update(bookie.used, bookie.held, bookie.deleted, bookie.records)
        used.update(each for path in there if (each := paths.ledger_id_of(path)) is not None)
        return min(next_id_above(counter, sorted(used)) + self._gap, ID_MAX)

    def _choose_ledgers(
        self, report: RebuildReport, plan: TreePlan, there: Mapping[str, bytes]
    ) -> None:
        """Divide the ledgers that are absent into those that are made and those that are not."""
        named = {each for path, data in there.items() for each in _all_named(path, data)}
        topics = {full for path in there if (full := _topic_at(path))}
        for ledger_id, metadata in plan.ledgers.items():
            owner = metadata.purpose.owner
            words = owner.split("#")
            prefixes = ["#".join(words[:count]) for count in range(1, len(words) + 1)]
            owned_by = next((each for each in prefixes if each in topics), "")
            held_back = next((each for each in prefixes if each in plan.held_back), "")
            if held_back:
                report.held_back[ledger_id] = held_back
            elif owned_by and ledger_id not in named:
                is_next = metadata.purpose.kind is PurposeKind.TOPIC and owner == owned_by
                if self._extend_topics and is_next and _may_follow(ledger_id, owner, there):
                    report.extended.setdefault(owner, []).append(ledger_id)
                    report.ledgers += [ledger_id] * (paths.ledger(ledger_id) not in there)
                else:
                    report.outside[ledger_id] = owned_by
            elif paths.ledger(ledger_id) not in there:
                report.ledgers.append(ledger_id)
                if ledger_id in plan.unattached and ledger_id not in named:
                    report.unattached[ledger_id] = plan.unattached[ledger_id]

    async def _mark(self, *, is_finished: bool) -> None:
        now_ms = self._clock.wall_ms()
        mark = RestoredTree(REBUILT, now_ms, now_ms if is_finished else 0)
        # What nodes have seen of the lost tree still counts: the epoch must go beyond it.
        _ = await self._records.update(
            paths.RESTORED,
            RestoredTree,
            lambda found: mark if found is None else msgspec.structs.replace(mark, seen=found.seen),
        )

    async def _raise_ledger_ids(self, floor: int) -> None:
        _ = await self._records.update(
            paths.LEDGER_IDS,
            LedgerIds,
            lambda found: (
                None if found is not None and found.next_id >= floor else LedgerIds(floor)
            ),
        )

    async def _raise_age(self, epoch: int) -> None:
        """Raise the epoch to that of the copies, so that the confirmation goes beyond it."""
        _ = await self._records.update(
            paths.AGE,
            AgeRecord,
            lambda found: None if found is not None and found.epoch >= epoch else AgeRecord(epoch),
        )

    def _ops_of(self, topic: PlannedTopic) -> list[Op]:
        """Return the operations that make a topic, with its subscriptions, all or nothing."""
        incarnation = self._records.token()
        record = msgspec.structs.replace(topic.record, incarnation=incarnation)
        path, policies = paths.topic(topic.name), topic.policies
        return [
            Op("create", path, encode_record(record)),
            *(
                ()
                if policies is None
                else [Op("create", paths.topic_policies(path), encode_record(policies))]
            ),
            Op("create", paths.cursors(topic.name)),
            Op("create", paths.topic_incarnation(topic.name, incarnation)),
            *(
                Op("create", paths.cursor(topic.name, name), encode_record(cursor))
                for name, cursor in topic.cursors.items()
            ),
        ]

    async def _extend(self, topic: PlannedTopic, ledger_ids: Sequence[int]) -> None:
        """Add ledgers to the end of a topic's chain."""

        def longer(found: TopicRecord | None) -> TopicRecord | None:
            if found is None or not _is_behind(ledger_ids[0], found):
                return None
            links = [each for each in topic.record.ledgers if each.ledger_id in ledger_ids]
            return msgspec.structs.replace(
                found, ledgers=(*found.ledgers, *links), highest_ledger=ledger_ids[-1]
            )

        _ = await self._records.update(paths.topic(topic.name), TopicRecord, longer)

    async def _create(self, path: str, ops: Sequence[Op]) -> None:
        """Make nodes in one commit, unless the first of them is there."""
        for _ in range(ATTEMPTS_MAX):
            try:
                await self._records.commit(ops)
            except Conflict as conflict:
                if conflict.reason is not ConflictReason.NO_NODE:
                    return  # it is there, perhaps by this command
                await self._records.make_parents(conflict.path)
            except MetadataUnavailable:
                if (await self._reader.nodes([path]))[0] is not None:
                    return
            else:
                return
        raise MetadataUnavailable(f"{path} could not be made")


def _may_follow(ledger_id: int, owner: str, there: Mapping[str, bytes]) -> bool:
    path = paths.topic(TopicName.parse(owner))
    return _is_behind(ledger_id, decode_record(there[path], TopicRecord, path))


def _is_behind(ledger_id: int, record: TopicRecord) -> bool:
    """Return whether a ledger may follow all that this topic has ever had."""
    highest = max((record.highest_ledger, *record.ledgers_named))
    return ledger_id > highest and not record.deleted and not record.terminated


def _topic_at(path: str) -> str:
    """Return the full name of the topic whose record is at this path; empty for another path."""
    if not path.startswith(paths.TOPICS + "/") or path.count("/") != _TOPIC_DEPTH:
        return ""
    return TopicName(*(decode_segment(each) for each in path.split("/")[2:])).full


def _all_named(path: str, data: bytes) -> tuple[int, ...]:
    """Return the ledgers that the record of a topic or subscription names."""
    if not path.startswith(paths.TOPICS + "/") or not data:
        return ()
    if path.count("/") == _TOPIC_DEPTH:
        return decode_record(data, TopicRecord, path).ledgers_named
    if path.count("/") == _TOPIC_DEPTH + 2 and path.split("/")[_TOPIC_DEPTH + 1] == "cursors":
        return decode_record(data, CursorRecord, path).ledgers_named
    return ()
