"""How a client reaches its cluster: its connections, the hosts that it asks, and the change of both
at runtime.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pulsarish.client.connection.lookup import Lookup, LookupLimits
from pulsarish.client.connection.service_finder import ServiceFinder
from pulsarish.client.connection.switched_connections import SwitchedConnections
from pulsarish.client.messages.options import ClientOptions
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import ClientConnections, Clock, Tasks
from pulsarish.security.client_security import ClientSecurity

__all__ = ["Connect", "Release", "ServiceLink", "answer_seconds"]

Connect = Callable[[ClientSecurity], ClientConnections]
Release = Callable[[ClientConnections], Awaitable[None]]
"""Closes connections, unless other clients share them."""

_ANSWER_SECONDS_MAX: Final = 5.0
_ANSWER_SECONDS_MIN: Final = 1.0
_SHARE: Final = 0.8


def answer_seconds(chosen: ClientOptions) -> float:
    """Return how long a client waits for one host, so that a dead one leaves time for the others
    within the operation timeout.
    """
    share = chosen.operation_timeout_seconds * _SHARE / len(chosen.url.hosts)
    return min(
        chosen.connection_timeout_seconds,
        chosen.operation_timeout_seconds,
        max(share, _ANSWER_SECONDS_MIN),
        _ANSWER_SECONDS_MAX,
    )


class ServiceLink:
    """Made and used in one event loop.

    Args:
        connect: returns connections of this security. Raises ``ConfigError`` for certificate
            files that cannot be used.
    """

    def __init__(
        self,
        chosen: ClientOptions,
        book: AddressBook,
        *,
        connect: Connect,
        release: Release,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._connect = connect
        self._release = release
        self._clock = clock
        self._tasks = tasks
        self._book = book
        self._chosen = chosen
        self._tunnel = ""
        self._direct = connect(chosen.security)
        self.connections = SwitchedConnections(self._direct)
        self.lookup = Lookup(
            (),
            self.connections,
            tasks,
            listener=chosen.listener_name,
            limits=LookupLimits(call_timeout_seconds=answer_seconds(chosen)),
            book=book,
            clock=clock,
        )
        self._aim()

    def _aim(self) -> None:
        url = self._chosen.url
        if url.is_native:
            self.lookup.use(url.addresses, None)
            return
        finder = ServiceFinder(
            url,
            self._direct,
            self._clock,
            self._tasks,
            listener=self._chosen.listener_name,
            timeout_seconds=answer_seconds(self._chosen),
        )
        self.lookup.use((), partial(self._find, finder, self._chosen))

    async def _find(self, finder: ServiceFinder, chosen: ClientOptions) -> Sequence[str]:
        found = await finder.find()
        if self._chosen is chosen:
            self._use_tunnel(found.tunnel)
        return found.addresses

    def _use_tunnel(self, tunnel: str) -> None:
        """Make the next connections through this proxy. Open ones stay as they are."""
        if tunnel == self._tunnel:
            return
        before = self.connections.current
        self.connections.current = (
            self._connect(replace(self._chosen.security, tunnel=tunnel)) if tunnel else self._direct
        )
        self._tunnel = tunnel
        if before is not self._direct:
            self._release_soon(before)

    def switch(self, chosen: ClientOptions) -> Callable[[], None]:
        """Go to another cluster with the next lookup. Return what ends the connections to the one
        before, to be called when nothing uses them.

        Raises ``ConfigError``, and changes nothing then.
        """
        direct = self._connect(chosen.security)
        former = {self._direct, self.connections.current}
        self._chosen, self._tunnel = chosen, ""
        self._direct = self.connections.current = direct
        self._book.clear()
        self._aim()

        def end_former() -> None:
            for each in former - {direct}:
                self._release_soon(each)

        return end_former

    def _release_soon(self, connections: ClientConnections) -> None:
        async def release() -> None:
            await self._release(connections)

        _ = self._tasks.spawn(release(), name="close former connections")

    async def close(self) -> None:
        """Close the connections."""
        for each in {self._direct, self.connections.current}:
            await self._release(each)
