"""What a connection's protocol, or a callback of the loop, raises ends that connection or what it
works for, and nothing else.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from pulsarish.runtime.contained_protocol import CALLBACKS, ContainedProtocol
from pulsarish.runtime.containment import ScopeKind
from pulsarish.runtime.seams import Tasks
from tests.support.metadata_stores import production
from tests.support.worlds import run_in_production_loop

PACKAGE = Path(__file__).resolve().parents[3] / "pulsarish"

LOOP_CALLS = {
    "broker/subscriptions/subscriptions.py": "one topic's: contained",
    "client/api/asyncio_client.py": "one client's: a move to another cluster that fails is logged",
    "client/api/asyncio_worker.py": "one worker's: forgets a task that ended, which does not raise",
    "client/api/traced_asyncio.py": "one send's: it ends a span, which does not raise",
    "security/basic_provider.py": "one credential's check: it only notes the outcome",
    "security/callers.py": "one credential's check: it only notes the outcome",
    "ledger/add_stream.py": "one bookie's stream: contained",
    "ledger/writer.py": "one ledger's: contained",
    "managed_ledger/appender.py": "one topic's: contained",
    "metadata/daemon/daemon.py": "all connections': contained one by one",
    "metadata/zookeeper/kazoo_bridge.py": (
        "the session's: what fails does not keep the rest from being called"
    ),
    "metadata/zookeeper/pipeline.py": (
        "the session's: what is not sent is not answered, and the session ends by its deadline"
    ),
    "proxy/relayed.py": "forgets a task that ended, which does not raise",
    "runtime/background.py": "a client's own loop: what it calls raises in a future",
    "runtime/framed/framed_connection.py": "closes one connection, which does not raise",
    "runtime/framed/framed_connections.py": "aborts one connection, which does not raise",
    "runtime/framed/framed_stream.py": "one stream's: its owner gets the error",
    "runtime/fresh_credentials.py": "a client's own: the answer of a thread goes to a future",
    "runtime/grpc/connections.py": "the end of one call: it frees what is counted",
    "runtime/grpc/grpc_streams.py": "the end of one stream: it is called once and tells its owner",
    "runtime/grpc/grpclib_streams.py": "aborts one connection, which does not raise",
    "runtime/http.py": "closes one connection, which does not raise",
    "runtime/lanes.py": "the process's: results of a thread go to futures",
    "runtime/loop.py": "the process's own timers",
    "runtime/tasks.py": "the end of a task: this is what contains",
    "testing/local_server.py": "asks the server to stop, which does not raise",
}
"""Modules that have the event loop call something, and what an error there ends.

The loop itself writes a log line and goes on, so each call must contain its errors or be unable to
raise.
"""

TASK_STARTERS = {
    "runtime/tasks.py": "this is what contains",
    "chaos/relay.py": "a tool of tests, in a process of its own",
    "security/basic_provider.py": "the callers that show the credential get its error",
    "security/callers.py": "the caller that shows the credential gets its error",
}
"""Modules that start tasks by asyncio's own means: an error in such a task is noticed by nobody."""


class Defect(Exception):
    """What nobody has thought of."""


class Echo(ContainedProtocol):
    """Sends back what it receives, and raises in the callback that the peer names."""

    def __init__(self, tasks: Tasks, fails_in: str) -> None:
        super().__init__(tasks)
        self.fails_in = fails_in
        self.lost = asyncio.Event()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=1, low=0)
        self.fail("connection_made")

    def data_received(self, data: bytes) -> None:
        self.fail("data_received")
        assert self.transport is not None
        self.transport.write(data * (1_000_000 if self.fails_in.endswith("writing") else 1))

    def eof_received(self) -> None:
        self.fail("eof_received")

    def pause_writing(self) -> None:
        self.fail("pause_writing")

    def resume_writing(self) -> None:
        self.fail("resume_writing")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self.fail("connection_lost")

    def fail(self, callback: str) -> None:
        if callback == self.fails_in:
            self.fails_in = ""
            raise Defect(callback)


