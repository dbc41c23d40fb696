"""How a server runs the handlers of streams and calls, with any transport.

Whatever a handler raises ends its own stream or call: the peer learns the reason, and the failure
is counted and logged (``containment.py``).
"""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.model.errors import (
    AuthenticationError,
    AuthorizationError,
    InvalidArgument,
    ServiceNotReady,
    TooManyRequests,
)
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import CallHandler, Stream, StreamBroken, StreamHandler, Tasks
from pulsarish.security.credentials import Caller

__all__ = ["CallRefused", "answer_call", "run_stream"]

_log = get_logger("connections")

# Error texts travel in a header of HTTP/2, whose size peers limit.
_REASON_CHARS_MAX: Final = 1_000

# Of a caller that is not served. Anything else that a handler raises is a failure of this process.
_REFUSALS: Final = (
    AuthenticationError,
    AuthorizationError,
    InvalidArgument,
    ServiceNotReady,
    TooManyRequests,
)


class CallRefused(Exception):
    """A call's handler raised. The text is for the caller."""


async def run_stream(tasks: Tasks, method: str, handler: StreamHandler, stream: Stream) -> None:
    """Run the handler of a stream. The stream ends with it."""
    try:
        await handler(stream)
    except StreamBroken as broken:
        _log.debug("stream broken", method=method, peer=stream.peer, reason=broken)
        stream.abort(str(broken))
    except asyncio.CancelledError:
        stream.abort("the server is stopping")
        raise
    except Exception as error:  # noqa: BLE001
        # Whatever it is, the client learns that its stream is over.
        tasks.contain(
            f"stream {method}",
            error,
            Scope(ScopeKind.CONNECTION, stream.peer, lambda why: stream.abort(_describe(why))),
        )
    finally:
        # A handler that returns has nothing more to send.
        await stream.finish()


async def answer_call(
    tasks: Tasks, method: str, handler: CallHandler, request: bytes, caller: Caller
) -> bytes:
    """Run the handler of a call and return its answer. Raises ``CallRefused``."""
    try:
        return await handler(request, caller)
    except _REFUSALS as error:
        _log.warning("a call is refused", method=method, peer=caller.address, reason=error)
        raise CallRefused(_describe(error)) from None
    except Exception as error:
        tasks.contain(f"call {method}", error, Scope(ScopeKind.TASK, method))
        raise CallRefused(_describe(error)) from error


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_REASON_CHARS_MAX]
