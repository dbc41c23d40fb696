"""What a subscription of a long run has delivered, in six bytes for each message, and what of it
breaks the promises of ``docs/guarantees.md``.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pulsarish.chaos.history import Anomaly, EntryId
from pulsarish.chaos.soak_history import TopicHistory

__all__ = ["Deliveries", "Overlap", "Session"]

_NEVER: Final = 0
_UNKNOWN: Final = 0xFFFF
"""The session of a message that came while a session ended and the next one began."""
_UNITS: Final = 100
"""Times of receipts are kept in hundredths of a second."""
_ANOMALIES_MAX: Final = 1_000
_WRONG: Final = {
    "not_delivered": "messages that were confirmed to their producer were not delivered",
    "after_receipt": "messages were delivered again although their acknowledgement was durable",
    "twice_in_session": "messages were delivered twice over one connection",
    "order": "messages were delivered out of the order of their keys",
    "content": "messages were delivered that were never sent",
}


@dataclass(slots=True)
class Overlap:
    """A time in which two brokers may take themselves for the owner of a topic, in seconds since
    the beginning of the run.
    """

    began: float
    until: float = math.inf


@dataclass(slots=True)
class Session:
    """One time that a consumer was subscribed at an owner.

    ``since``: the owner sent what now comes after this time, in seconds since the beginning of the
    run.
    """

    number: int
    since: float
    newest: dict[int, int] = field(default_factory=dict)  # by key


class Deliveries:
    """Deliveries and receipts of one subscription. The caller makes one call at a time.

    Args:
        keys: a message's key is its number modulo this; 0: the subscription keeps no order.
        overlaps: those so far; the caller adds to them.
    """

    def __init__(
        self, topic: TopicHistory, name: str, *, keys: int, overlaps: Sequence[Overlap] = ()
    ) -> None:
        self.topic = topic
        self.name = name
        self.anomalies: list[Anomaly] = []
        self.delivered_count = 0
        self._keys = keys
        self._overlaps = overlaps
        self._kinds: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._sessions = array("H")  # that delivered each message last
        self._receipts = array("I")  # 0: none
        self._receipted_up_to = 0
        self._newest: dict[int, int] = {}
        self._session_count = 0

    def begin_session(self, since: float) -> Session:
        self._session_count += 1
        return Session((self._session_count - 1) % (_UNKNOWN - 1) + 1, since)

    def delivered(self, number: int, message_id: EntryId, session: Session | None) -> None:
        """Note a message that the program got. ``session``: ``None`` if it may be of two."""
        if not 0 <= number < self.topic.sent:
            self._anomaly("content", number, message_id)
            return
        self._grow()
        before = self._sessions[number]
        if before == _NEVER:
            self.delivered_count += 1
        else:
            self._again(number, message_id, before, session)
        self._sessions[number] = _UNKNOWN if session is None else session.number
        if self._keys:
            self._check_order(number, message_id, session, is_first=before == _NEVER)

    def _again(
        self, number: int, message_id: EntryId, before: int, session: Session | None
    ) -> None:
        self._counts["redelivered"] += 1
        receipt = self._receipts[number]
        if receipt:
            self._counts["redelivered_after_receipt"] += 1
        if session is None:
            return
        if before == session.number:
            self._anomaly("twice_in_session", number, message_id)
        elif receipt and receipt <= int(session.since * _UNITS):
            # No delivery was under way: the owner sent the message after the receipt.
            if self._may_be_of_another_owner(receipt, session):
                self._counts["redelivered_by_overlapping_owner"] += 1
            else:
                self._anomaly("after_receipt", number, message_id)

    def _may_be_of_another_owner(self, receipt: int, session: Session) -> bool:
        """Return whether one owner may have given the receipt, and another one, which did not know
        of it, have delivered the message. Every owner knows the receipts from before an overlap.
        """
        return any(
            overlap.began * _UNITS < receipt and session.since <= overlap.until
            for overlap in self._overlaps
        )

    def _check_order(
        self, number: int, message_id: EntryId, session: Session | None, *, is_first: bool
    ) -> None:
        key = number % self._keys
        is_wrong = is_first and number < self._newest.get(key, -1)
        if is_first and not is_wrong:
            self._newest[key] = number
        if session is not None:
            is_wrong = is_wrong or number < session.newest.get(key, -1)
            session.newest[key] = max(number, session.newest.get(key, -1))
        if is_wrong:
            self._anomaly("order", number, message_id)

    def receipted(self, numbers: Iterable[int], at: float) -> None:
        """Note that these messages' own acknowledgements are durable since ``at``, in seconds."""
        self._grow()
        units = int(at * _UNITS) + 1
        for number in numbers:
            self._receipt(number, units)

    def receipted_up_to(self, last: int, at: float) -> None:
        """Note the same of one acknowledgement for all messages up to ``last``."""
        self._grow()
        units = int(at * _UNITS) + 1
        for number in range(self._receipted_up_to, last + 1):
            self._receipt(number, units)
        self._receipted_up_to = max(self._receipted_up_to, last + 1)

    def _receipt(self, number: int, units: int) -> None:
        if not self._receipts[number]:
            self._receipts[number] = units
            self._counts["with_receipt"] += 1

    def _grow(self) -> None:
        if more := self.topic.sent - len(self._sessions):
            self._sessions.frombytes(bytes(more * self._sessions.itemsize))
            self._receipts.frombytes(bytes(more * self._receipts.itemsize))

    def missing_count(self) -> int:
        """Count the messages that were confirmed to their producer and not delivered."""
        return len(self._missing())

    def _missing(self) -> list[int]:
        self._grow()
        found, at = [], 0
        try:
            while True:
                at = self._sessions.index(_NEVER, at)
                if self.topic.is_acked(at):
                    found.append(at)
                at += 1
        except ValueError:  # there is no further one
            return found

    def note_missing(self) -> None:
        """Add an anomaly for each missing message: the owners deliver no more of them."""
        for number in self._missing():
            self._anomaly("not_delivered", number, None)

    def wrong(self) -> list[str]:
        """Return what breaks a promise, in words."""
        where = f"{self.name} of {self.topic.topic}"
        wrong = [f"{where}: {self._kinds[kind]} {_WRONG[kind]}" for kind in self._kinds]
        if not self._counts["with_receipt"]:
            wrong.append(f"{where}: no acknowledgement got a receipt, so nothing is proved of them")
        return wrong

    def row(self) -> dict[str, Any]:
        """Return the counters, for JSON."""
        counted = (
            *("with_receipt", "redelivered", "redelivered_after_receipt"),
            "redelivered_by_overlapping_owner",
        )
        return {
            "delivered": self.delivered_count,
            **{name: self._counts[name] for name in counted},
            "missing": self._kinds["not_delivered"],
            "wrong": {kind: self._kinds[kind] for kind in _WRONG},
            "sessions": self._session_count,
        }

    def _anomaly(self, kind: str, number: int, message_id: EntryId | None) -> None:
        self._kinds[kind] += 1
        if len(self.anomalies) < _ANOMALIES_MAX:
            self.anomalies.append(
                Anomaly(kind, number, message_id, key=f"{self.topic.topic} {self.name}")
            )
