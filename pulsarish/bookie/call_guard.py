"""What every call of a bookie passes: who may call, how large a request may be, and what is
answered when the handler fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from google.protobuf.message import DecodeError, Message

from pulsarish.bookie.access import Access, check_ledger
from pulsarish.model.errors import (
    AuthenticationError,
    AuthorizationError,
    BookieIOError,
    InvalidArgument,
)
from pulsarish.model.position import NO_ENTRY
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import CallHandler
from pulsarish.security.credentials import Caller
from pulsarish.wire._pb import bookie_pb2 as pb

__all__ = ["guarded"]

_log = get_logger("bookie.service")

_CALL_BYTES_MAX: Final = 1 << 20

_FAILURES: Final[dict[str, Callable[[int, str], Message]]] = {
    "bookie.fence": lambda code, why: pb.FenceResponse(code=code, message=why, lac=NO_ENTRY),
    "bookie.read_lac": lambda code, why: pb.ReadLacResponse(code=code, message=why, lac=NO_ENTRY),
    "bookie.recovery_read": lambda code, why: pb.RecoveryReadResponse(code=code, message=why),
    "bookie.list_ledgers": lambda code, why: pb.ListLedgersResponse(code=code, message=why),
    "bookie.list_entries": lambda code, why: pb.ListEntriesResponse(code=code, message=why),
    "bookie.clear_limbo": lambda code, why: pb.ClearLimboResponse(code=code, message=why),
    "bookie.list_trash": lambda code, why: pb.ListTrashResponse(code=code, message=why),
    "bookie.change_trash": lambda code, why: pb.ChangeTrashResponse(code=code, message=why),
    "bookie.collect_garbage": lambda code, why: pb.CollectGarbageResponse(code=code, message=why),
}

_LEDGER_OF: Final[dict[str, Callable[[bytes], int]]] = {
    "bookie.read_lac": lambda request: pb.ReadLacRequest.FromString(request).ledger,
}
"""The ledger that a request is about, of the calls for those whose tokens name ledgers."""


def guarded(name: str, handler: Callable[[bytes], Awaitable[bytes]], access: Access) -> CallHandler:
    """Return a handler that always answers, and serves only those who may call.

    When the handler raises, it answers "unknown", because a caller must never take an error for
    "not there". A malformed request gets the answer "invalid request".
    """
    failure = _FAILURES.get(name)

    async def handle(request: bytes, caller: Caller) -> bytes:
        try:
            member = access.check(caller, name)
            if len(request) > _CALL_BYTES_MAX:
                raise InvalidArgument(
                    f"a request of {len(request)} bytes is above the limit of {_CALL_BYTES_MAX}; "
                    "ask for less at a time"
                )
            if member is not None and member.ledgers is not None:
                check_ledger(member, _LEDGER_OF[name](request))
            return await handler(request)
        except (AuthenticationError, AuthorizationError) as error:
            if failure is None:
                raise
            _log.warning("a call is refused", call=name, peer=caller.address, reason=error)
            return failure(error.code, str(error)).SerializeToString()
        except (DecodeError, InvalidArgument) as error:
            reason = f"no valid request for {name}: {error}"
            if failure is None:
                raise InvalidArgument(reason) from None
            _log.warning("a call is refused", call=name, reason=reason)
            return failure(InvalidArgument.code, reason).SerializeToString()
        except Exception as error:
            # an error of the disk or the index, or a defect: the caller learns that the result is
            # unknown
            if failure is None:
                raise
            _log.error(
                "a call fails, because what is stored cannot be read", exception=error, call=name
            )
            return failure(
                BookieIOError.code, f"what is stored cannot be read: {error}"
            ).SerializeToString()

    return handle
