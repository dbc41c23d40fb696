"""One stream of adds: batches go to the store as they come, answers back as they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from google.protobuf.message import DecodeError

from pulsarish.bookie.store import EntryStore
from pulsarish.bookie.volumes import Volumes
from pulsarish.model.errors import ChecksumError
from pulsarish.runtime.byte_budget import ByteBudget
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import FINISH, Buffer, Stream, StreamBroken
from pulsarish.runtime.wake_signal import WakeSignal
from pulsarish.wire.bookie import AddResult, decode_add, encode_add_response

__all__ = ["AddSession"]

_log = get_logger("bookie.service")


class AddSession:
    """One add stream: the batches that are on their way, and the answers that wait to be sent.

    Args:
        everybody: the bytes of unanswered batches of all streams.
        bytes_max: the limit of this stream's.
        contain: called with an error that ends this stream.
    """

    def __init__(
        self,
        stream: Stream,
        store: EntryStore | Volumes,
        everybody: ByteBudget,
        bytes_max: int,
        contain: Callable[[Exception], None],
    ) -> None:
        self.wake = WakeSignal()
        self._stream = stream
        self._store = store
        self._everybody = everybody
        self._mine = ByteBudget(bytes_max)
        self._contain = contain
        self._unanswered_count = 0
        self._answered_count = 0
        self._sent_count = 0  # batches that the client knows as answered
        self._results: list[AddResult] = []
        self._over = False  # no more batches come, or the client has left
        self._drained = asyncio.Event()

    async def receive(self) -> None:
        """Take batches until the client has finished and all are answered, or has left."""
        try:
            await self._room()
            await self._stream.deliver(self._on_message)
            if self._unanswered_count:
                self._drained.clear()
                await self._drained.wait()
        except StreamBroken:
            # The client will ask again for what is unanswered; what was stored stays stored.
            return
        finally:
            self._over = True
            self.wake.set()

    def next_message(self) -> Sequence[Buffer] | None:
        """Return the answers that wait; ``FINISH`` after the last one."""
        if self._answered_count == self._sent_count:
            return FINISH if self._over else None
        self._sent_count = self._answered_count
        results, self._results = self._results, []
        return [encode_add_response(self._answered_count, results)]

    def _on_message(self, message: bytes) -> Awaitable[None] | None:
        try:
            batch = decode_add(message)
        except (DecodeError, ChecksumError) as error:
            self._stream.abort(f"no valid AddRequest: {error}")
            return None
        size_bytes = len(message)
        self._mine.use(size_bytes)
        self._everybody.use(size_bytes)
        self._unanswered_count += 1
        answer = partial(self._answer, size_bytes)
        waiting = None
        try:
            waiting = self._store.add(message, batch, answer)
        except ChecksumError as error:
            # The writer takes everything unanswered as unknown, and sends it again.
            _log.warning(
                "damaged entries arrived, their connection is ended",
                peer=self._stream.peer,
                reason=error,
            )
            self._stream.abort(str(error))
            answer([])
        except Exception as error:  # noqa: BLE001
            self._failed(error, answer)
        if waiting is not None:
            return self._finish(waiting, answer)
        return self._room() if self._is_full else None

    def _failed(self, error: Exception, answer: Callable[[list[AddResult]], None]) -> None:
        # Any error may end this connection and no other.
        answer([])
        self._contain(error)

    async def _finish(
        self, adding: Awaitable[None], answer: Callable[[list[AddResult]], None]
    ) -> None:
        try:
            await adding
        except Exception as error:  # noqa: BLE001
            self._failed(error, answer)
        await self._room()

    @property
    def _is_full(self) -> bool:
        return self._mine.full or self._everybody.full

    async def _room(self) -> None:
        while self._is_full:
            await self._mine.wait_for_room()
            await self._everybody.wait_for_room()

    def _answer(self, size_bytes: int, results: list[AddResult]) -> None:
        """Join a batch's results to those that wait.

        Consecutive ranges with one outcome become one.
        """
        self._mine.release(size_bytes)
        self._everybody.release(size_bytes)
        self._unanswered_count -= 1
        self._answered_count += 1
        if not self._unanswered_count:
            self._drained.set()
        waiting = self._results
        for result in results:
            if waiting:
                last = waiting[-1]
                if (
                    last.last + 1 == result.first
                    and last.ledger_id == result.ledger_id
                    and last.code == result.code
                ):
                    last.last = result.last
                    continue
            waiting.append(result)
        self.wake.set()
