"""How an owner gets a topic's log: it takes the log over from the former owner (rule 14), or
creates it with the topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord, not_the_owner
from pulsarish.managed_ledger.topic_ledgers import WriterEvents, create_ledger
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata.record_store import ATTEMPTS_MAX, Records
from pulsarish.metadata.records import TopicLedger, TopicRecord
from pulsarish.model.errors import MetadataUnavailable, ServiceNotReady, TopicFenced
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Conflict, ConflictReason, Op, World

__all__ = ["make", "take_over"]

_OPEN_ATTEMPTS_MAX: Final = 5


async def make(
    name: TopicName,
    ledgers: LedgerClient,
    records: Records,
    world: World,
    options: ManagedLedgerOptions,
    lease: Sequence[Op] = (),
) -> tuple[OwnedTopicRecord, Chain, tuple[LedgerWriter, WriterEvents]]:
    """Create a topic with its first ledger, in one commit.

    There is no former owner to fence and nothing to recover. A later owner finds the ledger in the
    list. Raises what ``create_topic`` and ``create_ledger`` raise.
    """
    made: list[tuple[TopicRecord, int]] = []

    async def commit(ledger_id: int, ops: Sequence[Op]) -> None:
        made.append(
            await create_topic(
                records, name, created_ms=world.clock.wall_ms(), ledger=(ledger_id, ops)
            )
        )

    created = await create_ledger(ledgers, name, options, above=-1, commit=commit)
    chain = Chain(())
    chain.open_ledger(created[0].ledger_id)
    return OwnedTopicRecord(name, records, *made[0], lease), chain, created


async def _recovered_chain(topic: OwnedTopicRecord, ledgers: LedgerClient, now_ms: int) -> Chain:
    """Return the chain with every ledger closed for good.

    After this no former owner can confirm an entry in it.

    Raises ``NoSuchLedger`` when storage has lost a ledger whose end is not recorded. Its entries
    are unknown, so it is not skipped (rule 20).
    """
    links: list[TopicLedger] = []
    for found in topic.record.ledgers:
        if found.closed_ms:
            links.append(found)
            continue
        reader = await ledgers.open(found.ledger_id)
        if reader.last_add_confirmed >= 0:
            links.append(
                TopicLedger(
                    found.ledger_id, reader.last_add_confirmed + 1, reader.length_bytes, now_ms
                )
            )
    return Chain(links, topic.record.lost)


async def _swing(topic: OwnedTopicRecord, wanted: TopicRecord, with_ops: Sequence[Op] = ()) -> None:
    """Store the record that takes the topic over, in one commit with ``with_ops``.

    It is written even if nothing changes: the new version fences the former owner, its cursors
    included. Raises as ``OwnedTopicRecord.change``.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            await topic.change(lambda _record: wanted, always=True, with_ops=with_ops)
            return
        except Conflict as conflict:
            if conflict.reason is not ConflictReason.NO_NODE:
                raise
            await topic.records.make_parents(conflict.path)
    raise MetadataUnavailable(
        f"the nodes above the next ledger of topic {topic.name} went away {ATTEMPTS_MAX} times"
    )


async def take_over(
    name: TopicName,
    ledgers: LedgerClient,
    records: Records,
    world: World,
    options: ManagedLedgerOptions,
    found: tuple[TopicRecord, int] | None,
    lease: Sequence[Op] = (),
) -> tuple[OwnedTopicRecord, Chain, tuple[LedgerWriter, WriterEvents] | None]:
    """Take the topic over, up to the compare-and-set of rule 14.

    The same commit creates the next ledger, so that a failed one leaves no ledger behind. Returns
    no writer when the topic is terminated.

    See ``ManagedLedger.open``. A former owner that still lives may finish a deletion meanwhile,
    which changes the version and nothing else. Then the takeover is repeated. A process that has
    added a ledger is a newer owner, and wins.
    """
    topic = await OwnedTopicRecord.read(name, records, found, lease=lease)
    for attempt in range(_OPEN_ATTEMPTS_MAX):
        before = topic.record
        try:
            chain = await _recovered_chain(topic, ledgers, max(1, world.clock.wall_ms()))
            kept = [link.ledger_id for link in chain.links]
            empty = [link.ledger_id for link in before.ledgers if link.ledger_id not in kept]
            recovered = msgspec.structs.replace(
                before, ledgers=tuple(chain.record()), deleting=(*before.deleting, *empty)
            )
            if before.terminated:
                await _swing(topic, recovered)
                return topic, chain, None

            async def commit(
                ledger_id: int,
                ops: Sequence[Op],
                topic: OwnedTopicRecord = topic,
                recovered: TopicRecord = recovered,
            ) -> None:
                listed = (*recovered.ledgers, TopicLedger(ledger_id))
                wanted = msgspec.structs.replace(
                    recovered, ledgers=listed, highest_ledger=ledger_id
                )
                await _swing(topic, wanted, ops)

            created = await create_ledger(
                ledgers, name, options, above=before.highest_ledger, commit=commit
            )
        except Conflict as conflict:
            raise ServiceNotReady(
                f"the next ledger of topic {name} cannot be made: {conflict}"
            ) from conflict
        except TopicFenced as fenced:
            if topic.lease_lost:
                raise not_the_owner(name) from fenced
            again = await OwnedTopicRecord.read(name, records, lease=lease)
            same = [link.ledger_id for link in again.record.ledgers[-1:]] == [
                link.ledger_id for link in before.ledgers[-1:]
            ]
            # An owner that came and left meanwhile may have kept the list as it was.
            same = same and again.record.highest_ledger == before.highest_ledger
            if (
                same
                and again.record.terminated == before.terminated
                and attempt + 1 < _OPEN_ATTEMPTS_MAX
            ):
                # Continue from the record that was compared here. If it has changed since, the
                # compare-and-set of the next attempt is refused.
                topic = again
                continue
            raise
        chain.open_ledger(created[0].ledger_id)
        return topic, chain, created
    raise AssertionError("the last attempt returns or raises")
