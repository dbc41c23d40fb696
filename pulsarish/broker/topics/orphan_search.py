"""The search of the leader broker for orphans: ledgers and nodes that nothing refers to.

A process that dies between making a ledger and naming it leaves one. The search lists all ledgers
first and reads all references after, so that what is made meanwhile is named where it is seen. A
read that fails ends the search, and nothing is concluded from it.

Found orphans are reported. With ``orphan_deletion_enabled`` they are deleted in a second phase:
when searches have found one unchanged for ``orphan_grace_seconds``. A ledger is then changed in a
first commit, which refuses all commits that were prepared to name it: each checks the version of
the ledger. Its owner's records are read after that, and only then the ledger is deleted, at the
version of that first commit. So a ledger that is in use is never deleted, also not by two leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics.orphan_plan import (
    LedgersWithoutReference,
    Orphan,
    OrphanKind,
    OrphanNotes,
    ledger_orphan,
    owners_of,
)
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BundleOwner, CursorRecord, RestoredTree, TopicRecord
from pulsarish.metadata.subtrees import nodes_below
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.rate_limiter import RateLimiter
from pulsarish.runtime.seams import Conflict, Op, Versioned, World
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["OrphanSearch"]

_log = get_logger("broker.orphans")

_LOGGED_MAX: Final = 20
_KINDS: Final = {"policies": OrphanKind.POLICIES, "schemas": OrphanKind.SCHEMA}


class _NotLeading(Exception):
    """This broker is not the leader any more."""


class OrphanSearch:
    """Searches while this broker is the leader. Runs on every broker."""

    def __init__(
        self, world: World, config: BrokerConfig, records: Records, ownership: Ownership
    ) -> None:
        self.notes = OrphanNotes()
        """Empty on a broker that does not lead."""
        self.searched_ms = 0
        """When the last whole search ended (wall clock); 0: none has, since this broker leads."""
        self.failure = ""
        """Why the last search did not come to its end; empty when it did."""
        self.searches_count = 0
        """Searches that came to their end."""
        self.deleted_count = 0
        self._world = world
        self._config = config
        self._records = records
        self._ledgers = LedgerStore(records, world.clock)
        self._ownership = ownership
        self._stopped = False
        self._asked = asyncio.Event()
        self._is_running = False

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "orphans", self._run)

    def stop(self) -> None:
        self._stopped = True

    def ask(self) -> None:
        """Have a search begin at once, or when the one under way has ended: that one may have read
        already what has changed since.

        It is like any other, and follows the same rules: what it finds first is not due before
        ``orphan_grace_seconds``.
        """
        self._asked.set()

    @property
    def is_searching(self) -> bool:
        """Whether a search runs, or one that was asked for is still to begin."""
        return self._is_running or self._asked.is_set()

    def counts(self) -> dict[str, float]:
        """Return the number of orphans by kind."""
        found = dict.fromkeys((kind.value for kind in OrphanKind), 0.0)
        for orphan in self.notes.found.values():
            found[orphan.kind.value] += 1
        return found

    def size_bytes(self) -> int:
        """Return the size of all orphans on all bookies, as far as it is known."""
        return sum(max(0, orphan.size_bytes) for orphan in self.notes.found.values())

    @property
    def _leading(self) -> bool:
        return not self._stopped and self._ownership.serving and self._ownership.leader.is_leader

    async def _run(self) -> None:
        while not self._stopped:
            with suppress(TimeoutError):
                async with self._world.clock.timeout(self._config.orphan_check_interval_seconds):
                    await self._asked.wait()
            self._is_running = True
            self._asked.clear()
            try:
                if self._leading:
                    await self.round()
                else:
                    self._forget_all()
            except PulsarishError as error:
                self.failure = str(error)
                _log.warning("the search for orphans begins again later", reason=error)
            finally:
                self._is_running = False

    def _forget_all(self) -> None:
        """Forget what this broker has found as the leader: it does not know what holds now."""
        self.notes = OrphanNotes()
        self.searched_ms, self.failure = 0, ""

    async def round(self) -> None:
        """Search once, and delete what is due, if that is allowed.

        Raises ``MetadataUnavailable``, ``CorruptData``: then nothing is concluded, and nothing is
        deleted.
        """
        try:
            await self._round()
        except _NotLeading:
            self._forget_all()

    async def _round(self) -> None:
        found = await self._search()
        clock = self._world.clock
        fresh = self.notes.note(found, now=clock.monotonic(), now_ms=clock.wall_ms())
        self.searched_ms, self.failure = clock.wall_ms(), ""
        self.searches_count += 1
        for orphan in fresh[:_LOGGED_MAX]:
            _log.warning(
                "nothing refers to a node",
                kind=orphan.kind.value,
                path=orphan.path,
                reason=orphan.why,
                size_bytes=orphan.size_bytes,
            )
        if len(fresh) > _LOGGED_MAX:
            _log.warning(
                "nothing refers to more nodes: pulsarish ledgers orphans lists them",
                count=len(fresh) - _LOGGED_MAX,
            )
        if self._config.orphan_deletion_enabled:
            await self._delete_due()

    # -- the search

    async def _search(self) -> list[Orphan]:
        """Return all orphans of one whole view."""
        rate = RateLimiter(
            self._world.clock, self._config.sweeper_topics_per_second, saved_max=self._page
        )
        unnamed = LedgersWithoutReference()
        found: list[Orphan] = []
        await self._list_ledgers(unnamed)
        await self._read_references(unnamed, found, rate)
        await self._read_unnamed(unnamed, found, rate)
        for root in (paths.PARTITIONED, paths.NON_PERSISTENT):
            found += await self._without_namespace(
                root, OrphanKind.PARTITIONED, "it has the policies and schemas of a topic, and its"
            )
        found += await self._bundle_owners()
        return found

    async def _list_ledgers(self, unnamed: LedgersWithoutReference) -> None:
        await self._records.sync(paths.LEDGERS)
        async for page in ledger_ids(self._records):
            self._check_leading()
            unnamed.add(page)

    async def _read_references(
        self, unnamed: LedgersWithoutReference, found: list[Orphan], rate: RateLimiter
    ) -> None:
        await self._records.sync(paths.TOPICS)
        async for branch, names in self._branches(paths.TOPICS):
            for start in range(0, len(names), self._page):
                self._check_leading()
                page = [f"{branch}/{name}" for name in names[start:][: self._page]]
                nodes = await self._records.nodes(page)
                parts = await asyncio.gather(
                    *(self._read_topic(path, node) for path, node in zip(page, nodes, strict=True))
                )
                for named, orphans in parts:
                    unnamed.name(named)
                    found += orphans
                await self._pause(rate, len(page))
        found += await self._without_namespace(
            paths.TOPICS, OrphanKind.TOPIC, "it may have messages, and its"
        )

    @property
    def _page(self) -> int:
        return self._config.sweeper_page_topics

    async def _branches(self, root: str) -> AsyncIterator[tuple[str, list[str]]]:
        """Yield the path of each namespace below a root, and the names below that."""
        for tenant in await self._records.children(root):
            for namespace in await self._records.children(f"{root}/{tenant}"):
                branch = f"{root}/{tenant}/{namespace}"
                yield branch, await self._records.children(branch)

    async def _read_topic(
        self, path: str, node: Versioned | None
    ) -> tuple[Sequence[int], Sequence[Orphan]]:
        """Return the ledgers that a topic's subtree names, and the orphans in it."""
        if node is None:
            return (), ()  # deleted since it was listed, with its ledgers
        if not node.data:
            named = await self._named_by_cursors(path)
            return named, await self._without_record(path, node)
        record = decode_record(node.data, TopicRecord, path)
        return (*record.ledgers_named, *await self._named_by_cursors(path)), ()

    async def _named_by_cursors(self, topic_path: str) -> list[int]:
        parent = f"{topic_path}/cursors"
        nodes = [f"{parent}/{name}" for name in await self._records.children(parent)]
        found = await self._records.get_many(nodes, CursorRecord)
        return [
            ledger_id
            for record in found
            if record is not None
            for ledger_id in record[0].ledgers_named
        ]

    async def _without_record(self, path: str, node: Versioned) -> list[Orphan]:
        """Return the orphans of a topic's node that has no record: no broker can open or create
        such a topic.
        """
        why = "no record of its topic exists"
        found: list[Orphan] = []
        for kind, below in await self._below(path):
            found += [
                Orphan(kind, each, why, stored.version, stored.created)
                for each, stored in zip(below, await self._records.nodes(below), strict=True)
                if stored is not None
            ]
        return [
            *found,
            Orphan(OrphanKind.TOPIC, path, why, node.version, node.created, is_deletable=True),
        ]

    async def _below(self, path: str) -> list[tuple[OrphanKind, list[str]]]:
        """Return the nodes below a topic's that are shown as orphans, by kind."""
        kinds = await self._records.children(path)
        cursors = [
            f"{path}/cursors/{name}" for name in await self._records.children(f"{path}/cursors")
        ]
        others = [(_KINDS[kind], [f"{path}/{kind}"]) for kind in kinds if kind in _KINDS]
        return [(OrphanKind.CURSOR, cursors), *others]

    async def _read_unnamed(
        self, unnamed: LedgersWithoutReference, found: list[Orphan], rate: RateLimiter
    ) -> None:
        left = unnamed.left()
        for start in range(0, len(left), self._page):
            self._check_leading()
            page = [paths.ledger(ledger_id) for ledger_id in left[start : start + self._page]]
            for path, node in zip(page, await self._records.nodes(page), strict=True):
                if node is None:
                    continue
                orphan = ledger_orphan(
                    decode_record(node.data, LedgerMetadata, path),
                    node.version,
                    node.created,
                    now_ms=self._world.clock.wall_ms(),
                    min_age_ms=int(self._config.orphan_min_age_seconds * 1000),
                )
                if orphan is not None:
                    found.append(orphan)
            await self._pause(rate, len(page))

    async def _without_namespace(self, root: str, kind: OrphanKind, what: str) -> list[Orphan]:
        """Return the nodes below namespaces that do not exist.

        They are listed before it is asked whether the namespace exists, which is made before they
        are.
        """
        found: list[Orphan] = []
        async for branch, names in self._branches(root):
            if not names or await self._has_namespace(branch):
                continue
            why = f"{what} namespace {'/'.join(branch.split('/')[2:4])} does not exist"
            for start in range(0, len(names), self._page):
                self._check_leading()
                page = [f"{branch}/{name}" for name in names[start : start + self._page]]
                found += [
                    Orphan(kind, path, why, node.version, node.created)
                    for path, node in zip(page, await self._records.nodes(page), strict=True)
                    # What has no data is a topic without a record, and is found as that.
                    if node is not None and node.data
                ]
        return found

    async def _has_namespace(self, branch: str) -> bool:
        path = f"{paths.NAMESPACES}/{'/'.join(branch.split('/')[2:4])}"
        return (await self._records.nodes([path]))[0] is not None

    async def _bundle_owners(self) -> list[Orphan]:
        found: list[Orphan] = []
        async for branch, names in self._branches(paths.OWNERS):
            if not names or await self._has_namespace(branch):
                continue
            nodes = [f"{branch}/{name}" for name in names]
            for path, node in zip(nodes, await self._records.nodes(nodes), strict=True):
                # A live owner keeps its bundles for a namespace of that name that is made again.
                if node is not None and not await self._has_owner(path, node):
                    why = "its namespace does not exist, and no live broker owns it"
                    found.append(
                        Orphan(
                            OrphanKind.BUNDLE_OWNER,
                            path,
                            why,
                            node.version,
                            node.created,
                            is_deletable=True,
                        )
                    )
        return found

    async def _has_owner(self, path: str, node: Versioned) -> bool:
        owner = decode_record(node.data, BundleOwner, path)
        return bool(owner.broker_id) and await self._ownership.registry.is_registered(
            owner.instance_id
        )

    async def _pause(self, rate: RateLimiter, count: int) -> None:
        rate.limit(self._config.sweeper_topics_per_second)  # may have changed since the beginning
        await rate.take(count)

    def _check_leading(self) -> None:
        if not self._leading:
            raise _NotLeading

    # -- deletion

    async def _delete_due(self) -> None:
        due = self.notes.due(
            now=self._world.clock.monotonic(), grace_seconds=self._config.orphan_grace_seconds
        )
        if not due:
            return
        if await self._records.get(paths.RESTORED, RestoredTree) is not None:
            _log.warning(
                "no orphan is deleted: the metadata are restored ones that are not confirmed yet",
                count=len(due),
            )
            return
        rate = RateLimiter(self._world.clock, self._config.sweeper_topics_per_second)
        for orphan in due:
            self._check_leading()
            try:
                is_deleted = await self._delete(orphan)
            except Conflict as conflict:
                # What is used is no orphan. The next search tells what holds.
                _log.info("an orphan was changed and stays", path=orphan.path, reason=conflict)
                is_deleted = False
            if is_deleted:
                self.deleted_count += 1
                self.notes.forget(orphan.path)
            await self._pause(rate, 1)

    async def _delete(self, orphan: Orphan) -> bool:
        """Delete an orphan as it was found, and return whether that was done.

        Raises ``Conflict``, ``MetadataUnavailable``.
        """
        if orphan.kind is OrphanKind.LEDGER:
            return await self._delete_ledger(orphan)
        below: list[str] = []
        if orphan.kind is OrphanKind.BUNDLE_OWNER:
            await self._records.sync(paths.NAMESPACES)
            if await self._has_namespace(orphan.path):
                return False
        else:
            below = await self._below_topic(orphan.path)
        # A topic that is created again has other nodes below it, so the commit is refused.
        is_deleted = await self._records.delete(
            orphan.path,
            orphan.version,
            before=[Op("delete", each) for each in below],
            created=orphan.created,
        )
        if is_deleted:
            _log.warning("an orphan was deleted", kind=orphan.kind.value, path=orphan.path)
        return is_deleted

    async def _is_the_same(self, orphan: Orphan) -> bool:
        """Return whether the node is the one that was found. One that is created again may have
        the same version.
        """
        await self._records.sync(orphan.path)
        node = (await self._records.nodes([orphan.path]))[0]
        return node is not None and (node.version, node.created) == (orphan.version, orphan.created)

    async def _below_topic(self, path: str) -> list[str]:
        """Return all nodes below a topic's node, each after what lies below it."""
        parent = f"{path}/cursors"
        cursors = [f"{parent}/{name}" for name in await self._records.children(parent)]
        kinds = await self._records.children(path)
        return [*cursors, *await nodes_below(self._records, path, kinds)]

    async def _delete_ledger(self, orphan: Orphan) -> bool:
        if not await self._is_the_same(orphan):
            return False
        found = await self._ledgers.read_newest(orphan.ledger_id)
        if found is None or found[1] != orphan.version or await self._is_named(found[0]):
            return False
        metadata, version = await self._refuse_naming(found[0], orphan.version)
        # From here on every commit that names it is refused. What was committed before is seen now.
        if await self._is_named(metadata):
            return False
        await self._ledgers.delete(orphan.ledger_id, version)
        _log.warning(
            "an orphan was deleted",
            kind=orphan.kind.value,
            path=orphan.path,
            owner=orphan.owner,
            record=encode_record(metadata).decode(),
        )
        return True

    async def _refuse_naming(
        self, metadata: LedgerMetadata, version: int
    ) -> tuple[LedgerMetadata, int]:
        """Change a ledger's record so that no writer of it continues, and return it with its new
        version.

        Raises ``Conflict``, ``MetadataUnavailable``.
        """
        if metadata.state is not LedgerState.CLOSED:
            metadata = metadata.in_recovery()
        return metadata, await self._ledgers.store(metadata, version)

    async def _is_named(self, metadata: LedgerMetadata) -> bool:
        """Return whether a topic for which the ledger may have been made names it now."""
        for path in owners_of(metadata.purpose):
            await self._records.sync(path)
            node = (await self._records.nodes([path]))[0]
            named, _ = await self._read_topic(path, node)
            if metadata.ledger_id in named:
                return True
        return False
