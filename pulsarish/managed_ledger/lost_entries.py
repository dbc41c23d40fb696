"""The operator's command that moves a topic past lost entries: exactly those entries, checked
first, and recorded (rule 20).

The record of the topic is changed by compare-and-set while the topic is not loaded. The next owner
reads past the lost entries. It does not count them in a backlog, and mark-delete positions of
cursors may move over them.

The ledger of a subscription's acknowledgements can be lost, too. Then the subscription returns to
the state in metadata: messages are delivered again, and none is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.cursors.cursor_state import decode_entry
from pulsarish.managed_ledger.owned_topic_record import not_the_owner, same_topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord, LostRange, TopicRecord
from pulsarish.model.errors import (
    InvalidArgument,
    NotAllowedError,
    SubscriptionNotFound,
    TopicFenced,
    TopicNotFound,
)
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Conflict, Op

__all__ = ["check_cursor_ledger", "check_range", "record_lost", "take_cursor_back"]


async def check_range(
    name: TopicName,
    ledgers: LedgerClient,
    records: Records,
    ledger_id: int,
    first_entry: int,
    last_entry: int | None,
    given_up: Sequence[str],
) -> LostRange:
    """Return the range, once it is proved that no entry of it can be read.

    Args:
        last_entry: None: to the end of the ledger.

    Raises ``TopicNotFound``, ``InvalidArgument`` for entries that are not in a closed ledger of the
    topic (rule 18) or are skipped already, and the errors of ``LedgerClient.check_lost``.
    """
    found = await records.get(paths.topic(name), TopicRecord)
    if found is None or found[0].deleted:
        raise TopicNotFound(f"topic {name} does not exist")
    link = next((each for each in found[0].ledgers if each.ledger_id == ledger_id), None)
    if link is None or not link.closed_ms:
        closed = [str(each.ledger_id) for each in found[0].ledgers if each.closed_ms]
        raise InvalidArgument(
            f"ledger {ledger_id} is no closed ledger of {name}, which has "
            f"{', '.join(closed) or 'none'}"
        )
    last = link.entries - 1 if last_entry is None else last_entry
    if not 0 <= first_entry <= last < link.entries:
        raise InvalidArgument(
            f"entries {first_entry} to {last} are no range of ledger {ledger_id}, which has 0 to "
            f"{link.entries - 1}"
        )
    _check_apart(found[0], ledger_id, first_entry, last)
    await ledgers.check_lost(ledger_id, first_entry, last, given_up)
    return LostRange(ledger_id, first_entry, last, tuple(given_up))


async def record_lost(
    name: TopicName, records: Records, lost: LostRange, lease: Sequence[Op] = ()
) -> None:
    """Record that the topic continues after a range that was checked.

    ``lease`` is as for ``ManagedLedger.open``.

    Raises as ``check_range``, ``NotOwner`` without the lease, and ``MetadataUnavailable``.
    """

    def add(record: TopicRecord | None) -> TopicRecord:
        if (
            record is None
            or record.deleted
            or all(each.ledger_id != lost.ledger_id for each in record.ledgers)
        ):
            raise TopicNotFound(
                f"ledger {lost.ledger_id} left topic {name} meanwhile: there is nothing to skip "
                "any more"
            )
        _check_apart(record, lost.ledger_id, lost.first_entry, lost.last_entry)
        return msgspec.structs.replace(
            record,
            lost=tuple(
                sorted((*record.lost, lost), key=lambda each: (each.ledger_id, each.first_entry))
            ),
        )

    try:
        _ = await records.update(
            paths.topic(name),
            TopicRecord,
            add,
            with_ops=lambda record: [*same_topic(name, record), *lease],
        )
    except Conflict as conflict:
        raise not_the_owner(name) from conflict


def _check_apart(record: TopicRecord, ledger_id: int, first_entry: int, last_entry: int) -> None:
    for each in record.lost:
        if (
            each.ledger_id == ledger_id
            and each.first_entry <= last_entry
            and first_entry <= each.last_entry
        ):
            raise InvalidArgument(
                f"entries {each.first_entry} to {each.last_entry} of ledger {ledger_id} are "
                "skipped already"
            )


async def check_cursor_ledger(
    name: TopicName,
    subscription: str,
    ledgers: LedgerClient,
    records: Records,
    given_up: Sequence[str],
) -> int:
    """Return the ledger of a subscription's acknowledgements, once it is proved that it cannot be
    read any more.

    That is: its newest entry is lost, or an entry of the snapshot on which the newest entry builds.
    A ledger that is open is closed first, by its recovery.

    Raises ``SubscriptionNotFound``, ``NotAllowedError`` when there is no such ledger or it can be
    read, and the errors of ``LedgerClient.open`` and ``LedgerClient.check_lost``.
    """
    found = await records.get(paths.cursor(name, subscription), CursorRecord)
    if found is None or found[0].deleted:
        raise SubscriptionNotFound(f"topic {name} has no subscription {subscription!r}")
    ledger_id = found[0].cursor_ledger
    if ledger_id < 0:
        raise NotAllowedError(
            f"subscription {subscription!r} of {name} has no ledger of its own: what it has "
            "acknowledged is in metadata"
        )
    reader = await ledgers.open(ledger_id)
    metadata, last = reader.metadata, reader.last_add_confirmed
    members = sorted({member for segment in metadata.segments for member in segment.members})
    if strange := [bookie for bookie in given_up if bookie not in members]:
        raise InvalidArgument(
            f"ledger {ledger_id} does not lie on {', '.join(strange)}; name bookies of "
            f"{', '.join(members)}"
        )

    async def is_lost(entry_id: int) -> bool:
        try:
            await ledgers.check_lost(
                ledger_id,
                entry_id,
                entry_id,
                [each for each in given_up if each in metadata.write_set(entry_id)],
            )
        except NotAllowedError:
            return False
        return True

    if last < 0 or await is_lost(last):
        return ledger_id
    (newest,) = await reader.read(last, last, max_bytes=1)
    for entry_id in range(decode_entry(newest.payload).snapshot, last):
        if await is_lost(entry_id):
            return ledger_id
    raise NotAllowedError(
        f"ledger {ledger_id} of subscription {subscription!r} of {name} can be read; nothing has "
        "to be given up"
    )


async def take_cursor_back(
    name: TopicName, subscription: str, records: Records, ledger_id: int, lease: Sequence[Op] = ()
) -> Position:
    """Record that a subscription continues without its ledger, which is deleted later.

    Args:
        lease: as for ``ManagedLedger.open``.

    Returns:
        The mark-delete position from which the subscription delivers again.

    Raises ``TopicFenced`` when the subscription has another ledger by now, ``NotOwner`` without the
    lease, and ``MetadataUnavailable``.
    """

    def change(record: CursorRecord | None) -> CursorRecord:
        if record is None or record.deleted or record.cursor_ledger != ledger_id:
            raise TopicFenced(
                f"subscription {subscription!r} of {name} was changed meanwhile; look whether it "
                "still stands"
            )
        return msgspec.structs.replace(
            record, cursor_ledger=-1, deleting=(*record.deleting, ledger_id)
        )

    topic = await records.get(paths.topic(name), TopicRecord)
    guards = [*same_topic(name, None if topic is None else topic[0]), *lease]
    try:
        changed = await records.update(
            paths.cursor(name, subscription), CursorRecord, change, with_ops=lambda _record: guards
        )
    except Conflict as conflict:
        raise not_the_owner(name) from conflict
    assert changed is not None, "the change always wishes for a record"
    return Position(changed[0].mark_ledger, changed[0].mark_entry)
