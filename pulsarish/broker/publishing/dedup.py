"""Deduplication by producer name and sequence id: the core (rule 15 of the guarantees).

Each producer has two marks. *Pushed* is the mark of the last entry that may be in the log.
*Persisted* is the mark of the last entry that is known to be in the log. An entry at or below
*persisted* is a duplicate. An entry between the two is uncertain, so the client is asked to try
again. A failed add lowers *pushed*. The marks survive a change of owner: the new owner loads the
last snapshot and replays the log from there before it accepts anything.

A mark is one integer, ``sequence_id << 24 | chunk``. The chunks of one big message share a sequence
id and count up, below the value of a whole message. So the second chunk is not taken for a
duplicate of the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pulsarish.broker.clients.commands import NO_INSTANCE

__all__ = ["NO_SEQUENCE", "Deduplication", "Verdict", "sequence_mark"]

NO_SEQUENCE: Final = -1
_UNSEEN: Final = -1
"""Instance of a name under which this owner has seen nothing connect."""
_CHUNK_BITS: Final = 24
_WHOLE: Final = (1 << _CHUNK_BITS) - 1
# Keys of a snapshot for the sequence id and the last chunk of an unfinished chunked message. No
# producer name holds a NUL.
_PART_KEY: Final = "\x00part\x00"
_CHUNK_KEY: Final = "\x00chunk\x00"


class Verdict(Enum):
    """What an entry is, judged by its marks."""

    NEW = "new"
    DUPLICATE = "duplicate"
    UNCERTAIN = "uncertain"  # pushed and not yet persisted
    PARTLY = "partly"  # a batch of which only a part is in the log: its boundaries changed


def sequence_mark(sequence_id: int, chunk_id: int = 0, chunks: int = 1) -> int:
    """Return the mark of an entry that ends with ``sequence_id``.

    Give ``chunk_id`` and ``chunks`` for a part of a chunked message.
    """
    if chunks <= 1 or chunk_id >= chunks - 1:
        return sequence_id << _CHUNK_BITS | _WHOLE
    return sequence_id << _CHUNK_BITS | min(chunk_id, _WHOLE - 1)


@dataclass(slots=True)
class _Producer:
    pushed: int = NO_SEQUENCE
    persisted: int = NO_SEQUENCE
    active_ms: int = 0
    connected: int = 0
    instance: int | None = _UNSEEN
    """The last one that connected."""


class Deduplication:
    """The marks of one topic. Before use, call ``restore`` and replay the log with ``observe``."""

    def __init__(self, *, producers_max: int, inactivity_ms: int) -> None:
        self._producers: dict[str, _Producer] = {}
        self._producers_max = producers_max
        self._inactivity_ms = inactivity_ms

    def restore(self, snapshot: dict[str, int], now_ms: int) -> None:
        """Start from a snapshot. Then replay what the log holds after it with ``observe``."""
        assert not self._producers
        for key, value in snapshot.items():
            if key.startswith(_PART_KEY):
                name = key.removeprefix(_PART_KEY)
                self.observe(name, value << _CHUNK_BITS | snapshot[_CHUNK_KEY + name], now_ms)
            elif not key.startswith(_CHUNK_KEY):
                self.observe(key, sequence_mark(value), now_ms)

    def observe(self, name: str, mark: int, now_ms: int) -> None:
        """Record that an entry of this producer is in the log."""
        producer = self._producers.get(name)
        if producer is None:
            producer = self._producers[name] = _Producer()
        if mark > producer.persisted:
            producer.persisted = mark
        if mark > producer.pushed:
            producer.pushed = mark
        producer.active_ms = now_ms

    def push(self, name: str, first: int, last: int) -> Verdict:
        """Judge an entry whose first message has mark ``first`` and whose last has ``last``.

        ``NEW`` moves the pushed mark, and the caller must append the entry.
        """
        producer = self._producers.get(name)
        if producer is None:
            producer = self._producers[name] = _Producer()
        if first > producer.pushed:
            producer.pushed = last
            return Verdict.NEW
        if last <= producer.persisted:
            return Verdict.DUPLICATE
        if first <= producer.persisted:
            return Verdict.PARTLY
        return Verdict.UNCERTAIN

    def persisted(self, name: str, last: int) -> None:
        """Record that the entry that ends with ``last`` is confirmed."""
        producer = self._producers[name]
        if last > producer.persisted:
            producer.persisted = last

    def failed(self, name: str, first: int) -> None:
        """Record that the entry that begins with ``first`` was not appended, nor any later one that
        was pushed before this call.
        """
        producer = self._producers[name]
        producer.pushed = max(producer.persisted, min(producer.pushed, first - 1))

    def was_another(self, name: str, instance: int | None) -> bool:
        """Return whether another instance was the last one to connect under a name.

        ``False`` when this owner has seen none.
        """
        producer = self._producers.get(name)
        return producer is not None and producer.instance not in (_UNSEEN, instance)

    def connect(self, name: str, now_ms: int, instance: int | None = NO_INSTANCE) -> int:
        """Connect a producer, of a client's instance as in ``OpenProducer``.

        Return its last sequence id that is completely in the log, or ``NO_SEQUENCE``.
        """
        producer = self._producers.get(name)
        if producer is None:
            producer = self._producers[name] = _Producer()
        producer.instance = instance
        producer.connected += 1
        producer.active_ms = now_ms
        return self.last_sequence_id(name)

    def disconnect(self, name: str, now_ms: int) -> None:
        producer = self._producers[name]
        assert producer.connected > 0
        producer.connected -= 1
        producer.active_ms = now_ms

    def last_sequence_id(self, name: str) -> int:
        """Return the last sequence id of a producer that is completely in the log, or
        ``NO_SEQUENCE``.
        """
        producer = self._producers.get(name)
        if producer is None or producer.persisted == NO_SEQUENCE:
            return NO_SEQUENCE
        sequence_id = producer.persisted >> _CHUNK_BITS
        return sequence_id if producer.persisted & _WHOLE == _WHOLE else sequence_id - 1

    def purge(self, now_ms: int) -> None:
        """Forget disconnected producers that were idle too long, and the longest idle ones above
        the limit.
        """
        idle = sorted(
            (p.active_ms, name)
            for name, p in self._producers.items()
            if p.connected == 0 and p.pushed == p.persisted
        )
        surplus = len(self._producers) - self._producers_max
        for count, (active_ms, name) in enumerate(idle):
            if count >= surplus and now_ms - active_ms < self._inactivity_ms:
                break
            del self._producers[name]

    def snapshot(self) -> dict[str, int]:
        """Return the persisted marks.

        Store them with a position that they cover; a replay may also start at an earlier one.
        """
        state: dict[str, int] = {}
        for name, producer in self._producers.items():
            if producer.persisted == NO_SEQUENCE:
                continue
            finished = self.last_sequence_id(name)
            if finished >= 0:
                state[name] = finished
            if producer.persisted & _WHOLE != _WHOLE:
                # Two keys, because the mark itself may not fit the 64 bits of a stored integer.
                state[_PART_KEY + name] = producer.persisted >> _CHUNK_BITS
                state[_CHUNK_KEY + name] = producer.persisted & _WHOLE
        return state

    def check(self) -> None:
        """Assert that no mark is persisted that was never pushed."""
        for producer in self._producers.values():
            assert producer.pushed >= producer.persisted
            assert producer.connected >= 0
