"""Which bookies are lost (rules 7 and 19). No I/O, no clock, no chance.

A bookie is an instance id. One that comes back without its data has a new id, and the old one stays
away. A bookie is lost once it has not been registered for the grace time. The time counts from when
the bookie was first missed. It starts again when the metadata come back, because no bookie could
register while they were away.

When more than a share of all bookies is gone at once, something else is probably wrong, and copying
everything to the few bookies that are left would make it worse. Then no bookie counts as lost until
an operator gives bookies up by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pulsarish.ledger.repair.repair_core import MemberState

__all__ = ["AbsentBookies"]


class AbsentBookies:
    """What one node knows of all bookies. Times are of a monotonic clock, in seconds."""

    def __init__(self, delay_seconds: float, share_max: float) -> None:
        self.delay_seconds = delay_seconds
        """How long a bookie may be away before it is lost. It may change at any time."""
        self._share_max = share_max
        self._present: dict[str, None] = {}
        self._since: dict[str, float] = {}  # of those that are not registered
        self._given_up: dict[str, None] = {}
        self._blind = False

    # -- what happens

    def observe(self, registered: Sequence[str], now: float) -> None:
        """These are registered now, read-only ones too."""
        present = dict.fromkeys(registered)
        for member in self._present:
            if member not in present:
                self._since.setdefault(member, now)
        for member in present:
            self._since.pop(member, None)
        self._present = present

    def know(self, members: Iterable[str], now: float) -> None:
        """These exist or existed: one that is not registered is missed from now on, if it was not
        before.
        """
        for member in members:
            if member not in self._present:
                self._since.setdefault(member, now)

    def forget(self, keep: Iterable[str]) -> None:
        """Forget all absent bookies besides these, because no ledger names any other one."""
        kept = dict.fromkeys(keep)
        self._since = {
            member: since
            for member, since in self._since.items()
            if member in kept or member in self._given_up
        }

    def decommissioned(self, members: Iterable[str]) -> None:
        """No ledger names these any more, and they do not come back."""
        for member in members:
            self._since.pop(member, None)

    def give_up(self, members: Sequence[str]) -> None:
        """These an operator has given up: they are lost as soon as they are not registered."""
        self._given_up = dict.fromkeys(members)

    def metadata_away(self) -> None:
        self._blind = True

    def metadata_back(self, now: float) -> None:
        self._blind = False
        self._since = dict.fromkeys(self._since, now)

    # -- what follows

    def state_of(self, member: str, now: float) -> MemberState:
        if member in self._present:
            return MemberState.THERE
        self._since.setdefault(member, now)
        if self._blind:
            return MemberState.AWAY
        if member in self._given_up or (self._over(member, now) and not self.too_many(now)):
            return MemberState.LOST
        return MemberState.AWAY

    def lost(self, now: float) -> list[str]:
        """Everybody who is lost, in order."""
        known = sorted({**self._since, **self._given_up})
        return [member for member in known if self.state_of(member, now) is MemberState.LOST]

    def away_since(self, member: str) -> float | None:
        """Since when a bookie has been missed without a break, as far as is known; ``None``: it is
        not.
        """
        return self._since.get(member)

    def gone(self, now: float) -> list[str]:
        """Return the bookies beyond the grace time that no operator has given up, in order.

        They may be too many to count as lost.
        """
        return [
            member
            for member in sorted(self._since)
            if member not in self._given_up and self._over(member, now)
        ]

    def too_many(self, now: float) -> bool:
        """Whether too many are gone, so that an operator must decide."""
        gone = len(self.gone(now))
        return gone > self._share_max * (gone + len(self._present))

    def check(self) -> None:
        assert not any(member in self._present for member in self._since), (
            "a bookie is registered and missed"
        )

    def _over(self, member: str, now: float) -> bool:
        since = self._since.get(member)
        return since is not None and now - since >= self.delay_seconds
