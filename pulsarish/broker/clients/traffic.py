"""What the listeners of a broker share: limits on what clients hold, and whether messages flow at all."""

from __future__ import annotations

from typing import Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.runtime.byte_budget import ByteBudget
from pulsarish.runtime.descriptors import connections_limit
from pulsarish.runtime.peer_limits import ConnectionSlots, HeldBytes, PeerLimits
from pulsarish.runtime.seams import Clock

__all__ = ["ConnectionTraffic"]

_FLOW_SECONDS: Final = 1.0  # without a message for so long none flow


class ConnectionTraffic:
    """One for all listeners of a broker."""

    __slots__ = ("_clock", "_flowed", "budget", "connections_count", "limits", "opened_count")

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self.budget = ByteBudget(config.max_message_publish_buffer_size_bytes)
        """Entries that were received and are not answered."""
        self.limits = PeerLimits(
            ConnectionSlots(connections_limit(config.broker_max_connections), config.broker_max_connections_per_ip),
            HeldBytes(config.max_partial_input_bytes, "incomplete frames"),
            HeldBytes(config.max_unsent_bytes, "what their clients do not receive"),
        )
        """Of connections of Apache Pulsar's protocol."""
        self.connections_count = 0
        """gRPC streams and binary connections of clients."""
        self.opened_count = 0
        """The same since the start."""
        self._clock = clock
        self._flowed = float("-inf")

    def flows(self) -> None:
        """Something was published or delivered."""
        self._flowed = self._clock.monotonic()

    def messages_flow(self) -> bool:
        """Whether anything was published or delivered in the last moment."""
        return self._clock.monotonic() - self._flowed < _FLOW_SECONDS

    def opened(self) -> int:
        """Count a client's connection; answers its number."""
        number = self.opened_count
        self.opened_count += 1
        self.connections_count += 1
        return number

    def ended(self) -> None:
        self.connections_count -= 1
