"""The nodes of a cluster as processes of this machine: started detached, found again by pid and
start time, stopped, killed.

``DIR/cluster.json`` is the plan (names, roles, ports); ``DIR/NODE/process.json`` says which process
runs it; ``DIR/NODE/log`` is its output. A pid is believed only together with the start time that
the kernel gives for it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pulsarish.local_cluster import node_http
from pulsarish.local_cluster.plan import HOST, NodePlan, service_urls
from pulsarish.local_cluster.zookeeper_words import server_mode
from pulsarish.model.errors import (
    AlreadyExists,
    CorruptData,
    InvalidConfiguration,
    NotAllowedError,
    NotFound,
    ServiceNotReady,
    Timeout,
)
from pulsarish.runtime.modes import DIRECTORY_MODE

__all__ = ["Cluster", "NodeState", "port_taken", "reap_children"]

_READY_SECONDS: Final = 30.0
STOP_TIMEOUT_SECONDS: Final = 20.0
_HEALTH_TIMEOUT_SECONDS: Final = 2.0
_PORT_TIMEOUT_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.02
_LOG_TAIL_LINES: Final = 15
_ROLE_ORDER: Final = {"metadata": 0, "zookeeper": 0, "bookie": 1, "broker": 2, "proxy": 3}
_KEEP_NOTHING: Final = ("broker", "proxy")
_SIGNALS_TO_EACH: Final = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)
"""What a supervisor cannot pass on to its processes."""


@dataclass(slots=True)
class NodeState:
    """What is known of a node now.

    ``health`` is ok, starting, unhealthy (it answers, but cannot serve), or down; ``reason`` is
    what an unhealthy node says of it, or the warnings of one that is ok. A node of several
    processes is ok when all are. ``pid`` is then that of their supervisor, and ``rss_bytes`` their
    sum.
    """

    name: str
    role: str
    pid: int | None
    ports: dict[str, int]
    health: str
    rss_bytes: int
    reason: str = ""
    processes: int = 1


class Cluster:
    """A cluster under one directory.

    Its nodes are late after ``ready_seconds``, times the processes of each.
    """

    def __init__(self, directory: Path, *, ready_seconds: float = _READY_SECONDS) -> None:
        self.directory = directory.absolute()
        self._ready_seconds = ready_seconds

    @property
    def _plan_path(self) -> Path:
        return self.directory / "cluster.json"

    def create(self, nodes: list[NodePlan]) -> None:
        self.directory.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        half = self._plan_path.with_suffix(".part")
        half.write_text(json.dumps([asdict(node) for node in nodes], indent=2))
        half.replace(self._plan_path)

    def exists(self) -> bool:
        return self._plan_path.exists()

    def nodes(self) -> list[NodePlan]:
        """Raises ``NotFound`` when there is no cluster in the directory, ``CorruptData`` when its
        plan cannot be understood.
        """
        try:
            text = self._plan_path.read_text()
        except FileNotFoundError:
            raise NotFound(
                f"there is no cluster under {self.directory}; make one with: pulsarish cluster up "
                f"--dir {self.directory}"
            ) from None
        try:
            nodes = [NodePlan(**node) for node in json.loads(text)]
            if not nodes:
                raise ValueError("no node is in it")
        except (ValueError, TypeError) as error:
            raise CorruptData(
                f"{self._plan_path} is no plan of a cluster ({error}): have it back from a copy, "
                "or give another --dir; processes that run are to be stopped by their pids, "
                "which are in NODE/process.json"
            ) from None
        return nodes

    def change(self, change: Callable[[list[NodePlan]], list[NodePlan]]) -> None:
        """Write another plan. Two processes that change it take turns. Raises as ``nodes``."""
        _ = self.nodes()
        with self._plan_path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.create(change(self.nodes()))

    def staying(self) -> list[NodePlan]:
        """Return the nodes that are to run: all but those whose removal has begun. Raises as
        ``nodes``.
        """
        return [node for node in self.nodes() if not node.is_leaving]

    def node(self, name: str) -> NodePlan:
        nodes = self.nodes()
        for node in nodes:
            if node.name == name:
                return node
        raise NotFound(
            f"there is no node {name!r} in this cluster; its nodes are "
            f"{', '.join(node.name for node in nodes)}"
        )

    def log_path(self, name: str) -> Path:
        return self.directory / name / "log"

    # -- processes

    def pid(self, name: str) -> int | None:
        """The pid of the process that runs a node, or ``None``. Of several processes it is that
        of the supervisor.
        """
        try:
            record = json.loads((self.directory / name / "process.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        pid = int(record["pid"])
        return pid if _start_ticks(pid) == record["start_ticks"] else None

    def start(self, node: NodePlan) -> None:
        """Start the node's process, detached; returns at once.

        Raises ``AlreadyExists`` when it runs, ``NotAllowedError`` when its removal has begun.
        """
        if node.is_leaving:
            raise NotAllowedError(_leaving(node.name))
        if (pid := self.pid(node.name)) is not None:
            raise AlreadyExists(f"{node.name} runs already, as process {pid}")
        home = self.directory / node.name
        home.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        command = [sys.executable, "-m", *node.program, node.role]
        if node.processes > 1:
            command += ["--processes", str(node.processes), "--port-step", str(node.port_step)]
        for setting in [
            *node.settings,
            *([f"data_directory={home / 'data'}"] if node.role not in _KEEP_NOTHING else []),
        ]:
            command += ["--set", setting]
        with self.log_path(node.name).open("ab") as log, _uninterrupted():
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            # First: an earlier child that has ended may have had this pid.
            _children[process.pid] = process
            record = {
                "pid": process.pid,
                "start_ticks": _start_ticks(process.pid),
                "started": time.time(),
            }
            (home / "process.json").write_text(json.dumps(record))

    def send_signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to a node's process, or to each of several; ``False`` when it does not
        run.
        """
        pid = self.pid(name)
        if pid is None:
            return False
        if number in _SIGNALS_TO_EACH:
            _signal_each(_started_by(pid), number)
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False  # it ended since
        return True

    def kill(self, name: str) -> bool:
        """SIGKILL: what a crash of the process, or of all processes of the node, is like.

        Returns when they are gone; ``False`` when it did not run.
        """
        pid = self.pid(name)
        runs = self._end(name, signal.SIGKILL)
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        while pid is not None and (left := _started_by(pid)) and time.monotonic() < deadline:
            # Also one that the supervisor had just started.
            _signal_each(left, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        return runs

    def stop(self, name: str) -> bool:
        """SIGTERM, and SIGKILL if it does not end in time; ``False`` when it did not run."""
        runs = self._end(name, signal.SIGTERM)
        if self.pid(name) is not None:
            self.kill(name)
        return runs

    def stop_gracefully(self, name: str) -> None:
        """SIGTERM and no more.

        Raises ``Timeout`` when the node has not ended in time; it goes on stopping.
        """
        self._end(name, signal.SIGTERM)
        if self.pid(name) is not None:
            raise Timeout(
                f"{name} has not stopped within {STOP_TIMEOUT_SECONDS:.0f} s; "
                f"{self._log_tail(name)}"
            )

    def down(self, say: Callable[[str], None]) -> None:
        """Stop all nodes: brokers first, then bookies, then metadata."""
        nodes = self.nodes()
        for rank in (3, 2, 1, 0):
            group = [node.name for node in nodes if _ROLE_ORDER[node.role] == rank]
            for name in group:
                self.send_signal(name, signal.SIGCONT)
                self.send_signal(name, signal.SIGTERM)
            for name in group:
                if not self._wait_gone(name, STOP_TIMEOUT_SECONDS):
                    say(f"{name} did not stop within {STOP_TIMEOUT_SECONDS:.0f} s and is killed")
                    self.kill(name)

    def _end(self, name: str, number: signal.Signals) -> bool:
        runs = self.send_signal(self.node(name).name, number)
        self._wait_gone(name, STOP_TIMEOUT_SECONDS)
        return runs

    def _wait_gone(self, name: str, timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        while self.pid(name) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    # -- health

    def state(self, node: NodePlan) -> NodeState:
        pid = self.pid(node.name)
        health, reason = ("down", "") if pid is None else self._health(node)
        if node.is_leaving:
            reason = _leaving(node.name)
        return NodeState(
            node.name,
            node.role,
            pid,
            node.ports,
            health,
            self.rss_bytes(node.name),
            reason,
            node.processes,
        )

    def rss_bytes(self, name: str) -> int:
        """Return the memory of a node's process, or of all of its processes; 0: none runs."""
        pid = self.pid(name)
        return 0 if pid is None else sum(_rss_bytes(each) for each in [pid, *_started_by(pid)])

    def _health(self, node: NodePlan) -> tuple[str, str]:
        """The health of a node that runs, and why it is unhealthy, or its warnings. That of a node
        of several processes is the one of the first that is not ok.
        """
        if node.http_port is None:
            return ("ok" if server_mode(node.ports["client"]) else "starting"), ""
        if node.processes == 1:
            return self._process_health(node, node.http_port)
        warnings = []
        for name, ports in node.process_ports.items():
            health, reason = self._process_health(node, ports["http"])
            said = f"{name}: {reason or health}"
            if health != "ok":
                return health, said
            if reason:
                warnings.append(said)
        return "ok", "; ".join(warnings)

    def _process_health(self, node: NodePlan, port: int) -> tuple[str, str]:
        try:
            with node_http.get(
                port,
                "/health",
                trust_file=node.trust_file,
                timeout_seconds=_HEALTH_TIMEOUT_SECONDS,
            ) as answer:
                body = answer.read().decode(errors="replace").strip()
                return "ok" if answer.status == 200 else "unhealthy", _reason_of(
                    answer.status, body
                )
        except ConnectionRefusedError:
            return "starting", ""
        except (OSError, http.client.HTTPException) as error:
            return (
                "unhealthy",
                f"it does not answer at port {port}: {error or type(error).__name__}",
            )

    def wait_ready(self, nodes: Iterable[NodePlan]) -> None:
        """Return when all answer that they can serve.

        Raises with the end of the log of one that ended or is late.
        """
        nodes = list(nodes)
        ready_seconds = self._ready_seconds * max((node.processes for node in nodes), default=1)
        deadline = time.monotonic() + ready_seconds
        for node in nodes:
            while self._health(node)[0] != "ok":
                if self.pid(node.name) is None:
                    raise ServiceNotReady(
                        f"{node.name} ended while starting; {self._log_tail(node.name)}"
                    )
                if time.monotonic() > deadline:
                    raise Timeout(
                        f"{node.name} was not ready within {ready_seconds:.0f} s; "
                        f"{self._log_tail(node.name)}"
                    )
                time.sleep(_POLL_SECONDS)

    def check_ports(self, nodes: Iterable[NodePlan]) -> None:
        """Raises ``InvalidConfiguration`` when another process listens on a port of a node that
        does not run.

        A killed process may hold its ports for a moment longer than it shows among the running.
        """
        deadline = time.monotonic() + _PORT_TIMEOUT_SECONDS
        for node in nodes:
            if self.pid(node.name) is not None:
                continue
            for what, port in node.all_ports.items():
                while port_taken(port) and time.monotonic() < deadline:
                    time.sleep(_POLL_SECONDS)
                if port_taken(port):
                    raise InvalidConfiguration(
                        f"port {port} ({what}) is in use by another process; stop "
                        "that one, or make a cluster on free ports: pulsarish cluster up --dir "
                        "DIR --base-port 0"
                    )

    def up(self) -> None:
        """Start every node that does not run, and return when all can serve.

        Nothing is started when a port is taken.
        """
        nodes = self.staying()
        self.check_ports(nodes)
        first = [node for node in nodes if _ROLE_ORDER[node.role] == 0]
        others = [node for node in nodes if _ROLE_ORDER[node.role] > 0]
        for group in (first, others):
            for node in group:
                if self.pid(node.name) is None:
                    self.start(node)
            self.wait_ready(group)

    def _log_tail(self, name: str) -> str:
        path = self.log_path(name)
        lines = path.read_text(errors="replace").splitlines()
        return f"the end of {path}:\n" + "\n".join(lines[-_LOG_TAIL_LINES:])

    def admin_url(self) -> str:
        """The HTTP addresses of all brokers, as ``--admin-url`` takes them."""
        return service_urls(self.nodes())["http"]

    def service_urls(self) -> dict[str, str]:
        """The addresses for clients; HTTP with one broker, for browsers and other programs."""
        urls = service_urls(self.nodes())
        return {**urls, "http": urls["http"].partition(",")[0]}


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C and SIGTERM off until the block is done: a process that was started is always on
    record, so it can be stopped.

    Handlers rather than a blocked mask, which the new process would inherit. Only the main thread
    gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _frame: arrived.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for arrival in arrived:
            signal.raise_signal(arrival)


# so that a killed child of this very process is reaped
_children: dict[int, subprocess.Popen[bytes]] = {}


def reap_children() -> None:
    """Forget the nodes that this process started and that have ended, for whatever reason."""
    for pid, child in list(_children.items()):
        if child.poll() is not None:
            del _children[pid]


def _started_by(pid: int) -> list[int]:
    """Return the live processes of the session that a node's process leads, without itself."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != pid:
            fields = _stat(int(entry))
            # state, parent, group, session
            if fields and fields[3] == str(pid) and fields[0] != "Z":
                found.append(int(entry))
    return found


def _signal_each(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _stat(pid: int) -> list[str]:
    """Return the fields that the kernel gives for a process, from its state on; empty: there is
    no such process.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()


def _start_ticks(pid: int) -> int | None:
    """When the kernel started this process, in ticks since boot; ``None`` when it is not there or
    only a zombie.
    """
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        return None
    fields = _stat(pid)
    if not fields:
        return None
    if fields[0] != "Z":
        return int(fields[19])
    if child is not None:
        child.wait()  # it ended since it was polled
    return None


def _rss_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def port_taken(port: int) -> bool:
    """Return whether a process of this machine listens on a port."""
    with socket.socket() as probe:
        # As servers do: a connection of the past that lingers does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise
    return False


def _leaving(name: str) -> str:
    return f"{name} is being removed; to finish that: pulsarish cluster remove {name}"


def _reason_of(status: int, body: str) -> str:
    """Return the warnings of a node that is ok, or why it is unhealthy: ``reason`` in the body of
    its answer, or all of it.
    """
    is_ok = status == 200
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return "" if is_ok else body
    return "; ".join(found.get("warnings", [])) if is_ok else str(found.get("reason") or body)
