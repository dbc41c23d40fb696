"""``pulsarish job leaks``: ledgers that are not needed, missing, or have surplus replicas, in a
whole cluster.

Changes nothing.

``removal`` removes what is found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata import paths
from pulsarish.metadata.records import RestoredTree, TopicRecord
from pulsarish.model.errors import InvalidArgument, NoSuchEntry, NoSuchLedger
from pulsarish.model.ledger_metadata import LedgerMetadata, PurposeKind
from pulsarish.runtime.seams import StreamBroken
from pulsarish.spark.jobs.cluster_access import ClusterAccess, JobCluster, run, site
from pulsarish.spark.jobs.leaks_core import Leak, LeakKind, Rules, Use, judge, references_of
from pulsarish.spark.jobs.ledger_inventory import Doubt, Gap, cursors_of, doubts_of, gather
from pulsarish.spark.jobs.ledger_selection import kept_topic
from pulsarish.wire.record import peek_ids

__all__ = ["LEAK_SCHEMA", "MIN_AGE_MS", "Leaks", "find_leaks", "is_orphan"]

MIN_AGE_MS: Final = 3_600_000
"""Age below which a ledger is ignored: its creator may not have added it to a list yet."""
_WAIT_SECONDS: Final = 2.0
_AHEAD: Final = 10_000  # entries
_READ_BYTES: Final = 1 << 20

LEAK_SCHEMA: Final = (
    "finding string, ledger bigint, owner string, bytes bigint, bookies array<string>, "
    "created_ms bigint, detail string"
)


@dataclass(slots=True)
class Leaks:
    """``gaps``: what could not be read.

    While there is one, the absence of a ledger proves nothing.
    """

    found: list[Leak] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    ledgers: int = 0
    restored: bool = False  # the metadata come from a backup and no operator has confirmed them
    settled: int = 0  # leaks of the first check that the second did not confirm


def find_leaks(
    spark: Any, where: JobCluster, *, retention: Retention, min_age_ms: int = MIN_AGE_MS
) -> Leaks:
    """Check the whole cluster.

    Raises ``MetadataUnavailable`` when not even the lists of branches can be read.
    """
    here = site(where)
    now_ms = here.world.clock.wall_ms()
    view = gather(spark, where, retention, now_ms=now_ms, min_age_ms=min_age_ms)
    rules = Rules(now_ms, min_age_ms, view.answered)
    try:
        grouped = view.evidence.groupByKey().cache()
        ledgers = grouped.count()
        found = grouped.flatMap(partial(_judge, rules)).collect()
        grouped.unpersist()
    finally:
        view.release()
    leaks = Leaks(gaps=view.gaps, ledgers=ledgers)
    leaks.found = sorted(run(_look_again(here, found)))
    leaks.found = [
        run(_weighed(here, leak)) if leak.kind == LeakKind.STRAY else leak for leak in leaks.found
    ]
    leaks.settled = len(found) - len(leaks.found)
    leaks.found += run(_still_in_doubt(here, view.doubts))
    leaks.restored = run(here.records.get(paths.RESTORED, RestoredTree)) is not None
    return leaks


def _judge(rules: Rules, group: tuple[int, Any]) -> list[Leak]:
    return judge(group[0], group[1], rules)


async def _still_in_doubt(here: ClusterAccess, doubts: list[Doubt]) -> list[Leak]:
    """Return topics whose nodes are still incomplete at a second check.

    They belong to no ledger; their ledger id is -1.
    """
    return [
        Leak(LeakKind.DANGLING.value, -1, path, 0, (), 0, how)
        for path, how in sorted(doubts)
        if how in await doubts_of(here, path)
    ]


async def _look_again(here: ClusterAccess, found: list[Leak]) -> list[Leak]:
    if not found:
        return []
    await here.world.clock.sleep(_WAIT_SECONDS)
    return [leak for leak in found if await _still(here, leak)]


async def _still(here: ClusterAccess, leak: Leak) -> bool:
    """Whether a leak is still one at a second check of just its nodes and bookies."""
    record = await here.ledgers.read_newest(leak.ledger_id)
    match LeakKind(leak.kind):
        case LeakKind.STRAY:
            return record is None
        case LeakKind.DANGLING:
            return record is None and leak.ledger_id in await named_by_owner(
                here, leak.owner, in_use=True
            )
        case LeakKind.ORPHAN:
            return record is not None and await is_orphan(here, record[0])
        case LeakKind.EXPIRED:
            return record is not None and leak.ledger_id in await named_by_owner(here, leak.owner)
        case LeakKind.UNDER_REPLICATED:
            return record is not None and await _lacks(here, record[0], leak)
        case LeakKind.OVER_REPLICATED:
            return record is not None and any(
                [await _holds(here, record[0], bookie) for bookie in leak.bookies]
            )


async def is_orphan(here: ClusterAccess, metadata: LedgerMetadata) -> bool:
    """Whether the topic for which a ledger was made does not name it now.

    Raises ``MetadataUnavailable``, ``CorruptData``.
    """
    owner = metadata.purpose.owner
    owners = [owner]
    if metadata.purpose.kind is PurposeKind.CURSOR:
        # The name is topic#subscription, and either part may contain such a sign itself.
        owners = [owner[:at] for at, sign in enumerate(owner) if sign == "#"]
    for each in owners:
        if metadata.ledger_id in await named_by_owner(here, each):
            return False
    return True


async def named_by_owner(here: ClusterAccess, owner: str, *, in_use: bool = False) -> set[int]:
    """Return the ledgers that a topic's subtree names now; without ``in_use``, also those that are
    to be deleted.

    Empty for a name that is not a topic, and for a missing topic.
    """
    try:
        path = paths.topic(kept_topic(owner))
    except InvalidArgument:
        return set()
    await here.records.sync(path)
    cursors = await cursors_of(here, path)
    found = await here.records.get(path, TopicRecord)
    if found is None:
        return set()
    # No age and no time, since only the names matter here.
    references = references_of(path, owner, found[0], cursors, Retention(-1, -1), Rules(0, 0))
    return {
        ledger_id for ledger_id, each in references if not in_use or each.use is not Use.DELETING
    }


async def _weighed(here: ClusterAccess, leak: Leak) -> Leak:
    """Return the leak with the size of a ledger that only bookies know, if one of them has it."""
    for bookie in leak.bookies:
        try:
            length_bytes = await _length(here, bookie, leak.ledger_id)
        except (NoAnswer, StreamBroken, TimeoutError):
            continue
        if length_bytes:
            return leak._replace(size_bytes=length_bytes * len(leak.bookies))
    return leak


async def _length(here: ClusterAccess, bookie: str, ledger_id: int) -> int:
    """Return the bytes of the payloads up to the newest entry that a bookie returns; each entry
    carries this sum.

    At most a writer's window of entries lies after the LAC that the bookie knows. Raises
    ``NoAnswer``, ``StreamBroken``, ``TimeoutError``.
    """
    known = await here.pool.control.read_lac(bookie, ledger_id)
    entry_id, length_bytes, code = max(known.lac, 0), 0, known.code
    while not code:
        answer = await here.pool.reader(bookie).read(
            ledger_id, [(entry_id, entry_id + _AHEAD)], _READ_BYTES
        )
        if answer.records:
            _, _, entry_id, _, length_bytes = peek_ids(answer.records[-1])
            entry_id += 1
        code = answer.code or (0 if answer.records else NoSuchEntry.code)
    return length_bytes


async def _lacks(here: ClusterAccess, metadata: LedgerMetadata, leak: Leak) -> bool:
    if (
        metadata.write_quorum < metadata.requested_write_quorum
        or await here.ledgers.under_replicated([leak.ledger_id])
    ):
        return True
    members = {member for segment in metadata.segments for member in segment.members}
    for bookie in leak.bookies:
        if bookie in members and not await _holds(here, metadata, bookie, member=True):
            return True
    return False


async def _holds(
    here: ClusterAccess, metadata: LedgerMetadata, bookie: str, *, member: bool = False
) -> bool:
    """Whether a bookie, a member or another one, now reports that it has the ledger.

    For a silent bookie, its first answer counts.
    """
    members = {each for segment in metadata.segments for each in segment.members}
    if not member and bookie in members:
        return False
    try:
        return (
            await here.pool.control.read_lac(bookie, metadata.ledger_id)
        ).code != NoSuchLedger.code
    except NoAnswer:
        return not member