@pytest.mark.parametrize(
    "callback",
    [
        "connection_made",
        "data_received",
        "eof_received",
        "pause_writing",
        "resume_writing",
        "connection_lost",
    ],
)
def test_a_callback_that_raises_ends_its_connection_and_is_counted(callback: str) -> None:
    async def scenario() -> None:
        node = production()
        made: list[Echo] = []

        def make() -> Echo:
            made.append(Echo(node.tasks, "" if not made else callback))
            return made[-1]

        listener = await node.connections.serve_bytes("127.0.0.1:0", make)
        host, port = listener.address.rsplit(":", 1)
        good_reader, good_writer = await asyncio.open_connection(host, int(port))
        good_writer.write(b"a")
        assert await good_reader.read(1) == b"a"
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"x" * 10)
        if callback == "eof_received":
            assert await reader.readexactly(10) == b"x" * 10
            writer.write_eof()
        elif callback == "connection_lost":
            assert await reader.readexactly(10) == b"x" * 10
            writer.close()
        try:
            async with asyncio.timeout(30):
                while await reader.read(1 << 16):
                    pass
        except ConnectionResetError:
            pass  # that is an end, too
        async with asyncio.timeout(30):
            await made[1].lost.wait()
        assert node.tasks.contained_failures[ScopeKind.CONNECTION] == 1
        good_writer.write(b"b")
        assert await good_reader.read(1) == b"b"
        good_writer.close()
        writer.close()
        await listener.stop(0)
        await node.close()

    run_in_production_loop(scenario)


def test_an_inherited_callback_is_contained() -> None:
    class Library(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise Defect

    class Ours(ContainedProtocol, Library):
        pass

    class Derived(Ours):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)

    node_tasks = _Counting()
    Ours(cast("Tasks", node_tasks)).data_received(b"")
    Derived(cast("Tasks", node_tasks)).data_received(b"")
    assert node_tasks.failures == ["data_received of Ours", "data_received of Derived"]


class _Counting:
    def __init__(self) -> None:
        self.failures: list[str] = []

    def contain(self, task: str, error: BaseException, scope: object) -> None:
        self.failures.append(task)


# -- the rule


def _trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        if not name.startswith("sim/"):
            yield name, ast.parse(path.read_text())


def _callers(*methods: str) -> set[str]:
    """Modules in which one of these is called."""
    return {
        name
        for name, tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
    }


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for name, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                yield name, node


def _bases(definition: ast.ClassDef) -> set[str]:
    return {
        base.id if isinstance(base, ast.Name) else base.attr
        for base in definition.bases
        if isinstance(base, ast.Name | ast.Attribute)
    }


def test_every_protocol_keeps_its_failures_to_its_connection() -> None:
    contained = {"ContainedProtocol", "ContainedBufferedProtocol"}
    classes = list(_classes())
    for _ in classes:  # until nothing is added: a class may come before its base
        more = {definition.name for _, definition in classes if _bases(definition) & contained}
        if more <= contained:
            break
        contained |= more
    for name, definition in classes:
        callbacks = {
            each.name for each in definition.body if isinstance(each, ast.FunctionDef)
        } & set(CALLBACKS)
        if callbacks and definition.name not in contained:
            pytest.fail(
                f"{name}, line {definition.lineno}: the event loop calls {sorted(callbacks)} of "
                f"{definition.name}. Make it a subclass of ContainedProtocol or "
                "ContainedBufferedProtocol "
                "(runtime/contained_protocol.py): an error in a callback then ends its "
                "connection, and is counted"
            )


def test_what_the_loop_calls_was_reviewed() -> None:
    for name in sorted(
        _callers("call_soon", "call_soon_threadsafe", "call_later", "call_at", "add_done_callback")
        - set(LOOP_CALLS)
    ):
        pytest.fail(
            f"{name} has the event loop call something. An error there ends nothing and is only "
            "logged. Start a task that has a scope (runtime/seams.py:Tasks.spawn), or contain "
            "the errors (Tasks.contain) and add the module to LOOP_CALLS with the reason"
        )


def test_every_task_has_an_owner() -> None:
    for name in sorted(
        _callers("create_task", "ensure_future", "TaskGroup", "start_server", "run_in_executor")
        - set(TASK_STARTERS)
    ):
        pytest.fail(
            f"{name} starts a task by asyncio's own means, and an error in it is noticed by "
            "nobody. Use Tasks.spawn (runtime/seams.py), with the scope that it belongs to"
        )
