"""Ports for processes that are started, killed and started again at the same addresses."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["free_ports"]

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST: Final = 10_000
_CHOICE_MIN: Final = 1_000


def free_ports(host: str) -> Iterator[int]:
    """An endless iterator of ports of ``host`` that no process listens on, each once; they are held
    until the iterator is closed.

    They lie below the range from which the kernel gives connections theirs, so that none takes a
    port while its server is down.
    """
    held: list[socket.socket] = []
    try:
        for port in _candidates():
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


def _candidates() -> Iterator[int]:
    try:
        end = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError):
        end = _FIRST
    if end - _FIRST >= _CHOICE_MIN:
        # By chance, so that two who choose at the same time seldom meet.
        yield from random.SystemRandom().sample(range(_FIRST, end), end - _FIRST)
    while True:
        yield 0  # the kernel's choice
