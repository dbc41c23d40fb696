"""The calls to a bookie that must never queue behind adds or catch-up reads: fencing, recovery reads, LAC."""

from __future__ import annotations

from dataclasses import dataclass, field

from google.protobuf.message import DecodeError

from pulsarish.ledger.bookie_stream import AddressBook
from pulsarish.ledger.options import LedgerOptions
from pulsarish.model.errors import ChecksumError
from pulsarish.model.position import NO_ENTRY
from pulsarish.runtime.seams import CallFailed, StreamBroken, World
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.framing import slice_records, split_records

__all__ = ["BookieControl", "LacAnswer", "NoAnswer", "RecoveryAnswer"]


class NoAnswer(Exception):
    """Nothing was heard that means anything: unreachable, silent, or unreadable. Never a "no" (rule 6)."""


@dataclass(frozen=True, slots=True)
class LacAnswer:
    """``code`` 0: the ledger is here and ``lac`` is the highest that this bookie knows."""

    code: int
    message: str
    lac: int = NO_ENTRY


@dataclass(frozen=True, slots=True)
class RecoveryAnswer:
    """Records from the first asked for on, unchecked; ``code`` says why the next one did not come (0: the limits ended it)."""

    code: int
    message: str
    records: list[memoryview] = field(default_factory=list)


class BookieControl:
    """The control calls. Every one raises ``NoAnswer``."""

    def __init__(self, world: World, options: LedgerOptions, book: AddressBook) -> None:
        self._connections = world.connections
        self._options = options
        self._book = book

    async def fence(self, member: str, ledger_id: int) -> LacAnswer:
        """Fence the ledger at one bookie; once answered with 0 the fence is durable."""
        request = pb.FenceRequest(instance_id=member, ledger=ledger_id)
        try:
            answer = pb.FenceResponse.FromString(await self._call(member, "bookie.fence", request.SerializeToString()))
        except DecodeError as error:
            raise NoAnswer(f"bookie {member} answered a fence with bytes that cannot be read: {error}") from None
        return LacAnswer(answer.code, answer.message, answer.lac)

    async def read_lac(self, member: str, ledger_id: int, *, after_lac: int = NO_ENTRY, wait_ms: int = 0) -> LacAnswer:
        """The bookie's LAC; with ``wait_ms`` answered once it is above ``after_lac`` or the time is up."""
        request = pb.ReadLacRequest(instance_id=member, ledger=ledger_id, after_lac=after_lac, wait_ms=wait_ms)
        try:
            data = await self._call(member, "bookie.read_lac", request.SerializeToString(), extra_ms=wait_ms)
            answer = pb.ReadLacResponse.FromString(data)
        except DecodeError as error:
            raise NoAnswer(f"bookie {member} answered a LAC read with bytes that cannot be read: {error}") from None
        return LacAnswer(answer.code, answer.message, answer.lac)

    async def write_lac(self, member: str, ledger_id: int, lac: int) -> int:
        """Tell one bookie the LAC; returns its code."""
        request = pb.WriteLacRequest(instance_id=member, ledger=ledger_id, lac=lac)
        try:
            return pb.WriteLacResponse.FromString(await self._call(member, "bookie.write_lac", request.SerializeToString())).code
        except DecodeError as error:
            raise NoAnswer(f"bookie {member} answered a LAC with bytes that cannot be read: {error}") from None

    async def recovery_read(self, member: str, ledger_id: int, first: int, last: int, max_bytes: int) -> RecoveryAnswer:
        """Fence, then read: a "no such entry" that comes back stays true for every add that is not recovery's (rule 6)."""
        request = pb.RecoveryReadRequest(instance_id=member, ledger=ledger_id, first=first, last=last, max_bytes=max_bytes)
        data = await self._call(member, "bookie.recovery_read", request.SerializeToString())
        try:
            head, body = split_records(data)
            answer = pb.RecoveryReadResponse.FromString(head)
            return RecoveryAnswer(answer.code, answer.message, slice_records(body, answer.sizes))
        except (DecodeError, ChecksumError) as error:
            raise NoAnswer(f"bookie {member} answered a recovery read with bytes that cannot be read: {error}") from None

    async def _call(self, member: str, method: str, request: bytes, *, extra_ms: int = 0) -> bytes:
        address = self._book.get(member)
        if address is None:
            raise NoAnswer(f"bookie {member} is not registered")
        seconds = (self._options.control_timeout_ms + extra_ms) / 1000
        try:
            return await self._connections.call(address, method, request, timeout_seconds=seconds)
        except TimeoutError:
            raise NoAnswer(f"bookie {member} did not answer in {seconds} s") from None
        except (StreamBroken, CallFailed) as error:
            raise NoAnswer(f"bookie {member} did not answer: {error}") from None
