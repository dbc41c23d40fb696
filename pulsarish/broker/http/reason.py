"""The reason that an operator gives for a request, which is stored and shown."""

from __future__ import annotations

from typing import Final

from pulsarish.broker.http.route import Call
from pulsarish.model.errors import InvalidArgument

__all__ = ["reason_of"]

_CHARS_MAX: Final = 500


def reason_of(call: Call) -> str:
    """Return the query's ``reason``. Raises ``InvalidArgument`` for one that is too long."""
    reason = call.text("reason")
    if len(reason) > _CHARS_MAX:
        raise InvalidArgument(f"reason has {len(reason)} characters, and {_CHARS_MAX} are the most")
    return reason
