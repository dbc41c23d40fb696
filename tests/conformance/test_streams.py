"""What every ``Connections``, ``Stream`` and ``Listener`` promises."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest

from pulsarish.runtime.network.addresses import plain_address
from pulsarish.runtime.seams import (
    FINISH,
    Buffer,
    CallFailed,
    CallHandler,
    Listener,
    Stream,
    StreamBroken,
    StreamHandler,
    Unreachable,
    World,
)
from pulsarish.runtime.version import program_name
from pulsarish.runtime.wake_signal import WakeSignal
from pulsarish.security.credentials import Caller
from tests.support.worlds import Env, Scenario


async def _serve(
    env: Env,
    streams: Mapping[str, StreamHandler],
    calls: Mapping[str, CallHandler] | None = None,
    *,
    name: str = "server",
) -> Listener:
    async def work(world: World) -> Listener:
        return await world.connections.serve(env.listen_on(name), streams, calls or {})

    return await env.on(name, work)


async def _echo(stream: Stream) -> None:
    while (message := await stream.receive()) is not None:
        await stream.send([message])


async def _drain(stream: Stream) -> list[bytes]:
    messages = []
    while (message := await stream.receive()) is not None:
        messages.append(message)
    return messages


async def messages_are_whole_and_in_order(env: Env) -> None:
    listener = await _serve(env, {"t.echo": _echo})
    sent = [b"", b"x", b"\0" * 5, b"last"] + [
        b"%d" % number * (number % 50) for number in range(500)
    ]

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.echo")

        async def send() -> None:
            for message in sent:
                # In parts of every kind of buffer, which arrive joined.
                await stream.send([memoryview(message)[:1], bytearray(message[1:3]), message[3:]])
            await stream.send([])
            await stream.finish()

        _, received = await asyncio.gather(send(), _drain(stream))
        assert received == [*sent, b""]

    await env.on("client", client)


async def big_messages_pass(env: Env) -> None:
    listener = await _serve(env, {"t.echo": _echo})
    block = bytes(range(256)) * 4_096  # 1 MB

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.echo")

        async def send() -> None:
            for size in (1, 9, 3):
                await stream.send([block] * size)
            await stream.finish()

        _, received = await asyncio.gather(send(), _drain(stream))
        assert received == [block, block * 9, block * 3]

    await env.on("client", client)


async def the_client_may_finish_first(env: Env) -> None:
    async def sum_up(stream: Stream) -> None:
        received = await _drain(stream)
        assert await stream.receive() is None  # forever
        # The other direction is still open.
        await stream.send([b"+".join(received)])
        await stream.finish()

    listener = await _serve(env, {"t.sum": sum_up})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.sum")
        await stream.send([b"1"])
        await stream.send([b"2"])
        await stream.finish()
        assert await stream.receive() == b"1+2"
        assert await stream.receive() is None
        assert await stream.receive() is None

    await env.on("client", client)


async def the_server_may_finish_first(env: Env) -> None:
    async def talk(stream: Stream) -> None:
        for number in range(100):
            await stream.send([b"%d" % number])
        await stream.finish()

    async def leave(stream: Stream) -> None:
        await stream.send([b"bye"])  # returning finishes

    listener = await _serve(env, {"t.talk": talk, "t.leave": leave})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.talk")
        # What was sent before the end is received, however late one looks.
        await world.clock.sleep(0.2)
        assert await _drain(stream) == [b"%d" % number for number in range(100)]
        with pytest.raises(StreamBroken):
            while True:
                await stream.send([b"nobody reads this"])
        assert await _drain(await world.connections.open(listener.address, "t.leave")) == [b"bye"]

    await env.on("client", client)


async def a_clients_abort_wakes_both_ends(env: Env) -> None:
    outcomes: list[str] = []
    ended = asyncio.Event()

    async def hold(stream: Stream) -> None:
        try:
            await _drain(stream)
            outcomes.append("server: finished")
        except StreamBroken:
            outcomes.append("server: broken")
            with pytest.raises(StreamBroken):
                await stream.send([b"late"])
        ended.set()

    listener = await _serve(env, {"t.hold": hold})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.hold")
        await stream.send([b"here"])

        async def read() -> None:
            with pytest.raises(StreamBroken, match="silence"):
                await stream.receive()
            outcomes.append("client: broken")

        async def abort() -> None:
            await world.clock.sleep(0.05)
            stream.abort("silence")
            stream.abort("twice is once")

        await asyncio.gather(read(), abort())
        for operation in (stream.receive, lambda: stream.send([b"late"])):
            with pytest.raises(StreamBroken):
                await operation()
        await stream.finish()  # no error: it is over anyway
        await ended.wait()
        assert sorted(outcomes) == ["client: broken", "server: broken"]

    await env.on("client", client)


async def a_servers_abort_wakes_both_ends(env: Env) -> None:
    outcomes: list[str] = []

    async def refuse(stream: Stream) -> None:
        assert await stream.receive() == b"please"
        stream.abort("fenced")
        with pytest.raises(StreamBroken, match="fenced"):
            await stream.receive()
        with pytest.raises(StreamBroken, match="fenced"):
            await stream.send([b"late"])
        outcomes.append("server: broken")

    listener = await _serve(env, {"t.refuse": refuse})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.refuse")
        await stream.send([b"please"])
        with pytest.raises(StreamBroken):
            await stream.receive()
        with pytest.raises(StreamBroken):
            await stream.send([b"again"])
        assert outcomes == ["server: broken"]

    await env.on("client", client)


async def abort_ends_a_send_that_flow_control_holds(env: Env) -> None:
    never = asyncio.Event()
    ended = asyncio.Event()

    async def deaf(stream: Stream) -> None:
        await never.wait()

    async def flood(stream: Stream) -> None:
        with pytest.raises(StreamBroken):
            while True:
                await stream.send([bytes(1 << 20)])
        ended.set()

    async def flood_and_abort(stream: Stream) -> None:
        worlds[0].tasks.spawn(abort_soon(stream), name="abort")
        await flood(stream)

    async def abort_soon(stream: Stream) -> None:
        await worlds[0].clock.sleep(0.3)
        stream.abort("too slow")

    worlds: list[World] = []

    async def serve(world: World) -> Listener:
        worlds.append(world)
        return await world.connections.serve(
            env.listen_on("server"), {"t.deaf": deaf, "t.flood": flood_and_abort}, {}
        )

    listener = await env.on("server", serve)

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.deaf")
        sent_count = 0

        async def send() -> None:
            nonlocal sent_count
            with pytest.raises(StreamBroken, match="gave up"):
                while True:
                    await stream.send([bytes(1 << 20)])
                    sent_count += 1

        async def give_up() -> None:
            before = 0
            while not sent_count or sent_count > before:
                before = sent_count
                await world.clock.sleep(0.3)
            stream.abort("gave up")

        await asyncio.gather(send(), give_up())
        # A transport takes some megabytes ahead of the reader, never all that it is given.
        assert 1 <= sent_count <= 64
        # The same from the server's side, while this client does not read.
        stream = await world.connections.open(listener.address, "t.flood")
        await ended.wait()
        stream.abort("done")
        never.set()

    await env.on("client", client)


async def a_handlers_exception_breaks_its_stream(env: Env) -> None:
    env.expect("server", ValueError)

    async def fail(stream: Stream) -> None:
        await stream.receive()
        raise ValueError("no such thing")

    listener = await _serve(env, {"t.fail": fail, "t.echo": _echo})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.fail")
        await stream.send([b"x"])
        with pytest.raises(StreamBroken):
            await stream.receive()
        # Others go on.
        other = await world.connections.open(listener.address, "t.echo")
        await other.send([b"x"])
        assert await other.receive() == b"x"
        other.abort("done")

    await env.on("client", client)


async def a_peers_death_breaks_its_streams(env: Env) -> None:
    listener = await _serve(env, {"t.echo": _echo})

    async def client(world: World) -> None:
        streams = [
            await world.connections.open(listener.address, "t.echo", lane=lane)
            for lane in ("", "", "other")
        ]
        for stream in streams:
            await stream.send([b"x"])
            assert await stream.receive() == b"x"

        async def read(stream: Stream) -> None:
            with pytest.raises(StreamBroken):
                await stream.receive()
            with pytest.raises(StreamBroken):
                await stream.send([b"x"])

        await asyncio.gather(*(read(stream) for stream in streams), env.crash("server"))
        # The process is not there any more, and that is known at once.
        with pytest.raises(Unreachable):
            await world.connections.open(listener.address, "t.echo")
        with pytest.raises(Unreachable):
            await world.connections.call(listener.address, "t.any", b"", timeout_seconds=30)

    await env.on("client", client)


async def a_clients_death_breaks_its_streams(env: Env) -> None:
    outcomes: list[str] = []
    ended = asyncio.Event()
    opened = asyncio.Event()

    async def hold(stream: Stream) -> None:
        opened.set()
        try:
            await _drain(stream)
            outcomes.append("finished")
        except StreamBroken:
            outcomes.append("broken")
        ended.set()

    listener = await _serve(env, {"t.hold": hold})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.hold")
        await stream.send([b"x"])
        await opened.wait()

    async def watch(world: World) -> None:
        await env.crash("client")
        await ended.wait()
        assert outcomes == ["broken"]

    await env.on("client", client)
    await env.on("watcher", watch)


class _Feeder:
    """Messages that wait to be sent, as an owner of a stream has them."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.signal = WakeSignal()
        self.is_last = False
        self.taken = 0

    def put(self, message: bytes) -> None:
        self.waiting.append(message)
        self.signal.set()

    def end(self) -> None:
        self.is_last = True
        self.signal.set()

    def next_message(self) -> Sequence[Buffer] | None:
        if self.waiting:
            self.taken += 1
            return [self.waiting.popleft()]
        return FINISH if self.is_last else None


