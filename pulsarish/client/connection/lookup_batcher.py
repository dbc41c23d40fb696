"""Send lookups in batches: while enough calls to a broker are unanswered, further lookups wait and
share the next call.

A call costs both sides the same for one lookup as for many, and a program may open thousands of
producers at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from pulsarish.client.connection.broker_stream import refused_credentials
from pulsarish.model.errors import AuthenticationError, UnknownError
from pulsarish.runtime.network.addresses import plain_address
from pulsarish.runtime.seams import CallFailed, ClientConnections, NoSuchMethod, StreamBroken, Tasks
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["LookupBatcher"]

_METHOD: Final = "broker.lookup"
_CALLS_MAX: Final = 4
"""Unanswered calls to one broker.

More than one, because the broker answers a call only when it has found everything in it.
"""
_LOOKUPS_MAX: Final = 100
"""Lookups in one call."""

_Asked = tuple[pb.LookupRequest, asyncio.Future[pb.LookupResponse]]


class _Line:
    """The lookups that wait for one broker, and the number of calls that are unanswered."""

    __slots__ = ("calls_count", "waiting")

    def __init__(self) -> None:
        self.calls_count = 0
        self.waiting: list[_Asked] = []


class LookupBatcher:
    def __init__(
        self, connections: ClientConnections, tasks: Tasks, timeout_seconds: float
    ) -> None:
        self._connections = connections
        self._tasks = tasks
        self._timeout_seconds = timeout_seconds
        self._lines: dict[str, _Line] = {}

    async def ask(self, address: str, request: pb.LookupRequest) -> pb.LookupResponse:
        """Return the broker's answer.

        Raises ``StreamBroken``, ``TimeoutError``, ``AuthenticationError`` or ``UnknownError``.
        """
        line = self._lines.get(address)
        if line is None:
            line = self._lines[address] = _Line()
        future: asyncio.Future[pb.LookupResponse] = asyncio.get_running_loop().create_future()
        line.waiting.append((request, future))
        if line.calls_count < _CALLS_MAX:
            line.calls_count += 1
            _ = self._tasks.spawn(self._work(address, line), name=f"lookups {address}")
        return await future

    async def _work(self, address: str, line: _Line) -> None:
        try:
            while line.waiting:
                asked = line.waiting[:_LOOKUPS_MAX]
                del line.waiting[:_LOOKUPS_MAX]
                await self._call(address, asked)
        finally:
            line.calls_count -= 1
            if not line.calls_count and not line.waiting:
                self._lines.pop(address, None)

    async def _call(self, address: str, asked: Sequence[_Asked]) -> None:
        request = pb.LookupsRequest(lookups=[each for each, _ in asked]).SerializeToString()
        failure: Exception = StreamBroken(f"{address}: the client has ended")
        answers: Sequence[pb.LookupResponse] = ()
        try:
            data = await self._connections.call(
                address, _METHOD, request, timeout_seconds=self._timeout_seconds
            )
            answers = pb.LookupsResponse.FromString(data).answers
            failure = StreamBroken(f"{address} gave {len(answers)} answers to {len(asked)} lookups")
        except (StreamBroken, TimeoutError, AuthenticationError) as error:
            failure = error
        except NoSuchMethod:
            failure = StreamBroken(
                f"{plain_address(address)} is no broker: it answers no lookups, as a bookie does "
                "not; name a broker's listen_address, usually port 6660"
            )
        except CallFailed as error:
            failure = refused_credentials(address, str(error)) or UnknownError(
                f"{_METHOD} failed at {address}: {error}"
            )
        except DecodeError as error:
            failure = StreamBroken(f"{address} answered what is no {_METHOD} answer: {error}")
        finally:
            whole = len(answers) == len(asked)
            for index, (_, future) in enumerate(asked):
                if future.done():
                    continue  # the caller no longer waits
                if whole:
                    future.set_result(answers[index])
                else:
                    future.set_exception(failure)
