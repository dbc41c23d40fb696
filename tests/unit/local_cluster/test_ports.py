"""Ports of servers that come back at the same address."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import pytest

from pulsarish.local_cluster import ports
from pulsarish.local_cluster.ports import free_ports

HOST = "127.0.0.1"


def test_none_comes_twice_and_the_kernel_gives_none_of_them_to_a_connection() -> None:
    found = list(islice(free_ports(HOST), 50))
    assert len(set(found)) == 50
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(10_000 <= port < first_of_kernel for port in found)


def test_one_that_is_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_candidates", lambda host: iter([port, 0]))
        assert next(free_ports(HOST)) != port


_CHOOSE = f"""
import sys
from itertools import islice
from pulsarish.local_cluster.ports import free_ports

print(*islice(free_ports("{HOST}"), 400), flush=True)
sys.stdin.read()
"""


def test_processes_that_choose_at_the_same_time_choose_different_ports() -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _CHOOSE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    with ExitStack() as ended:
        for process in started:
            ended.enter_context(process)
        # A process holds its block until its input ends, so all have chosen before the first ends.
        lines = [process.stdout.readline() for process in started if process.stdout]
    chosen = [int(port) for line in lines for port in line.split()]
    assert len(chosen) == len(set(chosen)) == 1_600


def test_a_port_comes_again_only_after_all_others_of_the_process() -> None:
    with closing(free_ports(HOST)) as ports_of_first:
        first = set(islice(ports_of_first, 300))
    with closing(free_ports(HOST)) as ports_of_second:
        second = set(islice(ports_of_second, 300))
    assert not first & second
