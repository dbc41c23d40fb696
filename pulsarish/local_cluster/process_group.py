"""Run several processes as one: start them, start again those that die, stop all together.

The supervisor does nothing else. It serves no client, so a machine with a supervisor that hangs
still serves. When it dies, for whatever reason, the kernel sends SIGTERM to its processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.log import flush_logs, get_logger
from pulsarish.runtime.network.addresses import split_address
from pulsarish.runtime.network.endpoints import cannot_listen

__all__ = ["ProcessGroup", "reserved_ports"]

_log = get_logger("processes")

_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 30.0
# One that served for this long begins with the first wait again when it dies.
_STEADY_SECONDS: Final = 60.0
_PR_SET_PDEATHSIG: Final = 1
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_READ_BYTES: Final = 4_096


@dataclass(slots=True)
class _Place:
    """The place of one process in the group, with whichever process has it now."""

    name: str
    command: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    output: int = -1
    """What the process prints, which is one line when it serves; -1: it can print no more."""
    ready_at: float | None = None
    """When the process began to serve; ``None``: it does not yet."""
    start_at: float | None = None
    """When the next process is to be started; ``None``: there is one, or none is wanted."""
    backoff: Backoff = field(
        default_factory=lambda: Backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
    )


class ProcessGroup:
    """Processes of one command.

    Args:
        commands: what starts each, by name. A process prints a line to standard output when it
            serves.
        ready_line: what is printed when all serve for the first time.
    """

    def __init__(self, commands: dict[str, Sequence[str]], ready_line: str) -> None:
        self._places = [_Place(name, command) for name, command in commands.items()]
        self._ready_line = ready_line
        self._all_served = False
        self._stopping = False
        self._status = 0
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Run until SIGTERM or SIGINT, or until a process cannot start. Return the exit status.

        A process that ends before all have served once ends the group, with its status: what it
        wrote to standard error says why. One that ends later is started again, after a wait that
        doubles from half a second to 30 seconds. A signal is passed on as SIGTERM, and the group
        ends when all processes have ended; a second one, too, by which each ends at once.
        """
        with _signals() as wake, self._selector:
            self._selector.register(wake, selectors.EVENT_READ)
            for place in self._places:
                self._start(place)
            while not self._stopping or any(place.process for place in self._places):
                self._turn(wake)
        flush_logs()
        return self._status

    def _turn(self, wake: socket.socket) -> None:
        """Wait for the next event, and act on it."""
        for key, _ in self._selector.select(self._wait_seconds()):
            if key.fileobj is wake:
                for number in wake.recv(_READ_BYTES):
                    if number != signal.SIGCHLD:
                        self._stop(signal.Signals(number).name)
            else:
                self._read_output(key.data)
        for place in self._places:
            if place.process is not None and place.process.poll() is not None:
                self._ended(place, place.process)
            if place.start_at is not None and place.start_at <= time.monotonic():
                self._start(place)

    def _wait_seconds(self) -> float | None:
        due = [place.start_at for place in self._places if place.start_at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _start(self, place: _Place) -> None:
        place.start_at = place.ready_at = None
        process = subprocess.Popen(
            place.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # Ctrl-C at a terminal goes to the supervisor alone: a second signal would end a
            # process in the middle of its graceful stop.
            process_group=0,
            preexec_fn=_ending_with(os.getpid()),  # noqa: PLW1509 - there is one thread
        )
        assert process.stdout is not None
        place.process = process
        place.output = process.stdout.fileno()
        os.set_blocking(place.output, False)
        self._selector.register(place.output, selectors.EVENT_READ, place)
        _log.info("process started", process=place.name, pid=process.pid)

    def _read_output(self, place: _Place) -> None:
        """Pass on what a process prints. The end of its first line says that it serves."""
        with contextlib.suppress(BlockingIOError):
            found = os.read(place.output, _READ_BYTES)
            if not found:
                self._close_output(place)
            _print(found)
            if b"\n" in found and place.ready_at is None:
                self._serves(place)

    def _serves(self, place: _Place) -> None:
        place.ready_at = time.monotonic()
        _log.info("process serves", process=place.name)
        if not self._all_served and all(each.ready_at is not None for each in self._places):
            self._all_served = True
            _print(f"{self._ready_line}\n".encode())

    def _close_output(self, place: _Place) -> None:
        if place.output >= 0:
            self._selector.unregister(place.output)
            place.output = -1

    def _ended(self, place: _Place, process: subprocess.Popen[bytes]) -> None:
        self._close_output(place)
        assert process.stdout is not None
        process.stdout.close()
        place.process = None
        served_seconds = None if place.ready_at is None else time.monotonic() - place.ready_at
        how = _how(process.returncode)
        if self._stopping:
            _log.info("process stopped", process=place.name, pid=process.pid, how=how)
            self._status = self._status or _exit_status(process.returncode)
        elif not self._all_served:
            _log.error("process cannot start", process=place.name, pid=process.pid, how=how)
            self._status = _exit_status(process.returncode) or 1
            self._stop(f"{place.name} cannot start")
        else:
            if served_seconds is not None and served_seconds >= _STEADY_SECONDS:
                place.backoff.reset()
            wait_seconds = place.backoff.next_seconds()
            place.start_at = time.monotonic() + wait_seconds
            _log.error(
                "process ended and is started again",
                process=place.name,
                pid=process.pid,
                how=how,
                wait_seconds=wait_seconds,
            )

    def _stop(self, reason: str) -> None:
        _log.info("stopping the processes", reason=reason)
        self._stopping = True
        for place in self._places:
            place.start_at = None
            if place.process is not None:
                # One that has ended is known to be ours until it is polled.
                place.process.send_signal(signal.SIGTERM)


def _print(text: bytes) -> None:
    # The group serves on when its output is read no longer.
    with contextlib.suppress(OSError):
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


def _ending_with(parent: int) -> Callable[[], None]:
    """Return what has the kernel send SIGTERM to a new process when its parent dies."""
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _how(returncode: int) -> str:
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _exit_status(returncode: int) -> int:
    """Return what a shell would say of a process."""
    return returncode if returncode >= 0 else 128 - returncode


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket from which the numbers of signals are read that have arrived."""
    reading, writing = socket.socketpair()
    with reading, writing:
        reading.setblocking(False)
        writing.setblocking(False)
        before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        wakeup = signal.set_wakeup_fd(writing.fileno())
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def reserved_ports(addresses: Sequence[str]) -> Iterator[list[str]]:
    """Keep addresses for processes that are to share them. Yield them with their real ports.

    No connection arrives at what is reserved: nothing listens there. Processes of the same user
    may listen on it, if they share it.

    Args:
        addresses: ``host:port`` each; port 0 picks a free one.

    Raises ``OSError`` when one is in use, also by processes that share it among themselves.
    """
    with contextlib.ExitStack() as stack:
        found: list[str] = []
        for address in addresses:
            host, port = split_address(address)
            try:
                with contextlib.ExitStack() as trial:
                    # It fails where a process listens, even if that one shares.
                    port = _bind(trial, host, port, shares=False)
                port = _bind(stack, host, port, shares=True)
            except OSError as error:
                raise cannot_listen(f"{host}:{port}", error) from None
            found.append(f"{host}:{port}")
        yield found


def _bind(stack: contextlib.ExitStack, host: str, port: int, *, shares: bool) -> int:
    """Bind each address of a host, and leave the sockets to ``stack``. Return the port."""
    for family, kind, protocol, _, target in dict.fromkeys(
        socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    ):
        bound = stack.enter_context(socket.socket(family, kind, protocol))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((target[0], port, *target[2:]))
        port = bound.getsockname()[1]
    return port
