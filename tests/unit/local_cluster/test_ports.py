"""Ports of servers that come back at the same address."""

from __future__ import annotations

import socket
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
        monkeypatch.setattr(ports, "_candidates", lambda: iter([port, 0]))
        assert next(free_ports(HOST)) != port
