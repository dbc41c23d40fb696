"""The protocol of one connection. Its failures end only that connection."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, Final

from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.seams import Tasks

__all__ = ["CALLBACKS", "ContainedBufferedProtocol", "ContainedProtocol"]

CALLBACKS: Final = (
    "connection_made",
    "connection_lost",
    "data_received",
    "buffer_updated",
    "get_buffer",
    "eof_received",
    "pause_writing",
    "resume_writing",
)
"""What an event loop calls on a protocol."""


_DEFAULTS: Final = [
    getattr(kind, name)
    for kind in (asyncio.Protocol, asyncio.BufferedProtocol)
    for name in CALLBACKS
    if hasattr(kind, name)
]
"""The callbacks of asyncio's own classes, which do nothing."""


class _Containment:
    """Wraps the callbacks of each subclass, inherited ones too, when the class is made."""

    def __init__(self, tasks: Tasks) -> None:
        self._containing_tasks = tasks
        self._contained_transport: asyncio.Transport | None = None
        """``None`` after the end: a connection is often part of a cycle, cycles are collected
        rarely, and a transport with TLS has buffers of 256 KiB.
        """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in CALLBACKS:
            callback = getattr(cls, name, None)
            if (
                callback is not None
                and not hasattr(callback, "is_contained")
                and callback not in _DEFAULTS
            ):
                setattr(cls, name, _contained(callback))

    @property
    def scope(self) -> Scope:
        """What a failure of this connection ends."""
        return Scope(ScopeKind.CONNECTION, self._peer_address(), self._abort)

    def contain(self, what: str, error: Exception) -> None:
        """Count and log an error that happened in work for this connection, and abort the
        connection.
        """
        self._containing_tasks.contain(f"{what} of {type(self).__name__}", error, self.scope)

    def _peer_address(self) -> str:
        transport = self._contained_transport
        peer = None if transport is None else transport.get_extra_info("peername")
        return f"{peer[0]}:{peer[1]}" if peer else "unknown"

    def _abort(self, _error: BaseException) -> None:
        if self._contained_transport is not None:
            self._contained_transport.abort()


class ContainedProtocol(_Containment, asyncio.Protocol):
    """Base of every protocol that is given the bytes that arrive.

    An error that a callback does not handle is counted and logged once, and aborts the connection.

    Without it the event loop writes a log line for most callbacks and leaves the connection open,
    in an unknown state.

    Args:
        tasks: counts the failures.
    """


class ContainedBufferedProtocol(_Containment, asyncio.BufferedProtocol):
    """The same for a protocol that gives the buffer into which the kernel reads."""


def _contained(callback: Callable[..., Any]) -> Callable[..., Any]:
    name = callback.__name__

    if name == "connection_made":

        @functools.wraps(callback)
        def contained(self: _Containment, transport: asyncio.Transport) -> None:
            self._contained_transport = transport
            try:
                callback(self, transport)
            except Exception as error:  # noqa: BLE001  # whatever it is, only this connection ends
                self.contain(name, error)

    elif name == "connection_lost":

        @functools.wraps(callback)
        def contained(self: _Containment, exc: Exception | None) -> None:
            try:
                callback(self, exc)
            except Exception as error:  # noqa: BLE001  # whatever it is, only this connection ends
                self.contain(name, error)
            self._contained_transport = None

    else:

        @functools.wraps(callback)
        def contained(self: _Containment, *arguments: Any) -> Any:
            try:
                return callback(self, *arguments)
            except Exception as error:  # noqa: BLE001  # whatever it is, only this connection ends
                self.contain(name, error)
                return None

    contained.is_contained = True  # type: ignore[attr-defined]
    return contained
