"""The audit trail of a broker: records in files that rotate, written beside all other work.

``note`` only encodes a record and puts it into memory. One task writes what waits, a batch at a
time, on a lane of its own. So a slow or full disk holds up no client: records wait, up to a limit
in bytes, and what does not fit is lost, counted, and noted in the chain. A record is on disk within
about half a second, so a crash loses at most that.

A record that is durable is handed to ``AuditTopic``, which publishes it where that is wanted. What
a stop or a crash left unpublished is handed over at the next start.

After a failed write the file is cut back to the last record that is known to be durable, and the
same records are written again. So the chain has no gap and no record twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from pulsarish.broker.audit_topic import AuditTopic
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import File, Locked, World
from pulsarish.security.audit import AuditEvent
from pulsarish.security.audit_chain import (
    LINE_BYTES_MAX,
    LOSE,
    NO_PREVIOUS,
    PUBLISHED,
    ROTATE,
    START,
    STOP,
    TORN_BYTES_MAX,
    Link,
    event_body,
    file_name,
    file_number,
    hash_of,
    parse_link,
    parts_of,
    record_line,
    trail_body,
)

__all__ = ["AuditTrail"]

_log = get_logger("broker.audit")

_LANE: Final = "audit"
_GATHER_SECONDS: Final = 0.2
"""What is noted within this time is written together."""
_RETRY_SECONDS: Final = 5.0
_LOG_AGAIN_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_WAITING_BYTES_MAX: Final = 4 << 20
_BATCH_RECORDS_MAX: Final = 200
"""Encoding and hashing this many takes a few milliseconds of the event loop."""
_BATCH_BYTES_MAX: Final = TORN_BYTES_MAX - 2 * LINE_BYTES_MAX
"""Of what waits; the records that stand before it, and a line that begins below this, fit, too."""
_CHAIN_BYTES: Final = 140
"""What its place in the chain adds to a record, at most."""
_TAIL_BYTES: Final = TORN_BYTES_MAX + 2 * LINE_BYTES_MAX
"""What the last write may have damaged, and a whole record before that."""


class AuditTrail:
    """Writes the records of one broker.

    Args:
        directory: its files are this broker's alone; empty: nothing is recorded.
        topic: gets each line once it is durable.
        file_size_bytes: a file that has reached this size is followed by a new one.
        files_max: older files are removed.
        broker: name for the records about the trail itself.
    """

    def __init__(
        self,
        world: World,
        directory: str,
        topic: AuditTopic,
        *,
        file_size_bytes: int,
        files_max: int,
        broker: str,
    ) -> None:
        self._world = world
        self._directory = directory
        self._topic = topic
        self._file_size_bytes = file_size_bytes
        self._files_max = files_max
        self._broker = broker
        self._waiting: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._stopping = False
        self._ended = asyncio.Event()
        self._locked = False
        self._file: File | None = None
        self._number = 0
        self._end_bytes = 0
        """Up to here the file is durable."""
        self._is_torn = False
        """Whether the file may have something behind ``_end_bytes``."""
        self._sequence = 0
        self._previous = NO_PREVIOUS
        self._first_of: dict[int, int] = {}
        """The first record of each file that is there, oldest file first; 0: unknown."""
        self._lost_unrecorded_count = 0
        self._logged_at: float | None = None
        self.waiting_bytes = 0
        self.records_count = 0
        """Records that are on disk, written since the start."""
        self.lost_count = 0
        self.failures_count = 0
        """Failed attempts to write, rotate or remove."""

    @property
    def last_sequence(self) -> int:
        """The number of the newest record on disk; 0: none."""
        return self._sequence

    def note(self, event: AuditEvent) -> None:
        """Record an event soon. Never waits and never fails."""
        if not self._directory:
            return
        for part in parts_of(event):
            body = event_body(part, self._world.clock.wall_ms())
            if self.waiting_bytes + len(body) > _WAITING_BYTES_MAX:
                self.lost_count += 1
                self._lost_unrecorded_count += 1
            else:
                self._put(body)

    def _put(self, body: bytes) -> None:
        self._waiting.append(body)
        self.waiting_bytes += len(body)
        self._wake.set()

    async def start(self) -> None:
        """Begin to write. Raises ``ConfigError`` when another process has the directory."""
        if not self._directory:
            return
        try:
            await self._lock()
        except Locked as error:
            raise ConfigError(f"audit_log_directory: {error}") from None
        except OSError as error:
            self._on_failure(error)
        tasks, clock = self._world.tasks, self._world.clock
        _ = run_in_background(tasks, clock, "audit trail", self._write_all)

    async def stop(self) -> None:
        """Write what waits and that the broker stops; give up after a few seconds."""
        if not self._directory:
            return
        published = {PUBLISHED: self._topic.published_sequence} if self._topic.is_on else {}
        self._put(trail_body(STOP, self._world.clock.wall_ms(), broker=self._broker, **published))
        self._stopping = True
        self._wake.set()
        try:
            async with self._world.clock.timeout(_STOP_SECONDS):
                await self._ended.wait()
        except TimeoutError:
            _log.error("audit records were not written before the stop", waiting=len(self._waiting))

    async def _write_all(self) -> None:
        while True:
            if not await self._write_waiting():
                if self._stopping:
                    break
                await self._world.clock.sleep(_RETRY_SECONDS)
                continue
            if self._stopping and not self._waiting:
                break
            await self._wake.wait()
            self._wake.clear()
            if not self._stopping:
                await self._world.clock.sleep(_GATHER_SECONDS)
        if self._file is not None:
            await self._file.close()
        self._ended.set()

    async def _write_waiting(self) -> bool:
        """Write batches until nothing waits. Return False after a failure."""
        try:
            await self._open()
            while self._waiting or self._lost_unrecorded_count:
                await self._write_batch()
        except (OSError, Locked) as error:
            self._on_failure(error)
            return False
        if self._logged_at is not None:
            self._logged_at = None
            _log.info("audit records are written again", lost=self.lost_count)
        return True

    def _on_failure(self, error: Exception) -> None:
        self.failures_count += 1
        now = self._world.clock.monotonic()
        if self._logged_at is None or now - self._logged_at >= _LOG_AGAIN_SECONDS:
            self._logged_at = now
            _log.error(
                "audit records cannot be written; they wait, and are lost when too many do",
                directory=self._directory,
                waiting=len(self._waiting),
                lost=self.lost_count,
                reason=error,
            )

    # -- files

    def _path(self, number: int) -> str:
        return f"{self._directory}/{file_name(number)}"

    async def _lock(self) -> None:
        if not self._locked:
            await self._world.files.lock(self._directory)
            self._locked = True

    async def _open(self) -> None:
        """Go on behind the newest record of the directory, once."""
        if self._file is not None:
            return
        await self._lock()
        names = await self._world.files.list(self._directory)
        numbers = sorted(number for number in map(file_number, names) if number is not None)
        last: Link | None = None
        end_bytes = torn_bytes = 0
        for at in reversed(range(len(numbers))):
            before = (await self._read_end(numbers[at - 1], None))[0] if at else None
            last, end_bytes, size_bytes = await self._read_end(numbers[at], before)
            torn_bytes += size_bytes - end_bytes
            if last is not None:
                break
        self._first_of = dict.fromkeys(numbers, 0)
        if numbers:
            self._first_of[numbers[0]] = await self._read_first(numbers[0])
        unpublished: list[tuple[int, bytes]] = []
        if self._topic.is_on and last is not None:
            unpublished = await self._read_unpublished(numbers[: at + 1], last)
        self._sequence = last.sequence if last is not None else 0
        self._previous = last.hash if last is not None else NO_PREVIOUS
        if numbers and last is not None and not torn_bytes:
            self._number, self._end_bytes = numbers[-1], end_bytes
            if numbers[at] != numbers[-1]:
                self._end_bytes = 0  # the newest file is empty
            self._file = await self._world.files.open(self._path(self._number), lane=_LANE)
        else:
            # What a crash left of a record stays where it is: it is for others to judge.
            await self._create(numbers[-1] + 1 if numbers else 1)
        _log.info(
            "audit trail goes on",
            directory=self._directory,
            last_record=self._sequence,
            hash=self._previous,
        )
        start = trail_body(
            START, self._world.clock.wall_ms(), broker=self._broker, torn_bytes=torn_bytes
        )
        self._waiting.appendleft(start)
        self.waiting_bytes += len(start)
        for sequence, line in unpublished:
            self._topic.put(sequence, line)

    async def _read_end(self, number: int, before: Link | None) -> tuple[Link | None, int, int]:
        """Return the last record of a file, where it ends, and the size of the file, in bytes.

        A crash may have left any part of the last write. The last record is then the one up to
        which the chain is whole.

        Args:
            before: the last record of the file before, if known.
        """
        tail, size_bytes = await self._read_tail(number)
        begin = size_bytes - len(tail)
        lines = tail.split(b"\n")
        stop = parse_link(lines[-2]) if len(lines) > 1 and not lines[-1] else None
        if stop is not None and stop.activity == STOP:
            # It did not crash. Whatever is wrong before this is for others to judge.
            return stop, size_bytes, size_bytes
        last, at = before if begin == 0 else None, begin
        found: tuple[Link | None, int] = (None, 0)
        for line in lines[:-1]:
            link = parse_link(line)
            at += len(line) + 1
            if link is not None and (
                last is None or (link.sequence, link.previous) == (last.sequence + 1, last.hash)
            ):
                last, found = link, (link, at)
            elif last is not None:
                break
        return *found, size_bytes

    async def _read_tail(self, number: int) -> tuple[bytes, int]:
        """Return the last bytes of a file, and its size."""
        file = await self._world.files.open(self._path(number), lane=_LANE)
        try:
            size_bytes = await file.size_bytes()
            begin = max(0, size_bytes - _TAIL_BYTES)
            (tail,) = await file.read([(begin, size_bytes - begin)])
        finally:
            await file.close()
        return tail, size_bytes

    async def _read_unpublished(
        self, numbers: Sequence[int], last: Link
    ) -> list[tuple[int, bytes]]:
        """Return the newest records that the topic may not have, oldest first: about as much as the
        end of one file.

        The record of a stop says which it has. After a crash it may have any of them, so it gets
        the end of the trail again, some of it a second time.

        Args:
            numbers: the files up to the one that has the last record, which is ``last``.
        """
        published = last.count(PUBLISHED) if last.activity == STOP else 0
        self._topic.published_sequence = published
        found: list[tuple[int, bytes]] = []
        next_hash, size_bytes = last.hash, 0
        for number in reversed(numbers):
            before_count = len(found)
            for line in reversed((await self._read_tail(number))[0].split(b"\n")):
                link = parse_link(line)
                # What a crash left of records that were not durable is not in the chain.
                if link is not None and link.hash == next_hash and link.sequence > published:
                    found.append((link.sequence, line))
                    next_hash = link.previous
                    size_bytes += len(line)
            if size_bytes >= _TAIL_BYTES // 2 or len(found) == before_count:
                break
        if published and found and found[-1][0] > published + 1:
            self._topic.lost_count = found[-1][0] - published - 1
        return found[::-1]

    async def _read_first(self, number: int) -> int:
        """Return the number of the first record of a file; 0 when it cannot be read."""
        file = await self._world.files.open(self._path(number), lane=_LANE)
        try:
            (head,) = await file.read([(0, LINE_BYTES_MAX)])
        finally:
            await file.close()
        link = parse_link(head.partition(b"\n")[0])
        return link.sequence if link is not None else 0

    async def _create(self, number: int) -> None:
        file = await self._world.files.open(self._path(number), lane=_LANE, create=True)
        before, self._file = self._file, file
        self._number, self._end_bytes, self._is_torn = number, 0, False
        self._first_of[number] = self._sequence + 1
        if before is not None:
            await before.close()

    async def _write_batch(self) -> None:
        """Write some of what waits, with what has to stand before it. Raises ``OSError``."""
        if self._end_bytes >= self._file_size_bytes:
            await self._create(self._number + 1)
        assert self._file is not None
        if self._is_torn:
            await self._file.truncate(self._end_bytes)
        before: list[bytes] = []
        # A file begins with what its beginning makes too old. Nothing is removed without a record.
        removes = self._end_bytes == 0 and len(self._first_of) > self._files_max
        if removes:
            before.append(await self._rotation())
        lost_count = self._lost_unrecorded_count
        if lost_count:
            before.append(trail_body(LOSE, self._world.clock.wall_ms(), count=lost_count))
        taken: list[bytes] = []
        taken_bytes = 0
        for body in self._waiting:
            if len(taken) == _BATCH_RECORDS_MAX or taken_bytes >= _BATCH_BYTES_MAX:
                break
            taken.append(body)
            taken_bytes += len(body) + _CHAIN_BYTES
        sequence, previous, lines = self._sequence, self._previous, []
        for body in (*before, *taken):
            sequence += 1
            line = record_line(sequence, previous, body)
            previous = hash_of(line)
            lines += [line, b"\n"]
        data = b"".join(lines)
        self._is_torn = True
        await self._file.write(self._end_bytes, [data], sync=True)
        self._is_torn = False
        self._end_bytes += len(data)
        for number, line in enumerate(lines[::2], self._sequence + 1):
            self._topic.put(number, line)
        self._sequence, self._previous = sequence, previous
        self.records_count += len(before) + len(taken)
        self._lost_unrecorded_count -= lost_count
        for body in taken:
            self._waiting.popleft()
            self.waiting_bytes -= len(body)
        if removes:
            await self._remove_oldest()

    async def _rotation(self) -> bytes:
        """Return the record that says which records rotation is about to remove."""
        kept = list(self._first_of)[-self._files_max]
        first = self._first_of[kept] or await self._read_first(kept)
        self._first_of[kept] = first
        return trail_body(ROTATE, self._world.clock.wall_ms(), first_sequence=first)

    async def _remove_oldest(self) -> None:
        old = list(self._first_of)[: -self._files_max]
        await self._world.files.remove([self._path(number) for number in old])
        for number in old:
            del self._first_of[number]
