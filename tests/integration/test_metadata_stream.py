"""The connection to a metadata server, ended or held at every byte with requests under way: nothing
is answered wrongly or not at all.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from kazoo.client import KazooClient

from pulsarish.metadata.zookeeper.store import ZooKeeperSettings, ZooKeeperStore
from pulsarish.runtime.seams import (
    Conflict,
    ConflictReason,
    Op,
    OutcomeUnknown,
    SessionLost,
    SessionState,
)
from pulsarish.runtime.world import Production
from tests.support.metadata_stores import SERVERS
from tests.support.relay import Fault, Relay

REQUESTS = 3
STORES_AT_ONCE = 24
# Both are longer than a machine may stand still; a test waits for the end of the short one.
SESSION_TIMEOUT_MS = 8_000
LONG_SESSION_MS = 20_000

_roots = itertools.count()


class Reached:
    """A store through a relay, under a root of its own."""

    def __init__(
        self,
        node: Production,
        target: str,
        *,
        piece_bytes: int = 1 << 16,
        timeout_ms: int = LONG_SESSION_MS,
    ) -> None:
        self.relay = Relay(target, piece_bytes)
        self._node = node
        self._timeout_ms = timeout_ms
        self.states: list[SessionState] = []
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Reached:
        await self.relay.start()
        self.store = ZooKeeperStore(
            self.relay.address,
            f"/stream-{next(_roots):04}",
            clock=self._node.clock,
            tasks=self._node.tasks,
            settings=ZooKeeperSettings(session_timeout_ms=self._timeout_ms),
        )
        self.store.listen(self._hear)
        await self.store.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.close()
        await self.relay.close()

    def _hear(self, state: SessionState) -> None:
        self.states.append(state)
        self._changed.set()

    async def until(self, *states: SessionState, since: int = 0) -> None:
        """One of the states was heard of, as the ``since``th or later."""
        while not any(state in states for state in self.states[since:]):
            self._changed.clear()
            await self._changed.wait()


async def ask(store: ZooKeeperStore, prefix: str) -> list[Any]:
    """Creates and a read in one turn; what each came to, in order."""
    asked = [
        store.commit([Op("create", f"{prefix}-{number}", b"data")]) for number in range(REQUESTS)
    ]
    return await asyncio.gather(*asked, store.get_many(["/"]), return_exceptions=True)


async def check_outcomes(store: ZooKeeperStore, prefix: str, outcomes: list[Any]) -> int:
    """How many were answered: the first ones, as they were asked.

    What was answered is there; the rest is there or can be made.
    """
    unknown = [isinstance(outcome, OutcomeUnknown | SessionLost) for outcome in outcomes]
    assert unknown == sorted(unknown), f"answers out of order: {outcomes}"
    for number, (outcome, lost) in enumerate(zip(outcomes[:REQUESTS], unknown, strict=False)):
        path = f"{prefix}-{number}"
        if not lost:
            assert outcome == [path]
        else:
            try:
                assert await store.commit([Op("create", path, b"data")]) == [path]
            except Conflict as conflict:
                if conflict.reason is not ConflictReason.EXISTS:
                    raise
    found = await store.get_many([f"{prefix}-{number}" for number in range(REQUESTS)])
    assert [node.data if node is not None else None for node in found] == [b"data"] * REQUESTS
    return unknown.count(False)


@pytest.mark.parametrize("to_server", [False, True], ids=["answers", "requests"])
@pytest.mark.parametrize("server", SERVERS)
def test_a_stream_that_ends_at_any_byte(server: str, to_server: bool) -> None:
    async def work(node: Production, target: str) -> None:
        async with Reached(node, target) as reached:
            before = reached.relay.passed_bytes[to_server]
            await ask(reached.store, "/at-0000")
            length = reached.relay.passed_bytes[to_server] - before
        positions = iter(range(1, length + 1))
        answered = set[int]()

        async def one() -> None:
            async with Reached(node, target) as reached:
                for position in positions:
                    fault = reached.relay.fault = Fault(to_server, position)
                    session, since = reached.store.session_id, len(reached.states)
                    outcomes = await ask(reached.store, f"/at-{position:04}")
                    await reached.until(SessionState.CONNECTED, since=since)
                    assert fault.met
                    assert reached.states[since:] == [
                        SessionState.SUSPENDED,
                        SessionState.CONNECTED,
                    ]
                    assert reached.store.session_id == session
                    answered.add(
                        await check_outcomes(reached.store, f"/at-{position:04}", outcomes)
                    )

        await asyncio.gather(*(one() for _ in range(STORES_AT_ONCE)))
        if not to_server:
            assert answered == set(range(REQUESTS + 2)), (
                "the stream ended before, between and after all answers"
            )

    SERVERS[server](work)


@pytest.mark.parametrize("server", SERVERS)
def test_a_stream_in_pieces(server: str) -> None:
    async def work(node: Production, target: str) -> None:
        for piece_bytes in (1, 2, 3, 7, 64):
            async with Reached(node, target, piece_bytes=piece_bytes) as reached:
                told: list[str] = []
                await reached.store.children("/", watch=told.append)
                outcomes = await asyncio.gather(
                    *(ask(reached.store, f"/many-{number}") for number in range(20))
                )
                for number, outcome in enumerate(outcomes):
                    assert (
                        await check_outcomes(reached.store, f"/many-{number}", outcome)
                        == REQUESTS + 1
                    )
                assert told == ["/"]
                assert len(await reached.store.children("/")) == 20 * REQUESTS
                assert reached.states == [SessionState.CONNECTED]

    SERVERS[server](work)


@pytest.mark.parametrize("server", SERVERS)
def test_a_stream_that_is_held_until_the_session_ends(server: str) -> None:
    """Held after any of some bytes of the answers: the node's own clock ends the session, and what
    comes later is not heard.
    """

    async def work(node: Production, target: str) -> None:
        async def held(position: int) -> None:
            async with Reached(node, target, timeout_ms=SESSION_TIMEOUT_MS) as reached:
                session, since = reached.store.session_id, len(reached.states)
                reached.relay.fault = Fault(False, position, holds=True)
                outcomes = await ask(reached.store, "/held")
                # kazoo may have given the connection up before.
                assert isinstance(outcomes[-1], SessionLost | OutcomeUnknown)
                await reached.until(SessionState.LOST)
                assert reached.store.session_id == 0
                reached.relay.release()
                await reached.until(SessionState.CONNECTED, since=since)
                assert reached.store.session_id not in (0, session)
                await check_outcomes(reached.store, "/held", outcomes)

        await asyncio.gather(*(held(position) for position in range(1, 100, 9)))

    SERVERS[server](work)


@pytest.mark.parametrize("server", SERVERS)
def test_a_session_that_the_server_ends_with_requests_in_flight(server: str) -> None:
    async def work(node: Production, target: str) -> None:
        async with Reached(node, target) as reached:
            store = reached.store
            session = store.session_id
            assert store._client is not None
            identity = store._client.client_id

            def close_its_session() -> None:
                other = KazooClient(target, client_id=identity)
                other.start()
                other.stop()
                other.close()

            ending = asyncio.get_running_loop().run_in_executor(None, close_its_session)
            rounds: list[list[Any]] = []
            while store.session_id == session and store.state is SessionState.CONNECTED:
                rounds.append(await ask(store, f"/round-{len(rounds)}"))
            await ending
            await reached.until(SessionState.LOST)
            await reached.until(
                SessionState.CONNECTED, since=reached.states.index(SessionState.LOST)
            )
            assert store.session_id not in (0, session)
            for number, outcomes in enumerate(rounds):
                answered = await check_outcomes(store, f"/round-{number}", outcomes)
                assert answered == REQUESTS + 1 or number >= len(rounds) - 1

    SERVERS[server](work)
