"""The credentials of one client, asked of their provider before each opening of a connection.

A provider may read a file or ask another server. It does so in a thread, so that the event loop and
the other clients of the process go on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from pulsarish.model.errors import ConnectError
from pulsarish.runtime.seams import ClientConnections, Stream, StreamBroken
from pulsarish.security.client_security import CredentialsProvider
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials

__all__ = ["FreshConnections", "FreshCredentials"]

_ANSWER_SECONDS: Final = 30.0


class FreshCredentials:
    """What a provider gave last. Used in one event loop."""

    def __init__(self, provider: CredentialsProvider | None) -> None:
        self._provider = provider
        self._credentials = NO_CREDENTIALS
        self._asking: asyncio.Future[Credentials] | None = None

    def latest(self) -> Credentials:
        """Return what the last ``renew`` got. It is the ``CredentialsSource`` of connections."""
        return self._credentials

    async def renew(self, timeout_seconds: float = _ANSWER_SECONDS) -> None:
        """Ask the provider; openings at the same time share one question.

        Raises ``AuthenticationError``, or ``StreamBroken`` when a server that gives credentials
        cannot be reached or the provider does not answer in time.
        """
        provider = self._provider
        if provider is None:
            return
        if provider.is_immediate:
            self._credentials = provider.credentials()
            return
        if self._asking is None:
            self._asking = _in_thread(provider.credentials)
            self._asking.add_done_callback(self._on_answer)
        try:
            async with asyncio.timeout(timeout_seconds):
                # Shielded: others wait for the same answer.
                self._credentials = await asyncio.shield(self._asking)
        except TimeoutError:
            raise StreamBroken(
                f"the client's credentials did not come within {timeout_seconds:g} s"
            ) from None
        except ConnectError as error:
            raise StreamBroken(str(error)) from None

    def _on_answer(self, asked: asyncio.Future[Credentials]) -> None:
        self._asking = None
        # Retrieve the exception so that asyncio does not warn when every caller stopped waiting.
        asked.exception()


def _in_thread(work: Callable[[], Credentials]) -> asyncio.Future[Credentials]:
    """Run ``work`` in a thread of its own, which does not keep the process alive."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Credentials] = loop.create_future()

    def settle(found: Credentials | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        elif found is not None:
            answer.set_result(found)

    def run() -> None:
        found: Credentials | None = None
        failure: BaseException | None = None
        try:
            found = work()
        except Exception as error:  # noqa: BLE001 - those who wait get it
            failure = error
        try:
            loop.call_soon_threadsafe(settle, found, failure)
        except RuntimeError:
            if not loop.is_closed():
                raise

    threading.Thread(target=run, name="pulsarish credentials", daemon=True).start()
    return answer


class FreshConnections:
    """Connections that ask for their client's credentials before each opening.

    Args:
        connections: show ``credentials.latest``.
    """

    def __init__(self, connections: ClientConnections, credentials: FreshCredentials) -> None:
        self._connections = connections
        self._credentials = credentials

    async def credentials_now(self) -> Credentials:
        await self._credentials.renew()
        return self._credentials.latest()

    async def open_bytes(
        self, address: str, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        return await self._connections.open_bytes(address, factory)

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        await self._credentials.renew()
        return await self._connections.open(address, method, lane=lane)

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        await self._credentials.renew(timeout_seconds)
        return await self._connections.call(
            address, method, request, timeout_seconds=timeout_seconds
        )
