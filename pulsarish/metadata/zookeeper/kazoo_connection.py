"""kazoo's client, whose connection thread handles many requests per turn.

The protocol, the session and the watches are kazoo's.

kazoo's own connection reads four bytes and then the rest, sends one request, and waits with a new
selector before each of these. That is a dozen system calls for each request, each of which passes
the interpreter lock to and fro, and the loop is woken for every answer. This module does it
differently:

* Queued requests leave in one write, so that the server can also sync them together. ``ask`` queues
  many with one wake-up, and the wake-up costs a system call only when the thread sleeps.
* A read takes all received bytes, and every whole message of them is handled, in order. Only the
  beginning of a message stays behind: the thread sleeps on the socket, so nothing that could be
  handled may wait in memory.
* The loop is woken once for all messages of one read.
* A request goes over the connection that the loop knew of when it asked, or over none. kazoo's
  queue outlives a connection. A request that is queued after the connection has ended, and before
  the loop knows that, would go over the next one.

Each message still goes through kazoo's own ``_send_request`` and ``_read_socket``, which assign and
check the sequence numbers and handle pings, watches and the end of the session. Only what they
write into and read from is replaced. These are internals of kazoo: an import of this module checks
that they exist, and pyproject.toml bounds the version.
"""

from __future__ import annotations

import inspect
import logging
import select
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, ConnectionLoss
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import CLOSE_RESPONSE, ConnectionHandler
from kazoo.protocol.serialization import ReplyHeader, int_struct, reply_header_struct
from kazoo.version import __version__ as _kazoo_version

from pulsarish.metadata.zookeeper.connect_failure import (
    ConnectFailure,
    FailureReader,
    HandshakeEnded,
    Refusal,
)
from pulsarish.security.credentials import Secret

__all__ = ["Answer", "Client", "Failed", "MissingInternals", "check_internals"]

_READ_BYTES: Final = 1 << 16
# Of one write. Further queued requests leave in the next write, after received messages were read.
_GATHERED_BYTES_MAX: Final = 1 << 18
_DRAIN_BYTES: Final = 1 << 12

_INTERNALS: Final[Sequence[tuple[type, str, tuple[str, ...]]]] = (
    (KazooClient, "_call", ("self", "request", "async_object")),
    (ConnectionHandler, "__init__", ("self", "client", "retry_sleeper", "logger", "sasl_options")),
    (ConnectionHandler, "_connect", ("self", "host", "hostip", "port")),
    (ConnectionHandler, "_read_header", ("self", "timeout")),
    (ConnectionHandler, "_read_response", ("self", "header", "buffer", "offset")),
    (ConnectionHandler, "_read_socket", ("self", "read_timeout")),
    (ConnectionHandler, "_send_request", ("self", "read_timeout", "connect_timeout")),
    (ConnectionHandler, "_socket_error_handling", ("self",)),
    (ConnectionHandler, "_write", ("self", "msg", "timeout")),
    (SequentialThreadingHandler, "create_connection", ("self", "args", "kwargs")),
    (SequentialThreadingHandler, "create_socket_pair", ("self",)),
    (SequentialThreadingHandler, "dispatch_callback", ("self", "callback")),
    (SequentialThreadingHandler, "select", ("self", "args", "kwargs")),
)
_CLIENT_ATTRIBUTES: Final = ("_connection", "_pending", "_queue", "client_id", "last_zxid")
_CONNECTION_ATTRIBUTES: Final = ("_read_sock", "_socket", "_write_sock", "retry_sleeper")


Failed = Callable[[ConnectFailure], None]


class MissingInternals(Exception):
    """This version of kazoo does not have something that is used here."""


