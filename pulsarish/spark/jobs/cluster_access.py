"""A job's access to a cluster in one process, driver or executor: metadata and streams to bookies,
in the process's one gRPC loop.

An executor's Python process serves many tasks, so the access is made once for each process and
cluster, and kept.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.bookies import Bookies
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.ledger.options import LedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.access import NO_ACCESS, MetadataAccess
from pulsarish.metadata.backup.backup import check_not_being_restored
from pulsarish.metadata.connect import parse_metadata_url
from pulsarish.metadata.process import open_store
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import ClusterRecord
from pulsarish.model.errors import InvalidArgument, MetadataUnavailable, NotFound
from pulsarish.runtime.background import background
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import SessionState, World
from pulsarish.runtime.tasks import Supervisor
from pulsarish.runtime.world import Production, production
from pulsarish.spark.access import NO_BOOKIE_ACCESS, BookieAccess
from pulsarish.spark.jobs.copies import Silences

__all__ = ["ClusterAccess", "JobCluster", "check_url", "leave", "run", "site", "where_of_tasks"]

T = TypeVar("T")

_CONNECT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class JobCluster:
    """The cluster of a job: where its metadata is, and what metadata and bookies are shown.

    It travels to executors as ``where_of_tasks`` returns it: with names of files, and for bookies
    with a token that reads.
    """

    url: str
    bookies: BookieAccess = NO_BOOKIE_ACCESS
    metadata: MetadataAccess = NO_ACCESS


class ClusterAccess:
    """One process's access to a cluster. Made in the loop by ``open``."""

    def __init__(self, parts: Production, world: World) -> None:
        self.world = world
        self.options = LedgerOptions()
        self.records = Records(world.metadata, world.clock, world.random)
        self.ledgers = LedgerStore(self.records, world.clock)
        self.bookies = Bookies(world, self.options, self.records)
        self.pool = BookiePool(world, self.options, self.bookies)
        self.silences = Silences(world.clock)
        self._parts = parts

    @classmethod
    async def open(cls, where: JobCluster) -> ClusterAccess:
        """Connect to a cluster.

        Raises ``MetadataUnavailable``, ``ConfigError`` for a key or certificates that cannot be
        used and, when there is no cluster at the URL, ``NotFound``.
        """
        url, bookies = where.url, where.bookies
        outside = OutsideWork()
        # A failed task fails this job. It does not end a server.
        parts = production(
            outside=outside,
            supervisor=Supervisor(died=lambda _name, _error: None),
            credentials=lambda clock: bookies.credentials(clock.wall_ms),
            tls=bookies.tls(),
        )
        try:
            store = await open_store(
                url,
                parts,
                outside,
                connect_timeout_seconds=_CONNECT_SECONDS,
                access=where.metadata,
            )
        except BaseException as error:
            await parts.close()
            if isinstance(error, MetadataUnavailable):
                raise MetadataUnavailable(
                    f"{error} (A standalone server shows its metadata with --metadata-address.)"
                ) from None
            raise
        found = cls(parts, parts.world(store))
        try:
            if await found.records.get(paths.CLUSTER, ClusterRecord) is None:
                raise NotFound(
                    f"there is no cluster at {url}: is the path behind the hosts right? That of a "
                    "standalone server has none"
                )
            await check_not_being_restored(found.records)
            await found.pool.start()
        except BaseException:
            await found.close()
            raise
        return found

    async def close(self) -> None:
        self.pool.close()
        await self.records.close()
        await self._parts.close()


_sites: Final[dict[JobCluster, tuple[JobCluster, ClusterAccess]]] = {}
"""By cluster without the token, of which there is one at a time; with it and the access."""


def check_url(url: str) -> None:
    """Check a metadata URL.

    Raises ``ConfigError`` when it is not one, ``InvalidArgument`` for one that only one process can
    use.
    """
    if parse_metadata_url(url).kind != "zk":
        raise InvalidArgument(
            f"--metadata-url {url!r}: a job's processes share the metadata with the servers; give "
            "zk://HOST:PORT/PATH as servers have it, and zk://HOST:PORT for a standalone server "
            "with --metadata-address HOST:PORT"
        )


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in this process's loop and wait for it."""
    return background().run(work)


def site(where: JobCluster) -> ClusterAccess:
    """Return this process's access. Made at the first use, and again after its session was lost.

    Raises the errors of ``ClusterAccess.open``.
    """
    found = _sites.get(_place(where))
    if found is not None:
        made_for, access = found
        if made_for == where and access.records.state is not SessionState.LOST:
            return access
        leave(where)
    access = run(ClusterAccess.open(where))
    _sites[_place(where)] = where, access
    return access


def where_of_tasks(where: JobCluster) -> JobCluster:
    """Return the cluster as tasks are given it.

    They read ledgers only, with an auditor's token in place of the cluster key. Called on the
    driver, once for the tasks of a step. Raises the errors of ``site``.
    """
    clock = site(where).world.clock
    return replace(where, bookies=where.bookies.for_auditing(clock.wall_ms))


def _place(where: JobCluster) -> JobCluster:
    return replace(where, bookies=replace(where.bookies, token=None))


def leave(where: JobCluster) -> None:
    """Close this process's access; does nothing where there is none."""
    found = _sites.pop(_place(where), None)
    if found is not None:
        run(found[1].close())
