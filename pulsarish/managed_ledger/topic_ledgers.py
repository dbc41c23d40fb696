"""The ledgers of a topic: create the next one, discard an unused one, record that one is closed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.metadata.records import TopicLedger, TopicRecord
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerPurpose, PurposeKind
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Op

__all__ = ["WriterEvents", "WriterOwner", "chain_closed", "create_ledger", "discard_ledger"]

_log = get_logger("managed_ledger")


class WriterOwner(Protocol):
    """The object that appends to a ledger."""

    def on_confirmed(self, last_entry: int) -> None: ...

    def on_writer_stopped(self, error: PulsarishError) -> None: ...


class WriterEvents:
    """The reports of one ledger's writer, until the appender has left it for another."""

    __slots__ = ("owner",)

    def __init__(self) -> None:
        self.owner: WriterOwner | None = None

    def confirmed(self, last_entry: int) -> None:
        if self.owner is not None:
            self.owner.on_confirmed(last_entry)

    def stopped(self, error: PulsarishError) -> None:
        if self.owner is not None:
            self.owner.on_writer_stopped(error)


async def create_ledger(
    ledgers: LedgerClient,
    name: TopicName,
    options: ManagedLedgerOptions,
    *,
    above: int,
    commit: Callable[[int, Sequence[Op]], Awaitable[None]] | None = None,
) -> tuple[LedgerWriter, WriterEvents]:
    """Create a ledger for the topic.

    It is in no list yet unless ``commit`` adds it (see ``LedgerClient.create``).

    Positions compare in the order of the log, so ids must grow along it, and brokers draw them in
    blocks of their own.

    Args:
        above: the highest id that was ever in the chain.

    Raises ``NotEnoughBookies``, ``MetadataUnavailable``, and the errors of ``commit``.
    """
    events = WriterEvents()
    writer = await ledgers.create(
        ensemble_size=options.ensemble_size,
        write_quorum=options.write_quorum,
        ack_quorum=options.ack_quorum,
        groups=options.bookie_groups,
        purpose=LedgerPurpose(PurposeKind.TOPIC, name.full),
        listener=events,
        above=above,
        commit=commit,
    )
    return writer, events


async def discard_ledger(
    ledgers: LedgerClient, topic: OwnedTopicRecord, writer: LedgerWriter
) -> None:
    """Delete a ledger that was created and not used, unless the list refers to it after all (the
    bug of Pulsar's #16420).

    What cannot be decided or done now stays behind and is named in the log. An operator finds it
    with ``pulsarish job leaks`` and removes it. Its purpose says which topic it was for.
    """
    writer.abandon()
    if not topic.settled:
        return  # a write that names it may still succeed
    try:
        if not await topic.refers_to(writer.ledger_id):
            await ledgers.delete(writer.ledger_id)
    except PulsarishError as error:
        _log.warning(
            "an unused ledger stays behind", topic=topic.name, ledger=writer.ledger_id, error=error
        )


def chain_closed(
    record: TopicRecord, chain: Chain, closed_ms: int, next_ledger: int | None
) -> TopicRecord:
    """Return the record with the current ledger closed, or listed for deletion when it is empty,
    and ``next_ledger`` behind it.
    """
    links = chain.record()
    deleting = record.deleting
    if links and links[-1].closed_ms == 0:
        last = chain.links[-1]
        links = links[:-1]
        if last.entries:
            closed = TopicLedger(
                last.ledger_id,
                last.entries,
                last.size_bytes,
                closed_ms,
                last.own_times_ms,
                last.messages_total,
            )
            links = (*links, closed)
        else:
            deleting = (*deleting, last.ledger_id)
    highest = record.highest_ledger
    if next_ledger is not None:
        links = (*links, TopicLedger(next_ledger))
        highest = next_ledger
    return msgspec.structs.replace(record, ledgers=links, deleting=deleting, highest_ledger=highest)
