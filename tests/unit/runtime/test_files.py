"""Writes that the kernel cuts short, and creations that fail half-way: forced by a limit on the file size of a child process."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

_CHILD = """
    import asyncio, errno, resource, sys
    from pulsarish.runtime.files import LocalFiles
    from pulsarish.runtime.lanes import Lanes, OutsideWork

    async def main(directory):
        lanes = Lanes(OutsideWork())
        files = LocalFiles(lanes)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        file = await files.open(directory + "/cut", lane="x", create=True)
        try:
            await file.write(0, [b"a" * 400, b"b" * 400, b"c" * 400], sync=True)
        except OSError as error:
            assert error.errno == errno.EFBIG, error
        else:
            raise AssertionError("the write went through")
        # The kernel took 1,000 bytes, cutting the third part; what was left was tried again and its error was raised.
        assert await file.read([(0, 2000)]) == [b"a" * 400 + b"b" * 400 + b"c" * 200]
        try:
            await files.open(directory + "/reserved", lane="x", create=True, reserve_bytes=5000)
        except OSError as error:
            assert error.errno == errno.EFBIG, error
        else:
            raise AssertionError("the reservation went through")
        # Nothing is left in the way of the next attempt.
        assert await files.list(directory) == ["cut"]
        await lanes.close()
        print("done")

    asyncio.run(main(sys.argv[1]))
"""


def test_a_write_cut_short_is_continued_and_a_failed_creation_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(_CHILD), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
