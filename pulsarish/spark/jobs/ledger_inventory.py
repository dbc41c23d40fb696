"""Gather the facts about all ledgers on Spark: bookies' listings, ledgers' records, references to
ledgers.

A part that cannot be read does not end the gathering. It becomes a named gap, and a job that
deletes refuses a view with a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from pyspark import StorageLevel

from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata import paths
from pulsarish.metadata.records import (
    Cookie,
    CursorRecord,
    NamespacePolicies,
    SchemasRecord,
    TopicRecord,
    UnderReplicated,
)
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.topic_name import TopicName, decode_segment
from pulsarish.runtime.seams import Conflict
from pulsarish.spark.jobs.cluster_access import ClusterAccess, JobCluster, run, site, where_of_tasks
from pulsarish.spark.jobs.leaks_core import (
    Evidence,
    Held,
    Known,
    MissingCopies,
    Rules,
    references_of,
    schema_gaps,
)
from pulsarish.spark.jobs.ledger_selection import PAGE
from pulsarish.spark.jobs.policies import retentions_of

__all__ = ["Gap", "LedgerInventory", "cursors_of", "doubts_of", "gather"]

T = TypeVar("T")

_TASKS_MAX: Final = 2_000
_GAP: Final = -1
_DOUBT: Final = -2
"""Keys, besides ledger ids, of what could not be read, and of missing nodes that are not
ledgers.
"""

Gap = tuple[str, str]
"""What could not be read, and why."""
Doubt = tuple[str, str]
"""A node whose surroundings are inconsistent, and how."""
_Row = tuple[int, Evidence | Gap | Doubt]


@dataclass(slots=True)
class LedgerInventory:
    """``evidence`` is an RDD of pairs of ledger id and ``Evidence``."""

    evidence: Any
    bookies: list[str]
    gaps: list[Gap] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    answered: frozenset[str] = frozenset()
    _parts: list[Any] = field(default_factory=list)

    def release(self) -> None:
        for part in self._parts:
            part.unpersist()


def gather(
    spark: Any, where: JobCluster, retention: Retention, *, now_ms: int, min_age_ms: int
) -> LedgerInventory:
    """Read everything, in the order that ``leaks_core`` requires.

    ``retention``: the retention where no policy sets one.
    """
    context = spark.sparkContext
    here = site(where)
    bookies = run(_bookies(here))
    rules = Rules(now_ms, min_age_ms)
    tasks_where = where_of_tasks(where)
    view = LedgerInventory(None, bookies)
    for items, read in (
        (bookies, partial(_held_by, tasks_where)),
        (run(_branches(here)), partial(_records, tasks_where)),
        (run(_missing_pages(here)), partial(_lacking, tasks_where)),
        (
            run(_topic_pages(here, paths.TOPICS)),
            partial(_references, tasks_where, retention, rules),
        ),
        (
            run(_topic_pages(here, paths.TOPICS)) + run(_topic_pages(here, paths.PARTITIONED)),
            partial(_surroundings, tasks_where),
        ),
    ):
        part = (
            context.parallelize(items, max(1, min(len(items), _TASKS_MAX)))
            .mapPartitions(read)
            .persist(StorageLevel.MEMORY_AND_DISK)
        )
        # Gathered before the next step begins.
        view.gaps += part.filter(_is_gap).values().collect()
        view.doubts += part.filter(_is_doubt).values().collect()
        view._parts.append(part)
    silent = {what for what, _ in view.gaps}
    view.answered = frozenset(bookie for bookie in bookies if _name(bookie) not in silent)
    view.evidence = context.union(view._parts).filter(_is_evidence)
    return view


def _is_gap(row: _Row) -> bool:
    return row[0] == _GAP


def _is_evidence(row: _Row) -> bool:
    return row[0] >= 0


def _is_doubt(row: _Row) -> bool:
    return row[0] == _DOUBT


def _name(bookie: str) -> str:
    return f"ledgers of bookie {bookie}"


def _try(what: str, work: Callable[[], Iterable[_Row]]) -> Iterator[_Row]:
    """Yield all rows or none: half a listing is useless."""
    try:
        rows = list(work())
    except (PulsarishError, NoAnswer, Conflict) as error:
        yield _GAP, (what, f"{type(error).__name__}: {error}")
        return
    yield from rows


# -- bookies


async def _bookies(here: ClusterAccess) -> list[str]:
    """Return all bookies that the cluster ever had, by instance id."""
    nodes = [f"{paths.COOKIES}/{name}" for name in await here.records.children(paths.COOKIES)]
    found = await here.records.get_many(nodes, Cookie) if nodes else []
    return [row[0].instance_id for row in found if row is not None]


def _held_by(where: JobCluster, bookies: Iterable[str]) -> Iterator[_Row]:
    for bookie in bookies:
        yield from _try(_name(bookie), lambda bookie=bookie: run(_list(site(where), bookie)))  # type: ignore[misc]


async def _list(here: ClusterAccess, bookie: str) -> list[_Row]:
    found: list[_Row] = []
    after, more = -1, True
    while more:
        page, more = await here.pool.control.list_ledgers(bookie, after)
        found += [(ledger_id, Held(bookie)) for ledger_id in page]
        if not page:
            break
        after = page[-1]
    return found


# -- ledgers' records


async def _branches(here: ClusterAccess) -> list[str]:
    found: list[str] = []
    for high in await here.records.children(paths.LEDGERS):
        found += [
            f"{paths.LEDGERS}/{high}/{middle}"
            for middle in await here.records.children(f"{paths.LEDGERS}/{high}")
        ]
    return found


def _records(where: JobCluster, branches: Iterable[str]) -> Iterator[_Row]:
    for branch in branches:
        yield from _try(
            f"ledgers below {branch}",
            lambda branch=branch: run(_branch(site(where), branch)),  # type: ignore[misc]
        )


async def _branch(here: ClusterAccess, branch: str) -> list[_Row]:
    nodes = [f"{branch}/{leaf}" for leaf in await here.records.children(branch)]
    found: list[_Row] = []
    for start in range(0, len(nodes), PAGE):
        records = await here.records.get_many(nodes[start : start + PAGE], LedgerMetadata)
        found += [(row[0].ledger_id, Known(row[0])) for row in records if row is not None]
    return found


async def _missing_pages(here: ClusterAccess) -> list[list[str]]:
    nodes = [
        f"{paths.UNDERREPLICATED}/{name}"
        for name in await here.records.children(paths.UNDERREPLICATED)
    ]
    return [nodes[start : start + PAGE] for start in range(0, len(nodes), PAGE)]


def _lacking(where: JobCluster, pages: Iterable[list[str]]) -> Iterator[_Row]:
    for page in pages:
        yield from _try(
            "the list of missing copies",
            lambda page=page: run(_missing(site(where), page)),  # type: ignore[misc]
        )


async def _missing(here: ClusterAccess, page: Sequence[str]) -> list[_Row]:
    found = await here.records.get_many(page, UnderReplicated)
    return [(row[0].ledger_id, MissingCopies(row[0])) for row in found if row is not None]


# -- references to ledgers


async def _topic_pages(here: ClusterAccess, root: str) -> list[list[str]]:
    """Return the paths of topics in pages, from the nodes that exist, also below deleted tenants
    and namespaces.
    """
    found: list[list[str]] = []
    for tenant in await here.records.children(root):
        for namespace in await here.records.children(f"{root}/{tenant}"):
            branch = f"{root}/{tenant}/{namespace}"
            nodes = [f"{branch}/{name}" for name in await here.records.children(branch)]
            found += [nodes[start : start + PAGE] for start in range(0, len(nodes), PAGE)]
    return found


def _references(
    where: JobCluster, retention: Retention, rules: Rules, pages: Iterable[list[str]]
) -> Iterator[_Row]:
    for page in pages:
        what = f"topics {page[0]} to {page[-1]}"
        yield from _try(what, lambda page=page: run(_named(site(where), page, retention, rules)))  # type: ignore[misc]


async def _named(
    here: ClusterAccess, page: Sequence[str], default: Retention, rules: Rules
) -> list[_Row]:
    names = [TopicName(*(decode_segment(part) for part in path.split("/")[2:])) for path in page]
    retentions = await retentions_of(here.records, names, default)
    found: list[_Row] = []
    for name, path, retention in zip(names, page, retentions, strict=True):
        # The cursors before the topic's record: a subscription that is created in between keeps
        # more than is seen, never less.
        cursors = await cursors_of(here, path)
        record = await here.records.get(path, TopicRecord)
        if record is not None:
            found += references_of(path, name.full, record[0], cursors, retention, rules)
    return found


async def cursors_of(here: ClusterAccess, topic_path: str) -> dict[str, CursorRecord]:
    """Return the records of a topic's durable cursors by path, with the cursor of deduplication."""
    nodes = [
        f"{topic_path}/cursors/{name}"
        for name in await here.records.children(f"{topic_path}/cursors")
    ]
    found = await here.records.get_many(nodes, CursorRecord) if nodes else []
    return {node: row[0] for node, row in zip(nodes, found, strict=True) if row is not None}


