"""Ledger metadata in the metadata store, together with the record of missing copies that belongs to each change (rule 3)."""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.metadata import paths
from pulsarish.metadata.records import UnderReplicated
from pulsarish.metadata.update import ATTEMPTS_MAX, Records
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.seams import Clock, Conflict, ConflictReason, Op
from pulsarish.wire.json_record import encode_record

__all__ = ["LedgerStore"]


class LedgerStore:
    """Every write is a compare-and-set of one ledger's record; ``Conflict`` means: read again and decide anew."""

    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def read(self, ledger_id: int) -> tuple[LedgerMetadata, int] | None:
        """The record and its version, ``None`` when there is none. Raises ``MetadataUnavailable``, ``CorruptData``."""
        return await self._records.get(paths.ledger(ledger_id), LedgerMetadata)

    async def read_newest(self, ledger_id: int) -> tuple[LedgerMetadata, int] | None:
        """Like ``read``, and sees everything that anybody committed before."""
        return await self._records.update(paths.ledger(ledger_id), LedgerMetadata, lambda _found: None)

    async def store(self, metadata: LedgerMetadata, version: int | None, lacking: Sequence[str] = ()) -> int:
        """Store the record at ``version`` (``None``: create it) and, in the same commit, the members that lack copies.

        Returns the new version. Raises ``Conflict`` with nothing written, ``MetadataUnavailable`` when the outcome is unknown.
        """
        metadata.check()
        path = paths.ledger(metadata.ledger_id)
        below_policy = metadata.below_policy and version is None
        for _ in range(ATTEMPTS_MAX):
            ops = [await self._lacking_op(metadata.ledger_id, lacking, below_policy=below_policy)] if lacking or below_policy else []
            try:
                return await self._records.compare_and_set(path, metadata, version, with_ops=ops)
            except Conflict as conflict:
                if conflict.index == 0:
                    raise
                # Somebody else wrote the list of missing copies meanwhile, or there is no such list yet.
                if conflict.reason is ConflictReason.NO_NODE:
                    await self._records.ensure(paths.UNDERREPLICATED)
        raise MetadataUnavailable(f"the missing copies of ledger {metadata.ledger_id} changed {ATTEMPTS_MAX} times while being published")

    async def publish_lacking(self, ledger_id: int, members: Sequence[str]) -> None:
        """Record that these members lack copies of the ledger. Raises ``MetadataUnavailable``."""
        path = paths.underreplicated(ledger_id)
        await self._records.update(path, UnderReplicated, lambda found: self._merged(ledger_id, found, members, below_policy=False))

    async def delete(self, ledger_id: int, version: int) -> None:
        """Delete the record at this version, then the list of its missing copies. Raises ``Conflict``, ``MetadataUnavailable``."""
        await self._records.delete(paths.ledger(ledger_id), version)
        await self._records.delete(paths.underreplicated(ledger_id))

    async def _lacking_op(self, ledger_id: int, members: Sequence[str], *, below_policy: bool) -> Op:
        path = paths.underreplicated(ledger_id)
        found = await self._records.get(path, UnderReplicated)
        record = self._merged(ledger_id, found[0] if found else None, members, below_policy=below_policy)
        if found is None:
            return Op("create", path, encode_record(record))
        return Op("put", path, encode_record(record), found[1])

    def _merged(self, ledger_id: int, found: UnderReplicated | None, members: Sequence[str], *, below_policy: bool) -> UnderReplicated:
        known = found.missing_members if found else ()
        return UnderReplicated(
            ledger_id,
            missing_members=(*known, *(member for member in members if member not in known)),
            below_policy=below_policy or (found is not None and found.below_policy),
            since_ms=found.since_ms if found else self._clock.wall_ms(),
        )
