"""Rates that topics of one broker share."""

from __future__ import annotations

from dataclasses import dataclass

from pulsarish.broker.clients.wait_reasons import shown_rate
from pulsarish.model.rate_limits import RateLimit

__all__ = ["NO_RATE", "Rate", "SharedRates"]


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages and bytes in a second; 0 or less: no limit."""

    messages: int = 0
    size_bytes: int = 0

    def __str__(self) -> str:
        return shown_rate(self.messages, self.size_bytes)


NO_RATE = Rate()


class SharedRates:
    """What all that share it publish in a second, and what they are delivered.

    Each topic takes from the buckets for itself. So a topic that publishes much takes from what
    others may: none has a share of its own.
    """

    __slots__ = ("_dispatch", "_publish", "dispatch", "policy", "publish", "title")

    publish: RateLimit
    dispatch: RateLimit

    def __init__(self, title: str, policy: str = "") -> None:
        self.title = title
        """Whose rates they are, for reasons: ``the broker``."""
        self.policy = policy
        """The policy by which a topic has these rates; empty: it has them by an option."""
        self.publish = RateLimit()
        self.dispatch = RateLimit()
        self._publish = self._dispatch = NO_RATE

    def want(self, publish: Rate, dispatch: Rate) -> None:
        """Set the rates. They are in force from the next ``apply`` on."""
        self._publish, self._dispatch = publish, dispatch

    def apply(self, now: float) -> None:
        """Put the rates in force. Does nothing when they are. ``now``: monotonic seconds."""
        for limit, rate in ((self.publish, self._publish), (self.dispatch, self._dispatch)):
            limit.limit(rate.messages, rate.size_bytes, 1.0, now)

    @property
    def limited(self) -> bool:
        return self.publish.limited or self.dispatch.limited

    @property
    def publish_text(self) -> str:
        return f"the publish rate of {self.title} ({self._publish} a second)"

    @property
    def dispatch_text(self) -> str:
        return f"the dispatch rate of {self.title} ({self._dispatch} a second)"
