"""When the auditor looks through all ledgers, and why. No I/O, no clock, no chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["AuditorCore", "Walk"]

_LIMBO_AGAIN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Walk:
    """One look through all ledgers.

    ``limbo``: bookies that may have lost entries, and for which time; ``asks_bookies``: members are
    asked for entries too; ``spares_open``: what open ledgers have in limbo can wait until they are
    closed.
    """

    reason: str
    lost: tuple[str, ...]
    limbo: Mapping[str, int] = field(default_factory=dict)
    asks_bookies: bool = False
    spares_open: bool = False


class AuditorCore:
    """The plan of one term of office. Times are of a monotonic clock, in seconds."""

    def __init__(
        self,
        *,
        delay_seconds: float,
        bookie_check_seconds: float,
        entry_check_seconds: float,
        now: float,
    ) -> None:
        self._bookie_check_seconds = bookie_check_seconds
        self._entry_check_seconds = entry_check_seconds
        # The first look finds bookies that were lost before this term, after a grace time, as for
        # all others.
        self._bookie_check_due = now + delay_seconds
        self._entry_check_due = now + entry_check_seconds
        self._audited: dict[str, None] = {}
        self._audited_limbos: dict[str, int] = {}
        # A bookie may not have answered, and a ledger may have been made by a client that did not
        # know of the limbo yet. The waits between looks double.
        self._limbo_wait = _LIMBO_AGAIN_SECONDS
        self._limbo_due = now

    def due(
        self,
        lost: Sequence[str],
        limbo: Mapping[str, int],
        now: float,
        *,
        is_asked: bool = False,
        asks_bookies: bool = False,
    ) -> Walk | None:
        """Why all ledgers are to be looked through now, if they are.

        ``lost`` and ``limbo``: everybody who is so now, the latter with the number of times.
        ``is_asked``: an operator wants it, and with ``asks_bookies`` the bookies asked, too.
        """
        new = [member for member in lost if member not in self._audited]
        doubtful = [
            member for member, times in limbo.items() if self._audited_limbos.get(member) != times
        ]
        both = tuple(lost), dict(limbo)
        if now >= self._entry_check_due:
            return Walk("it is time to ask the bookies", *both, asks_bookies=True)
        if is_asked:
            return Walk("an operator asked for it", *both, asks_bookies=asks_bookies)
        if new:
            return Walk(f"lost: {', '.join(new)}", *both)
        if doubtful:
            return Walk(f"may have lost entries: {', '.join(doubtful)}", *both)
        if now >= self._bookie_check_due:
            return Walk("it is time to look through all ledgers", *both)
        if limbo and now >= self._limbo_due:
            who = ", ".join(limbo)
            return Walk(f"ledgers may be in limbo since: {who}", *both, spares_open=True)
        return None

    def walked(self, walk: Walk, now: float) -> None:
        """Note that a walk has ended.

        Ledgers of bookies that were lost after its beginning are looked for again.
        """
        self._audited = dict.fromkeys(walk.lost)
        if walk.limbo and walk.limbo != self._audited_limbos:
            self._limbo_wait = _LIMBO_AGAIN_SECONDS
        elif walk.spares_open:
            self._limbo_wait = min(2 * self._limbo_wait, self._bookie_check_seconds)
        self._limbo_due = now + self._limbo_wait
        self._audited_limbos = dict(walk.limbo)
        self._bookie_check_due = now + self._bookie_check_seconds
        if walk.asks_bookies:
            self._entry_check_due = now + self._entry_check_seconds

    def look_again(self, member: str) -> None:
        """Whether any ledger still names this bookie must be seen again."""
        self._audited.pop(member, None)
