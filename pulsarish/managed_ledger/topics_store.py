"""A topic's subtree in metadata: created in one commit, deleted in two phases (intent, ledgers,
nodes), so that nothing leaks.

/topics/tenant/namespace/topic            TopicRecord
/topics/tenant/namespace/topic/cursors    one CursorRecord for each durable subscription below it
/topics/tenant/namespace/topic/policies   its own policies, if any were set
/topics/tenant/namespace/topic/schemas    one SchemaRecord for each version below it, if any
/topics/tenant/namespace/topic/incarnation-…  this topic, and no later one of the same name
/topics/tenant/namespace/topic/deletion-…     the mark of its deletion

The last two have names of their own for each topic. Versions begin again when a topic is created
again, so a commit that was meant for the former topic could pass by versions alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.owned_topic_record import not_the_owner, same_topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import ATTEMPTS_MAX, Records
from pulsarish.metadata.records import CursorRecord, TopicLedger, TopicRecord
from pulsarish.metadata.subtrees import nodes_below
from pulsarish.model.errors import (
    AlreadyExists,
    MetadataUnavailable,
    ServiceNotReady,
    TopicFenced,
    TopicNotFound,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, ConflictReason, Op

__all__ = ["create_topic", "delete_topic"]

_DELETE_ATTEMPTS_MAX: Final = 5

_log = get_logger("managed_ledger")


async def create_topic(
    records: Records,
    name: TopicName,
    *,
    created_ms: int,
    properties: Mapping[str, str] | None = None,
    ledger: tuple[int, Sequence[Op]] | None = None,
) -> tuple[TopicRecord, int]:
    """Create an empty topic: its record, its incarnation and the parent of its cursors, in one
    commit.

    Return the record and its version.

    Args:
        ledger: for a broker that will serve the topic: the id of its first ledger and the
            operations that create the ledger's record, in the same commit. So the list never names
            a missing ledger, and a failed creation leaves no ledger behind.

    Raises ``AlreadyExists``, ``ServiceNotReady`` (the ledger's id is in use), and
    ``MetadataUnavailable`` when the outcome is unknown.
    """
    incarnation = records.token()
    record = TopicRecord(
        properties=dict(properties or {}), created_ms=created_ms, incarnation=incarnation
    )
    with_ops = [
        Op("create", paths.cursors(name)),
        Op("create", paths.topic_incarnation(name, incarnation)),
    ]
    if ledger is not None:
        record = msgspec.structs.replace(
            record, ledgers=(TopicLedger(ledger[0]),), highest_ledger=ledger[0]
        )
        with_ops += ledger[1]
    for _ in range(ATTEMPTS_MAX):
        try:
            return record, await records.compare_and_set(
                paths.topic(name), record, None, with_ops=with_ops
            )
        except Conflict as conflict:
            if conflict.index == 0:
                raise AlreadyExists(f"topic {name} exists already") from conflict
            if conflict.reason is not ConflictReason.NO_NODE:
                raise ServiceNotReady(
                    f"the first ledger of topic {name} cannot be made: {conflict}"
                ) from conflict
            await records.make_parents(conflict.path)
    raise MetadataUnavailable(
        f"the nodes above the first ledger of topic {name} went away {ATTEMPTS_MAX} times"
    )


def _nothing() -> None:
    pass


async def delete_topic(
    records: Records,
    ledgers: LedgerClient,
    name: TopicName,
    *,
    version: int | None = None,
    lease: Sequence[Op] = (),
    begun: bool = False,
    marked_deleted: Callable[[], None] = _nothing,
) -> None:
    """Delete a topic with everything that belongs to it.

    First the record is marked, which fences an owner. Then its ledgers and those of its cursors are
    deleted, and then its nodes, in one commit. A repeated call continues an interrupted deletion.

    Args:
        version: delete only while the record has this version. An owner that deletes by its own
            decision passes it, so that the deletion is refused once another owner opens the topic.
        lease: what must hold when the record is marked, as for ``ManagedLedger.open``.
        begun: only finish a deletion that was begun before. Another process may have finished it
            since and created the topic again.
        marked_deleted: called once the record is marked as deleted. From then on no broker serves
            the topic again.

    Raises ``TopicNotFound``, ``TopicFenced`` for another version, ``NotOwner`` without the lease,
    ``MetadataUnavailable``, and the retryable errors of deleting ledgers.
    """

    def intend(record: TopicRecord | None) -> TopicRecord | None:
        if record is None or (begun and not record.deleted):
            raise TopicNotFound(f"topic {name} does not exist")
        return None if record.deleted else msgspec.structs.replace(record, deleted=True)

    path = paths.topic(name)
    # The versions of a topic that is created again start again. This node's name is never used
    # again, so a late last commit is refused.
    mark = [*lease, Op("create", paths.topic_deletion(name, records.token()))]
    if version is not None:
        await _intend_at(records, name, version, mark)
        begun = True
    for _ in range(_DELETE_ATTEMPTS_MAX):
        try:
            # Nothing is written where the mark is there already.
            marked = await records.update(
                path,
                TopicRecord,
                intend,
                with_ops=lambda record: [*same_topic(name, record), *mark],
            )
        except Conflict as conflict:
            raise not_the_owner(name) from conflict
        except TopicNotFound:
            if begun:
                # another process has finished it meanwhile; if the topic exists now, it was created
                # again
                return
            raise
        if marked is None:
            return
        begun = True
        marked_deleted()
        record, marked_version = marked
        # Writes of a former owner are conditional on the version that the mark has changed, so this
        # listing stays complete.
        names, kinds = await asyncio.gather(
            records.children(paths.cursors(name)), records.children(path)
        )
        nodes = [f"{paths.cursors(name)}/{child}" for child in names]
        others = await nodes_below(records, path, kinds)
        cursors = [
            found
            for found in (await records.get_many(nodes, CursorRecord) if nodes else [])
            if found is not None
        ]
        wanted = list(record.ledgers_named)
        for cursor, _version in cursors:
            wanted += cursor.ledgers_named
        now = await records.update(path, TopicRecord, lambda _found: None)
        if now is None or not now[0].deleted:
            return  # as above: the listed cursors may belong to the new topic
        for ledger_id in wanted:
            await ledgers.delete(ledger_id)
        try:
            # Children are deleted before their parents. The version check shows that nothing was
            # added meanwhile.
            below = [Op("delete", node) for node in (*nodes, *others)]
            await records.commit([*below, Op("delete", path, version=marked_version)])
            return
        except (Conflict, MetadataUnavailable) as error:
            # The commit is not repeated as it is: after a lost answer there may be a topic that was
            # created again, at the same version.
            _log.debug("a topic's nodes are looked at again", topic=name, reason=error)
    raise ServiceNotReady(f"topic {name} is being changed while it is deleted; try again")


async def _intend_at(records: Records, name: TopicName, version: int, lease: Sequence[Op]) -> None:
    path = paths.topic(name)
    changed = f"topic {name} was opened or changed by another broker meanwhile; it is not deleted"
    found = await records.get(path, TopicRecord)
    if found is None or found[1] != version:
        raise TopicFenced(changed)
    try:
        await records.compare_and_set(
            path,
            msgspec.structs.replace(found[0], deleted=True),
            version,
            with_ops=[*same_topic(name, found[0]), *lease],
        )
    except Conflict as conflict:
        if conflict.index > 0:
            raise not_the_owner(name) from conflict
        raise TopicFenced(changed) from conflict
