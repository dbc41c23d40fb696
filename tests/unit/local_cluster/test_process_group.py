"""The supervisor of a group, with shells for processes: restarts, ends, signals."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsarish.local_cluster.process_group import reserved_ports

# Runs the group of the arguments, NAME COMMAND each.
_PROGRAM = """
import sys
from pulsarish.local_cluster.process_group import ProcessGroup
from pulsarish.runtime.log import configure_logs
configure_logs()
words = sys.argv[1:]
commands = {name: ["sh", "-c", text] for name, text in zip(words[::2], words[1::2])}
sys.exit(ProcessGroup(commands, "all ready").run())
"""
_SERVES = "echo ready; exec sleep 1000"
_LOOP = "while :; do sleep 0.02; done"  # a shell runs its traps between commands
_STARTED = re.compile(r"process started process=(\S+) pid=(\d+)")
_DEADLINE_SECONDS = 60.0


class Group:
    """A supervisor that runs, and what it has written."""

    def __init__(self, directory: Path, **commands: str) -> None:
        self.out, self.log = directory / "out", directory / "log"
        with self.out.open("wb") as out, self.log.open("wb") as log:
            words = [word for each in commands.items() for word in each]
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *words], stdout=out, stderr=log
            )

    def until(self, met: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not met():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)

    def until_ready(self) -> None:
        self.until(lambda: "all ready" in self.out.read_text())

    def pids(self) -> dict[str, list[int]]:
        """The processes that were started so far, by name."""
        found: dict[str, list[int]] = {}
        for name, pid in _STARTED.findall(self.log.read_text()):
            found.setdefault(name, []).append(int(pid))
        return found


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    started: list[Group] = []

    def start(**commands: str) -> Group:
        started.append(Group(tmp_path, **commands))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_one_that_dies_is_started_again_and_the_others_stay(group: Callable[..., Group]) -> None:
    running = group(a=_SERVES, b=_SERVES)
    running.until_ready()
    before = running.pids()
    os.kill(before["a"][0], signal.SIGKILL)
    running.until(lambda: len(running.pids()["a"]) == 2)
    assert running.pids()["b"] == before["b"]
    assert is_there(before["b"][0])
    log = running.log.read_text()
    assert "process ended and is started again process=a" in log
    assert "how=SIGKILL wait_seconds=0.5" in log
    running.until(lambda: running.out.read_text().count("ready\n") == 4)
    assert running.out.read_text().count("all ready") == 1
    running.process.terminate()
    assert running.process.wait(_DEADLINE_SECONDS) == 128 + signal.SIGTERM  # sleep ends by it
    assert not any(is_there(pid) for pids in running.pids().values() for pid in pids)


def test_one_that_cannot_start_ends_the_group_with_its_status(group: Callable[..., Group]) -> None:
    running = group(a=_SERVES, b="echo 'error: no such thing' >&2; exit 3")
    assert running.process.wait(_DEADLINE_SECONDS) == 3
    log = running.log.read_text()
    assert "error: no such thing" in log
    assert "process cannot start process=b" in log
    assert "all ready" not in running.out.read_text()
    assert not any(is_there(pid) for pids in running.pids().values() for pid in pids)


def test_one_that_cannot_start_again_is_tried_again_after_longer_waits(
    group: Callable[..., Group], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    running = group(a=f"test -e {mark} && exit 3; touch {mark}; {_SERVES}", b=_SERVES)
    running.until_ready()
    os.kill(running.pids()["a"][0], signal.SIGKILL)
    running.until(lambda: len(running.pids()["a"]) == 3)
    log = running.log.read_text()
    assert "wait_seconds=0.5" in log
    assert 'how="exit status 3" wait_seconds=1.0' in log
    mark.unlink()
    running.until(lambda: running.out.read_text().count("ready\n") == 4)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_the_group_waits(
    group: Callable[..., Group], tmp_path: Path, number: signal.Signals
) -> None:
    done = tmp_path / "done"
    graceful = f"trap 'sleep 0.3; echo done >> {done}; exit 0' TERM; echo ready; {_LOOP}"
    running = group(a=graceful, b=graceful)
    running.until_ready()
    running.process.send_signal(number)
    assert running.process.wait(_DEADLINE_SECONDS) == 0
    assert done.read_text() == "done\ndone\n"


def test_a_second_signal_is_passed_on_too(group: Callable[..., Group]) -> None:
    running = group(a=f"trap 'trap \"exit 130\" TERM; echo first' TERM; echo ready; {_LOOP}")
    running.until_ready()
    running.process.terminate()
    running.until(lambda: "first" in running.out.read_text())
    running.process.terminate()
    assert running.process.wait(_DEADLINE_SECONDS) == 130


def test_no_process_outlives_its_supervisor(group: Callable[..., Group]) -> None:
    running = group(a=_SERVES, b=_SERVES)
    running.until_ready()
    running.process.kill()
    running.process.wait()
    running.until(lambda: not any(is_there(pids[0]) for pids in running.pids().values()))


def test_reserved_ports_are_free_real_and_taken_by_nothing_else() -> None:
    with reserved_ports(["127.0.0.1:0", "127.0.0.1:0"]) as (one, two):
        assert one != two
        port = int(one.rpartition(":")[2])
        assert port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as sharing:
            sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sharing.bind(("127.0.0.1", port))
            sharing.listen()
            socket.create_connection(("127.0.0.1", port)).close()


@pytest.mark.parametrize("shares", [False, True])
def test_a_port_that_others_listen_on_is_not_reserved_even_if_they_share_it(shares: bool) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shares))
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with (
            pytest.raises(OSError, match=f"cannot listen on {address}: the address is in") as found,
            reserved_ports([address]),
        ):
            pass
        assert found.value.errno == errno.EADDRINUSE
