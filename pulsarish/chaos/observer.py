"""What a fault has done, seen from outside: who owns a topic, which bookies its ledger has, who is
registered. Read from the metadata tree.

The harness reads past its relays, so that it sees what is so whatever it has cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pulsarish.broker.ownership.bundles import bundle_of
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import (
    BookieRegistration,
    BrokerRegistration,
    BundleOwner,
    NamespacePolicies,
    RestoredTree,
    TopicRecord,
    UnderReplicated,
)
from pulsarish.metadata.zookeeper.store import ZooKeeperStore
from pulsarish.model.errors import MetadataUnavailable, NotFound
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.background import background
from pulsarish.runtime.seams import Op

__all__ = ["Observer", "Owner", "TopicLedgers", "bookie_name"]

T = TypeVar("T")

_ANSWER_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Owner:
    """``epoch`` grows with every change of owner."""

    broker_id: str
    instance_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicLedgers:
    """The ledgers of a topic's chain in order; the last one is written to."""

    ledgers: tuple[LedgerMetadata, ...]

    @property
    def newest(self) -> LedgerMetadata:
        return self.ledgers[-1]

    def members(self) -> tuple[str, ...]:
        """The bookies that are written to now, by name."""
        return tuple(bookie_name(member) for member in self.newest.last_segment.members)

    def names(self, bookie: str) -> bool:
        """Whether any part of any ledger should be on this bookie."""
        return any(
            bookie_name(member) == bookie
            for ledger in self.ledgers
            for part in ledger.segments
            for member in part.members
        )


def bookie_name(instance_id: str) -> str:
    """``bookie-1`` of ``bookie-1~0a1b2c3d``."""
    return instance_id.rpartition("~")[0]


class Observer:
    """Reads the tree under ``root`` at ``host:port[,host:port]``.

    Every call raises ``MetadataUnavailable`` when no server has answered there for ten seconds.
    """

    def __init__(self, address: str, root: str) -> None:
        self._address = address
        self._root = root
        self._loop = background()
        self._records: Records | None = None

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                return self._loop.run(self._in_time(work()))
            except MetadataUnavailable:
                # The session may be lost for good: the next attempt makes another.
                self.close()
                if time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with self._loop.world.clock.timeout(_ANSWER_SECONDS):
                return await work
        except TimeoutError:
            raise MetadataUnavailable(
                f"{self._address} did not answer within {_ANSWER_SECONDS:g} s"
            ) from None

    async def _open(self) -> Records:
        if self._records is None:
            world = self._loop.world
            store = ZooKeeperStore(self._address, self._root, clock=world.clock, tasks=world.tasks)
            self._records = Records(store, world.clock, world.random)
            await store.start()
        return self._records

    def close(self) -> None:
        if self._records is not None:
            records, self._records = self._records, None
            self._loop.run(records.close())

    def brokers(self) -> dict[str, str]:
        """Registered brokers: instance ids by name.

        An instance that is not among them has no session any more.
        """

        async def read() -> dict[str, str]:
            records = await self._open()
            names = await records.children(paths.BROKERS)
            found = (
                await records.get_many(
                    [f"{paths.BROKERS}/{name}" for name in names], BrokerRegistration
                )
                if names
                else []
            )
            return {each[0].broker_id: each[0].instance_id for each in found if each is not None}

        return self._run(read)

    def bookies(self) -> dict[str, BookieRegistration]:
        """Registered bookies by name."""

        async def read() -> dict[str, BookieRegistration]:
            records = await self._open()
            names = await records.children(paths.BOOKIES)
            found = (
                await records.get_many(
                    [f"{paths.BOOKIES}/{name}" for name in names], BookieRegistration
                )
                if names
                else []
            )
            return {each[0].bookie_id: each[0] for each in found if each is not None}

        return self._run(read)

    def owner(self, topic: str) -> Owner | None:
        """``None`` while no broker owns its bundle.

        Raises ``NotFound`` when there is no such namespace.
        """
        name = TopicName.parse(topic)

        async def read() -> Owner | None:
            records = await self._open()
            namespace = await records.get(
                paths.namespace(name.tenant, name.namespace), NamespacePolicies
            )
            if namespace is None:
                raise NotFound(
                    f"there is no namespace {name.tenant}/{name.namespace} in the metadata at "
                    f"{self._address}"
                )
            found = await records.get(bundle_of(name, namespace[0]).path, BundleOwner)
            if found is None or not found[0].broker_id:
                return None
            return Owner(found[0].broker_id, found[0].instance_id, found[1])

        return self._run(read)

    def ledgers(self, topic: str) -> TopicLedgers:
        """Raises ``NotFound`` when there is no such topic, or it has no ledger yet."""
        name = TopicName.parse(topic)

        async def read() -> TopicLedgers:
            records = await self._open()
            record = await records.get(paths.topic(name), TopicRecord)
            ids = [link.ledger_id for link in record[0].ledgers] if record is not None else []
            found = (
                await records.get_many([paths.ledger(each) for each in ids], LedgerMetadata)
                if ids
                else []
            )
            ledgers = tuple(each[0] for each in found if each is not None)
            if not ledgers:
                raise NotFound(f"{topic} has no ledger in the metadata at {self._address}")
            return TopicLedgers(ledgers)

        return self._run(read)

    def has_ledger(self, ledger_id: int) -> bool:
        """Return whether the metadata know a ledger."""

        async def read() -> bool:
            found = await (await self._open()).get(paths.ledger(ledger_id), LedgerMetadata)
            return found is not None

        return self._run(read)

    def restored(self) -> RestoredTree | None:
        """The mark of a tree that was restored, or that a node has found to be older than it
        was.
        """

        async def read() -> RestoredTree | None:
            found = await (await self._open()).get(paths.RESTORED, RestoredTree)
            return None if found is None else found[0]

        return self._run(read)

    def write(self, data: bytes) -> None:
        """Make a node that no program reads: the servers log it on their disks before it is
        answered.
        """

        async def make() -> None:
            await (await self._open()).commit([Op("create", f"/chaos-{time.time_ns():x}", data)])

        self._run(make)

    def under_replicated(self) -> dict[int, UnderReplicated]:
        """Ledgers with fewer copies than promised."""

        async def read() -> dict[int, UnderReplicated]:
            records = await self._open()
            names = await records.children(paths.UNDERREPLICATED)
            found = (
                await records.get_many(
                    [f"{paths.UNDERREPLICATED}/{name}" for name in names], UnderReplicated
                )
                if names
                else []
            )
            return {each[0].ledger_id: each[0] for each in found if each is not None}

        return self._run(read)
