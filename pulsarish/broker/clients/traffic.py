"""What the faces of a broker share: the limit on what was received and is not yet answered, and whether messages flow at all."""

from __future__ import annotations

from typing import Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.runtime.byte_budget import ByteBudget
from pulsarish.runtime.seams import Clock

__all__ = ["ConnectionTraffic"]

_FLOW_SECONDS: Final = 1.0  # without a message for so long none flow


class ConnectionTraffic:
    """One for all faces of a broker."""

    __slots__ = ("_clock", "_flowed", "budget", "connections_count", "opened_count")

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self.budget = ByteBudget(config.max_message_publish_buffer_size_bytes)
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
