"""Whether a broker without a metadata session continues to serve what it owns: the core.

A session that is lost frees what the broker owns. Another broker takes it over only if that broker
reaches the metadata service. So as long as all others say that they do not, and that this broker
was registered when they last did, this one continues. It asks them with each ping.

The answer of a broker holds from the moment at which it was asked, for ``limit_seconds``, a session
timeout. Therefore two brokers deliver messages of one topic no longer than after an eviction. Which
of the two stores messages does not depend on this: fencing decides that.
"""

from __future__ import annotations

from collections.abc import Collection, Set

__all__ = ["Outage"]


class Outage:
    """What the other brokers, by instance id, have said of the metadata service.

    Times are seconds of this broker's own clock.

    Args:
        limit_seconds: how long an answer holds.
    """

    def __init__(self, limit_seconds: float) -> None:
        self._limit_seconds = limit_seconds
        self._agreed_at: dict[str, float] = {}  # when the last one that agreed was asked
        self._contradict: dict[str, None] = {}  # by their last answer
        self._refused: dict[str, None] = {}

    def answered(self, instance_id: str, asked_at: float, *, is_away: bool) -> None:
        """Note an answer to a ping that was sent at ``asked_at``.

        ``is_away``: the broker does not reach the service, and this broker was registered when it
        last did.
        """
        self._refused.pop(instance_id, None)
        if is_away:
            self._agreed_at[instance_id] = asked_at
            self._contradict.pop(instance_id, None)
        else:
            self._contradict[instance_id] = None

    def refused(self, instance_id: str) -> None:
        """Note that a broker has refused a connection: its process is not there."""
        self._refused[instance_id] = None

    def keep(self, others: Set[str]) -> None:
        """Forget all brokers but these, which are registered."""
        for noted in (self._agreed_at, self._contradict, self._refused):
            for gone in noted.keys() - others:
                del noted[gone]

    def why_end(self, others: Collection[str], now: float, *, begins: bool) -> str:
        """Return why this broker must stop serving; empty: it may continue.

        Args:
            others: the other brokers that are registered, as far as this one knows.
            begins: the session has just been lost. Then the last answer of each broker counts;
                later, one that reaches the service again leaves this broker the rest of the time
                to reach it, too.
        """
        agreeing = 1  # this broker itself
        for other in others:
            agreed_at = self._agreed_at.get(other)
            if begins and other in self._contradict:
                return f"{other} reaches the metadata service"
            if agreed_at is not None and now - agreed_at < self._limit_seconds:
                agreeing += 1
            elif other in self._contradict:
                return f"{other} reaches the metadata service"
            elif other not in self._refused:
                return f"{other} does not say whether it reaches the metadata service"
        if agreeing * 2 <= len(others) + 1:
            return f"{agreeing} of {len(others) + 1} brokers are there: that is not most of them"
        return ""
