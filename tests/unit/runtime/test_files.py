"""Writes that the kernel cuts short, and creations that fail half-way: forced by a limit on the
file size of a child process. Advice about the page cache that is refused.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pulsarish.runtime import files
from pulsarish.runtime.lanes import Lanes, OutsideWork
from pulsarish.runtime.seams import Locked
from tests.support.modules import changed

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
        # The kernel took 1,000 bytes and cut the third part. Trying the rest failed.
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


def test_a_write_cut_short_is_continued_and_a_failed_creation_leaves_nothing(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(_CHILD), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


_MODES_CHILD = """
    import asyncio, os, stat, sys
    from pulsarish.runtime.rocks.index import open_rocks_index
    from pulsarish.runtime.files import LocalFiles
    from pulsarish.runtime.lanes import Lanes, OutsideWork

    async def main(top):
        lanes = Lanes(OutsideWork())
        files = LocalFiles(lanes)
        for name in ("open", "grouped"):
            os.mkdir(f"{top}/{name}")
        os.chmod(f"{top}/open", 0o755)
        os.chmod(f"{top}/grouped", 0o750)
        for name in ("open", "grouped", "new/deep"):
            await files.lock(f"{top}/{name}")
        await files.open(f"{top}/new/deep/entries/log", lane="x", create=True)
        await files.replace(f"{top}/new/cookie", b"content")
        index = await open_rocks_index(f"{top}/new/above/index", lane=lanes.get("index"))
        await index.close()
        await lanes.close()
        os.chdir(top)
        for directory, _, names in sorted(os.walk("new")):
            print(directory, oct(stat.S_IMODE(os.stat(directory).st_mode)))
            for name in sorted(names):
                path = os.path.join(directory, name)
                if not directory.endswith("/index"):
                    print(path, oct(stat.S_IMODE(os.stat(path).st_mode)))
        print(*(oct(stat.S_IMODE(os.stat(name).st_mode)) for name in ("open", "grouped")))

    os.umask(0o022)
    asyncio.run(main(sys.argv[1]))
"""


def test_only_the_owner_may_look_at_what_is_made(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_MODES_CHILD), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    *made, existing = done.stdout.splitlines()
    modes = dict(line.split() for line in made)
    directories = ("new", "new/above", "new/above/index", "new/deep", "new/deep/entries")
    files = ("new/cookie", "new/deep/LOCK", "new/deep/entries/log", "new/above/index.synced")
    assert modes == dict.fromkeys(directories, "0o700") | dict.fromkeys(files, "0o600")
    # One that everybody could look into is closed when a node takes it; one that an operator opened
    # to a group stays.
    assert existing == "0o700 0o750"


def test_a_rename_is_followed_by_a_sync_of_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_bytes(b"bytes")
    synced: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        files, "sync_directory", lambda path: synced.append((path, os.listdir(path)))
    )

    async def rename() -> None:
        lanes = Lanes(OutsideWork())
        await files.LocalFiles(lanes).rename(f"{tmp_path}/old", f"{tmp_path}/new")
        await lanes.close()

    asyncio.run(rename())
    assert synced == [(str(tmp_path), ["new"])]


def test_advice_that_a_file_system_refuses_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, "no advice here")

    monkeypatch.setattr(files, "os", changed(os, posix_fadvise=refuse))

    async def main() -> None:
        lanes = Lanes(OutsideWork())
        file = await files.LocalFiles(lanes).open(f"{tmp_path}/f", lane="x", create=True)
        await file.write(0, [b"kept"], sync=True)
        await file.drop_cached()
        assert await file.read([(0, 10)]) == [b"kept"]
        await file.close()
        await lanes.close()

    asyncio.run(main())


def test_a_lock_that_is_given_back_leaves_no_directory_that_it_made(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_bytes(b"")

    async def work() -> None:
        lanes = Lanes(OutsideWork())
        locks = files.LocalFiles(lanes)
        for name in ("deep/new/a", "deep/new/b", "there"):
            await locks.lock(f"{tmp_path}/{name}")
        await locks.unlock(f"{tmp_path}/deep/new/b")
        assert os.listdir(tmp_path / "deep" / "new") == ["a"]
        await locks.unlock(f"{tmp_path}/deep/new/a")
        # What makes the directories above a file or one that cannot be made leaves none, either.
        with pytest.raises(OSError, match="file"):
            await locks.lock(f"{tmp_path}/file/x")
        await locks.unlock(f"{tmp_path}/there")
        await lanes.close()

    asyncio.run(work())
    assert sorted(os.listdir(tmp_path)) == ["file", "there"]


def test_a_lock_has_one_holder_also_while_the_former_one_removes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = f"{tmp_path}/new"
    flock = fcntl.flock

    async def work() -> None:
        lanes = [Lanes(OutsideWork()) for _ in range(3)]
        first, second, third = (files.LocalFiles(each) for each in lanes)
        await first.lock(directory)
        loop = asyncio.get_running_loop()

        def late(descriptor: int, operation: int) -> None:
            """Lock the file that the second process has opened once the first one has left."""
            fake.flock = flock
            asyncio.run_coroutine_threadsafe(first.unlock(directory), loop).result()
            flock(descriptor, operation)

        fake.flock = late
        await second.lock(directory)
        with pytest.raises(Locked, match="is in use by process"):
            await third.lock(directory)
        await second.unlock(directory)
        await third.lock(directory)
        for each in lanes:
            await each.close()

    fake = changed(fcntl)
    monkeypatch.setattr(files, "fcntl", fake)
    asyncio.run(work())
    assert os.listdir(directory) == ["LOCK"]
