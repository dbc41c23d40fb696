"""The age of the metadata tree: what a node has seen of it, and what happens when the tree comes
back older.

Every answer of the metadata service carries the transaction id that it is up to date with, and
``/age`` has a count that nodes raise while the tree changes. A node remembers the greatest of both
that it has seen, longer than its sessions last. A bookie keeps them in a file, so it remembers them
after a restart, too. A tree that has not come as far has lost transactions: ledgers are missing in
it, closed ledgers are open, and ensembles are outdated. The first node that sees this marks the
tree with ``/restored``, as a restore from a backup does, and ``older``. While that mark exists no
node makes, changes, closes or deletes a ledger, bookies delete nothing (rule 12), and brokers and
auto-recovery do not use what they read there. The operator puts the newer tree back, which does not
have the mark, or accepts the older one.

Both numbers can be compared only within one history of the tree. When an operator accepts or
confirms a tree, its epoch rises above all that nodes have seen, and they count from there on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AgeRecord, RestoredTree
from pulsarish.metadata.tree_state import NOTHING_SEEN, TreeState
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.seams import Clock, Conflict, Op, SessionState, Versioned
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["OLDER", "REBUILT", "TreeAge", "confirm_tree", "raise_epoch", "why_older"]

_log = get_logger("metadata.age")

OLDER = "the metadata are older than nodes have seen them"
"""The message that a node logs each time it looks at such a tree."""

REBUILT = "rebuilt"
"""Stands in the mark of a tree that was made from what bookies know, in the place of a backup's
checksum.
"""


class TreeAge:
    """What one node knows of the tree's age.

    Args:
        seen: the newest tree that an earlier process saw.
        keep: makes durable what was seen; ``watch`` calls it.
    """

    def __init__(
        self,
        records: Records,
        clock: Clock,
        *,
        seen: TreeState = NOTHING_SEEN,
        keep: Callable[[TreeState], Awaitable[None]] | None = None,
    ) -> None:
        self.holder = "a ledger client"
        """The name of this node in the mark."""
        self.seen = seen
        self.mark: RestoredTree | None = None
        """The tree's mark when this node last looked."""
        self.outage = ""
        """Why nothing may be read and written, whatever the age; empty: it may."""
        self._records = records
        self._clock = clock
        self._keep = keep
        self._kept = seen
        self._found = NOTHING_SEEN  # at the last look
        self._age_version: int | None = None  # of ``paths.AGE`` at the last look
        self._counted = NOTHING_SEEN  # when the count was last seen to change
        self._connections = 0  # changes of the session's state
        # changes of the connection, of the mark, and of what other nodes have seen
        self._changes = 0
        self._looked_at = -1  # how many of them the last look has covered
        self._looks = 0  # looks that have ended
        self._checking = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stopping = False
        records.listen(self._session_changed)

    @property
    def is_older(self) -> bool:
        """Whether the tree was older than some node has seen, when this node last looked."""
        return self.mark is not None and self.mark.older

    @property
    def is_closed(self) -> bool:
        return bool(self.outage) or self.is_older

    def export(self, metrics: Metrics) -> None:
        """Register the metrics of the tree."""
        metrics.read(
            "pulsarish_metadata_older",
            "gauge",
            "1 while the metadata are older than nodes have seen them and nothing is written to "
            "them.",
            lambda: int(self.is_older),
        )

    def learn(self, seen: TreeState) -> None:
        """Note what another node has seen."""
        newest = self.seen.merged(seen)
        if newest != self.seen:
            self.seen = newest
            self._changed()

    async def check(self) -> None:
        """Raise ``MetadataUnavailable`` during an ``outage``, and as ``check_age``."""
        if not self.outage:
            await self.check_age()
        if self.outage:
            raise MetadataUnavailable(self.outage)

    async def check_age(self) -> None:
        """Raise ``MetadataUnavailable`` while the tree is older than some node has seen: nothing
        may be decided from it.

        When it returns, the tree was checked over the present connection. Concurrent callers share
        one look.
        """
        looks = self._looks
        if self._looked_at != self._changes or self.is_older:
            async with self._checking:
                # What was learnt during the look may be newer than what it compared with.
                while self._looked_at != self._changes or (self.is_older and self._looks == looks):
                    await self.look()
                    if self.is_older:
                        break
        if self.mark is not None and self.mark.older:
            raise MetadataUnavailable(why_older(self.mark))

    async def known_mark(self) -> RestoredTree | None:
        """Return the tree's mark, and look only if it may have changed since the last look.

        Raises ``MetadataUnavailable``.

        The event that a mark was set may be late: decide nothing that cannot be undone before
        ``paths.RESTORED`` is read after a sync.
        """
        if self._looked_at != self._changes or self.mark is not None:
            return await self.look()
        return None

    async def look(self) -> RestoredTree | None:
        """Compare the tree with what was seen, mark it when it is older, and return its mark.

        Raises ``MetadataUnavailable``.
        """
        records, connection, changes = self._records, self._connections, self._changes
        before = self.seen  # what is seen from here on may be newer than what this look reads
        # A server that lags behind its leader does not have an older tree.
        await records.sync(paths.RESTORED)
        zxid = records.zxid
        # Keep this order: a confirmation raises the epoch before it removes the mark.
        (mark_node,) = await records.nodes([paths.RESTORED], watch=self._fired)
        found_age = await records.get(paths.AGE, AgeRecord)
        self._age_version = None if found_age is None else found_age[1]
        if connection != self._connections:
            raise MetadataUnavailable(
                "the connection to the metadata store changed while the tree's age was asked for"
            )
        age = AgeRecord() if found_age is None else found_age[0]
        mark = (
            None
            if mark_node is None
            else decode_record(mark_node.data, RestoredTree, paths.RESTORED)
        )
        found = TreeState(age.epoch, age.count, zxid)
        is_remembered = _is_remembered(mark, found)
        if found.is_older_than(before) and (
            mark is None or is_remembered or mark.seen.is_older_than(before)
        ):
            mark = await self._set_mark(found, mark, mark_node, older=is_remembered)
        elif is_remembered:
            self.seen = self.seen.merged(found)
        elif mark is not None and mark.older and self.seen == before:
            # Everything that this node has seen, it may have seen in this older tree: it may have
            # raised the count here before another node marked the tree. The newer tree does not
            # have that count, and would look older by it.
            self.seen = mark.seen
        if found[:2] != self._counted[:2]:
            self._counted = found._replace(zxid=records.zxid)  # the count was read after the sync
        self.mark, self._found, self._looked_at = mark, found, changes
        self._looks += 1
        return mark

    async def watch(self, interval_seconds: float) -> None:
        """Look at each change of the connection, look every ``interval_seconds`` if the tree has
        changed, and keep what was seen.

        The daemon's tree is not read while it does not change: each answer of the store carries the
        transaction id, the answers to heartbeats, too. ZooKeeper's id grows with each sync, so
        every node looks each time there.
        """
        settled = -1  # the transaction id up to which changes were counted
        while not self._stopping:
            self._wake.clear()
            try:
                if (
                    self._looked_at != self._changes
                    or self.mark is not None
                    or self._records.zxid > settled
                ):
                    before = self._counted
                    mark = await self.look()
                    if mark is not None and mark.older:
                        _log.error(OLDER, reason=why_older(mark))
                    elif _is_remembered(mark, self._found):
                        await self._count(before)
                        settled = self._found.zxid
            except MetadataUnavailable as error:
                _log.debug("age of the metadata not known now", reason=error)
            except CorruptData as error:
                _log.error("the age of the metadata cannot be read", reason=error)
            if self._keep is not None and self.seen != self._kept:
                seen = self.seen
                try:
                    await self._keep(seen)
                    self._kept = seen
                except OSError as error:
                    _log.error(
                        "the age of the metadata could not be stored; the next look tries again",
                        reason=error,
                    )
            try:
                async with self._clock.timeout(interval_seconds):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def _session_changed(self, state: SessionState) -> None:
        is_known = self._looked_at == self._changes and _is_remembered(self.mark, self._found)
        if state is not SessionState.CONNECTED and is_known:
            # The last transaction id of this session; the next session may be with an older tree.
            self.seen = self.seen.merged(self._found._replace(zxid=self._records.zxid))
        self._connections += 1
        self._changed()

    def _fired(self, _path: str) -> None:
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._wake.set()

    async def _count(self, before: TreeState) -> None:
        """Raise the count because the tree has changed, unless another node has raised it since the
        last look.

        With the count, nodes recognise a tree that lost that change even when its transaction ids
        have grown since: each election of an ensemble raises them.
        """
        found, connection = self._found, self._connections
        if found[:2] != before[:2] or found.zxid <= self._counted.zxid:
            return
        data = encode_record(AgeRecord(found.epoch, found.counted + 1))
        op = (
            Op("create", paths.AGE, data)
            if self._age_version is None
            else Op("put", paths.AGE, data, self._age_version)
        )
        try:
            # As the mark, written once and over the connection that was looked at: the next
            # connection may be with an older tree.
            await self._records.commit([op])
        except Conflict:
            return  # another node has raised it, or has marked the tree
        if connection == self._connections:
            self._found = self._counted = TreeState(
                found.epoch, found.counted + 1, self._records.zxid
            )
            self.seen = self.seen.merged(self._found)

    async def _set_mark(
        self, found: TreeState, mark: RestoredTree | None, node: Versioned | None, *, older: bool
    ) -> RestoredTree:
        if mark is None:
            mark = RestoredTree("", 0, self._clock.wall_ms())
        if older:
            mark = msgspec.structs.replace(mark, older=True, found_by=self.holder, found=found)
        mark = msgspec.structs.replace(mark, seen=mark.seen.merged(self.seen))
        data = encode_record(mark)
        ops = [
            Op("create", paths.RESTORED, data)
            if node is None
            else Op("put", paths.RESTORED, data, node.version)
        ]
        if node is None and self._age_version is not None:
            # From here on no node raises the count that it has read before.
            ops.append(
                Op(
                    "put",
                    paths.AGE,
                    encode_record(AgeRecord(found.epoch, found.counted)),
                    self._age_version,
                )
            )
        try:
            # Write the mark once, over the connection that was looked at: the next connection may
            # reach a tree that is not older. A server that was cut off from its ensemble still
            # answers reads, with outdated data.
            await self._records.commit(ops)
        except Conflict as conflict:
            raise MetadataUnavailable(
                "the mark of an older tree was changed meanwhile; look again"
            ) from conflict
        return mark