async def fed_messages_are_delivered_in_order(env: Env) -> None:
    sent = [b"%d" % number * (number % 300) for number in range(1_000)]

    async def echo(stream: Stream) -> None:
        feeder = _Feeder()
        feeding = asyncio.create_task(stream.feed(feeder.next_message, feeder.signal))
        await stream.deliver(feeder.put)
        feeder.end()
        await feeding

    listener = await _serve(env, {"t.echo": echo})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.echo")
        feeder, received = _Feeder(), list[bytes]()

        async def publish() -> None:
            for number, message in enumerate(sent):
                feeder.put(message)
                if number % 7 == 0:
                    await asyncio.sleep(0)
            feeder.end()

        await asyncio.gather(
            stream.feed(feeder.next_message, feeder.signal),
            stream.deliver(received.append),
            publish(),
        )
        assert received == sent

    await env.on("client", client)


async def what_a_delivery_leaves_is_awaited_before_the_next(env: Env) -> None:
    handled: list[str] = []

    async def slow(stream: Stream) -> None:
        async def work(message: bytes) -> None:
            handled.append(f"begins {message.decode()}")
            await asyncio.sleep(0.01)
            handled.append(f"ends {message.decode()}")

        def on_message(message: bytes) -> Awaitable[None] | None:
            if int(message) % 3 == 0:
                return work(message)
            handled.append(message.decode())
            return None

        await stream.deliver(on_message)
        await stream.send([b"done"])

    listener = await _serve(env, {"t.slow": slow})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.slow")
        for number in range(10):
            await stream.send([b"%d" % number])
            await asyncio.sleep(0.002 * (number % 2))
        await stream.finish()
        assert await stream.receive() == b"done"

    await env.on("client", client)
    assert handled == [
        said
        for number in range(10)
        for said in ([f"begins {number}", f"ends {number}"] if number % 3 == 0 else [str(number)])
    ]


