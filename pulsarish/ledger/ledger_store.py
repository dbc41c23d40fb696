"""Ledger metadata in the metadata store, with the record of missing copies that belongs to each
change (rule 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import ATTEMPTS_MAX, Records
from pulsarish.metadata.records import Cookie, RestoredTree, UnderReplicated
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.seams import Clock, Conflict, ConflictReason, Op
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["LedgerStore", "UnderReplicatedAsRead"]


class UnderReplicatedAsRead(NamedTuple):
    """A record of missing copies, with the node's version and creation time.

    A node that is created again starts at the same version.
    """

    record: UnderReplicated
    version: int
    created: int


class LedgerStore:
    """The records of ledgers.

    Every write is a compare-and-set of one record. On ``Conflict`` read again and decide again.
    """

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def read(self, ledger_id: int) -> tuple[LedgerMetadata, int] | None:
        """Return the record and its version; ``None`` when there is none.

        Raises ``MetadataUnavailable``, ``CorruptData``.
        """
        return await self._records.get(paths.ledger(ledger_id), LedgerMetadata)

    async def read_newest(self, ledger_id: int) -> tuple[LedgerMetadata, int] | None:
        """Read like ``read``, but see every earlier commit of any client."""
        return await self._records.update(
            paths.ledger(ledger_id), LedgerMetadata, lambda _found: None
        )

    async def store(
        self, metadata: LedgerMetadata, version: int | None, missing_members: Sequence[str] = ()
    ) -> int:
        """Store the record at ``version`` (``None``: create it) and, in the same commit, the
        members with missing copies.

        Returns the new version. Raises ``Conflict`` (nothing was written), ``MetadataUnavailable``
        (the outcome is unknown).
        """
        metadata.check()
        path = paths.ledger(metadata.ledger_id)
        below_policy = metadata.below_policy and version is None
        for _ in range(ATTEMPTS_MAX):
            ops = (
                [
                    await self._missing_copies_op(
                        metadata.ledger_id, missing_members, below_policy=below_policy
                    )
                ]
                if missing_members or below_policy
                else []
            )
            try:
                return await self._records.compare_and_set(path, metadata, version, with_ops=ops)
            except Conflict as conflict:
                if conflict.index == 0:
                    raise
                # Another process wrote the list of missing copies meanwhile, or the list does not
                # exist yet.
                if conflict.reason is ConflictReason.NO_NODE:
                    await self._records.ensure(paths.UNDERREPLICATED)
        raise MetadataUnavailable(
            f"the missing copies of ledger {metadata.ledger_id} changed {ATTEMPTS_MAX} times "
            "while being published"
        )

    async def creation(self, metadata: LedgerMetadata) -> list[Op]:
        """Return the operations that create a new ledger's record. Raises ``MetadataUnavailable``.

        They belong into the commit that creates the record that refers to the ledger. No second
        writer can know of the ledger before, so they need no token.
        """
        metadata.check()
        ops = [Op("create", paths.ledger(metadata.ledger_id), encode_record(metadata))]
        if metadata.below_policy:
            ops.append(await self._missing_copies_op(metadata.ledger_id, (), below_policy=True))
        return ops

    async def publish_missing(self, ledger_id: int, members: Sequence[str]) -> None:
        """Record that these members miss copies of the ledger. Raises ``MetadataUnavailable``."""
        path = paths.underreplicated(ledger_id)
        await self._records.update(
            path,
            UnderReplicated,
            lambda found: self._merged(ledger_id, found, members, below_policy=False),
        )

    async def publish_found(
        self, ledger_id: int, members: Sequence[str], *, below_policy: bool
    ) -> bool:
        """Record missing copies that an audit found.

        A record that lists them already is not written again.

        Returns:
            Whether anything was written.

        Raises ``MetadataUnavailable``.
        """
        written = False

        def change(found: UnderReplicated | None) -> UnderReplicated | None:
            nonlocal written
            known = found is not None and all(member in found.missing_members for member in members)
            written = not (known and found is not None and (found.below_policy or not below_policy))
            return (
                self._merged(ledger_id, found, members, below_policy=below_policy)
                if written
                else None
            )

        await self._records.update(paths.underreplicated(ledger_id), UnderReplicated, change)
        return written

    async def publish_leaving(self, ledger_id: int, member: str) -> None:
        """Record that this member is to be replaced in the ledger, whether it is there or not.

        Raises ``MetadataUnavailable``.
        """

        def change(found: UnderReplicated | None) -> UnderReplicated | None:
            if found is not None and member in found.leaving_members:
                return None
            record = self._merged(ledger_id, found, (), below_policy=False)
            return msgspec.structs.replace(
                record, leaving_members=(*record.leaving_members, member)
            )

        await self._records.update(paths.underreplicated(ledger_id), UnderReplicated, change)

    async def read_missing_copies(self, ledger_id: int) -> UnderReplicatedAsRead | None:
        """Read the record of a ledger's missing copies, to be deleted after the repair.

        Raises ``MetadataUnavailable``, ``CorruptData``.
        """
        path = paths.underreplicated(ledger_id)
        await self._records.sync(path)
        node = (await self._records.nodes([path]))[0]
        return (
            None
            if node is None
            else UnderReplicatedAsRead(
                decode_record(node.data, UnderReplicated, path), node.version, node.created
            )
        )

    async def delete_missing_copies(self, read: UnderReplicatedAsRead) -> bool:
        """Delete the record of missing copies, as it was read before the repair.

        The deletion is never tried twice: after a lost answer there may be a new record at the same
        version.

        Returns:
            ``False`` when the record was written since it was read. It stays.

        Raises ``MetadataUnavailable``. Then the caller reads again what is left.
        """
        path = paths.underreplicated(read.record.ledger_id)
        now = await self.read_missing_copies(read.record.ledger_id)
        if now is None:
            return True
        if (now.version, now.created) != (read.version, read.created):
            return False
        try:
            await self._records.commit([Op("delete", path, version=read.version)])
        except Conflict:
            return False
        return True

    async def note_reason(self, ledger_id: int, reason: str) -> None:
        """Record why the ledger's missing copies could not be made now.

        Raises ``MetadataUnavailable``.
        """

        def change(found: UnderReplicated | None) -> UnderReplicated | None:
            return (
                None
                if found is None or found.reason == reason
                else msgspec.structs.replace(found, reason=reason)
            )

        await self._records.update(paths.underreplicated(ledger_id), UnderReplicated, change)

    async def under_replicated(self, ledger_ids: Sequence[int]) -> list[UnderReplicated]:
        """Return the records of those ledgers that are under-replicated.

        Raises ``MetadataUnavailable``, ``CorruptData``.
        """
        wanted = [paths.underreplicated(ledger_id) for ledger_id in ledger_ids]
        nodes = await self._records.nodes(wanted)
        return [
            decode_record(node.data, UnderReplicated, path)
            for path, node in zip(wanted, nodes, strict=True)
            if node is not None
        ]

    async def delete(self, ledger_id: int, version: int) -> None:
        """Delete the record at this version, then the list of its missing copies.

        Raises ``Conflict``, ``MetadataUnavailable``.
        """
        await self._records.delete(paths.ledger(ledger_id), version, once=True)
        await self._records.delete(paths.underreplicated(ledger_id), once=True)

    async def bookies_if_unconfirmed(self) -> list[str]:
        """Return every bookie that the cluster ever had, by instance id, while the metadata are a
        restored and unconfirmed tree.

        Return an empty list when the tree was not restored, or when an operator has confirmed it.
        Raises ``MetadataUnavailable``.
        """
        if await self._records.get(paths.RESTORED, RestoredTree) is None:
            return []
        cookies = [
            f"{paths.COOKIES}/{name}" for name in await self._records.children(paths.COOKIES)
        ]
        found = await self._records.get_many(cookies, Cookie) if cookies else []
        return [row[0].instance_id for row in found if row is not None]

    async def _missing_copies_op(
        self, ledger_id: int, members: Sequence[str], *, below_policy: bool
    ) -> Op:
        path = paths.underreplicated(ledger_id)
        found = await self._records.get(path, UnderReplicated)
        record = self._merged(
            ledger_id, found[0] if found else None, members, below_policy=below_policy
        )
        if found is None:
            return Op("create", path, encode_record(record))
        return Op("put", path, encode_record(record), found[1])

    def _merged(
        self,
        ledger_id: int,
        found: UnderReplicated | None,
        members: Sequence[str],
        *,
        below_policy: bool,
    ) -> UnderReplicated:
        known = found.missing_members if found else ()
        return UnderReplicated(
            ledger_id,
            missing_members=(*known, *(member for member in members if member not in known)),
            below_policy=below_policy or (found is not None and found.below_policy),
            since_ms=found.since_ms if found else self._clock.wall_ms(),
            leaving_members=found.leaving_members if found else (),
        )
