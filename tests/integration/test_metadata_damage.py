"""One flipped bit in the files of a real metadata daemon: it starts with everything that it
acknowledged, or it does not start.
"""

from __future__ import annotations

import asyncio
import errno
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pulsarish.cli.metadata import repairs as commands
from pulsarish.metadata.process import open_store
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import Op
from pulsarish.runtime.world import production

NODES = 200
COMMAND = [sys.executable, "-m", "pulsarish"]


def start(directory: Path) -> subprocess.Popen[str]:
    settings = (f"data_directory={directory}", "listen_address=127.0.0.1:0", "http_address=")
    return subprocess.Popen(
        [*COMMAND, "metadata", *[f"--set={setting}" for setting in settings]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def address_of(daemon: subprocess.Popen[str]) -> str:
    """Where it serves; empty when it has ended instead."""
    assert daemon.stdout is not None
    return daemon.stdout.readline().strip().rpartition("=")[2]


def ended(daemon: subprocess.Popen[str], number: signal.Signals) -> None:
    daemon.send_signal(number)
    daemon.communicate(timeout=30)


def on_tree(address: str, *, create: int = 0) -> int:
    """Create nodes, each in a commit of its own; how many there are."""

    async def work() -> int:
        outside = OutsideWork()
        parts = production(outside=outside)
        store = await open_store(f"zk://{address}", parts, outside)
        if create:
            await store.commit(
                [
                    Op("create", "/pulsarish"),
                    Op("create", "/pulsarish/cluster"),
                    Op("create", "/made"),
                ]
            )
        for number in range(create):
            await store.commit([Op("create", f"/made/{number:06d}", b"x" * 100)])
        count = len(await store.children("/made"))
        await store.close()
        await parts.close()
        return count

    return asyncio.run(work())


def is_marked(address: str) -> bool:
    """Whether bookies delete nothing on the word of this tree."""

    async def work() -> bool:
        outside = OutsideWork()
        parts = production(outside=outside)
        store = await open_store(f"zk://{address}", parts, outside)
        (node,) = await store.get_many(["/pulsarish/restored"])
        await store.close()
        await parts.close()
        return node is not None

    return asyncio.run(work())


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[signal.Signals, Path]:
    """The directories of daemons that were ended in two ways after everything was acknowledged."""
    made = {}
    for number in (signal.SIGKILL, signal.SIGTERM):
        directory = tmp_path_factory.mktemp(number.name) / "metadata"
        daemon = start(directory)
        assert on_tree(address_of(daemon), create=NODES) == NODES
        ended(daemon, number)
        made[number] = directory
    return made


def copied(directory: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(directory, target)
    return target


def flip(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def files(directory: Path) -> list[Path]:
    """What a tree is kept in."""
    found = [
        path
        for pattern in ("*.log", "*.sst", "MANIFEST*", "CURRENT")
        for path in directory.glob(f"index/{pattern}")
    ]
    return [path for path in sorted(found) if path.stat().st_size]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_flipped_bit_is_never_a_silent_loss(
    trees: dict[signal.Signals, Path], number: signal.Signals, tmp_path: Path
) -> None:
    chance = random.Random(3)
    refused = 0
    for path in files(trees[number]):
        size = path.stat().st_size
        for at in {0, size // 3, size - 20, size - 1, chance.randrange(size)} if size > 20 else {3}:
            directory = copied(trees[number], tmp_path / "metadata")
            flip(directory / "index" / path.name, at, chance.randrange(8))
            daemon = start(directory)
            address = address_of(daemon)
            if not address:
                _, text = daemon.communicate(timeout=30)
                assert daemon.returncode == 1
                assert f"pulsarish metadata cut {directory}" in text
                refused += 1
                continue
            assert on_tree(address) == NODES, f"{path.name} flipped at {at}"
            ended(daemon, signal.SIGKILL)
    assert refused > 3


def test_the_refusal_names_the_loss_and_an_operator_gives_it_up(
    trees: dict[signal.Signals, Path], tmp_path: Path
) -> None:
    directory = copied(trees[signal.SIGKILL], tmp_path / "metadata")
    log = max(directory.glob("index/*.log"))
    flip(log, log.stat().st_size // 2, 1)
    _, text = start(directory).communicate(timeout=30)
    found = re.search(
        r"ends at write (\d+), and all up to write (\d+) was synced: (\d+) synced writes are "
        r"missing",
        text,
    )
    assert found is not None, text
    last, synced, missing = map(int, found.groups())
    assert last + missing == synced
    assert str(log) in text

    def cut(*options: str) -> tuple[int, str]:
        done = subprocess.run(
            [*COMMAND, "metadata", "cut", str(directory), *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stderr

    status, text = cut()
    assert (status, f"--last-write {last}" in text) == (1, True), text
    status, text = cut("--last-write", str(last + 1))
    assert (status, f"ends at write {last}; nothing was changed" in text) == (1, True), text
    status, text = cut("--last-write", str(last))
    assert (status, "metadata confirm zk://HOST:PORT/pulsarish" in text) == (0, True), text
    daemon = start(directory)
    address = address_of(daemon)
    # Its session and the three parents take writes of their own.
    assert last - 10 <= on_tree(address) < last
    ended(daemon, signal.SIGTERM)
    status, text = cut()
    assert (status, "is complete" in text) == (1, True), text


def test_a_cut_that_was_interrupted_leaves_no_tree_that_looks_complete(
    trees: dict[signal.Signals, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copied(trees[signal.SIGKILL], tmp_path / "metadata")
    log = max(directory.glob("index/*.log"))
    flip(log, log.stat().st_size // 2, 1)
    _, text = start(directory).communicate(timeout=30)
    found = re.search(r"ends at write (\d+), ", text)
    assert found is not None, text

    async def disk_full(*_: object) -> list[str]:
        raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(commands, "mark_incomplete", disk_full)
        done = CliRunner().invoke(commands.cut, [str(directory), "--last-write", found[1]])
        assert isinstance(done.exception, OSError), done.output
    daemon = start(directory)
    _, text = daemon.communicate(timeout=30)
    assert (daemon.returncode, f"finish it: pulsarish metadata cut {directory}" in text) == (
        1,
        True,
    ), text
    finished = subprocess.run(
        [*COMMAND, "metadata", "cut", str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (
        finished.returncode,
        "metadata confirm zk://HOST:PORT/pulsarish" in finished.stderr,
    ) == (0, True), finished.stderr
    daemon = start(directory)
    assert is_marked(address_of(daemon))
    ended(daemon, signal.SIGTERM)


def test_an_embedded_tree_is_refused_too(trees: dict[signal.Signals, Path], tmp_path: Path) -> None:
    directory = copied(trees[signal.SIGKILL], tmp_path / "metadata")
    log = max(directory.glob("index/*.log"))
    flip(log, log.stat().st_size // 2, 1)
    words = ["metadata", "backup", f"embedded:{directory}", str(tmp_path / "backup.gz")]
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, "synced writes are missing" in done.stderr) == (1, True), done.stderr