async def what_the_owners_functions_raise_reaches_the_owner(env: Env) -> None:
    raised: list[str] = []

    async def fail(stream: Stream) -> None:
        def on_message(message: bytes) -> None:
            if message == b"3":
                raise LookupError("in the delivery")

        def next_message() -> Sequence[Buffer] | None:
            raise LookupError("in the feed")

        for work in (stream.deliver(on_message), stream.feed(next_message, WakeSignal())):
            try:
                await work
            except LookupError as error:
                raised.append(str(error))
        await stream.send([b"done"])

    listener = await _serve(env, {"t.fail": fail})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.fail")
        for number in range(4):
            await stream.send([b"%d" % number])
            await asyncio.sleep(0.001)
        assert await stream.receive() == b"done"

    await env.on("client", client)
    assert raised == ["in the delivery", "in the feed"]


async def a_break_ends_the_delivery_and_the_feed(env: Env) -> None:
    reasons: list[str] = []
    over = asyncio.Event()

    async def wait(stream: Stream) -> None:
        feeder = _Feeder()
        feeder.put(b"ready")
        feeding = asyncio.create_task(stream.feed(feeder.next_message, feeder.signal))
        try:
            await stream.deliver(lambda _message: None)
        except StreamBroken as broken:
            reasons.append(str(broken))
        feeder.put(b"too late")
        try:
            await feeding
        except StreamBroken as broken:
            reasons.append(str(broken))
        over.set()

    listener = await _serve(env, {"t.wait": wait})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.wait")
        assert await stream.receive() == b"ready"
        stream.abort("enough")
        async with world.clock.timeout(10):
            await over.wait()

    await env.on("client", client)
    assert len(reasons) == 2


