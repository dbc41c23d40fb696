"""Ports for processes that are started, killed and started again at the same addresses."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from pulsarish.model.errors import InvalidArgument

__all__ = ["PORT_STEP", "free_ports", "take_consecutive"]

PORT_STEP: Final = 200
"""Between the ports of two processes of a group, if nothing else is chosen. Its multiples lead from
no well-known port of a service to one of another.
"""

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST: Final = 10_000
_BLOCK: Final = 1_024
_TRIALS_MAX: Final = 4_096


def free_ports(host: str) -> Iterator[int]:
    """Return an endless iterator of ports of ``host`` that no process listens on, each once.

    The ports are held until the iterator is closed. They lie below the range from which the kernel
    gives connections theirs, so that none takes a port while its server is down. Two processes
    that choose at the same time choose from different blocks, so that neither takes a port between
    the other's choice and the start of its server.
    """
    held: list[socket.socket] = []
    try:
        for port in _candidates(host):
            holder = socket.socket()
            held.append(holder)
            try:
                holder.bind((host, port))
            except OSError:
                continue
            yield holder.getsockname()[1]
    finally:
        for holder in held:
            holder.close()


def take_consecutive(ports: Iterator[int], count: int) -> int:
    """Take ports until the last ``count`` follow each other, and return the first of these.

    Raises ``InvalidArgument`` when there are none.
    """
    last, length = -1, 0
    for port in islice(ports, _TRIALS_MAX):
        length = length + 1 if port == last + 1 else 1
        last = port
        if length == count:
            return port - count + 1
    raise InvalidArgument(
        f"there are no {count} free ports in a row for the processes of a node: choose them with "
        "--base-port"
    )


def _candidates(host: str) -> Iterator[int]:
    block = _block_of_this_process(host)
    if block is not None:
        for _ in range(_BLOCK - 1):
            yield block.next_port()
    while True:
        yield 0  # the kernel's choice


class _Block:
    """Ports that this process alone gives away. It holds the first port as long as it lives; the
    others come in turn, so that one comes again only after all the others.
    """

    def __init__(self, guard: socket.socket) -> None:
        self._guard = guard
        self._first: int = guard.getsockname()[1]
        self._given = 0
        self.pid = os.getpid()

    def next_port(self) -> int:
        offset = 1 + self._given % (_BLOCK - 1)
        self._given += 1
        return self._first + offset


_taken: dict[str, _Block] = {}  # by host


def _block_of_this_process(host: str) -> _Block | None:
    """Return the block of this process, or ``None`` where each block has its process."""
    block = _taken.get(host)
    if block is not None and block.pid == os.getpid():  # a fork's parent goes on with its own
        return block
    try:
        end = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError):
        return None
    starts = list(range(_FIRST, end - _BLOCK + 1, _BLOCK))
    random.SystemRandom().shuffle(starts)
    for start in starts:
        guard = socket.socket()
        try:
            guard.bind((host, start))
        except OSError:
            guard.close()
            continue
        _taken[host] = _Block(guard)
        return _taken[host]
    return None
