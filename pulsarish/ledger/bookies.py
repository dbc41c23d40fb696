"""The bookies of the cluster: a copy of their registrations, kept by watches, and which of them
failed lately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement import Candidate, why_too_few
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookiePlace, BookieRacks, BookieRegistration
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.network.addresses import host_of
from pulsarish.runtime.seams import Conflict, SessionState, Versioned, World
from pulsarish.wire.json_record import decode_record

__all__ = ["Bookies"]

_RETRY_SECONDS = 0.2
# Addresses of unregistered bookies are kept for reads and fencing: a bookie without metadata
# continues to serve (rule 19).
_REMEMBERED_MAX = 1_000
_ANYWHERE = BookiePlace()

_log = get_logger("bookies")


def _unknown(member: str) -> Candidate:
    alone = f"unknown:{member}"
    return Candidate(member, alone, alone, zone=alone, region=alone)


class Bookies:
    """The registrations under ``/bookies`` by instance id (rule 7)."""

    def __init__(self, world: World, options: LedgerOptions, records: Records) -> None:
        self.book = AddressBook(options.transport)
        self._world = world
        self._options = options
        self._records = records
        # by instance id, in the order of the bookies' ids
        self._registered: dict[str, BookieRegistration] = {}
        self._remembered: dict[str, BookieRegistration] = {}
        self._places: dict[str, BookiePlace] = {}  # by bookie id, as operators set them
        self._quarantine: dict[str, float] = {}  # until when
        self._slow: dict[str, float] = {}  # until when those with slow adds are avoided
        self._dirty = asyncio.Event()
        self._loaded = asyncio.Event()
        self._closed = False
        self.version = 0  # grows with each change seen

    async def start(self) -> None:
        """Watch the registrations from now on.

        Return once they have been read for the first time.
        """
        self._records.listen(self._session_changed)
        _ = run_in_background(
            self._world.tasks, self._world.clock, "bookie-registrations", self._watch
        )
        await self._loaded.wait()

    def close(self) -> None:
        self._closed = True
        self._dirty.set()

    # -- queries

    @property
    def is_metadata_away(self) -> bool:
        """Whether it is known that no change of a ledger can be stored now."""
        return self._records.is_away

    def registered(self, member: str) -> bool:
        return member in self._registered

    def members(self) -> list[str]:
        """The registered bookies, read-only ones too, in the order of their ids."""
        return list(self._registered)

    def may_lack(self, member: str, ledger_id: int) -> bool:
        """Whether a registered bookie reports that it may have lost entries of a ledger.

        Its "no such entry" does not count then.
        """
        row = self._registered.get(member)
        return row is not None and ledger_id < row.limbo_below_ledger

    def in_no_doubt_from(self, members: Sequence[str]) -> int:
        """Return the first id of which no registered one of these bookies is in doubt, nor of any
        above.
        """
        rows = [self._registered.get(member) for member in members]
        return max((row.limbo_below_ledger for row in rows if row is not None), default=0)

    def limbo_times(self, member: str) -> int:
        """How often a registered bookie has entered limbo; 0 for an unregistered one."""
        row = self._registered.get(member)
        return 0 if row is None else row.limbo_times

    def in_limbo(self) -> dict[str, int]:
        """The registered bookies that are in limbo for any ledger, in the order of their ids, and
        how often each has entered it.
        """
        return {
            member: row.limbo_times
            for member, row in self._registered.items()
            if row.limbo_below_ledger
        }

    def candidates(self) -> list[Candidate]:
        """The writable bookies, in the order of their ids."""
        return [
            self._candidate(member, row)
            for member, row in self._registered.items()
            if not row.read_only
        ]

    def describe(self, members: Sequence[str]) -> list[Candidate]:
        """Describe where these members are, as far as is known.

        An unknown member counts as alone in its domains.
        """
        rows = [
            (member, self._registered.get(member) or self._remembered.get(member))
            for member in members
        ]
        return [
            _unknown(member) if row is None else self._candidate(member, row)
            for member, row in rows
        ]

    def name_of(self, member: str) -> str:
        """The bookie's id, as far as it is known; otherwise the instance id itself."""
        row = self._registered.get(member) or self._remembered.get(member)
        return member if row is None else row.bookie_id

    def down_count(self) -> int:
        """The number of bookies that were seen and are not registered as writable now."""
        writable = sum(not row.read_only for row in self._registered.values())
        return len(self._remembered) - writable

    def read_only_reasons(self) -> list[str]:
        """The reasons that registered bookies give for being read-only."""
        return [
            f"{row.bookie_id}: {row.read_only_reason}"
            for row in self._registered.values()
            if row.read_only and row.read_only_reason
        ]

    def shortage(self, ack_quorum: int) -> str:
        """Say why no ledger that needs ``ack_quorum`` bookies can be created; empty when one
        can.
        """
        count = len(self.candidates())
        return (
            ""
            if count >= ack_quorum
            else why_too_few(count, ack_quorum, self.down_count(), self.read_only_reasons())
        )

    def quarantine(self, member: str) -> None:
        """Note that a bookie failed.

        It is chosen last for ``quarantine_ms``, or until it registers again.
        """
        self._quarantine[member] = (
            self._world.clock.monotonic() + self._options.quarantine_ms / 1000
        )

    def avoid_slow(self, member: str) -> None:
        """Note that a bookie is slow with adds.

        It is chosen after its equals for ``quarantine_ms``, or until it registers again. It goes on
        in its ledgers.
        """
        self._slow[member] = self._world.clock.monotonic() + self._options.quarantine_ms / 1000

    def slow_count(self) -> int:
        """The number of writable bookies that are avoided because they are slow with adds."""
        return sum(candidate.is_slow for candidate in self.candidates())

    def healthy(self, member: str) -> bool:
        """Whether the bookie is registered as writable and not in quarantine."""
        row = self._registered.get(member)
        return row is not None and not row.read_only and self._candidate(member, row).healthy

    def _candidate(self, member: str, row: BookieRegistration) -> Candidate:
        failed = self._is_within(self._quarantine, member)
        place = self._places.get(row.bookie_id, _ANYWHERE)
        return Candidate(
            member,
            row.host or host_of(row.address),
            place.rack or row.rack,
            not failed,
            zone=row.zone,
            region=row.region,
            free_bytes=row.free_bytes,
            is_slow=self._is_within(self._slow, member),
            group=place.group,
        )

    def _is_within(self, times: dict[str, float], member: str) -> bool:
        until = times.get(member)
        if until is not None and until <= self._world.clock.monotonic():
            del times[member]
            until = None
        return until is not None

    # -- watching

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._dirty.set()

    def _touched(self, _path: str) -> None:
        self._dirty.set()

    async def _watch(self) -> None:
        self._dirty.set()
        while True:
            await self._dirty.wait()
            if self._closed:
                return
            self._dirty.clear()
            try:
                places = await self._read_places()
                self._take(await self._read())
                if places != self._places:
                    self._places = places
                    self.version += 1
            except (MetadataUnavailable, Conflict):
                # The store is unreachable or its root does not exist yet. What was known stays, and
                # is read again.
                self._dirty.set()
                await self._world.clock.sleep(_RETRY_SECONDS)
            else:
                self._loaded.set()

    async def _read_places(self) -> dict[str, BookiePlace]:
        (node,) = await self._records.nodes([paths.BOOKIE_RACKS], watch=self._touched)
        if node is None:
            return {}
        try:
            return decode_record(node.data, BookieRacks, paths.BOOKIE_RACKS).bookies
        except CorruptData as error:
            _log.error(
                "the racks and groups of bookies cannot be read; those before stay",
                exception=error,
                path=paths.BOOKIE_RACKS,
            )
            return self._places

    async def _read(self) -> list[tuple[str, Versioned | None]]:
        records = self._records
        try:
            names = await records.watch_children(paths.BOOKIES, self._touched)
        except Conflict:
            await records.ensure(paths.BOOKIES)
            names = await records.watch_children(paths.BOOKIES, self._touched)
        found = [f"{paths.BOOKIES}/{name}" for name in names]
        nodes = await records.nodes(found, watch=self._touched) if found else []
        return list(zip(found, nodes, strict=True))

    def _take(self, nodes: list[tuple[str, Versioned | None]]) -> None:
        rows: list[tuple[BookieRegistration, int]] = []
        newest: dict[str, int] = {}  # by address: when its newest registration was made
        for path, node in nodes:
            if node is None:
                continue
            try:
                row = decode_record(node.data, BookieRegistration, path)
            except CorruptData as error:
                _log.error("a bookie's registration cannot be read", exception=error, path=path)
                continue
            rows.append((row, node.created))
            newest[row.address] = max(newest.get(row.address, 0), node.created)
        registered: dict[str, BookieRegistration] = {}
        for row, created in rows:
            if created < newest[row.address]:
                # Another instance listens at the address now. The bookie is gone, though its
                # session has not ended yet. If both counted, one machine would get two copies of an
                # entry.
                continue
            registered[row.instance_id] = row
            before = self._remembered.pop(row.instance_id, None)
            self._remembered[row.instance_id] = row
            self.book.put(row.instance_id, row.address, row.framed_address)
            if before is not None and before.started_ms != row.started_ms:
                self._quarantine.pop(row.instance_id, None)
                self._slow.pop(row.instance_id, None)
        while len(self._remembered) > max(_REMEMBERED_MAX, len(registered)):
            oldest = next(iter(self._remembered))
            del self._remembered[oldest]
            self.book.forget(oldest)
        if registered != self._registered:
            self._registered = registered
            self.version += 1
