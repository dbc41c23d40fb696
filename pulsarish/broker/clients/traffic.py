"""What the listeners of a broker share: limits on what clients hold, and whether messages flow at
all.
"""

from __future__ import annotations

from typing import Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.runtime.byte_budget import ByteBudget
from pulsarish.runtime.descriptors import connections_limit
from pulsarish.runtime.peer_limits import ConnectionSlots, HeldBytes, PeerLimits
from pulsarish.runtime.seams import Clock

__all__ = ["ConnectionTraffic"]

_FLOW_SECONDS: Final = 1.0  # after this time without a message none flow


class ConnectionTraffic:
    """Counters and limits of all listeners of a broker together."""

    __slots__ = ("_clock", "_flowed", "budget", "connections_count", "limits", "opened_count")

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self.budget = ByteBudget(config.max_message_publish_buffer_size_bytes)
        """Bytes of entries that were received and not answered."""
        self.limits = PeerLimits(
            ConnectionSlots(
                connections_limit(config.broker_max_connections),
                config.broker_max_connections_per_ip,
            ),
            HeldBytes(config.max_partial_input_bytes, "incomplete frames"),
            HeldBytes(config.max_unsent_bytes, "what their clients do not receive"),
        )
        """Limits on connections of Apache Pulsar's protocol."""
        self.connections_count = 0
        """Open gRPC streams and binary connections of clients."""
        self.opened_count = 0
        """gRPC streams and binary connections opened since the start."""
        self._clock = clock
        self._flowed = float("-inf")

    def options_changed(self, config: BrokerConfig) -> None:
        """Apply changed options. Connections that are open stay so, whatever the limit is now."""
        self.budget.limit(config.max_message_publish_buffer_size_bytes)
        slots = self.limits.slots
        slots.connections_max = connections_limit(config.broker_max_connections)
        slots.per_address_max = config.broker_max_connections_per_ip
        self.limits.partial_input.limit_bytes = config.max_partial_input_bytes
        self.limits.unsent.limit_bytes = config.max_unsent_bytes

    def flows(self) -> None:
        """Note that something was published or delivered."""
        self._flowed = self._clock.monotonic()

    def messages_flow(self) -> bool:
        """Return whether something was published or delivered within the last second."""
        return self._clock.monotonic() - self._flowed < _FLOW_SECONDS

    def opened(self) -> int:
        """Count a new client connection. Return its number."""
        number = self.opened_count
        self.opened_count += 1
        self.connections_count += 1
        return number

    def ended(self) -> None:
        self.connections_count -= 1
