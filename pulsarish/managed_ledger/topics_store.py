"""A topic's subtree in metadata: made in one commit, deleted in two phases (intent, ledgers, nodes), so that nothing leaks.

/topics/tenant/namespace/topic            TopicRecord
/topics/tenant/namespace/topic/cursors    one CursorRecord for each durable subscription below it
/topics/tenant/namespace/topic/policies   its own policies, if any were set
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata import paths
from pulsarish.metadata.records import CursorRecord, TopicRecord
from pulsarish.metadata.update import Records
from pulsarish.model.errors import AlreadyExists, ServiceNotReady, TopicNotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Conflict, ConflictReason, Op

__all__ = ["create_topic", "delete_topic"]

_DELETE_ATTEMPTS_MAX: Final = 5


async def create_topic(
    records: Records, name: TopicName, *, created_ms: int, properties: Mapping[str, str] | None = None
) -> tuple[TopicRecord, int]:
    """Make an empty topic: its record and the parent of its cursors, in one commit. Returns the record and its version.

    Raises ``AlreadyExists``, and ``MetadataUnavailable`` when the outcome is unknown.
    """
    record = TopicRecord(properties=dict(properties or {}), created_ms=created_ms)
    try:
        version = await records.compare_and_set(paths.topic(name), record, None, with_ops=[Op("create", paths.cursors(name))])
    except Conflict as conflict:
        raise AlreadyExists(f"topic {name} exists already") from conflict
    return record, version


async def delete_topic(records: Records, ledgers: LedgerClient, name: TopicName) -> None:
    """Delete a topic with everything that is its: first the record says so, which fences an owner; then its ledgers and its cursors' go;
    then its nodes, in one commit. Repeating it goes on where it was left.

    Raises ``TopicNotFound``, ``MetadataUnavailable``, and the retryable errors of deleting ledgers.
    """

    def intend(record: TopicRecord | None) -> TopicRecord | None:
        if record is None:
            raise TopicNotFound(f"topic {name} does not exist")
        return None if record.deleted else msgspec.structs.replace(record, deleted=True)

    path = paths.topic(name)
    for _ in range(_DELETE_ATTEMPTS_MAX):
        marked = await records.update(path, TopicRecord, intend)
        if marked is None:
            return
        record, version = marked
        # Writes of a former owner are conditional on the version that the mark has changed, so this listing stays complete.
        names = await records.children(paths.cursors(name))
        nodes = [f"{paths.cursors(name)}/{child}" for child in names]
        others = [f"{path}/{child}" for child in await records.children(path)]  # cursors, and policies if there are any
        cursors = [found for found in (await records.get_many(nodes, CursorRecord) if nodes else []) if found is not None]
        wanted = [link.ledger_id for link in record.ledgers] + list(record.deleting)
        for cursor, _version in cursors:
            wanted += [*cursor.deleting, *([cursor.cursor_ledger] if cursor.cursor_ledger >= 0 else [])]
        for ledger_id in wanted:
            await ledgers.delete(ledger_id)
        below = [Op("delete", node) for node in nodes]
        try:
            # Children go before their parents; the version says that nothing was added meanwhile.
            await records.delete(path, version, before=[*below, *(Op("delete", other) for other in others)])
            return
        except Conflict as conflict:
            if conflict.reason is ConflictReason.NO_NODE and await records.get(path, TopicRecord) is None:
                return
    raise ServiceNotReady(f"topic {name} is being changed while it is deleted; try again")
