"""The calls to a bookie that must never queue behind adds or catch-up reads: fencing, recovery
reads, LAC.

The fences that wait for one bookie at the same time travel in one call: when a broker has died,
another one fences the ledgers of all its topics, and a call costs both sides the same for one
ledger as for many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from pulsarish.ledger.bookie_states import (
    AdditionState,
    GarbageState,
    TrashedLedger,
    VolumeState,
)
from pulsarish.ledger.options import LedgerOptions
from pulsarish.metadata.tree_state import NOTHING_SEEN, TreeState
from pulsarish.model.errors import ChecksumError
from pulsarish.model.position import NO_ENTRY
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import CallFailed, StreamBroken, World
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.framing import slice_records, split_records

__all__ = [
    "BookieControl",
    "EntriesAnswer",
    "FenceAnswer",
    "LacAnswer",
    "NoAnswer",
    "RecoveryAnswer",
]

A = TypeVar("A", bound=Message)

# Longer than the ordinary timeout: the bookie may have to delete the rows of many entries.
_TRASH_MS: Final = 55_000
_FENCES_MAX: Final = 64
"""Ledgers that one call fences."""
_FENCE_CALLS_MAX: Final = 4
"""Calls with fences that one bookie has not answered."""
_FENCE_READ_ENTRIES: Final = 4
"""Entries from the LAC on that come with the answer of a fence: all of a ledger that was idle."""
_FENCE_READ_BYTES: Final = 8 << 10
"""Their bytes, about. All ledgers of a call must fit into one answer of the bookie."""


class NoAnswer(Exception):
    """No usable answer: the bookie is unreachable, silent, or sent something unreadable.

    It never means "no" (rule 6).
    """


@dataclass(frozen=True, slots=True)
class LacAnswer:
    """The LAC of one bookie.

    With ``code`` 0 the bookie has the ledger, and ``lac`` is the highest that it knows.
    """

    code: int
    message: str
    lac: int = NO_ENTRY


@dataclass(frozen=True, slots=True)
class FenceAnswer:
    """One bookie's answer to the fence of a ledger.

    With ``code`` 0 the fence is durable, and ``lac`` is the highest LAC that the bookie knows. What
    the bookie had after that from ``first`` on is in ``records``, unchecked; ``end`` says why the
    next entry did not come, of those up to ``last`` (0: a limit). Nothing was read when ``first``
    is -1.
    """

    code: int
    message: str
    lac: int = NO_ENTRY
    first: int = -1
    records: list[memoryview] = field(default_factory=list)
    end: int = 0

    @property
    def last(self) -> int:
        return self.first + _FENCE_READ_ENTRIES - 1


@dataclass(frozen=True, slots=True)
class EntriesAnswer:
    """The entries that one bookie has.

    With ``code`` 0 the answer covers the entries from the first requested one up to ``until``. Of
    these the bookie has those in ``spans``, and no others.
    """

    code: int
    message: str
    spans: list[tuple[int, int]] = field(default_factory=list)
    until: int = NO_ENTRY


@dataclass(frozen=True, slots=True)
class RecoveryAnswer:
    """Records from the first requested one on, unchecked.

    ``code`` says why the next one did not come; 0: a limit ended the answer.
    """

    code: int
    message: str
    records: list[memoryview] = field(default_factory=list)


class _FenceLine:
    """The fences that wait for one bookie, and the number of calls that are unanswered."""

    __slots__ = ("calls_count", "waiting")

    def __init__(self) -> None:
        self.calls_count = 0
        self.waiting: list[tuple[int, asyncio.Future[FenceAnswer]]] = []


class BookieControl:
    """The control calls. Every one raises ``NoAnswer``."""

    def __init__(self, world: World, options: LedgerOptions, book: AddressBook) -> None:
        self._clock = world.clock
        self._tasks = world.tasks
        self._connections = world.connections
        self._options = options
        self._book = book
        self._lines: dict[str, _FenceLine] = {}

    async def fence(self, member: str, ledger_id: int) -> FenceAnswer:
        """Fence the ledger at one bookie, and read what it has from its LAC on.

        A "no such entry" in the answer stays true for every add except recovery's (rule 6).
        """
        line = self._lines.get(member)
        if line is None:
            line = self._lines[member] = _FenceLine()
        future: asyncio.Future[FenceAnswer] = asyncio.get_running_loop().create_future()
        line.waiting.append((ledger_id, future))
        if line.calls_count < _FENCE_CALLS_MAX:
            line.calls_count += 1
            _ = self._tasks.spawn(
                self._send_fences(member, line),
                name=f"fences {member}",
                scope=Scope(ScopeKind.CONNECTION, f"fences of {member}"),
            )
        seconds = self._options.control_timeout_ms / 1000
        try:
            # Also what waits for a silent bookie behind other calls has its answer in time.
            async with self._clock.timeout(seconds):
                return await future
        except TimeoutError:
            raise NoAnswer(f"bookie {member} did not answer a fence in {seconds} s") from None

    async def _send_fences(self, member: str, line: _FenceLine) -> None:
        try:
            while line.waiting:
                asked = line.waiting[:_FENCES_MAX]
                del line.waiting[:_FENCES_MAX]
                # the others do not wait any more
                await self._send_fence(member, [each for each in asked if not each[1].done()])
        finally:
            line.calls_count -= 1
            if not line.calls_count and not line.waiting:
                self._lines.pop(member, None)

    async def _send_fence(
        self, member: str, asked: Sequence[tuple[int, asyncio.Future[FenceAnswer]]]
    ) -> None:
        if not asked:
            return
        answers: Sequence[FenceAnswer] = ()
        failure = f"bookie {member}: the call ended without an answer"
        try:
            answers = await self._fence_all(member, [ledger_id for ledger_id, _ in asked])
            failure = f"bookie {member} answered fewer fences than it was asked for"
        except NoAnswer as error:
            failure = str(error)
        finally:
            for place, (_, future) in enumerate(asked):
                if future.done():
                    continue
                if place < len(answers):
                    future.set_result(answers[place])
                else:
                    future.set_exception(NoAnswer(failure))

    async def _fence_all(self, member: str, ledger_ids: Sequence[int]) -> list[FenceAnswer]:
        """Fence ledgers at one bookie. Return the answers, in order."""
        request = pb.FenceRequest(
            instance_id=member,
            ledger=ledger_ids[0],
            more_ledgers=ledger_ids[1:],
            read_entries=_FENCE_READ_ENTRIES,
            max_bytes=_FENCE_READ_BYTES,
        )
        data = await self._call(member, "bookie.fence", request.SerializeToString())
        try:
            head, body = split_records(data)
            answer = pb.FenceResponse.FromString(head)
            records = slice_records(body, answer.sizes)
            if not answer.codes:
                # The answer to the call, or that of a bookie which knows only the first ledger.
                whole = FenceAnswer(answer.code, answer.message, answer.lac)
                return [whole] * (len(ledger_ids) if answer.code else 1)
            if sum(answer.counts) != len(records):
                raise ChecksumError(
                    f"{sum(answer.counts)} records were announced, {len(records)} came"
                )
            found: list[FenceAnswer] = []
            at = 0
            for code, lac, first, count, end in zip(
                answer.codes, answer.lacs, answer.firsts, answer.counts, answer.ends, strict=True
            ):
                own = records[at : at + count]
                at += count
                is_read = not code and first == max(lac, 0) and count <= _FENCE_READ_ENTRIES
                found.append(
                    FenceAnswer(code, "", lac, first, own, end)
                    if is_read
                    else FenceAnswer(code, "", lac)
                )
        except (DecodeError, ChecksumError, ValueError) as error:
            raise NoAnswer(
                f"bookie {member} answered a fence with bytes that cannot be read: {error}"
            ) from None
        return found

    async def read_lac(
        self, member: str, ledger_id: int, *, after_lac: int = NO_ENTRY, wait_ms: int = 0
    ) -> LacAnswer:
        """Read the bookie's LAC.

        With ``wait_ms`` the bookie answers once its LAC is above ``after_lac`` or the time is up.
        """
        request = pb.ReadLacRequest(
            instance_id=member, ledger=ledger_id, after_lac=after_lac, wait_ms=wait_ms
        )
        answer = await self._ask(
            member, "bookie.read_lac", request, pb.ReadLacResponse, extra_ms=wait_ms
        )
        return LacAnswer(answer.code, answer.message, answer.lac)

    async def write_lacs(
        self, member: str, ledger_ids: Sequence[int], lacs: Sequence[int]
    ) -> list[int]:
        """Send one bookie the LACs of many ledgers. Return a code for each."""
        request = pb.WriteLacsRequest(instance_id=member, ledgers=ledger_ids, lacs=lacs)
        answer = await self._ask(member, "bookie.write_lacs", request, pb.WriteLacsResponse)
        if len(answer.codes) != len(ledger_ids):
            raise NoAnswer(
                f"bookie {member} answered {len(answer.codes)} of {len(ledger_ids)} LACs"
            )
        return list(answer.codes)

    async def list_ledgers(self, member: str, after: int) -> tuple[list[int], bool]:
        """Return a page of the ledgers above ``after`` that one bookie holds, ascending, and
        whether there are more.
        """
        request = pb.ListLedgersRequest(instance_id=member, after=after)
        answer = await self._ask(member, "bookie.list_ledgers", request, pb.ListLedgersResponse)
        if answer.code:
            raise NoAnswer(f"bookie {member} does not list its ledgers: {answer.message}")
        return list(answer.ledgers), answer.more

    async def list_entries(
        self, member: str, ledger_id: int, first: int, last: int
    ) -> EntriesAnswer:
        """Ask which of these entries one bookie has by its index.

        The answer covers at least the first of them.
        """
        request = pb.ListEntriesRequest(
            instance_id=member, ledger=ledger_id, first=first, last=last
        )
        answer = await self._ask(member, "bookie.list_entries", request, pb.ListEntriesResponse)
        if not answer.code and (len(answer.spans) % 2 or not first <= answer.until <= last):
            raise NoAnswer(
                f"bookie {member} answered a listing of entries {first} to {last} that means "
                f"nothing: up to {answer.until}"
            )
        return EntriesAnswer(
            answer.code,
            answer.message,
            list(zip(answer.spans[::2], answer.spans[1::2], strict=True)),
            answer.until,
        )

    async def clear_limbo(self, member: str, ledger_id: int, times: int) -> None:
        """Tell one bookie that it has all entries of a closed ledger that it should have.

        From then on the bookie's "no such entry" counts again for this ledger.

        Args:
            times: the number of the bookie's limbo in which this was verified.
        """
        request = pb.ClearLimboRequest(instance_id=member, ledger=ledger_id, times=times)
        answer = await self._ask(member, "bookie.clear_limbo", request, pb.ClearLimboResponse)
        if answer.code:
            raise NoAnswer(f"bookie {member} does not end its limbo: {answer.message}")

    async def tree_seen(self, member: str) -> TreeState:
        """Return the newest metadata tree that one bookie has seen."""
        answer = await self._ask(member, "bookie.status", pb.StatusRequest(), pb.StatusResponse)
        return TreeState(*answer.seen) if len(answer.seen) == len(NOTHING_SEEN) else NOTHING_SEEN

    async def list_trash(self, member: str, after: int) -> tuple[list[TrashedLedger], bool]:
        """Return a page of the ledgers above ``after`` in the trash of one bookie, ascending, and
        whether there are more.
        """
        request = pb.ListTrashRequest(instance_id=member, after=after)
        answer = await self._ask(
            member, "bookie.list_trash", request, pb.ListTrashResponse, extra_ms=_TRASH_MS
        )
        if answer.code:
            raise NoAnswer(f"bookie {member} does not list its trash: {answer.message}")
        rows = zip(answer.ledgers, answer.since_ms, answer.size_bytes, strict=True)
        return [TrashedLedger(*row) for row in rows], answer.more

    async def change_trash(
        self, member: str, ledger_ids: Sequence[int], *, restore: bool
    ) -> list[int]:
        """Restore ledgers from the trash of one bookie, or delete them there for good.

        Return the ledgers that were changed.
        """
        request = pb.ChangeTrashRequest(instance_id=member, restore=restore, ledgers=ledger_ids)
        answer = await self._ask(
            member, "bookie.change_trash", request, pb.ChangeTrashResponse, extra_ms=_TRASH_MS
        )
        if answer.code:
            raise NoAnswer(f"bookie {member} does not change its trash: {answer.message}")
        return list(answer.ledgers)

    async def collect_garbage(self, member: str, *, begin: bool) -> GarbageState:
        """Return what the garbage collection of one bookie did, and what waits there.

        ``begin``: have it begin a round at once.
        """
        request = pb.CollectGarbageRequest(instance_id=member, begin=begin)
        answer = await self._ask(
            member, "bookie.collect_garbage", request, pb.CollectGarbageResponse
        )
        if answer.code:
            raise NoAnswer(f"bookie {member} does not collect garbage: {answer.message}")
        return GarbageState(*(getattr(answer, name) for name in GarbageState._fields))

    async def volume(self, member: str, directory: str, *, remove: bool = False) -> VolumeState:
        """Return how far the drain and the removal of a volume of one bookie are.

        ``directory``: its entry logs'. ``remove``: have the removal begin.
        """
        request = pb.VolumeRequest(instance_id=member, directory=directory, remove=remove)
        answer = await self._ask(member, "bookie.volume", request, pb.VolumeResponse)
        if answer.code:
            raise NoAnswer(f"bookie {member} says nothing of {directory}: {answer.message}")
        if len(answer.waiting) != len(answer.reasons):
            raise NoAnswer(
                f"bookie {member} gave {len(answer.reasons)} reasons for {len(answer.waiting)} "
                f"ledgers of {directory}"
            )
        return VolumeState(
            draining=answer.draining,
            looked=answer.looked,
            closed_ledgers=answer.closed_ledgers,
            open_ledgers=answer.open_ledgers,
            failure=answer.failure,
            waiting=list(zip(answer.waiting, answer.reasons, strict=True)),
            removing=answer.removing,
            removed=answer.removed,
            refusal=answer.refusal,
        )

    async def add_volume(
        self, member: str, directories: Sequence[str], *, add: bool = False
    ) -> AdditionState:
        """Return how far the addition of a volume to one bookie is.

        ``directories``: its journal, ledger and index directory. ``add``: have the addition begin.
        """
        journal, ledger, index = directories
        request = pb.AddVolumeRequest(
            instance_id=member,
            journal_directory=journal,
            ledger_directory=ledger,
            index_directory=index,
            add=add,
        )
        answer = await self._ask(member, "bookie.add_volume", request, pb.AddVolumeResponse)
        if answer.code:
            raise NoAnswer(f"bookie {member} adds no volume: {answer.message}")
        return AdditionState(answer.adding, answer.added, answer.refusal)

    async def recovery_read(
        self, member: str, ledger_id: int, first: int, last: int, max_bytes: int
    ) -> RecoveryAnswer:
        """Fence the ledger, then read.

        A "no such entry" in the answer stays true for every add except recovery's (rule 6).
        """
        request = pb.RecoveryReadRequest(
            instance_id=member, ledger=ledger_id, first=first, last=last, max_bytes=max_bytes
        )
        data = await self._call(member, "bookie.recovery_read", request.SerializeToString())
        try:
            head, body = split_records(data)
            answer = pb.RecoveryReadResponse.FromString(head)
            return RecoveryAnswer(answer.code, answer.message, slice_records(body, answer.sizes))
        except (DecodeError, ChecksumError) as error:
            raise NoAnswer(
                f"bookie {member} answered a recovery read with bytes that cannot be read: {error}"
            ) from None

    async def _ask(
        self, member: str, method: str, request: Message, kind: type[A], *, extra_ms: int = 0
    ) -> A:
        """Call a method of one bookie. Return its answer, of this kind."""
        data = await self._call(member, method, request.SerializeToString(), extra_ms=extra_ms)
        try:
            return kind.FromString(data)
        except DecodeError as error:
            raise NoAnswer(
                f"bookie {member} answered {method} with bytes that cannot be read: {error}"
            ) from None

    async def _call(self, member: str, method: str, request: bytes, *, extra_ms: int = 0) -> bytes:
        address = self._book.route(member)
        if address is None:
            raise NoAnswer(f"no address of bookie {member} is known")
        seconds = (self._options.control_timeout_ms + extra_ms) / 1000
        try:
            answer = await self._connections.call(address, method, request, timeout_seconds=seconds)
        except TimeoutError:
            self._book.on_failed(member, address)
            raise NoAnswer(f"bookie {member} did not answer in {seconds} s") from None
        except StreamBroken as error:
            self._book.on_failed(member, address)
            raise NoAnswer(f"bookie {member} did not answer: {error}") from None
        except CallFailed as error:
            raise NoAnswer(f"bookie {member} did not answer: {error}") from None
        self._book.on_reached(member, address)
        return answer
