"""What bookies know of the metadata: their cookies, and their copies of ledgers' records.

The copies of all bookies are merged. The one of the highest version counts, within the highest
epoch of the tree. Two copies of one version that differ are of two histories of the tree, and no
rule says which of them is right: such a ledger is left out and reported. A ledger that any bookie
remembers as deleted was missing from metadata that counted, at two looks. It is left out unless an
operator wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import CorruptData
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.wire.json_record import decode_record

__all__ = [
    "BookieCopies",
    "HeldRecord",
    "KnownLedgers",
    "decode_copies",
    "encode_copies",
    "merge_copies",
]

_FORMAT: Final = "pulsarish-ledger-records-1"


class HeldRecord(msgspec.Struct, frozen=True):
    """A copy of a ledger's record, as a bookie keeps it."""

    epoch: int
    version: int
    data: bytes


class BookieCopies(msgspec.Struct, frozen=True):
    """What one bookie knows of the metadata. Ids ascend."""

    cookie: Cookie
    """As the metadata are to have it."""
    records: dict[int, HeldRecord]
    held: tuple[int, ...] = ()
    """Ledgers that the bookie has, without those in the trash."""
    deleted: tuple[int, ...] = ()
    """Ledgers that it remembers as deleted, with those in the trash."""
    used: tuple[int, ...] = ()
    """All ids that occur, also in entry logs."""
    missing: str = ""
    """What its index has lost; empty: nothing."""


class _File(msgspec.Struct, frozen=True):
    format: str
    copies: BookieCopies


def encode_copies(copies: BookieCopies) -> bytes:
    return msgspec.json.encode(_File(_FORMAT, copies)) + b"\n"


def decode_copies(data: bytes, path: str) -> BookieCopies:
    """Decode a file of copies. Raises ``CorruptData`` for one that is cut off or something else."""
    try:
        found = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptData(
            f"{path} is no complete file of pulsarish storage save-records: {error}"
        ) from None
    if found.format != _FORMAT:
        raise CorruptData(f"{path} has the format {found.format!r}, not {_FORMAT!r}")
    return found.copies


@dataclass(slots=True)
class KnownLedgers:
    """The records of ledgers that bookies know, merged."""

    ledgers: dict[int, LedgerMetadata] = field(default_factory=dict)
    """By id, ascending."""
    epoch: int = 0
    """The greatest epoch in which a copy was made."""
    conflicts: dict[int, list[str]] = field(default_factory=dict)
    """Ledgers of whose highest version there are different records, with the bookies that have
    them.
    """
    unreadable: dict[int, str] = field(default_factory=dict)
    """Ledgers with a copy that cannot be read, and why. An older copy may count instead."""
    unrecorded: dict[int, list[str]] = field(default_factory=dict)
    """Ledgers that bookies hold and of whose record none has a copy that can be read."""
    deleted: list[int] = field(default_factory=list)
    """Ledgers with copies that were left out, because a bookie remembers them as deleted."""


def merge_copies(bookies: Sequence[BookieCopies], *, include_deleted: bool = False) -> KnownLedgers:
    """Merge the copies of several bookies."""
    known = KnownLedgers()
    deleted = {ledger_id for bookie in bookies for ledger_id in bookie.deleted}
    found: dict[int, list[tuple[HeldRecord, str]]] = {}
    for bookie in bookies:
        for ledger_id, held in bookie.records.items():
            known.epoch = max(known.epoch, held.epoch)
            found.setdefault(ledger_id, []).append((held, bookie.cookie.instance_id))
    for ledger_id in sorted(found):
        if ledger_id in deleted and not include_deleted:
            known.deleted.append(ledger_id)
        else:
            _merge_one(known, ledger_id, found[ledger_id])
    for bookie in bookies:
        for ledger_id in bookie.held:
            if (
                ledger_id not in known.ledgers
                and ledger_id not in known.conflicts
                and (include_deleted or ledger_id not in deleted)
            ):
                known.unrecorded.setdefault(ledger_id, []).append(bookie.cookie.instance_id)
    return known


def _merge_one(known: KnownLedgers, ledger_id: int, copies: list[tuple[HeldRecord, str]]) -> None:
    readable: list[tuple[HeldRecord, str, LedgerMetadata]] = []
    for held, bookie in copies:
        try:
            readable.append((held, bookie, _decoded(ledger_id, held)))
        except CorruptData as error:
            known.unreadable[ledger_id] = f"the copy on {bookie}: {error}"
    if not readable:
        return
    newest = _newest(readable)
    if any(metadata != newest[0][2] for _, _, metadata in newest):
        known.conflicts[ledger_id] = sorted(bookie for _, bookie, _ in newest)
    else:
        known.ledgers[ledger_id] = newest[0][2]


def _newest(
    copies: Sequence[tuple[HeldRecord, str, LedgerMetadata]],
) -> list[tuple[HeldRecord, str, LedgerMetadata]]:
    """Return the copies of the highest version in the highest epoch."""
    highest = max((held.epoch, held.version) for held, _, _ in copies)
    return [each for each in copies if (each[0].epoch, each[0].version) == highest]


def _decoded(ledger_id: int, held: HeldRecord) -> LedgerMetadata:
    path = paths.ledger(ledger_id)
    metadata = decode_record(held.data, LedgerMetadata, path)
    try:
        metadata.check()
    except AssertionError as error:
        raise CorruptData(f"{path} breaks rule 1: {error}") from None
    if metadata.ledger_id != ledger_id:
        raise CorruptData(f"{path} is the record of ledger {metadata.ledger_id}")
    return metadata
