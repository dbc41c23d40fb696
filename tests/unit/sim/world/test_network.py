"""What arrives, what does not, and what breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pulsarish.runtime.seams import (
    CallFailed,
    HttpRequest,
    HttpResponse,
    Stream,
    StreamBroken,
    Unreachable,
    World,
)
from pulsarish.security.credentials import Caller
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.stream import SEND_AHEAD_BYTES
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.framing import join_encoded

SEEDS = range(8)


def simulate(scenario: Callable[[Simulation], Coroutine[Any, Any, Any]], seed: int = 0) -> Any:
    sim = Simulation(seed)
    return sim.run(lambda: scenario(sim), 1_000)


async def echo(stream: Stream) -> None:
    while (message := await stream.receive()) is not None:
        await stream.send([message])


async def echo_call(request: bytes, _caller: Caller) -> bytes:
    return request


async def serve_echo(world: World) -> None:
    await world.connections.serve("b:1", {"echo": echo}, {"echo": echo_call})


def client(
    sim: Simulation, work: Callable[[World], Coroutine[Any, Any, Any]]
) -> Coroutine[Any, Any, Any]:
    """Node ``b`` echoes, node ``a`` runs ``work``."""
    sim.node("b")
    sim.node("a")

    async def both() -> Any:
        await sim.nodes["b"].run(serve_echo)
        return await sim.nodes["a"].run(work)

    return both()


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_of_a_stream_stay_in_order(seed: int) -> None:
    async def work(world: World) -> None:
        stream = await world.connections.open("b:1", "echo")
        for number in range(200):
            await stream.send([b"%d" % number])
        await stream.finish()
        for number in range(200):
            assert await stream.receive() == b"%d" % number
        assert await stream.receive() is None

    simulate(lambda sim: client(sim, work), seed)


def test_send_runs_ahead_only_so_far() -> None:
    taken: list[int] = []

    async def hoard(stream: Stream) -> None:
        await asyncio.sleep(10)
        while (message := await stream.receive()) is not None:
            taken.append(len(message))

    async def serve(world: World) -> None:
        await world.connections.serve("b:1", {"hoard": hoard}, {})

    async def work(world: World) -> None:
        stream = await world.connections.open("b:1", "hoard")
        started = world.clock.monotonic()
        sent = 0
        while world.clock.monotonic() - started < 5:
            await stream.send([bytes(256 * 1024)])
            sent += 256 * 1024
            if not taken:
                # Before anything is read, at most the limit and the message that crosses it have
                # been taken.
                assert sent <= SEND_AHEAD_BYTES + 256 * 1024
        assert taken, "a full transport waits for the reader"

    async def scenario(sim: Simulation) -> None:
        await sim.node("b").run(serve)
        await sim.node("a").run(work)

    simulate(scenario)


def test_nobody_there_is_unreachable() -> None:
    async def work(world: World) -> None:
        with pytest.raises(Unreachable):
            await world.connections.open("b:2", "echo")
        with pytest.raises(StreamBroken, match="no such method"):
            await world.connections.open("b:1", "no such method")
        with pytest.raises(Unreachable):
            await world.connections.call("b:2", "echo", b"", timeout_seconds=1)

    simulate(lambda sim: client(sim, work))


def test_a_node_that_refuses_keeps_what_is_open() -> None:
    async def scenario(sim: Simulation) -> None:
        async def work(world: World) -> None:
            stream = await world.connections.open("b:1", "echo")
            sim.network.refuse("b", True)
            with pytest.raises(Unreachable):
                await world.connections.open("b:1", "echo")
            await stream.send([b"still here"])
            assert await stream.receive() == b"still here"
            sim.network.refuse("b", False)
            await world.connections.open("b:1", "echo")

        await client(sim, work)

    simulate(scenario)


def test_a_garbled_message_has_another_bit_in_its_records_only() -> None:
    head = b"\x08\x07"
    message = b"".join(join_encoded(head, [b"record" * 10], 60))

    async def scenario(sim: Simulation) -> None:
        async def work(world: World) -> None:
            stream = await world.connections.open("b:1", "echo")
            sim.network.garble("b", 1.0)
            await stream.send([message])
            found = await stream.receive()
            assert found is not None
            assert found != message
            assert found[: len(message) - 60] == message[: len(message) - 60]
            await stream.send([head])
            assert await stream.receive() == head, (
                "nothing covers the small fields but the transport"
            )
            sim.network.garble("b", 0.0)
            await stream.send([message])
            assert await stream.receive() == message

        await client(sim, work)

    simulate(scenario)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dead_peer_resets(seed: int) -> None:
    async def work(world: World) -> None:
        stream = await world.connections.open("b:1", "echo")
        sim.nodes["b"].crash()
        with pytest.raises(StreamBroken):
            while True:
                await stream.send([b"x"])
                await stream.receive()
        with pytest.raises(Unreachable):
            await world.connections.open("b:1", "echo")

    sim = Simulation(seed)
    sim.run(lambda: client(sim, work), 100)


def test_connections_of_the_dead_are_forgotten() -> None:
    async def work(world: World) -> None:
        for _ in range(3):
            await world.connections.open("b:1", "echo")
        await world.connections.call("b:1", "echo", b"", timeout_seconds=1)

    async def scenario() -> None:
        await client(sim, work)
        sim.nodes["a"].crash()
        sim.nodes["b"].crash()
        await asyncio.sleep(5)
        assert not sim.network._streams

    sim = Simulation(0)
    sim.run(scenario, 100)


def test_a_restarted_peer_is_another_process() -> None:
    async def work(world: World) -> None:
        stream = await world.connections.open("b:1", "echo")
        sim.nodes["b"].restart()
        await sim.nodes["b"].run(serve_echo)
        with pytest.raises(StreamBroken):
            while True:
                await stream.send([b"x"])
                await stream.receive()
        assert await world.connections.call("b:1", "echo", b"again", timeout_seconds=1) == b"again"

    sim = Simulation(0)
    sim.run(lambda: client(sim, work), 100)


def test_a_paused_peer_is_silent_and_then_answers() -> None:
    async def work(world: World) -> None:
        stream = await world.connections.open("b:1", "echo")
        sim.nodes["b"].pause()
        sim.at(50, sim.nodes["b"].resume)
        await stream.send([b"x"])
        with pytest.raises(TimeoutError):
            await world.connections.call("b:1", "echo", b"", timeout_seconds=1)
        assert await stream.receive() == b"x"
        assert sim.loop.time() > 50

    sim = Simulation(0)
    sim.run(lambda: client(sim, work), 100)


@pytest.mark.parametrize(("source", "target"), [("a", "b"), ("b", "a")])
def test_a_cut_is_one_way(source: str, target: str) -> None:
    heard: list[bytes] = []

    async def note(request: bytes, _caller: Caller) -> bytes:
        heard.append(request)
        return b""

    async def serve(world: World) -> None:
        await world.connections.serve("b:1", {}, {"note": note})

    async def listening(stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            heard.append(message)

    async def serve_stream(world: World) -> None:
        await world.connections.serve("b:2", {"listen": listening}, {})

    async def work(world: World) -> None:
        stream = await world.connections.open("b:2", "listen")
        sim.network.cut(source, target)
        await stream.send([b"streamed"])
        with pytest.raises(TimeoutError):
            await world.connections.call("b:1", "note", b"called", timeout_seconds=5)
        await world.clock.sleep(5)
        # Connecting takes both ways, an open stream only one.
        assert heard == ([b"streamed"] if (source, target) == ("b", "a") else [])
        sim.network.heal(source, target)
        await world.clock.sleep(5)
        assert await world.connections.call("b:1", "note", b"called", timeout_seconds=5) == b""

    async def scenario() -> None:
        await sim.node("b").run(serve)
        await sim.nodes["b"].run(serve_stream)
        sim.nodes["b"].expect(StreamBroken)
        await sim.node("a").run(work)

    sim = Simulation(0)
    sim.run(scenario, 100)


def test_after_a_partition_some_streams_are_dead_and_some_go_on() -> None:
    def survives(seed: int) -> bool:
        async def work(world: World) -> bool:
            stream = await world.connections.open("b:1", "echo")
            sim.network.partition(["a"], ["b"])
            await stream.send([b"x"])
            await world.clock.sleep(5)
            sim.network.heal_all()
            try:
                return await stream.receive() == b"x"
            except StreamBroken:
                return False

        sim = Simulation(seed)
        return bool(sim.run(lambda: client(sim, work), 100))

    outcomes = [survives(seed) for seed in range(20)]
    assert True in outcomes
    assert False in outcomes


@pytest.mark.parametrize("seed", SEEDS)
def test_a_clogged_link_delays_and_loses_nothing(seed: int) -> None:
    async def work(world: World) -> None:
        stream = await world.connections.open("b:1", "echo")
        sim.network.clog("a", "b")
        for number in range(10):
            await stream.send([b"%d" % number])
        sim.at(20, sim.network.heal_all)
        for number in range(10):
            assert await stream.receive() == b"%d" % number
        assert sim.loop.time() > 20

    sim = Simulation(seed)
    sim.run(lambda: client(sim, work), 100)


@pytest.mark.parametrize("seed", range(20))
def test_a_partition_leaves_no_gap_in_a_stream(seed: int) -> None:
    heard: list[int] = []

    async def note(stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            heard.append(int(message))

    async def serve(world: World) -> None:
        await world.connections.serve("b:1", {"note": note}, {})

    async def work(world: World) -> None:
        stream = await world.connections.open("b:1", "note")
        sim.at(1, lambda: sim.network.cut("a", "b"))
        sim.at(2, sim.network.heal_all)
        try:
            for number in range(500):
                await stream.send([b"%d" % number])
                await world.clock.sleep(0.01)
        except StreamBroken:
            assert sim.loop.time() > 2

    async def scenario() -> None:
        await sim.node("b").run(serve)
        await sim.node("a").run(work)
        await asyncio.sleep(1)
        assert heard == list(range(len(heard)))
        assert len(heard) > 50

    sim = Simulation(seed)
    sim.run(scenario, 100)


@pytest.mark.parametrize("hold", ["cut", "clog"])
def test_a_connection_that_waits_at_a_closed_link_is_made_when_it_opens(hold: str) -> None:
    async def work(world: World) -> None:
        getattr(sim.network, hold)("a", "b")
        sim.at(3, sim.network.heal_all)
        await world.connections.open("b:1", "echo")
        assert 3 < sim.loop.time() < 4

    sim = Simulation(0)
    sim.run(lambda: client(sim, work), 100)


def test_a_connection_that_hears_nothing_gives_up() -> None:
    async def work(world: World) -> None:
        sim.network.cut("b", "a")
        with pytest.raises(StreamBroken, match="no answer"):
            await world.connections.open("b:1", "echo")

    sim = Simulation(0)
    sim.run(lambda: client(sim, work), 100)


def test_abort_breaks_both_ends_and_pending_receives() -> None:
    ends: list[str] = []

    async def waits(stream: Stream) -> None:
        try:
            await stream.receive()
        except StreamBroken:
            ends.append("server")
            raise

    async def serve(world: World) -> None:
        await world.connections.serve("b:1", {"waits": waits}, {})

    async def work(world: World) -> None:
        stream = await world.connections.open("b:1", "waits")

        async def receive() -> None:
            with pytest.raises(StreamBroken):
                await stream.receive()
            ends.append("client")

        task = world.tasks.spawn(receive(), name="receive")
        await world.clock.sleep(1)
        stream.abort("enough")
        await task
        await world.clock.sleep(1)
        with pytest.raises(StreamBroken):
            await stream.send([b"x"])

    async def scenario(sim: Simulation) -> None:
        await sim.node("b").run(serve)
        await sim.node("a").run(work)

    simulate(scenario)
    assert sorted(ends) == ["client", "server"]


def test_a_call_that_raises_fails_for_its_caller() -> None:
    async def raises(request: bytes, _caller: Caller) -> bytes:
        raise ValueError("no such thing")

    async def serve(world: World) -> None:
        await world.connections.serve("b:1", {}, {"raises": raises})

    async def work(world: World) -> None:
        with pytest.raises(CallFailed, match="no such thing"):
            await world.connections.call("b:1", "raises", b"", timeout_seconds=1)

    async def scenario(sim: Simulation) -> None:
        sim.node("b").expect(ValueError)
        await sim.nodes["b"].run(serve)
        await sim.node("a").run(work)

    simulate(scenario)


def test_a_call_to_a_server_that_dies_is_broken() -> None:
    async def slow(request: bytes, _caller: Caller) -> bytes:
        await asyncio.sleep(100)
        return b""

    async def serve(world: World) -> None:
        await world.connections.serve("b:1", {}, {"slow": slow})

    async def work(world: World) -> None:
        with pytest.raises(StreamBroken):
            await world.connections.call("b:1", "slow", b"", timeout_seconds=50)

    async def scenario(sim: Simulation) -> None:
        await sim.node("b").run(serve)
        sim.at(1, sim.nodes["b"].crash)
        await sim.node("a").run(work)

    simulate(scenario)


def test_a_stopped_listener_takes_no_more_and_breaks_what_is_open() -> None:
    async def stop(world: World) -> None:
        listener = await world.connections.serve("b:0", {"echo": echo}, {})

        async def work(other: World) -> None:
            stream = await other.connections.open(listener.address, "echo")
            await stream.send([b"x"])
            assert await stream.receive() == b"x"
            await other.clock.sleep(1)
            with pytest.raises(Unreachable):
                await other.connections.open(listener.address, "echo")
            with pytest.raises(StreamBroken):
                await stream.receive()

        async def at_the_client() -> None:
            await sim.nodes["a"].run(work)

        done = asyncio.ensure_future(at_the_client())
        await world.clock.sleep(0.5)
        await listener.stop(5)
        await done

    async def scenario() -> None:
        sim.node("a")
        await sim.node("b").run(stop)

    sim = Simulation(0)
    sim.run(scenario, 100)


def test_a_port_in_use_is_refused_until_its_holder_is_dead() -> None:
    async def scenario(sim: Simulation) -> None:
        node = sim.node("b")
        await node.run(serve_echo)
        with pytest.raises(OSError, match="in use"):
            await node.run(serve_echo)
        node.restart()
        await node.run(serve_echo)

    simulate(scenario)


def test_http() -> None:
    async def answer(request: HttpRequest) -> HttpResponse:
        if request.path == "/bad":
            raise ValueError("no")
        return HttpResponse(
            201, request.method.encode() + request.body, headers={"x": request.query["q"]}
        )

    async def serve(world: World) -> None:
        await world.connections.serve_http("b:8080", answer)

    async def work(world: World) -> None:
        assert isinstance(world.connections, SimConnections)
        got = await world.connections.http(
            "b:8080", HttpRequest("GET", "/x", {"q": "1"}, {}, b"body")
        )
        assert got == HttpResponse(201, b"GETbody", headers={"x": "1"})
        assert (
            await world.connections.http("b:8080", HttpRequest("GET", "/bad", {}, {}, b""))
        ).status == 500

    async def scenario(sim: Simulation) -> None:
        sim.node("b").expect(ValueError)
        await sim.nodes["b"].run(serve)
        await sim.node("a").run(work)

    simulate(scenario)


class _Collect(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = bytearray()
        self.pieces = 0
        self.lost: list[Exception | None] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.pieces += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class _EchoBytes(_Collect):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        assert self.transport is not None
        self.transport.write(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_come_in_order_in_pieces_of_any_size(seed: int) -> None:
    servers: list[_EchoBytes] = []

    def factory() -> _EchoBytes:
        servers.append(_EchoBytes())
        return servers[-1]

    async def serve(world: World) -> None:
        await world.connections.serve_bytes("b:6650", factory)

    sent = bytes(range(256)) * 800

    async def work(world: World) -> None:
        assert isinstance(world.connections, SimConnections)
        protocol = await world.connections.open_bytes("b:6650", _Collect)
        assert isinstance(protocol, _Collect)
        transport = protocol.transport
        assert transport is not None
        transport.write(sent)
        while len(protocol.data) < len(sent):
            await world.clock.sleep(0.01)
        transport.close()
        await world.clock.sleep(1)
        assert protocol.data == sent
        assert protocol.pieces > 1
        assert protocol.lost == [None]
        assert servers[0].lost == [None]

    async def scenario(sim: Simulation) -> None:
        await sim.node("b").run(serve)
        await sim.node("a").run(work)

    simulate(scenario, seed)


def test_a_byte_connection_to_a_dead_node_is_lost() -> None:
    async def serve(world: World) -> None:
        await world.connections.serve_bytes("b:6650", _EchoBytes)

    async def work(world: World) -> None:
        assert isinstance(world.connections, SimConnections)
        protocol = await world.connections.open_bytes("b:6650", _Collect)
        assert isinstance(protocol, _Collect)
        sim.nodes["b"].crash()
        await world.clock.sleep(1)
        assert isinstance(protocol.lost[0], ConnectionResetError)

    async def scenario() -> None:
        await sim.node("b").run(serve)
        await sim.node("a").run(work)

    sim = Simulation(0)
    sim.run(scenario, 100)
