"""Servers on plain sockets that do not answer as a broker does."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import FrameReader, command_frame

__all__ = [
    "answers_http",
    "closes",
    "greets_as",
    "is_silent",
    "plain_server",
    "refused_port",
    "speaks_http2",
    "speaks_tls",
]

Serve = Callable[[socket.socket], None]


@contextmanager
def plain_server(serve: Serve) -> Iterator[int]:
    """Yield the port of a server that calls ``serve`` with each connection, in a thread each.

    The connection is closed when ``serve`` returns, or at the end of the block.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    open_ones: list[socket.socket] = []

    def run(connection: socket.socket) -> None:
        with suppress(OSError):
            serve(connection)
        connection.close()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            open_ones.append(connection)
            threading.Thread(target=run, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for each in open_ones:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def refused_port() -> int:
    """Return a port at which no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def is_silent(connection: socket.socket) -> None:
    """Take what comes and never answer."""
    while connection.recv(4096):
        pass


def closes(connection: socket.socket) -> None:
    """End the connection after the first bytes."""
    connection.recv(4096)


def answers_http(connection: socket.socket) -> None:
    """Refuse as a server of HTTP does."""
    connection.recv(4096)
    connection.sendall(
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    )


def speaks_http2(connection: socket.socket) -> None:
    """Begin as a server of gRPC does, and go away."""
    connection.sendall(b"\0\0\0\x04\0\0\0\0\0")
    connection.recv(4096)


def speaks_tls(context: ssl.SSLContext) -> Serve:
    """Return a server that answers TLS, and nothing in it."""

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            is_silent(secured)

    return serve


def greets_as(version: str) -> Serve:
    """Return a server of Apache Pulsar's binary protocol with this version."""

    def serve(connection: socket.socket) -> None:
        reader = FrameReader(64 << 10)
        while not reader.feed(connection.recv(4096)):
            pass
        connected = pb.Connected(server_version=version, protocol_version=21)
        connection.sendall(command_frame(pb.Command(type=3, connected=connected)))
        is_silent(connection)

    return serve