async def a_feed_waits_for_a_peer_that_takes_nothing(env: Env) -> None:
    block = bytes(1 << 20)
    count = 200
    feeder = _Feeder()

    async def flood(stream: Stream) -> None:
        for _ in range(count):
            feeder.put(block)
        feeder.end()
        await stream.feed(feeder.next_message, feeder.signal)

    listener = await _serve(env, {"t.flood": flood})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.flood")
        assert await stream.receive() == block
        await world.clock.sleep(0.5)
        assert feeder.taken < count / 2
        received = await _drain(stream)
        assert received == [block] * (count - 1)

    await env.on("client", client)


async def nobody_listens(env: Env) -> None:
    address = await env.unused_address()

    async def client(world: World) -> None:
        # Again and again at the same speed: no back-off of the transport stands between the caller
        # and the truth.
        for _ in range(3):
            with pytest.raises(Unreachable):
                await world.connections.open(address, "t.echo")
            with pytest.raises(Unreachable):
                await world.connections.call(address, "t.echo", b"", timeout_seconds=30)

    await env.on("client", client)


async def a_restarted_server_is_found_again(env: Env) -> None:
    listener = await _serve(env, {"t.echo": _echo})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.echo")
        await env.crash("server")
        with pytest.raises(StreamBroken):
            await stream.receive()
        with pytest.raises(Unreachable):
            await world.connections.open(listener.address, "t.echo")

        async def again(server: World) -> None:
            await server.connections.serve(listener.address, {"t.echo": _echo}, {})

        await env.on("server", again)
        stream = await world.connections.open(listener.address, "t.echo")
        await stream.send([b"x"])
        assert await stream.receive() == b"x"
        stream.abort("done")

    await env.on("client", client)


async def an_unknown_method_is_refused(env: Env) -> None:
    listener = await _serve(env, {"t.echo": _echo})

    async def client(world: World) -> None:
        with pytest.raises(StreamBroken) as caught:
            await world.connections.open(listener.address, "t.none")
        assert not isinstance(caught.value, Unreachable)

    await env.on("client", client)


async def a_stream_that_its_handler_ends_at_once_was_accepted(env: Env) -> None:
    async def leave(_stream: Stream) -> None:
        """Return, which finishes."""

    listener = await _serve(env, {"t.leave": leave})

    async def client(world: World) -> None:
        for _ in range(20):
            stream = await world.connections.open(listener.address, "t.leave")
            assert await stream.receive() is None

    await env.on("client", client)


async def a_port_in_use_is_refused(env: Env) -> None:
    listener = await _serve(env, {"t.echo": _echo})

    plain = plain_address(listener.address)

    async def second(world: World) -> None:
        with pytest.raises(OSError, match=plain):
            await world.connections.serve(listener.address, {}, {})
        with pytest.raises(OSError, match=plain):
            await world.connections.serve_bytes(plain, asyncio.Protocol)

    await env.on("server", second)


async def lanes_do_not_wait_for_each_other(env: Env) -> None:
    never = asyncio.Event()

    async def deaf(stream: Stream) -> None:
        await never.wait()

    async def answer(request: bytes, _caller: Caller) -> bytes:
        return request

    listener = await _serve(env, {"t.deaf": deaf, "t.echo": _echo}, {"t.answer": answer})

    async def client(world: World) -> None:
        bulk = await world.connections.open(listener.address, "t.deaf", lane="bulk")

        async def flood() -> None:
            with pytest.raises(StreamBroken):
                while True:
                    await bulk.send([bytes(1 << 20)])

        async def talk() -> None:
            stream = await world.connections.open(listener.address, "t.echo", lane="small")
            for number in range(100):
                await stream.send([b"%d" % number])
                assert await stream.receive() == b"%d" % number
                answered = await world.connections.call(
                    listener.address, "t.answer", b"%d" % number, timeout_seconds=30
                )
                assert answered == b"%d" % number
            stream.abort("done")
            bulk.abort("done")
            never.set()

        await asyncio.gather(flood(), talk())

    await env.on("client", client)


async def calls_are_answered(env: Env) -> None:
    async def double(request: bytes, _caller: Caller) -> bytes:
        return request * 2

    listener = await _serve(env, {}, {"t.double": double})

    async def client(world: World) -> None:
        call = world.connections.call
        assert await call(listener.address, "t.double", b"", timeout_seconds=30) == b""
        big = b"0123456789" * 300_000
        assert await call(listener.address, "t.double", big, timeout_seconds=30) == big * 2
        requests = [b"%d" % number for number in range(300)]
        answers = await asyncio.gather(
            *(
                call(listener.address, "t.double", request, timeout_seconds=30)
                for request in requests
            )
        )
        assert answers == [request * 2 for request in requests]

    await env.on("client", client)


