"""What was sent, what was said of it, and what a reader found: the counters of the published chaos
test of Apache Pulsar.

Payloads are the integers from 0 on, each sent once by the program. Nothing here knows of clusters
or clocks: outcomes and messages go in, counters and anomalies come out.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Final

__all__ = ["Anomaly", "Counters", "EntryId", "History"]

EntryId = tuple[int, int, int, int]  # partition, ledger, entry, index in the batch

_PENDING: Final = 0
_ACKED: Final = 1
_FAILED: Final = 2
_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One message that should not lie where it lies.

    ``other_*`` is what it collides with: its first copy, or what came before it.
    """

    kind: str  # duplicate, out_of_order, unknown_payload
    value: int
    message_id: EntryId | None
    other_value: int | None = None
    other_id: EntryId | None = None
    key: str = ""

    def row(self) -> dict[str, Any]:
        row = asdict(self)
        for name in ("message_id", "other_id"):
            if row[name] is not None:
                row[name] = ":".join(map(str, row[name]))
        return row


@dataclass(frozen=True, slots=True)
class Counters:
    """``acked_negative`` are sends that the client gave up; their messages may be stored or not, as
    may those without any outcome.
    """

    sent: int
    acked_positive: int
    acked_negative: int
    received: int
    acked_missing: int
    non_acked_received: int
    out_of_order: int
    duplicates: int
    redelivered: int  # the very same message again: no fault of the log

    def row(self) -> dict[str, int]:
        return asdict(self)


class History:
    """Outcomes go in from the client's thread, messages from the reader's once publishing is
    over.
    """

    def __init__(self) -> None:
        self.anomalies: list[Anomaly] = []
        self.failures: Counter[str] = Counter()
        self._outcomes = bytearray()
        # of the first copy: partition, ledger, entry, index
        self._places = (array("q"), array("q"), array("q"), array("q"))
        self._received = 0
        self._redelivered = 0
        self._newest: dict[tuple[int, str], tuple[int, EntryId]] = {}

    # -- publishing

    @property
    def sent(self) -> int:
        return len(self._outcomes)

    def send(self) -> int:
        """The next number, which the caller now sends."""
        self._outcomes.append(_PENDING)
        return len(self._outcomes) - 1

    def acked(self, number: int) -> None:
        assert self._outcomes[number] == _PENDING, f"message {number} has two outcomes"
        self._outcomes[number] = _ACKED

    def failed(self, number: int, why: str) -> None:
        assert self._outcomes[number] == _PENDING, f"message {number} has two outcomes"
        self._outcomes[number] = _FAILED
        self.failures[why] += 1

    # -- reading

    def begin_reading(self) -> None:
        """Forget what was read: what follows is a reading from the earliest message on."""
        self.anomalies = []
        for places in self._places:
            del places[:]
            places.extend([_NOWHERE] * self.sent)
        self._received = self._redelivered = 0
        self._newest = {}

    def received(self, value: int, message_id: EntryId, key: str = "") -> None:
        """A message, in the order in which the reader of its partition got it.

        Order is that of the key, where messages have keys.
        """
        self._received += 1
        if not 0 <= value < self.sent:
            self.anomalies.append(Anomaly("unknown_payload", value, message_id, key=key))
            return
        first = self._place(value)
        if first == message_id:
            self._redelivered += 1
            return
        if first is not None:
            self.anomalies.append(Anomaly("duplicate", value, message_id, value, first, key))
            return
        for places, part in zip(self._places, message_id, strict=True):
            places[value] = part
        stream = (message_id[0], key)
        newest = self._newest.get(stream)
        if newest is not None and value < newest[0]:
            self.anomalies.append(Anomaly("out_of_order", value, message_id, *newest, key))
        else:
            self._newest[stream] = (value, message_id)

    def first_hole(self) -> int:
        """The lowest number that was sent and has not been read; ``sent`` when there is none.

        For a reader that must not skip.
        """
        ledgers = self._places[1]
        return next(
            (number for number, ledger in enumerate(ledgers) if ledger == _NOWHERE), self.sent
        )

    def read_count(self) -> int:
        """How many different messages were read."""
        return sum(ledger != _NOWHERE for ledger in self._places[1])

    def missing(self) -> list[int]:
        """Acknowledged and not read; nothing before a reading has begun."""
        if not self._places[1]:
            return []
        return [
            number
            for number in range(self.sent)
            if self._outcomes[number] == _ACKED and self._place(number) is None
        ]

    def counters(self) -> Counters:
        kinds = Counter(each.kind for each in self.anomalies)
        seen = [number for number in range(self.sent) if self._place(number) is not None]
        return Counters(
            sent=self.sent,
            acked_positive=self._outcomes.count(_ACKED),
            acked_negative=self._outcomes.count(_FAILED),
            received=self._received,
            acked_missing=len(self.missing()),
            non_acked_received=sum(self._outcomes[number] != _ACKED for number in seen),
            out_of_order=kinds["out_of_order"] + kinds["unknown_payload"],
            duplicates=kinds["duplicate"],
            redelivered=self._redelivered,
        )

    def _place(self, number: int) -> EntryId | None:
        if number >= len(self._places[1]) or self._places[1][number] == _NOWHERE:
            return None
        partition, ledger, entry, index = (places[number] for places in self._places)
        return partition, ledger, entry, index
