"""An operator moves a topic past entries that are gone for good: exactly those, checked first, and on record (rule 20).

The record of the topic is changed by compare-and-set while the topic is not loaded; whoever loads it next, reads past them, counts them in
no backlog and lets the marks of cursors run over them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata import paths
from pulsarish.metadata.records import LostRange, TopicRecord
from pulsarish.metadata.update import Records
from pulsarish.model.errors import InvalidArgument, TopicNotFound
from pulsarish.model.topic_name import TopicName

__all__ = ["check_range", "record_lost"]


async def check_range(
    name: TopicName,
    ledgers: LedgerClient,
    records: Records,
    ledger_id: int,
    first_entry: int,
    last_entry: int | None,
    given_up: Sequence[str],
) -> LostRange:
    """The range, once it is sure that nothing of it can be read. ``last_entry`` None: to the end of the ledger.

    Raises ``TopicNotFound``, ``InvalidArgument`` for what is not in a closed ledger of the topic (rule 18) or is skipped already, and as
    ``LedgerClient.check_lost``.
    """
    found = await records.get(paths.topic(name), TopicRecord)
    if found is None or found[0].deleted:
        raise TopicNotFound(f"topic {name} does not exist")
    link = next((each for each in found[0].ledgers if each.ledger_id == ledger_id), None)
    if link is None or not link.closed_ms:
        closed = [str(each.ledger_id) for each in found[0].ledgers if each.closed_ms]
        raise InvalidArgument(f"ledger {ledger_id} is no closed ledger of {name}; those are {', '.join(closed) or 'none'}")
    last = link.entries - 1 if last_entry is None else last_entry
    if not 0 <= first_entry <= last < link.entries:
        raise InvalidArgument(f"entries {first_entry} to {last} are no range of ledger {ledger_id}, which has 0 to {link.entries - 1}")
    _check_apart(found[0], ledger_id, first_entry, last)
    await ledgers.check_lost(ledger_id, first_entry, last, given_up)
    return LostRange(ledger_id, first_entry, last, tuple(given_up))


async def record_lost(name: TopicName, records: Records, lost: LostRange) -> None:
    """Store that the topic goes on past a range that was checked. Raises as ``check_range``, and ``MetadataUnavailable``."""

    def add(record: TopicRecord | None) -> TopicRecord:
        if record is None or record.deleted or all(each.ledger_id != lost.ledger_id for each in record.ledgers):
            raise TopicNotFound(f"ledger {lost.ledger_id} left topic {name} meanwhile: there is nothing to skip any more")
        _check_apart(record, lost.ledger_id, lost.first_entry, lost.last_entry)
        return msgspec.structs.replace(
            record, lost=tuple(sorted((*record.lost, lost), key=lambda each: (each.ledger_id, each.first_entry)))
        )

    _ = await records.update(paths.topic(name), TopicRecord, add)


def _check_apart(record: TopicRecord, ledger_id: int, first_entry: int, last_entry: int) -> None:
    for each in record.lost:
        if each.ledger_id == ledger_id and each.first_entry <= last_entry and first_entry <= each.last_entry:
            raise InvalidArgument(f"entries {each.first_entry} to {each.last_entry} of ledger {ledger_id} are skipped already")
