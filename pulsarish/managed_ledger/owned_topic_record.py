"""A topic's record as its owner on this broker holds it.

Its version fences former owners. Every owner changes it before it serves (rule 14), and each write
of an owner below the record checks the version in the same commit.

Versions start again when a topic is deleted and created again. A write for the former topic could
find its own version there. So each commit also checks the topic's incarnation, a node that the
later topic does not have, and the lease, which made the broker the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec

from pulsarish.managed_ledger.owned_record import OwnedRecord
from pulsarish.metadata.paths import topic as topic_path
from pulsarish.metadata.paths import topic_incarnation
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.errors import NotOwner, TopicFenced, TopicNotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Conflict, Op

__all__ = ["Change", "OwnedTopicRecord", "not_the_owner", "same_topic"]


def not_the_owner(name: TopicName) -> NotOwner:
    """Return the error for a lease that does not hold."""
    return NotOwner(f"topic {name} was given to another broker; look it up again")


def same_topic(name: TopicName, record: TopicRecord | None) -> list[Op]:
    """Return the check for a commit that was decided on this record: the topic is still the one
    that has it.

    There is none for a topic that no owner has given an incarnation yet.
    """
    incarnation = "" if record is None else record.incarnation
    return [Op("check", topic_incarnation(name, incarnation))] if incarnation else []


def _nothing() -> None:
    pass


class Change(Protocol):
    """A function that changes the topic's record; like ``OwnedTopicRecord.change``."""

    def __call__(
        self,
        decide: Callable[[TopicRecord], TopicRecord],
        apply: Callable[[], None] = ...,
        *,
        always: bool = False,
        with_ops: Sequence[Op] = (),
    ) -> Awaitable[None]: ...


class OwnedTopicRecord:
    """The record and its version. Changes are made one at a time. Made by ``read``.

    Args:
        lease: what holds in metadata as long as this broker is the one that should serve the topic.

    ``lease_lost`` becomes true when the lease did not hold at a change.
    """

    __slots__ = (
        "_cell",
        "_incarnation",
        "_lost",
        "doubtful",
        "lease",
        "lease_lost",
        "lock",
        "name",
        "path",
        "records",
    )

    def __init__(
        self,
        name: TopicName,
        records: Records,
        record: TopicRecord,
        version: int,
        lease: Sequence[Op] = (),
    ) -> None:
        self.name = name
        self.path = topic_path(name)
        self.records = records
        self.lock = asyncio.Lock()
        self._cell = OwnedRecord(records, self.path, record, version)
        self._incarnation = record.incarnation or records.token()
        self.lease = tuple(lease)
        self.lease_lost = False
        self._lost = False
        self.doubtful: list[int] = []
        """Ledgers that a write with an unknown outcome may have created.

        The next write lists them for deletion.
        """

    @classmethod
    async def read(
        cls,
        name: TopicName,
        records: Records,
        found: tuple[TopicRecord, int] | None = None,
        *,
        lease: Sequence[Op] = (),
    ) -> OwnedTopicRecord:
        """Read the record.

        ``found`` was read or created a moment ago, and makes the reading unnecessary.

        Raises ``TopicNotFound``, also for a topic that is being deleted, and
        ``MetadataUnavailable``.
        """
        found = found or await records.get(topic_path(name), TopicRecord)
        if found is None:
            raise TopicNotFound(f"topic {name} does not exist")
        if found[0].deleted:
            raise TopicNotFound(f"topic {name} is being deleted")
        return cls(name, records, *found, lease)

    def renew_lease(self, lease: Sequence[Op]) -> None:
        """Continue under another lease. Changes that the former one refuses are made again."""
        self.lease = tuple(lease)

    @property
    def record(self) -> TopicRecord:
        return self._cell.record

    @property
    def version(self) -> int:
        assert self._cell.version is not None
        return self._cell.version

    @property
    def lost(self) -> bool:
        """Whether another owner is known to have changed the record, or to be the only one that
        may.
        """
        return self._lost

    @property
    def settled(self) -> bool:
        """Whether no write of ours with an unknown outcome can still succeed."""
        return self._lost or self._cell.settled

    def _same_topic(self) -> Op:
        """Return the operation that fails once the topic was deleted.

        The first owner of a topic without an incarnation gives it one.
        """
        return Op(
            "check" if self._cell.record.incarnation else "create",
            topic_incarnation(self.name, self._incarnation),
        )

    def _guards(self, lease: Sequence[Op], with_ops: Sequence[Op]) -> Sequence[Op]:
        return (self._same_topic(), *lease, *with_ops)

    def guards(self) -> list[Op]:
        """Return the checks for every commit below the topic's node.

        They refuse it once another owner has opened the topic, or it was deleted.

        The first check is that of the record's version.
        """
        return [Op("check", self.path, version=self.version), *self._guards(self.lease, ())]

    async def change(
        self,
        decide: Callable[[TopicRecord], TopicRecord],
        apply: Callable[[], None] = _nothing,
        *,
        always: bool = False,
        with_ops: Sequence[Op] = (),
    ) -> None:
        """Store ``decide(record)``, in one commit with ``with_ops``.

        Then call ``apply()``, before any other change of the record.

        ``apply`` makes the corresponding changes in memory. A record that would not change is
        written only with ``always``.

        Raises ``TopicFenced`` when another owner has changed the record, or may do so now: for
        good; ``Conflict`` when ``with_ops`` are refused; and ``MetadataUnavailable`` when the
        outcome is unknown.
        """
        async with self.lock:
            wanted = msgspec.structs.replace(
                decide(self._cell.record), incarnation=self._incarnation
            )
            if self.doubtful:
                wanted = msgspec.structs.replace(
                    wanted, deleting=tuple(dict.fromkeys((*wanted.deleting, *self.doubtful)))
                )
            while always or wanted != self._cell.record:
                lease = self.lease
                try:
                    await self._cell.write(wanted, guards=partial(self._guards, lease, with_ops))
                except Conflict as conflict:
                    if conflict.index > 1 + len(lease):
                        raise
                    if conflict.index > 1 and self.lease is not lease:
                        continue
                    self._lost, self.lease_lost = True, conflict.index > 1
                    by = (
                        "was given to another broker"
                        if self.lease_lost
                        else "was opened or deleted by another broker"
                    )
                    raise TopicFenced(f"topic {self.name} {by}") from conflict
                self.doubtful.clear()
                break
            apply()

    async def refers_to(self, ledger_id: int) -> bool:
        """Whether the stored record names a ledger, by this owner or a later one.

        Raises ``MetadataUnavailable``.
        """
        await self.records.sync(self.path)
        found = await self.records.get(self.path, TopicRecord)
        return found is not None and ledger_id in found[0].ledgers_named

    async def is_newest(self) -> bool:
        """Whether no other owner has opened or deleted the topic since this one opened it.

        Raises ``MetadataUnavailable``.
        """
        async with self.lock:
            await self.records.sync(self.path)
            found = await self.records.get(self.path, TopicRecord)
            return (
                found is not None
                and not self._lost
                and self._cell.settled
                and found[1] == self._cell.version
            )

    def forget_deleted(self, ledger_ids: list[int]) -> Callable[[TopicRecord], TopicRecord]:
        """Return the change that ends the second phase of deletion."""
        gone = frozenset(ledger_ids)
        return lambda record: msgspec.structs.replace(
            record, deleting=tuple(found for found in record.deleting if found not in gone)
        )
