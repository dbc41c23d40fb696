"""Recovery of ledgers that were open when the backup was taken from which the metadata was
restored.

The record of such a ledger may be too old. Members that joined after the backup are not in it, and
entries that only they hold would look as if they had never been confirmed. So until an operator has
confirmed the restored tree, recovery asks every bookie of the cluster, not only the recorded
ensemble, before it closes such a ledger. Every member of the ensemble must answer that it does not
have the next entry. The ledger stays open when another bookie holds an entry beyond the end, or
does not answer.
"""

from __future__ import annotations

import asyncio

from pulsarish.ledger.bookie_control import BookieControl, NoAnswer
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.model.errors import NoSuchEntry, NoSuchLedger, ServiceNotReady
from pulsarish.model.ledger_metadata import LedgerMetadata

__all__ = ["check_held_elsewhere"]

_WHAT_TO_DO = "pulsarish metadata audit shows it, pulsarish metadata confirm gives it up"


async def check_held_elsewhere(
    control: BookieControl, store: LedgerStore, metadata: LedgerMetadata, last_entry: int
) -> None:
    """Check that no bookie outside the recorded ensembles holds entries after ``last_entry``.

    Raises ``ServiceNotReady`` when one holds, or may hold, such an entry; also
    ``MetadataUnavailable``.
    """
    members = {member: None for segment in metadata.segments for member in segment.members}
    others = [bookie for bookie in await store.bookies_if_unconfirmed() if bookie not in members]
    said = await asyncio.gather(
        *(_holds_beyond(control, bookie, metadata, last_entry) for bookie in others)
    )
    for bookie, why in zip(others, said, strict=True):
        if why:
            raise ServiceNotReady(
                f"ledger {metadata.ledger_id} was open in the backup that the metadata were "
                f"restored from, and bookie {bookie}, which its record does not name, {why}: the "
                f"ledger is not closed at entry {last_entry}; {_WHAT_TO_DO}"
            )


async def _holds_beyond(
    control: BookieControl, bookie: str, metadata: LedgerMetadata, last_entry: int
) -> str:
    """Say why the ledger may not end at ``last_entry``; empty when this bookie knows no reason."""
    try:
        known = await control.read_lac(bookie, metadata.ledger_id)
        if known.code == NoSuchLedger.code:
            return ""
        if known.code:
            return f"cannot tell whether it holds more of it (code {known.code})"
        if known.lac > last_entry:
            return f"knows that entries up to {known.lac} were confirmed"
        # Of as many entries as the ensemble has members, this bookie would hold at least one.
        for entry_id in range(last_entry + 1, last_entry + 1 + metadata.ensemble_size):
            answer = await control.recovery_read(bookie, metadata.ledger_id, entry_id, entry_id, 1)
            if not answer.code:
                return f"holds entry {entry_id}"
            if answer.code not in (NoSuchEntry.code, NoSuchLedger.code):
                return f"cannot tell whether it holds entry {entry_id} (code {answer.code})"
    except NoAnswer as error:
        return f"did not answer ({error})"
    return ""