def check_internals(internals: Iterable[tuple[type, str, tuple[str, ...]]] = _INTERNALS) -> None:
    """Raise ``MissingInternals`` naming the first method that does not exist or takes other
    parameters.
    """
    for owner, name, parameters in internals:
        method = getattr(owner, name, None)
        if method is None or tuple(inspect.signature(method).parameters) != parameters:
            raise MissingInternals(
                f"kazoo {_kazoo_version} has no {owner.__name__}.{name}({', '.join(parameters)}), "
                "which Pulsarish needs: install the version of kazoo that pyproject.toml names"
            )


class Answer(Protocol):
    """The receiver of a request's outcome, on the connection's thread or (when it was never sent)
    on the caller's.
    """

    connection: int
    """The only connection that the request may go over; set by ``Client.ask``."""

    def set(self, value: Any) -> None: ...

    def set_exception(self, error: Exception) -> None: ...


class _WakeReader:
    """The end of kazoo's socket pair on which the connection's thread sleeps."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.posted = False
        """There may be requests in the queue."""
        self.sleeps = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def recv(self, _size: int) -> bytes:
        """Return nothing: kazoo would read a byte for each request, and ``drain`` has read them
        all.
        """
        return b""

    def drain(self) -> None:
        self.posted = False
        try:
            while len(self._connection.recv(_DRAIN_BYTES)) == _DRAIN_BYTES:
                pass
        except BlockingIOError:
            return  # no thread had to be woken

    def close(self) -> None:
        self._connection.close()


class _WakeWriter:
    """The end on which any thread signals that it has queued a request."""

    def __init__(self, connection: socket.socket, reader: _WakeReader) -> None:
        self._connection = connection
        self._reader = reader
        self.paused = False
        """Set while a caller queues more requests; it calls ``wake`` after them."""

    def send(self, data: bytes) -> int:
        if not self.paused:
            self.wake()
        return len(data)

    def wake(self) -> None:
        # Post first and read the sleeping flag second. The sleeping thread sets the flag first and
        # looks for posts second.
        self._reader.posted = True
        if self._reader.sleeps:
            self._reader.sleeps = False
            try:
                self._connection.send(b"\0")
            except BlockingIOError:
                return  # the socket is full of unread bytes, so the thread wakes

    def close(self) -> None:
        self._connection.close()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler without its two worker threads, with a cheap way to wait, and with TLS that
    verifies the host's name, follows its files and is 1.2 at least: kazoo's own does none of that.

    Args:
        tls: returns the context of a new connection; ``None``: connections have no TLS.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None) -> None:
        super().__init__()
        self._tls = tls

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self._tls is None:
            return super().create_connection(*args, **kwargs)
        plain = socket.create_connection(kwargs["address"], kwargs["timeout"])
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return self._tls().wrap_socket(plain, server_hostname=kwargs["hostname"])
        except (ConnectionError, ssl.SSLEOFError) as error:
            plain.close()
            raise HandshakeEnded(str(error)) from error
        except BaseException:
            plain.close()
            raise

    def start(self) -> None:
        """Start nothing: this client passes its own answers to kazoo, and watches run on the
        connection's thread and only post.
        """

    def stop(self) -> None:
        """Stop nothing."""

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def create_socket_pair(self) -> tuple[_WakeReader, _WakeWriter]:
        near, far = socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)
        reader = _WakeReader(near)
        return reader, _WakeWriter(far, reader)

    def select(
        self, reading: Any, writing: Any, _exceptional: Any, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # kazoo waits for reading or for writing, never for both.
        poll = select.poll()
        by_number: dict[int, Any] = {}
        sleeper: _WakeReader | None = None
        for one in reading or writing:
            by_number[one.fileno()] = one
            poll.register(one, select.POLLIN if reading else select.POLLOUT)
            if isinstance(one, _WakeReader):
                sleeper = one
        timeout_ms = None if timeout is None else timeout * 1000
        if sleeper is None:
            ready = [by_number[number] for number, _ in poll.poll(timeout_ms)]
        else:
            sleeper.sleeps = True
            # A thread that posted before it could see the sleeping flag sent no byte.
            awake = sleeper.posted
            ready = [by_number[number] for number, _ in poll.poll(0 if awake else timeout_ms)]
            sleeper.sleeps = False
            if awake and sleeper not in ready:
                ready.append(sleeper)
        return (ready, [], []) if reading else ([], ready, [])


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection.

    ``came`` is called on its thread when messages were handled, ``connected`` with the read timeout
    in ms, ``failed`` when an attempt to connect failed.
    """

    def __init__(
        self,
        client: KazooClient,
        retry_sleeper: Any,
        came: Callable[[], None],
        connected: Callable[[float], None],
        failed: Failed,
        failures: FailureReader,
    ) -> None:
        super().__init__(client, retry_sleeper, client.logger)
        self._came = came
        self._connected = connected
        self._failed = failed
        self._failures = failures
        self._is_at_login = False
        self._received = b""
        self._at = 0
        self._message: bytes | None = None
        self._gathered: list[bytes] | None = None

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self._received, self._at, self._message = b"", 0, None
        self._is_at_login = False
        self.client.ended_zxid = max(self.client.ended_zxid, self.client.last_zxid)
        self.client.connections += 1
        # A server with an older tree refuses a client that has seen more. Then no node could find
        # out that the tree is older.
        self.client.last_zxid = 0
        try:
            read_timeout_ms, connect_timeout_ms = super()._connect(host, hostip, port)
        except AuthFailedError as error:
            self._failed(ConnectFailure("the server does not accept this login", Refusal.LOGIN))
            # kazoo would give the client up. This way it tries again, with its pauses: the server
            # may come to know the login.
            raise ConnectionDropped("the login was refused") from error
        except (ConnectionDropped, self.handler.timeout_exception) as error:
            failure = self._failures.read(
                error,
                host,
                (hostip, port),
                was_cut=self._socket is not None and isinstance(error, ConnectionDropped),
                at_login=self._is_at_login,
            )
            self._failed(replace(failure, reason=f"{host}:{port}: {failure.reason}"))
            raise
        self._failures.connected()
        self._connected(read_timeout_ms)
        return read_timeout_ms, connect_timeout_ms

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Send all that is queued for this connection.

        It fails like kazoo's: a request taken from the queue then waits for an answer, and is
        failed with the connection.
        """
        # Before the queue is read: a request queued after this wakes the thread again.
        self._read_sock.drain()
        queue = self.client._queue
        gathered = self._gathered = []
        size_bytes = 0
        try:
            while queue and size_bytes < _GATHERED_BYTES_MAX:
                _, answer = queue[0]
                if answer is not None and answer.connection != self.client.connections:
                    # kazoo would send it over this connection. The loop did not know that the
                    # former one had ended, and with it what it knew of the server: this connection
                    # may reach an older tree.
                    queue.popleft()
                    answer.set_exception(ConnectionLoss())
                    continue
                super()._send_request(read_timeout, connect_timeout)
                size_bytes += len(gathered[-1])
        finally:
            self._gathered = None
        if queue:
            self._read_sock.posted = True
        super()._write(b"".join(gathered), connect_timeout)

    def _write(self, msg: bytes, timeout: float) -> None:
        if self._gathered is not None:
            self._gathered.append(msg)
        else:
            super()._write(msg, timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        """Handle all messages that have arrived whole.

        Return ``CLOSE_RESPONSE`` as kazoo does when one of them ended the session.
        """
        with self._socket_error_handling():
            try:
                piece = self._socket.recv(_READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return None
        if not piece:
            raise ConnectionDropped("socket connection broken")
        self._received, self._at = self._received[self._at :] + piece, 0
        try:
            while (message := self._next_message()) is not None:
                self._message = message
                if (response := super()._read_socket(read_timeout)) == CLOSE_RESPONSE:
                    return response
        finally:
            self._came()
        return None

    def _next_message(self) -> bytes | None:
        """Return the first unhandled message, once it has arrived whole."""
        start = self._at + int_struct.size
        if start > len(self._received):
            return None
        size: int = int_struct.unpack_from(self._received, self._at)[0]
        if size < reply_header_struct.size:
            raise ConnectionDropped(f"the metadata server announces a message of {size} bytes")
        if start + size > len(self._received):
            return None
        self._at = start + size
        return self._received[start : self._at]

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        pending = self.client._pending
        if not pending or pending[0][2] != header.xid:
            # kazoo's thread would end with an error, and with it the session.
            raise ConnectionDropped("the metadata server answers what was not asked")
        return super()._read_response(header, buffer, offset)

    def _read_header(self, timeout: float) -> tuple[Any, bytes, int]:
        message, self._message = self._message, None
        if message is not None:
            header, offset = ReplyHeader.deserialize(message, 0)
        else:  # the answer to a login: while it connects, kazoo reads exactly what it waits for
            self._is_at_login = True
            header, message, offset = super()._read_header(timeout)
        return header, message, offset


class Client(KazooClient):  # type: ignore[misc]
    """A session, and requests in it. Only ``stop`` and ``close`` block."""

    _connection: Any

    def __init__(
        self,
        hosts: str,
        session_timeout_seconds: float,
        *,
        reconnect_max_seconds: float,
        logger: logging.Logger,
        came: Callable[[], None],
        connected: Callable[[float], None],
        failed: Failed = lambda _failure: None,
        logins: Sequence[Secret] = (),
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Make a client.

        Args:
            came: called on the connection's thread after answers and watches were passed on.
            connected: called with the session timeout in seconds that the server granted, before
                its first answer.
            failed: called on the connection's thread when an attempt to connect failed.
            logins: each ``user:password``; shown at every connection before any request.
            tls: returns the context of a new connection; ``None``: connections have no TLS.
        """
        pause = {"max_tries": -1, "delay": 0.1, "backoff": 1.5, "max_delay": reconnect_max_seconds}
        super().__init__(
            hosts,
            session_timeout_seconds,
            handler=_Handler(tls),
            connection_retry=pause,
            logger=logger,
            auth_data=[("digest", login.reveal().decode()) for login in logins],
        )
        self._connection = _Connection(
            self,
            self._connection.retry_sleeper,
            came,
            # kazoo does not keep the session timeout; the timeout of its reads is two thirds of it.
            lambda read_timeout_ms: connected(read_timeout_ms * 1.5 / 1000),
            failed,
            FailureReader(tls),
        )
        self.connections = 0
        """Attempts to connect so far: the number of the present connection.

        The connection's thread counts.
        """
        self.ended_zxid = 0
        self._followed = 0
        missing = [name for name in _CLIENT_ATTRIBUTES if not hasattr(self, name)]
        missing += [name for name in _CONNECTION_ATTRIBUTES if not hasattr(self._connection, name)]
        if missing:
            raise MissingInternals(
                f"kazoo {_kazoo_version} has no {missing[0]}, which Pulsarish needs"
            )

    @property
    def seen_zxid(self) -> int:
        """The greatest transaction id seen over the connection that the loop follows.

        Call it from the loop's thread.
        """
        zxid = int(self.last_zxid)
        # The connection's thread counts a new connection before it forgets what was seen over the
        # last one.
        return zxid if self.connections == self._followed else int(self.ended_zxid)

    def follow(self, connection: int) -> None:
        """Use this connection for all requests that the loop asks from now on.

        Call it from the loop's thread.
        """
        self._followed = connection

    def ask(self, requests: Iterable[tuple[Any, Answer]]) -> None:
        """Queue requests for the connection that the loop follows, to leave together in this order.

        Call it from the loop's thread.
        """
        writer = self._connection._write_sock
        writer.paused = True
        try:
            for message, answer in requests:
                answer.connection = self._followed
                self._call(message, answer)
        finally:
            writer.paused = False
            writer.wake()


check_internals()
