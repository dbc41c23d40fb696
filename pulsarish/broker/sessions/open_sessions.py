"""The sessions of a broker whose clients were authenticated: their rights end when they should.

A session ends when its identity expires or is revoked. Its producers and consumers are closed when
a grant is taken away. Both happen within about a second, whatever the client does, so also for a
consumer that only receives.
"""

from __future__ import annotations

from typing import Final, Protocol

from pulsarish.broker.clients.authorization import Gate
from pulsarish.broker.sessions.session import Session
from pulsarish.model.errors import AuthenticationError, PulsarishError
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.security.callers import Callers

__all__ = ["AuthenticatedConnection", "OpenSessions"]

_log = get_logger("broker.security")

_LOOK_SECONDS: Final = 0.5
_CHALLENGE_MS: Final = 30_000
"""A client is asked for new credentials this long before its own expire, or at half their time."""


class AuthenticatedConnection(Protocol):
    """A connection with a session."""

    @property
    def session(self) -> Session: ...

    async def check_again(self) -> None:
        """End what the client has opened and may not have any longer.

        Raises the error when a permission cannot be checked now.
        """
        ...

    def challenge(self) -> None:
        """Ask the client for new credentials, if its protocol can."""
        ...

    def end_rights(self, error: AuthenticationError) -> None:
        """Tell the client why, and end the connection."""
        ...


class _Watched:
    __slots__ = ("asked", "connection", "since_ms")

    def __init__(self, connection: AuthenticatedConnection, since_ms: int) -> None:
        self.connection = connection
        self.since_ms = since_ms
        self.asked = False


class OpenSessions:
    """Looks after authenticated connections.

    Args:
        gate: says when grants may have changed.
    """

    def __init__(self, world: World, callers: Callers, gate: Gate) -> None:
        self._world = world
        self._callers = callers
        self._gate = gate
        self._checked_count = gate.changes_count
        self._watched: dict[AuthenticatedConnection, _Watched] = {}
        self._stopped = False
        self.ended_count = 0

    def start(self) -> None:
        """Begin to look. Does nothing without authentication."""
        if self._callers.are_checked:
            tasks, clock = self._world.tasks, self._world.clock
            _ = run_in_background(tasks, clock, "ends of credentials", self._watch_ends)
            _ = run_in_background(tasks, clock, "grants of sessions", self._watch_grants)

    def stop(self) -> None:
        self._stopped = True

    def add(self, connection: AuthenticatedConnection) -> None:
        """Look after a connection, or note that its client has new credentials."""
        if self._callers.are_checked:
            self._watched[connection] = _Watched(connection, self._world.clock.wall_ms())

    def remove(self, connection: AuthenticatedConnection) -> None:
        self._watched.pop(connection, None)

    async def _watch_ends(self) -> None:
        while not self._stopped:
            await self._world.clock.sleep(_LOOK_SECONDS)
            self._end_expired()

    async def _watch_grants(self) -> None:
        while not self._stopped:
            await self._world.clock.sleep(_LOOK_SECONDS)
            await self._check_grants()

    def _end_expired(self) -> None:
        now_ms = self._world.clock.wall_ms()
        for watched in list(self._watched.values()):
            identity = watched.connection.session.identity
            end_ms = identity.expires_at_ms
            if end_ms and now_ms >= end_ms:
                self._end(watched, f"the credentials of role {identity.role!r} have expired")
            elif self._callers.is_revoked(identity):
                self._end(watched, f"the credentials of role {identity.role!r} are revoked")
            elif end_ms and not watched.asked:
                lead_ms = min(_CHALLENGE_MS, (end_ms - watched.since_ms) // 2)
                if now_ms >= end_ms - lead_ms:
                    watched.asked = True
                    watched.connection.challenge()

    def _end(self, watched: _Watched, reason: str) -> None:
        self.ended_count += 1
        self.remove(watched.connection)
        watched.connection.end_rights(AuthenticationError(f"{reason}; connect with new ones"))

    async def _check_grants(self) -> None:
        count = self._gate.changes_count
        if count == self._checked_count:
            return
        failed: PulsarishError | None = None
        for watched in list(self._watched.values()):
            try:
                await watched.connection.check_again()
            except PulsarishError as error:
                failed = error
            # A check of what is cached does not wait, and other work has to go on.
            await self._world.clock.sleep(0)
        if failed is None:
            self._checked_count = count
        else:
            # The count stays, so the next look tries again.
            _log.warning("permissions of open sessions could not be checked", reason=failed)
