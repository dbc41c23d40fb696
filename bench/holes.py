"""What acknowledgement holes cost: time of an acknowledgement, memory, and a cursor's stored form.

Run ``python bench/holes.py [MESSAGES]``. Every second message is acknowledged one by one. Flushes
are made as the cursor makes them, one for each 10,000 acknowledgements; what they take is work on
the event loop.
"""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable

from pulsarish.managed_ledger.cursors.cursor_core import CursorCore
from pulsarish.managed_ledger.cursors.cursor_state import CursorImage, decode_image, encode_image
from pulsarish.managed_ledger.cursors.cursor_state import restore as restored
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.position import Position

_FLUSH_EVERY = 10_000
_PART_BYTES = 1 << 20
_RANGES_MAX = 1_000


def _successor(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)


def _fresh() -> AckRanges:
    return AckRanges(Position(1, -1), _successor)


def _mixed(messages: int, window: int) -> list[Position]:
    """Every message once, in an order that is random within each window."""
    found = [Position(1, entry) for entry in range(messages)]
    chance = random.Random(1)
    for first in range(0, messages, window):
        part = found[first : first + window]
        chance.shuffle(part)
        found[first : first + window] = part
    return found


def _add_ns(positions: Iterable[Position]) -> float:
    acks, listed = _fresh(), list(positions)
    add = acks.add
    begin = time.process_time()
    for position in listed:
        add(position)
    return (time.process_time() - begin) * 1e9 / len(listed)


def _acknowledging() -> None:
    count = 200_000
    for name, positions in (
        ("in order", _mixed(count, 1)),
        ("out of order by up to 100", _mixed(count, 100)),
        ("every second one", [Position(1, entry) for entry in range(1, 2 * count, 2)]),
        ("in random order", _mixed(count, count)),
    ):
        print(f"acknowledging {name}: {_add_ns(positions):,.0f} ns")


def _timed_ms(work: Callable[[], object]) -> tuple[float, object]:
    begin = time.process_time()
    found = work()
    return (time.process_time() - begin) * 1000, found


def _holes(messages: int) -> None:
    core = CursorCore(_fresh(), {})
    longest, deltas = 0.0, 0
    for number, entry in enumerate(range(1, messages, 2), 1):
        core.acknowledge(Position(1, entry))
        if number % _FLUSH_EVERY == 0:
            taken, _ = _timed_ms(lambda: encode_image(core.take_delta()[0]))
            longest, deltas = max(longest, taken), deltas + 1
    image = CursorImage.of(core.acks, {}, _RANGES_MAX)
    tracemalloc.start()
    copy, _ = restored([image], _successor)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{copy.hole_count:,} holes: {size:,} bytes of memory, counted as {copy.memory_bytes:,}")
    print(f"the slowest of {deltas:,} deltas: {longest:.1f} ms")
    _stored("every second one", core.acks)


def _scattered() -> None:
    """Fill the memory that a cursor may take with the holes that take the most each."""
    acks = _fresh()
    entry = 1
    while acks.memory_bytes < 16 << 20:
        acks.add(Position(1, entry))
        entry += 1_024
    print(f"{acks.hole_count:,} holes, one in each bitmap, are the most that a cursor keeps")
    _stored("one in each bitmap", acks)


def _stored(name: str, acks: AckRanges) -> None:
    def encode() -> list[bytes]:
        body = encode_image(CursorImage.of(acks, {}, _RANGES_MAX))
        return [body[at : at + _PART_BYTES] for at in range(0, len(body), _PART_BYTES)]

    took_ms, parts = _timed_ms(encode)
    assert isinstance(parts, list)
    size = sum(len(part) for part in parts)
    print(f"snapshot, {name}: {size:,} bytes in {len(parts)} parts, {took_ms:.1f} ms")
    took_ms, found = _timed_ms(lambda: restored([decode_image(b"".join(parts))], _successor))
    assert isinstance(found, tuple)
    assert list(found[0].ranges())[-1] == list(acks.ranges())[-1]
    assert (found[0].hole_count, found[0].mark) == (acks.hole_count, acks.mark)
    print(f"read back, {name}: {took_ms:.1f} ms")


if __name__ == "__main__":
    _acknowledging()
    _holes(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
    _scattered()
