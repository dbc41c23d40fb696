"""End a TCP connection that gRPC's C core holds.

The core keeps a message that its peer does not read until the connection ends. The end of the
stream does not free it, and Python has no call that ends a connection. This module finds the
connection's descriptor by the address of its peer.
"""

from __future__ import annotations

import os
import socket
import stat
from urllib.parse import unquote

__all__ = ["shut_down_connection"]

_DESCRIPTORS = "/dev/fd"


def shut_down_connection(peer: str) -> bool:
    """Shut down the connection of this process whose other end is ``peer`` (``host:port``).

    False when there is none.

    Checks every descriptor of the process: for rare cases only.
    """
    host, _, port = unquote(peer).rpartition(":")
    wanted = (host.strip("[]"), port)
    for name in os.listdir(_DESCRIPTORS):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            # A copy: the core's threads may close the descriptor at any time, and its number may be
            # another file's then.
            with socket.socket(fileno=os.dup(int(name))) as found:
                if found.family in (socket.AF_INET, socket.AF_INET6) and _peer(found) == wanted:
                    found.shutdown(socket.SHUT_RDWR)
                    return True
        except OSError:
            continue  # closed in the meantime, or a socket that has no peer
    return False


def _peer(found: socket.socket) -> tuple[str, str]:
    host, port = found.getpeername()[:2]
    # The core listens with sockets of IPv6 for IPv4 too.
    return host.removeprefix("::ffff:"), str(port)