def _is_remembered(mark: RestoredTree | None, found: TreeState) -> bool:
    """Return whether nodes remember how new this tree is, and compare it with that.

    They do for a tree without a mark, and for one that an operator has accepted, because its epoch
    began then. A tree from a backup has the epoch of another tree until it is confirmed.
    """
    return mark is None or (
        bool(mark.found_by) and not mark.older and found.epoch > mark.seen.epoch
    )


def why_older(mark: RestoredTree) -> str:
    """Return what is wrong with a marked tree, and what to do."""
    return (
        f"the metadata came back older than they were: {mark.found_by} found "
        f"{_shown(mark.found)}, and nodes had seen {_shown(mark.seen)}. Nothing is written to "
        "them, and no ledger is closed or deleted. Put the newer metadata back and restart the "
        "service, or go on without what is lost: pulsarish metadata accept"
    )


def _shown(state: TreeState) -> str:
    return f"transaction {state.zxid:#x} and count {state.counted} of epoch {state.epoch}"


async def confirm_tree(records: Records) -> None:
    """Confirm the tree as right: its age counts from now on, and its mark is deleted.

    Raises ``MetadataUnavailable``.
    """
    found = await records.get(paths.RESTORED, RestoredTree)
    if found is not None:
        await raise_epoch(records, found[0])
        _ = await records.delete(paths.RESTORED)


async def raise_epoch(records: Records, mark: RestoredTree) -> None:
    """Begin an epoch above all that nodes have reported to have seen."""

    def above(found: AgeRecord | None) -> AgeRecord:
        return AgeRecord(max(mark.seen.epoch, found.epoch if found is not None else 0) + 1)

    try:
        _ = await records.update(paths.AGE, AgeRecord, above)
    except Conflict as conflict:
        raise MetadataUnavailable(f"the epoch of the tree was not raised: {conflict}") from conflict
