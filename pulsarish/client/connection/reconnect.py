"""Keep a producer or consumer open: find the owner, open there, wait until that is lost, and start
again.

The first opening ends within the operation timeout. Later ones continue until the object is closed
or finally refused. The client does not wait for a broker whose process is gone: it asks another one
at once, which notices and takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pulsarish.client.connection.context import ClientContext, may_retry
from pulsarish.client.connection.stream_pool import BrokerGone
from pulsarish.model.errors import (
    AlreadyClosed,
    AuthenticationError,
    MetadataUnavailable,
    PulsarishError,
    Timeout,
    UnknownError,
)
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.log import get_logger
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["SETTLED_SECONDS", "Reconnector"]

_log = get_logger("client")

SETTLED_SECONDS: Final = 1.0
"""What was open for less than this is opened again after a growing wait, not at once."""


_REFUSED_SECONDS_MIN: Final = 0.5
_REFUSED_SECONDS_MAX: Final = 30.0
"""Pauses after refused credentials: a person or another program has to renew them."""


class Reconnector:
    """Calls ``open_at(address)`` again after each loss.

    ``ended`` is called once, when it stops trying.
    """

    def __init__(
        self,
        what: str,
        topic: str,
        parts: ClientContext,
        open_at: Callable[[str], Awaitable[None]],
        ended: Callable[[PulsarishError], None],
        *,
        anywhere: bool = False,
        waits: bool = False,
    ) -> None:
        """``anywhere``: any broker will do, and rather not the owner. ``waits``: as in
        ``OpeningTurns.take``.
        """
        self._what = what
        self._topic = topic
        self._parts = parts
        self._open_at = open_at
        self._ended = ended
        self._anywhere = anywhere
        self._waits = waits
        self._gone = asyncio.Event()
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_refused = False
        self._address = ""  # of the broker where it is open, or was last
        self._next_address = ""

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    async def open(self, address: str = "") -> None:
        """Open for the first time, at ``address`` if the owner is known.

        Raises the refusal, or ``Timeout``. When it is cancelled, nothing stays open.
        """
        running = self.start(address)
        try:
            # Shielded: the task sets the future even when the caller no longer waits.
            await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            # An opening on its way is closed at the broker now: the next one must find the place
            # free.
            self.close()
            _ = running.cancel()
            raise

    def start(self, address: str = "") -> asyncio.Task[None]:
        """Do what ``open`` does, without waiting: ``ended`` hears of a refusal."""
        return self._parts.tasks.spawn(
            self._run_to_the_end(address), name=f"{self._what} {self._topic}"
        )

    def lost(self, moved_to: pb.BrokerAddresses | None = None) -> None:
        """Note that it is no longer open, and where the next owner is if the broker said so."""
        # Now, because later the client may be in another cluster.
        self._next_address = (
            self._parts.lookup.next_owner(moved_to, self._address)
            if moved_to is not None and not self._anywhere
            else ""
        )
        self._gone.set()

    def close(self) -> None:
        """Stop trying."""
        self._closing.set()
        self._gone.set()

    async def _run_to_the_end(self, known: str) -> None:
        try:
            await self._run(known)
        except Exception as error:
            # A defect of the client. Report it to the program, which would wait forever otherwise.
            self._end(
                UnknownError(f"{self._what} on {self._topic} failed in the client: {error!r}")
            )
            raise

    async def _find(self, avoid: str) -> str:
        lookup = self._parts.lookup
        find = lookup.replica if self._anywhere else lookup.owner
        return await find(self._topic, avoid=avoid)

    async def _run(self, known: str) -> None:
        parts = self._parts
        backoff = Backoff(0.1, 1.0, jitter=parts.random)
        refusals = Backoff(_REFUSED_SECONDS_MIN, _REFUSED_SECONDS_MAX, jitter=parts.random)
        deadline = parts.clock.monotonic() + parts.operation_timeout_seconds
        avoid = ""
        at_once = True
        while not self._closing.is_set():
            self._gone.clear()
            turn = await parts.turns.take(waits=self._waits)
            try:
                if self._closing.is_set():
                    break
                self._address, known = known or await self._find(avoid), ""
                await self._open_at(self._address)
            except PulsarishError as error:
                # Another broker may reach the metadata service, and takes the topic then.
                avoid = self._address if isinstance(error, MetadataUnavailable) else ""
                if isinstance(error, BrokerGone) and at_once:
                    avoid, at_once = self._address, False
                elif self._is_over(error, deadline):
                    return
                else:
                    self._log_failure(error)
                    refused = isinstance(error, AuthenticationError)
                    turn.end()
                    await self._pause((refusals if refused else backoff).next_seconds())
                continue
            finally:
                turn.end()
            self._is_refused = False
            refusals.reset()
            if not self._opened.done():
                self._opened.set_result(None)
            opened_at = parts.clock.monotonic()
            await self._gone.wait()
            # Ask the broker that closed it last: it may be dead, or stopped and silent.
            avoid, at_once = self._address, True
            known = self._next_address
            if parts.clock.monotonic() - opened_at >= SETTLED_SECONDS:
                backoff.reset()
            else:
                await self._pause(backoff.next_seconds())
        if not self._opened.done():
            self._opened.set_exception(
                AlreadyClosed(f"{self._what} on {self._topic} was closed before it was open")
            )
            self._opened.exception()

    def _log_failure(self, error: PulsarishError) -> None:
        """Log why it is not open: refused credentials as a warning, once until it is open again,
        because a person has to act.
        """
        if isinstance(error, AuthenticationError) and not self._is_refused:
            self._is_refused = True
            _log.warning("not open", what=self._what, topic=self._topic, reason=error)
        else:
            _log.debug("not open", what=self._what, topic=self._topic, reason=error)

    def _is_over(self, error: PulsarishError, deadline: float) -> bool:
        first = not self._opened.done()
        if first and may_retry(error, first=True) and self._parts.clock.monotonic() >= deadline:
            error = Timeout(
                f"{self._what} on {self._topic} was not open in "
                f"{self._parts.operation_timeout_seconds} s: {error}"
            )
        elif may_retry(error, first=first):
            return False
        self._end(error)
        return True

    def _end(self, error: PulsarishError) -> None:
        self._ended(error)
        if not self._opened.done():
            self._opened.set_exception(error)
            # Retrieve the exception so that asyncio does not warn when the caller no longer waits.
            self._opened.exception()

    async def _pause(self, seconds: float) -> None:
        try:
            async with self._parts.clock.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return
