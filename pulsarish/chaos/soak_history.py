"""What became of each message of a long run over several topics, in one byte for each message."""

from __future__ import annotations

from collections import Counter
from typing import Final

from pulsarish.chaos.history import Anomaly, Counters, EntryId, History

__all__ = ["SoakHistory", "TopicHistory"]

_PENDING: Final = 0
_ACKED: Final = 1
_FAILED: Final = 2
_READ: Final = 4
_ANOMALIES_MAX: Final = 1_000
"""Anomalies of a topic that are kept in detail; all are counted."""


class TopicHistory:
    """The messages of one topic, whose numbers begin at 0.

    Outcomes go in from the client's thread; messages from the reader's once publishing is over.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.acked_count = 0
        self.failures: Counter[str] = Counter()
        self.anomalies: list[Anomaly] = []
        self._states = bytearray()
        self._kinds: Counter[str] = Counter()
        self._received = self._redelivered = 0
        self._newest: tuple[int, EntryId] | None = None
        # ids of ledgers do not grow along a topic: brokers draw them in blocks
        self._ledgers: dict[int, int] = {}
        self._place = (-1, -1, -1)

    @property
    def sent(self) -> int:
        return len(self._states)

    def send(self) -> int:
        """Return the next number, which the caller now sends."""
        self._states.append(_PENDING)
        return len(self._states) - 1

    def acked(self, number: int) -> None:
        assert self._states[number] == _PENDING, f"message {number} has two outcomes"
        self._states[number] = _ACKED
        self.acked_count += 1

    def is_acked(self, number: int) -> bool:
        """Return whether the message was confirmed to its producer."""
        return self._states[number] & ~_READ == _ACKED

    def failed(self, number: int, why: str) -> None:
        assert self._states[number] == _PENDING, f"message {number} has two outcomes"
        self._states[number] = _FAILED
        self.failures[why] += 1

    def received(self, value: int, message_id: EntryId) -> None:
        """Count a message, in the order in which the reader got it. ``value`` -1: not the bytes
        that were sent.

        One that lies at or before the place that the reader had reached was delivered again.
        """
        self._received += 1
        _, ledger_id, entry_id, index = message_id
        place = (self._ledgers.setdefault(ledger_id, len(self._ledgers)), entry_id, index)
        is_again, self._place = place <= self._place, max(place, self._place)
        if not 0 <= value < self.sent:
            self._anomaly(Anomaly("unknown_payload", value, message_id, key=self.topic))
        elif self._states[value] & _READ:
            if is_again:
                self._redelivered += 1
            else:
                self._anomaly(Anomaly("duplicate", value, message_id, key=self.topic))
        else:
            self._states[value] |= _READ
            if self._newest is not None and value < self._newest[0]:
                self._anomaly(
                    Anomaly("out_of_order", value, message_id, *self._newest, key=self.topic)
                )
            else:
                self._newest = (value, message_id)

    def note_missing(self) -> None:
        """Add an anomaly for each acknowledged message that was not read."""
        at = self._states.find(_ACKED)
        while at >= 0:
            self._anomaly(Anomaly("missing", at, None, key=self.topic))
            at = self._states.find(_ACKED, at + 1)

    def counters(self) -> Counters:
        found = [self._states.count(state) for state in range(8)]
        return Counters(
            sent=self.sent,
            acked_positive=found[_ACKED] + found[_ACKED | _READ],
            acked_negative=found[_FAILED] + found[_FAILED | _READ],
            received=self._received,
            acked_missing=found[_ACKED],
            non_acked_received=found[_PENDING | _READ] + found[_FAILED | _READ],
            out_of_order=self._kinds["out_of_order"] + self._kinds["unknown_payload"],
            duplicates=self._kinds["duplicate"],
            redelivered=self._redelivered,
        )

    def _anomaly(self, found: Anomaly) -> None:
        self._kinds[found.kind] += 1
        if len(self.anomalies) < _ANOMALIES_MAX:
            self.anomalies.append(found)


class SoakHistory(History):
    """The sum over all topics."""

    def __init__(self) -> None:
        super().__init__()
        self.topics: list[TopicHistory] = []
        self.is_read = False

    @property
    def sent(self) -> int:
        return sum(topic.sent for topic in self.topics)

    @property
    def acked_count(self) -> int:
        return sum(topic.acked_count for topic in self.topics)

    def end_reading(self) -> None:
        """Note what is missing: everything was read."""
        self.is_read = True
        for topic in self.topics:
            topic.note_missing()

    def missing(self) -> list[int]:
        """Return nothing: the anomalies say which message of which topic is missing."""
        return []

    def counters(self) -> Counters:
        rows = [topic.counters().row() for topic in self.topics]
        self.failures = sum((topic.failures for topic in self.topics), Counter())
        self.anomalies = [each for topic in self.topics for each in topic.anomalies]
        total = {name: sum(row[name] for row in rows) for name in Counters.__slots__}
        if not self.is_read:
            total["acked_missing"] = 0
        return Counters(**total)