async def a_call_that_takes_too_long_times_out(env: Env) -> None:
    may_finish, finished = asyncio.Event(), asyncio.Event()

    async def slow(request: bytes, _caller: Caller) -> bytes:
        await may_finish.wait()
        finished.set()
        return request

    listener = await _serve(env, {}, {"t.slow": slow})

    async def client(world: World) -> None:
        with pytest.raises(TimeoutError):
            await world.connections.call(listener.address, "t.slow", b"x", timeout_seconds=0.1)
        # The handler is not cut off in the middle because its caller has left.
        may_finish.set()
        await finished.wait()
        assert (
            await world.connections.call(listener.address, "t.slow", b"y", timeout_seconds=30)
            == b"y"
        )

    await env.on("client", client)


async def a_failing_call_carries_its_text(env: Env) -> None:
    env.expect("server", ValueError)

    async def fail(request: bytes, _caller: Caller) -> bytes:
        raise ValueError(f"50% of {request.decode()}: ünknown")

    async def work(request: bytes, _caller: Caller) -> bytes:
        return request

    listener = await _serve(env, {}, {"t.fail": fail, "t.work": work})

    async def client(world: World) -> None:
        with pytest.raises(CallFailed, match="50% of it: ünknown"):
            await world.connections.call(listener.address, "t.fail", b"it", timeout_seconds=30)
        assert (
            await world.connections.call(listener.address, "t.work", b"x", timeout_seconds=30)
            == b"x"
        )

    await env.on("client", client)


async def a_stopped_listener_refuses(env: Env) -> None:
    listener = await _serve(env, {"t.echo": _echo})

    async def stop(world: World) -> None:
        await listener.stop(0)

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.echo")

        async def read() -> None:
            with pytest.raises(StreamBroken):
                await stream.receive()

        await asyncio.gather(read(), env.on("server", stop))
        with pytest.raises(Unreachable):
            await world.connections.open(listener.address, "t.echo")

    await env.on("client", client)


async def a_stopping_listener_lets_streams_end(env: Env) -> None:
    listener = await _serve(env, {"t.echo": _echo})

    async def stop(world: World) -> None:
        await listener.stop(30)

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.echo")

        async def end() -> None:
            await world.clock.sleep(0.1)
            with pytest.raises(StreamBroken):
                await world.connections.open(listener.address, "t.echo", lane="new")
            await stream.send([b"x"])
            assert await stream.receive() == b"x"
            await stream.finish()
            assert await stream.receive() is None

        await asyncio.gather(end(), env.on("server", stop))

    await env.on("client", client)


async def the_server_hears_what_the_client_calls_itself(env: Env) -> None:
    heard: list[str] = []

    async def answer(stream: Stream) -> None:
        heard.append(stream.caller.program)
        await _echo(stream)

    listener = await _serve(env, {"t.answer": answer})

    async def client(world: World) -> None:
        stream = await world.connections.open(listener.address, "t.answer")
        assert stream.caller.program == ""
        await stream.send([b"x"])
        assert await stream.receive() == b"x"
        await stream.finish()

    await env.on("client", client)
    assert heard == [program_name()]


SCENARIOS = [
    messages_are_whole_and_in_order,
    big_messages_pass,
    the_client_may_finish_first,
    the_server_may_finish_first,
    a_clients_abort_wakes_both_ends,
    a_servers_abort_wakes_both_ends,
    abort_ends_a_send_that_flow_control_holds,
    a_handlers_exception_breaks_its_stream,
    a_peers_death_breaks_its_streams,
    a_clients_death_breaks_its_streams,
    fed_messages_are_delivered_in_order,
    what_a_delivery_leaves_is_awaited_before_the_next,
    what_the_owners_functions_raise_reaches_the_owner,
    a_break_ends_the_delivery_and_the_feed,
    a_feed_waits_for_a_peer_that_takes_nothing,
    nobody_listens,
    a_restarted_server_is_found_again,
    an_unknown_method_is_refused,
    a_stream_that_its_handler_ends_at_once_was_accepted,
    a_port_in_use_is_refused,
    lanes_do_not_wait_for_each_other,
    calls_are_answered,
    a_call_that_takes_too_long_times_out,
    a_failing_call_carries_its_text,
    a_stopped_listener_refuses,
    a_stopping_listener_lets_streams_end,
    the_server_hears_what_the_client_calls_itself,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_streams(run_stream_world: Callable[[Scenario], None], scenario: Scenario) -> None:
    run_stream_world(scenario)
