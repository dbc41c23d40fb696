"""An entry log that is removed while others are read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from pulsarish.bookie.entry_logs.entry_log import COMPACTION_LANE, READ_LANE, EntryLogs


class _File:
    def __init__(self, on_close: Callable[[], Awaitable[None]]) -> None:
        self.is_open = True
        self._on_close = on_close

    async def read(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        return [bytes(size) for _, size in spans]

    async def close(self) -> None:
        self.is_open = False
        await self._on_close()


class _Files:
    """Disks on which a log is read while another one is being closed."""

    def __init__(self) -> None:
        self.opened: list[_File] = []
        self.removed: list[str] = []
        self.logs: EntryLogs | None = None

    async def open(self, _path: str, **_options: object) -> _File:
        self.opened.append(_File(self._read_another))
        return self.opened[-1]

    async def _read_another(self) -> None:
        logs, self.logs = self.logs, None
        if logs is not None:
            await logs.read([(8, 0, 1)], READ_LANE)
            await logs.read([(9, 0, 1)], READ_LANE)

    async def remove(self, paths: Sequence[str]) -> None:
        self.removed += paths


def test_a_log_is_removed_though_a_read_drops_one_of_its_files_meanwhile() -> None:
    async def work() -> None:
        files = _Files()
        files.logs = logs = EntryLogs(
            cast("Any", files), cast("Any", None), "d", size_bytes=1 << 20, open_max=2
        )
        for lane in (READ_LANE, COMPACTION_LANE):
            await logs.read([(7, 0, 1)], lane)
        await logs.remove(7)
        assert files.removed == [logs.path(7)]
        assert [each.is_open for each in files.opened[:2]] == [False, False]

    asyncio.run(work())
