"""An error of a disk names the file, also if the call knew only its descriptor, and what to do."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from pulsarish.runtime import files
from pulsarish.runtime.disk_errors import disk_remedy
from pulsarish.runtime.files import LocalFiles, sync_directory
from pulsarish.runtime.lanes import Lanes, OutsideWork
from tests.support.modules import changed


@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
def test_a_failed_write_or_sync_names_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = str(tmp_path / "file")

    def fails(*_arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def main() -> None:
        lanes = Lanes(OutsideWork())
        file = await LocalFiles(lanes).open(path, lane="x", create=True)
        monkeypatch.setattr(files, "os", changed(os, **{call: fails}))
        with pytest.raises(OSError, match="Input/output error") as caught:
            await file.write(0, [b"x"], sync=True)
        assert caught.value.filename == path
        assert "dmesg" in disk_remedy(caught.value)
        await file.close()
        await lanes.close()

    asyncio.run(main())


def test_a_failed_sync_of_a_directory_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "os", changed(os, fsync=fails))
    with pytest.raises(OSError, match="No space") as caught:
        sync_directory(str(tmp_path))
    assert caught.value.filename == str(tmp_path)
    assert "make room" in disk_remedy(caught.value)


def test_only_errors_of_disks_have_a_remedy() -> None:
    assert disk_remedy(ValueError("x")) == ""
    assert disk_remedy(OSError(errno.EADDRINUSE, "x")) == ""
    assert "make room" in disk_remedy(OSError(errno.EIO, "the index: No space left on device"))
