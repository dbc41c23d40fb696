"""The call that lists topics by a pattern and waits for changes, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pulsarish.broker.sessions.topic_calls import TopicCalls
from pulsarish.broker.topics.topic_lists import TopicLists, list_hash
from pulsarish.model.errors import AuthorizationError, MetadataUnavailable, error_from_code
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb

PREFIX = "persistent://public/default/"


class Fakes:
    """The namespaces, the metadata, the gate and the callers of one broker."""

    def __init__(self) -> None:
        self.there = {"orders-1", "other"}
        self.visible: frozenset[str] | None = None
        self.refusal: Exception | None = None
        self.failure: Exception | None = None
        self.listings = 0
        self._watches: list[Callable[[str], None]] = []

    def change(self, *names: str, is_reported: bool = True) -> None:
        self.there = set(names)
        if is_reported:
            self.report()

    def report(self) -> None:
        watches, self._watches = self._watches, []
        for watch in watches:
            watch("")

    async def watch_children(self, path: str, watch: Callable[[str], None]) -> list[str]:
        self._watches.append(watch)
        return []

    async def topics(self, tenant: str, namespace: str) -> list[str]:
        self.listings += 1
        if self.failure is not None:
            raise self.failure
        return sorted(PREFIX + name for name in self.there)

    async def partitioned_topics(
        self, tenant: str, namespace: str, *, persistent: bool
    ) -> list[str]:
        return []

    async def partition_counts(self, names: list[object]) -> list[int | None]:
        return []

    async def identify_caller(self, caller: object) -> Any:
        return caller

    async def gate_visible(self, name: str, identity: object, resource: object) -> Any:
        if self.refusal is not None:
            raise self.refusal
        return self.visible


class Scene:
    def __init__(self, world: World) -> None:
        self.fakes = fakes = Fakes()
        self.world = world
        anything: Any = fakes

        async def open_somewhere(tenant: str, namespace: str) -> list[str]:
            return ["non-persistent://public/default/orders-x"]

        self.lists = TopicLists(world, anything, anything, open_somewhere)
        gate: Any = type("Gate", (), {"visible": staticmethod(fakes.gate_visible)})()
        self.calls = TopicCalls(
            clock=world.clock,
            gate=gate,
            callers=anything,
            namespaces=anything,
            lists=self.lists,
        )

    async def ask(self, **request: Any) -> pb.TopicsResponse:
        asked = pb.TopicsRequest(
            **{"namespace": "public/default", "pattern": "public/default/orders-.*", **request}
        )
        caller: Any = "caller"
        answer = await self.calls.list_topics(asked.SerializeToString(), caller)
        return pb.TopicsResponse.FromString(answer)

    def now(self) -> float:
        return self.world.clock.monotonic()


def play(scenario: Callable[[Scene], Awaitable[None]]) -> None:
    sim = Simulation(1)

    async def main() -> None:
        async def inside(world: World) -> None:
            await scenario(Scene(world))

        await sim.node("broker").run(inside)

    sim.run(main, max_virtual_seconds=300)


def full(*names: str) -> list[str]:
    return [PREFIX + name for name in names]


def test_a_waiting_call_is_answered_within_a_second_of_a_change() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.ask()
        assert (list(first.topics), first.hash) == (full("orders-1"), list_hash(full("orders-1")))
        began = scene.now()
        waiting = asyncio.ensure_future(scene.ask(known_hash=first.hash, wait_ms=20_000))
        await scene.world.clock.sleep(5.0)
        scene.fakes.change("orders-1", "other", "more")  # of other topics it hears nothing
        await scene.world.clock.sleep(2.0)
        assert not waiting.done()
        scene.fakes.change("orders-1", "orders-2", "other")
        answer = await waiting
        assert list(answer.topics) == full("orders-1", "orders-2")
        assert scene.now() - began < 8.0
        # and one that waits in vain says that nothing is new
        began = scene.now()
        again = await scene.ask(known_hash=answer.hash, wait_ms=3_000)
        assert (list(again.topics), again.hash) == ([], answer.hash)
        assert 3.0 <= scene.now() - began < 3.5

    play(scenario)


def test_a_change_between_two_calls_is_seen_by_the_second() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.ask()
        scene.fakes.change("orders-1", "orders-2")
        await scene.world.clock.sleep(2.0)
        began = scene.now()
        answer = await scene.ask(known_hash=first.hash, wait_ms=20_000)
        assert list(answer.topics) == full("orders-1", "orders-2")
        assert scene.now() - began < 1.0

    play(scenario)


def test_a_caller_with_a_newer_list_than_the_broker_is_not_sent_the_older_one() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask()
        scene.fakes.change("orders-1", "orders-2", is_reported=False)  # the report is late
        newer = list_hash(full("orders-1", "orders-2"))
        began = scene.now()
        answer = await scene.ask(known_hash=newer, wait_ms=2_000)
        assert (list(answer.topics), answer.hash) == ([], newer)
        assert scene.now() - began >= 2.0

    play(scenario)


def test_a_call_that_does_not_wait_reads_the_list_whatever_was_reported() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.ask()
        scene.fakes.change("orders-2", is_reported=False)
        answer = await scene.ask(known_hash=first.hash)
        assert list(answer.topics) == full("orders-2")

    play(scenario)


def test_calls_that_wait_share_one_listing() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.ask()
        await scene.world.clock.sleep(2.0)
        before = scene.fakes.listings
        for _ in range(3):
            wait = {"known_hash": first.hash, "wait_ms": 1_000}
            _ = await asyncio.gather(*(scene.ask(**wait) for _ in range(20)))
        assert scene.fakes.listings == before

    play(scenario)


def test_pages_belong_to_one_list_if_their_hashes_are_the_same() -> None:
    async def scenario(scene: Scene) -> None:
        scene.fakes.there = {f"orders-{number}" for number in range(5)}
        first = await scene.ask(limit=2)
        second = await scene.ask(limit=2, after=first.topics[-1])
        third = await scene.ask(limit=2, after=second.topics[-1])
        assert [*first.topics, *second.topics, *third.topics] == full(*sorted(scene.fakes.there))
        assert (first.more, second.more, third.more) == (True, True, False)
        assert first.hash == second.hash == third.hash

    play(scenario)


def test_a_role_that_may_see_some_topics_gets_and_awaits_those() -> None:
    async def scenario(scene: Scene) -> None:
        scene.fakes.there = {"orders-1", "orders-2"}
        scene.fakes.visible = frozenset(full("orders-1", "orders-3"))
        first = await scene.ask()
        assert (list(first.topics), first.hash) == (full("orders-1"), list_hash(full("orders-1")))
        waiting = asyncio.ensure_future(scene.ask(known_hash=first.hash, wait_ms=20_000))
        await scene.world.clock.sleep(1.0)
        scene.fakes.change("orders-1", "orders-2", "orders-4")
        await scene.world.clock.sleep(2.0)
        assert not waiting.done()
        scene.fakes.change("orders-1", "orders-2", "orders-3")
        assert list((await waiting).topics) == full("orders-1", "orders-3")

    play(scenario)


def test_who_has_lost_the_right_while_waiting_hears_nothing_more() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.ask()
        waiting = asyncio.ensure_future(scene.ask(known_hash=first.hash, wait_ms=20_000))
        await scene.world.clock.sleep(1.0)
        scene.fakes.refusal = AuthorizationError("no longer")
        scene.fakes.change("orders-1", "orders-2")
        answer = await waiting
        assert (answer.code, list(answer.topics)) == (AuthorizationError.code, [])

    play(scenario)


def test_a_broker_without_metadata_says_so_that_another_one_is_asked() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.ask()
        await scene.world.clock.sleep(2.0)
        scene.fakes.failure = MetadataUnavailable("away")
        scene.fakes.report()
        answer = await scene.ask(known_hash=first.hash, wait_ms=2_000)
        assert error_from_code(answer.code, answer.message).retryable
        scene.fakes.failure = None
        scene.fakes.there = {"orders-1", "orders-2"}  # while no change was reported
        answer = await scene.ask(known_hash=first.hash, wait_ms=20_000)
        assert list(answer.topics) == full("orders-1", "orders-2")

    play(scenario)


def test_a_broker_that_stops_lets_no_call_wait() -> None:
    async def scenario(scene: Scene) -> None:
        first = await scene.ask()
        waiting = asyncio.ensure_future(scene.ask(known_hash=first.hash, wait_ms=20_000))
        await scene.world.clock.sleep(1.0)
        began = scene.now()
        scene.calls.stop()
        for answer in (await waiting, await scene.ask(known_hash=first.hash, wait_ms=20_000)):
            assert (list(answer.topics), answer.hash) == ([], first.hash)
        assert scene.now() - began < 1.0

    play(scenario)


def test_lists_that_no_call_asks_for_are_forgotten() -> None:
    async def scenario(scene: Scene) -> None:
        for number in range(100):
            await scene.ask(pattern=f"public/default/orders-{number}")
        assert len(scene.calls._kept) < 100
        await scene.world.clock.sleep(100.0)
        scene.fakes.change(*(f"orders-{number}" for number in range(100)))
        await scene.world.clock.sleep(2.0)
        assert not scene.calls._kept
        before = scene.fakes.listings
        scene.fakes.change("orders-1")
        await scene.world.clock.sleep(2.0)
        assert scene.fakes.listings == before

    play(scenario)


def test_topics_in_use_that_are_not_kept_are_listed() -> None:
    async def scenario(scene: Scene) -> None:
        answer = await scene.ask(non_persistent=True)
        assert list(answer.topics) == ["non-persistent://public/default/orders-x"]
        again = await scene.ask(non_persistent=True, known_hash=answer.hash)
        assert (list(again.topics), again.hash) == ([], answer.hash)

    play(scenario)


def test_a_wrong_pattern_is_refused() -> None:
    async def scenario(scene: Scene) -> None:
        for pattern in ("(", "x" * 1_001):
            answer = await scene.ask(pattern=pattern)
            assert answer.code
            assert "pattern" in answer.message

    play(scenario)
