"""What a ZooKeeper server says of itself, by its four-letter words: whether it serves, as what, and
how many follow it.
"""

from __future__ import annotations

import socket
from typing import Final

__all__ = ["monitored", "parse_mode", "parse_monitored", "server_mode"]

_HOST: Final = "127.0.0.1"
_ANSWER_SECONDS: Final = 2.0
_PIECE_BYTES: Final = 4096


def server_mode(port: int) -> str:
    """``standalone``, ``leader``, ``follower`` or ``observer``; empty while the server does not
    serve, which it cannot without a quorum.
    """
    return parse_mode(_ask(port, b"srvr"))


def monitored(port: int) -> dict[str, str]:
    """What ``mntr`` answers, as ``zk_synced_followers`` of a leader; empty while the server does
    not serve.
    """
    return parse_monitored(_ask(port, b"mntr"))


def parse_mode(answer: str) -> str:
    """Read the answer to ``srvr``."""
    return next(
        (
            line.partition(":")[2].strip()
            for line in answer.splitlines()
            if line.startswith("Mode:")
        ),
        "",
    )


def parse_monitored(answer: str) -> dict[str, str]:
    """Read the answer to ``mntr``."""
    lines = (line.partition("\t") for line in answer.splitlines())
    return {name: value for name, tab, value in lines if tab}


def _ask(port: int, word: bytes) -> str:
    """The whole answer to a word; empty when there is no answer in time."""
    answer = b""
    try:
        with socket.create_connection((_HOST, port), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(word)
            while piece := connection.recv(_PIECE_BYTES):
                answer += piece
    except OSError:
        return ""
    return answer.decode(errors="replace")
