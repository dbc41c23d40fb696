"""Message by message, for streams whose ``send`` and ``receive`` need a task of their owner."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from pulsarish.runtime.seams import Buffer
from pulsarish.runtime.wake_signal import WakeSignal

__all__ = ["TaskStream"]


class TaskStream(ABC):
    """``deliver`` and ``feed`` of the seam, made of the other methods."""

    @abstractmethod
    async def send(self, parts: Sequence[Buffer]) -> None: ...

    @abstractmethod
    async def receive(self) -> bytes | None: ...

    @abstractmethod
    async def finish(self) -> None: ...

    async def deliver(self, on_message: Callable[[bytes], Awaitable[None] | None]) -> None:
        while (message := await self.receive()) is not None:
            waiting = on_message(message)
            if waiting is not None:
                await waiting

    async def feed(
        self, next_message: Callable[[], Sequence[Buffer] | None], signal: WakeSignal
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            signal.clear()
            while (parts := next_message()) is not None:
                if not parts:
                    await self.finish()
                    return
                await self.send(parts)
            if signal.is_set:
                continue
            woken: asyncio.Future[None] = loop.create_future()
            signal.watch(partial(_wake, woken))
            try:
                await woken
            finally:
                signal.watch(None)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