# -- nodes that are not ledgers: namespaces of topics, versions of schemas


def _surroundings(where: JobCluster, pages: Iterable[list[str]]) -> Iterator[_Row]:
    for page in pages:
        what = f"namespaces and schemas of {page[0]} to {page[-1]}"
        yield from _try(what, lambda page=page: run(_doubts(site(where), page)))  # type: ignore[misc]


async def _doubts(here: ClusterAccess, page: Sequence[str]) -> list[_Row]:
    found: list[_Row] = []
    for path in page:
        found += [(_DOUBT, (path, how)) for how in await doubts_of(here, path)]
    return found


async def doubts_of(here: ClusterAccess, path: str) -> list[str]:
    """Return what is missing around a topic's node, or a partitioned topic's.

    Raises ``MetadataUnavailable``, ``CorruptData``.
    """
    found: list[str] = []
    # The count before the versions, and the topic after both: a version that is created meanwhile
    # adds to them, and is never missing.
    counted = await here.records.get(paths.schemas(path), SchemasRecord)
    if counted is not None:
        gaps = schema_gaps(
            await here.records.children(paths.schemas(path)), counted[0].versions_count
        )
        found += [f"version {version} of its schema is not there" for version in gaps]
    tenant, namespace = (decode_segment(part) for part in path.split("/")[2:4])
    if await here.records.get(paths.namespace(tenant, namespace), NamespacePolicies) is None:
        found.append(f"its namespace {tenant}/{namespace} does not exist")
    if found:
        await here.records.sync(path)
        if (await here.records.nodes([path]))[0] is None:
            return []  # deleted in the meantime
    return found
