"""Messages of kombu as messages of a topic, and back.

The body is the content as it is. All else is JSON in the property ``kombu``. A message without it
comes from another program: its properties are the headers.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from kombu.utils.json import dumps, loads

from pulsarish.client.messages.message import Message
from pulsarish.integrations.kombu.addresses import ROUTING_KEY

__all__ = ["content_of", "due_ms", "payload_of", "priority_of", "properties_of"]

_KOMBU: Final = "kombu"
_PRIORITY_MAX: Final = 9


def content_of(message: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message's body."""
    body = message["body"]
    return body.encode() if isinstance(body, str) else bytes(body)


def properties_of(message: Mapping[str, Any], routing_key: str) -> dict[str, str]:
    """Return the properties that carry all but the body."""
    rest = {name: value for name, value in message.items() if name != "body"}
    return {_KOMBU: dumps(rest), ROUTING_KEY: routing_key}


def priority_of(message: Mapping[str, Any]) -> int:
    """Return the priority, 0 to 9; 0 for a message without one, as in AMQP."""
    try:
        priority = int(message["properties"].get("priority") or 0)
    except (TypeError, ValueError):
        priority = 0
    return max(0, min(priority, _PRIORITY_MAX))


def due_ms(message: Mapping[str, Any], now_ms: int) -> int | None:
    """Return when a task of Celery is due, in milliseconds since the epoch; ``None``: now.

    A time without a zone is the business of the worker, which knows its zone.
    """
    eta = (message.get("headers") or {}).get("eta")
    if isinstance(eta, str):
        try:
            eta = datetime.fromisoformat(eta)
        except ValueError:
            return None
    if not isinstance(eta, datetime) or eta.tzinfo is None:
        return None
    due = int(eta.timestamp() * 1000)
    return due if due > now_ms else None


def payload_of(message: Message, tag: str, *, redelivered: bool) -> dict[str, Any]:
    """Return what ``kombu.transport.virtual.Message`` is made of.

    Args:
        message: as it was received.
        tag: what this delivery is acknowledged by.
    """
    properties = message.properties()
    payload = _carried(properties) or {
        "headers": properties,
        "content-type": properties.get("content-type", "application/data"),
        "content-encoding": properties.get("content-encoding", "binary"),
        "properties": {},
    }
    delivered = payload["properties"]
    delivered["delivery_tag"] = tag
    info = delivered.setdefault("delivery_info", {})
    info.setdefault("exchange", "")
    info.setdefault("routing_key", properties.get(ROUTING_KEY, ""))
    info["redelivered"] = redelivered
    payload["body"] = message.data()
    return payload


def _carried(properties: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what a message of kombu carries beside its body; ``None``: it is of another program.

    A worker must not end with what another program writes there.
    """
    try:
        carried = loads(properties.get(_KOMBU, "null"))
    except ValueError:
        return None
    is_whole = isinstance(carried, dict) and isinstance(carried.get("properties"), dict)
    return carried if is_whole else None
