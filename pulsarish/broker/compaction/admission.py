"""Which subscriptions may read a topic compacted."""

from __future__ import annotations

from pulsarish.broker.clients.commands import Subscribe
from pulsarish.model.errors import NotAllowedError

__all__ = ["check_compacted_read"]


def check_compacted_read(command: Subscribe) -> None:
    """Raise ``NotAllowedError``, as Apache Pulsar does, for a subscription that would spread its
    messages over several consumers.
    """
    if command.read_compacted and command.type.is_spread:
        raise NotAllowedError(
            "read_compacted is possible on exclusive and failover subscriptions only, and "
            f"{command.subscription!r} is to be"
            f" {command.type.name.lower()}"
        )
