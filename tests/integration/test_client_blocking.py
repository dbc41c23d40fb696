"""The blocking face on gRPC and on frames: threads, callbacks, forks and the end of the process,
against the fake broker in another process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import get_current_span

import pulsarish
from pulsarish.local_cluster.ports import free_ports
from tests.support.bad_calls import BAD_CALLS, Things, methods_with_arguments

ROOT = Path(__file__).resolve().parents[2]


def start_broker(*words: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fake_broker_process", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def run(program: str) -> tuple[int, str, str]:
    """Run a program in a process of its own: its status, output and errors."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module", params=["grpc", "framed"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    process, address = start_broker("partitions=persistent://public/default/wide:3", request.param)
    yield f"pulsarish://{address}"
    process.kill()
    process.communicate()


@pytest.fixture
def client(url: str) -> Iterator[pulsarish.Client]:
    with pulsarish.Client(url) as made:
        yield made


def test_ten_lines(client: pulsarish.Client) -> None:
    consumer = client.subscribe(
        "greetings", "me", initial_position=pulsarish.InitialPosition.Earliest
    )
    producer = client.create_producer("greetings")
    sent = producer.send(b"hello", properties={"a": "b"}, partition_key="k")
    message = consumer.receive(timeout_millis=30_000)
    assert (
        message.data(),
        message.message_id(),
        message.properties(),
        message.partition_key(),
    ) == (b"hello", sent, {"a": "b"}, "k")
    consumer.acknowledge(message)
    assert producer.topic() == consumer.topic() == "persistent://public/default/greetings"
    assert (consumer.subscription_name(), producer.last_sequence_id(), producer.is_connected()) == (
        "me",
        0,
        True,
    )


@pytest.mark.parametrize("with_receipt", [False, True])
def test_blocks_acknowledge(client: pulsarish.Client, with_receipt: bool) -> None:
    topic = f"blocks-{with_receipt}"
    consumer = client.subscribe(
        topic,
        "me",
        pulsarish.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        ack_receipt_enabled=with_receipt,
    )
    client.create_producer(topic).send(b"1")
    with pytest.raises(ZeroDivisionError), consumer.receive(30_000):
        raise ZeroDivisionError
    with consumer.receive(30_000) as message:
        assert message.data() == b"1"
    consumer.redeliver_unacknowledged_messages()
    with pytest.raises(pulsarish.Timeout):
        consumer.receive(500)
    reader = client.create_reader(topic, pulsarish.MessageId.earliest)
    with pytest.raises(pulsarish.NotAllowedError), reader.read_next(30_000):
        raise AssertionError("the block does not begin")


def test_bad_arguments(url: str) -> None:
    """The same table as for the asyncio face in ``tests/unit/client/api/test_bad_calls.py``."""
    with pytest.raises(
        pulsarish.InvalidArgument,
        match=r"Client\(\) has no argument 'operation_timeout'.*operation_timeout_seconds",
    ):
        pulsarish.Client(url, operation_timeout=5)  # type: ignore[call-arg]
    with pulsarish.Client(url) as client:
        producer, consumer = client.create_producer("bad"), client.subscribe("bad", "s")
        reader, view = (
            client.create_reader("bad", pulsarish.MessageId.earliest),
            client.create_table_view("bad"),
        )
        things = Things(client, producer, consumer, reader, view)
        calls = [call for call in BAD_CALLS if call.method != "producer.send_soon"]
        assert methods_with_arguments(things) == {call.method for call in calls}
        producer.send(b"there")
        for bad in calls:
            with pytest.raises(bad.error, match=bad.words):
                bad.call(getattr(things, bad.method.partition(".")[0]))
                pytest.fail(f"{bad} was taken")
        assert consumer.receive(30_000).data() == b"there"


def test_closed_objects_say_so_at_every_call(client: pulsarish.Client) -> None:
    consumer, reader = (
        client.subscribe("closed", "s"),
        client.create_reader("closed", pulsarish.MessageId.earliest),
    )
    producer = client.create_producer("closed")
    producer.send(b"x")
    message = reader.read_next(30_000)
    for thing in (consumer, reader, producer):
        thing.close()
        thing.close()
    calls = [
        consumer.receive,
        consumer.batch_receive,
        lambda: consumer.acknowledge(message),
        lambda: consumer.negative_acknowledge(message),
        consumer.redeliver_unacknowledged_messages,
        consumer.get_last_message_id,
        consumer.unsubscribe,
        lambda: consumer.seek(0),
    ]
    for call in calls:
        with pytest.raises(
            pulsarish.AlreadyClosed, match=r"consumer on .* was closed: subscribe again"
        ):
            call()
    for call in (reader.read_next, reader.has_message_available, lambda: reader.seek(0)):
        with pytest.raises(
            pulsarish.AlreadyClosed, match=r"reader on .* was closed: create another one"
        ):
            call()
    for call in (
        producer.flush,
        lambda: producer.send(b""),
        lambda: producer.send_async(b"", None),
    ):
        with pytest.raises(
            pulsarish.AlreadyClosed, match=r"producer on .* was closed: create another one"
        ):
            call()
    # One error serves all calls: it must not carry the places of all that came before.
    depths = []
    for _ in range(2):
        with pytest.raises(pulsarish.AlreadyClosed) as raised:
            consumer.receive()
        depths.append(len(raised.traceback))
    assert depths[0] == depths[1]


def test_callbacks_in_order_from_many_threads(client: pulsarish.Client) -> None:
    producer = client.create_producer(
        "threads", batching_enabled=True, max_pending_messages=500, block_if_queue_full=True
    )
    results: list[tuple[pulsarish.Result, pulsarish.MessageId]] = []
    sent: dict[int, list[int]] = {number: [] for number in range(4)}

    def publish(number: int) -> None:
        for index in range(5_000):
            producer.send_async(
                b"%d.%d" % (number, index),
                lambda result, message_id: results.append((result, message_id)),
            )

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush()
    assert len(results) == 20_000
    assert {result for result, _ in results} == {pulsarish.Result.Ok}
    ids = [message_id for _, message_id in results]
    assert ids == sorted(set(ids))
    reader = client.create_reader("threads", pulsarish.MessageId.earliest)
    while reader.has_message_available():
        number, index = reader.read_next(timeout_millis=30_000).data().split(b".")
        sent[int(number)].append(int(index))
    assert all(indexes == list(range(5_000)) for indexes in sent.values())


def test_queue_full_goes_to_the_callback_or_waits(client: pulsarish.Client) -> None:
    results: list[pulsarish.Result] = []
    refusing = client.create_producer(
        "full", batching_enabled=True, max_pending_messages=10, batching_max_publish_delay_ms=1_000
    )
    for _ in range(5_000):
        refusing.send_async(b"x", lambda result, _message_id: results.append(result))
    refusing.flush()
    assert len(results) == 5_000
    assert set(results) == {pulsarish.Result.Ok, pulsarish.Result.ProducerQueueIsFull}
    waiting = client.create_producer("full", max_pending_messages=10, block_if_queue_full=True)
    waited: list[pulsarish.Result] = []
    for _ in range(500):
        waiting.send_async(b"x", lambda result, _message_id: waited.append(result))
    waiting.flush()
    assert waited == [pulsarish.Result.Ok] * 500


def test_callback_may_send_but_not_wait(client: pulsarish.Client) -> None:
    producer = client.create_producer("nested")
    outcome: list[object] = []
    done = threading.Event()

    def second(result: pulsarish.Result, _message_id: pulsarish.MessageId) -> None:
        outcome.append(result)
        done.set()

    def first(_result: pulsarish.Result, _message_id: pulsarish.MessageId) -> None:
        try:
            producer.send(b"waits for itself")
        except pulsarish.NotAllowedError as error:
            outcome.append(error)
        producer.send_async(b"from a callback", second)

    producer.send_async(b"x", first)
    assert done.wait(30)
    assert isinstance(outcome[0], pulsarish.NotAllowedError)
    assert "send_async" in str(outcome[0])
    assert outcome[1] is pulsarish.Result.Ok


def test_callback_that_raises_stops_nothing(client: pulsarish.Client) -> None:
    producer = client.create_producer("raising", batching_enabled=True)
    called: list[int] = []

    def callback(number: int) -> None:
        called.append(number)
        raise RuntimeError("the program's own mistake")

    for number in range(50):
        producer.send_async(b"x", lambda _result, _message_id, number=number: callback(number))
    producer.flush()
    assert called == list(range(50))
    producer.send(b"still works")


def test_too_big(client: pulsarish.Client) -> None:
    producer = client.create_producer("big")
    with pytest.raises(pulsarish.MessageTooBig, match="5242880"):
        producer.send(b"x" * (5 << 20 | 1))
    results: list[pulsarish.Result] = []
    producer.send_async(b"x" * (5 << 20 | 1), lambda result, _message_id: results.append(result))
    assert results == [pulsarish.Result.MessageTooBig]
    producer.send(b"x" * (5 << 20))


def test_receive_times_out_and_wakes(client: pulsarish.Client) -> None:
    consumer = client.subscribe("wake", "me")
    with pytest.raises(pulsarish.Timeout, match="50 ms"):
        consumer.receive(timeout_millis=50)
    got: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: got.append(consumer.receive(timeout_millis=30_000).data()))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    producer = client.create_producer("wake")
    for number in range(3):
        producer.send(b"%d" % number)
    for thread in threads:
        thread.join()
    assert sorted(got) == [b"0", b"1", b"2"]


def test_batch_receive(client: pulsarish.Client) -> None:
    policy = pulsarish.ConsumerBatchReceivePolicy(
        max_num_message=30, max_num_bytes=-1, timeout_ms=300
    )
    consumer = client.subscribe(
        "batches", "me", batch_receive_policy=policy, receiver_queue_size=10
    )
    producer = client.create_producer("batches", batching_enabled=True, batching_max_messages=7)
    for number in range(100):
        producer.send_async(b"%d" % number, None)
    data: list[int] = []
    while len(data) < 100:
        # What there is when the time is over is given, however little that is.
        messages = consumer.batch_receive()
        assert len(messages) <= 30
        data += [int(message.data()) for message in messages]
        consumer.acknowledge(messages)
    assert data == list(range(100))
    assert consumer.batch_receive() == []


def test_batch_receive_waits_until_it_is_full(client: pulsarish.Client) -> None:
    policy = pulsarish.ConsumerBatchReceivePolicy(
        max_num_message=30, max_num_bytes=-1, timeout_ms=60_000
    )
    consumer = client.subscribe(
        "full-batches", "me", batch_receive_policy=policy, receiver_queue_size=10
    )
    producer = client.create_producer(
        "full-batches", batching_enabled=True, batching_max_messages=7
    )
    for number in range(90):
        producer.send_async(b"%d" % number, None)
    for _ in range(3):
        messages = consumer.batch_receive()
        assert len(messages) == 30
        consumer.acknowledge(messages)


def test_batch_receive_by_bytes(client: pulsarish.Client) -> None:
    policy = pulsarish.ConsumerBatchReceivePolicy(
        max_num_message=-1, max_num_bytes=1_000, timeout_ms=60_000
    )
    consumer = client.subscribe("bytes", "me", batch_receive_policy=policy)
    producer = client.create_producer("bytes")
    for _ in range(10):
        producer.send(b"x" * 300)
    assert len(consumer.batch_receive()) == 4


def test_listener(client: pulsarish.Client) -> None:
    got: list[bytes] = []
    done = threading.Event()

    def listener(consumer: pulsarish.Consumer, message: pulsarish.Message) -> None:
        got.append(message.data())
        consumer.acknowledge(message)
        if len(got) == 2:
            raise RuntimeError("the program's own mistake")
        if len(got) == 5:
            done.set()

    consumer = client.subscribe("listened", "me", message_listener=listener)
    producer = client.create_producer("listened")
    for number in range(5):
        producer.send(b"%d" % number)
    assert done.wait(30)
    assert got == [b"%d" % number for number in range(5)]
    with pytest.raises(pulsarish.InvalidConfiguration, match="listener"):
        consumer.receive()
    consumer.pause_message_listener()
    producer.send(b"after the pause")
    producer.send(b"later")
    time.sleep(0.3)
    assert len(got) == 5
    consumer.resume_message_listener()
    deadline = time.monotonic() + 30
    while len(got) < 7 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert got[-1] == b"later"


def test_partitioned_and_several_topics(client: pulsarish.Client) -> None:
    assert len(client.get_topic_partitions("wide")) == 3
    consumer = client.subscribe(
        ["wide", "narrow"], "me", consumer_type=pulsarish.ConsumerType.Shared
    )
    wide = client.create_producer(
        "wide", message_router=lambda message, count: len(message.data()) % count
    )
    assert [wide.send(b"x" * number).partition() for number in range(1, 6)] == [1, 2, 0, 1, 2]
    client.create_producer("narrow").send(b"n")
    messages = [consumer.receive(timeout_millis=30_000) for _ in range(6)]
    assert len({message.topic_name() for message in messages}) == 4
    consumer.acknowledge(messages)
    with pytest.raises(pulsarish.InvalidArgument, match="pass the message"):
        consumer.acknowledge(pulsarish.MessageId(0, 1, 1))


def test_seek_and_reader(client: pulsarish.Client) -> None:
    producer = client.create_producer("sought")
    ids = [producer.send(b"%d" % number) for number in range(10)]
    consumer = client.subscribe("sought", "me")
    consumer.seek(ids[4])
    assert consumer.receive(timeout_millis=30_000).data() == b"5"
    consumer.seek(pulsarish.MessageId.earliest)
    assert consumer.receive(timeout_millis=30_000).data() == b"0"
    assert consumer.get_last_message_id() == ids[9]
    with client.create_reader(
        "sought", pulsarish.MessageId.deserialize(ids[7].serialize())
    ) as reader:
        assert [message.data() for _, message in zip(range(2), reader, strict=False)] == [
            b"8",
            b"9",
        ]
        assert not reader.has_message_available()
    for position in (-1, "0", None, True):
        with pytest.raises(pulsarish.InvalidArgument, match="messageid is "):
            consumer.seek(position)  # type: ignore[arg-type]


def test_schemas(client: pulsarish.Client) -> None:
    consumer = client.subscribe("values", "me", schema=pulsarish.JsonSchema())
    producer = client.create_producer("values", schema=pulsarish.JsonSchema())
    producer.send({"a": [1, 2]})
    assert consumer.receive(timeout_millis=30_000).value() == {"a": [1, 2]}
    text = client.create_producer("values", schema=pulsarish.StringSchema())
    with pytest.raises(pulsarish.InvalidArgument, match="takes str"):
        text.send(b"bytes")
    text.send("no JSON")
    message = consumer.receive(timeout_millis=30_000)
    with pytest.raises(pulsarish.InvalidArgument, match=r"data\(\)"):
        message.value()


def test_table_view(client: pulsarish.Client) -> None:
    producer = client.create_producer("table")
    producer.send(b"1", partition_key="a")
    producer.send(b"2", partition_key="a")
    with client.create_table_view("table") as view:
        seen: list[tuple[str, bytes]] = []
        view.for_each(lambda key, value: seen.append((key, value)))
        assert seen == [("a", b"2")]
        changed = threading.Event()
        view.for_each_and_listen(lambda key, value: changed.set() if value == b"3" else None)
        producer.send(b"3", partition_key="a")
        assert changed.wait(30)
        assert (view.get("a"), len(view)) == (b"3", 1)
        assert (view["a"], "a" in view, list(view), view.items()) == (
            b"3",
            True,
            ["a"],
            [("a", b"3")],
        )
        with pytest.raises(KeyError):
            view["b"]
        assert repr(view) == "TableView(topic=table)"


def test_unsubscribe(client: pulsarish.Client) -> None:
    consumer = client.subscribe("left", "me")
    consumer.unsubscribe()
    with pytest.raises(pulsarish.AlreadyClosed):
        consumer.receive()


def test_closed(url: str) -> None:
    client = pulsarish.Client(url)
    producer, consumer = client.create_producer("closed"), client.subscribe("closed", "me")
    reader = client.create_reader("closed", pulsarish.MessageId.earliest)
    message_id = producer.send(b"x")
    message = consumer.receive(timeout_millis=30_000)
    waiting: list[BaseException] = []

    def wait() -> None:
        try:
            while True:
                consumer.receive()
        except pulsarish.AlreadyClosed as error:
            waiting.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    client.close()
    thread.join(30)
    assert len(waiting) == 1
    for call in (
        lambda: client.create_producer("closed"),
        lambda: client.subscribe("closed", "me"),
        lambda: client.create_reader("closed", message_id),
        lambda: client.get_topic_partitions("closed"),
        lambda: producer.send(b"x"),
        lambda: producer.send_async(b"x", None),
        producer.flush,
        consumer.receive,
        consumer.batch_receive,
        lambda: consumer.acknowledge(message),
        lambda: consumer.acknowledge_cumulative(message),
        lambda: consumer.negative_acknowledge(message),
        lambda: consumer.seek(message_id),
        consumer.get_last_message_id,
        consumer.unsubscribe,
        reader.read_next,
        reader.has_message_available,
    ):
        with pytest.raises(pulsarish.AlreadyClosed):
            call()
    client.close()
    producer.close()
    consumer.close()


def test_unreachable_broker() -> None:
    client = pulsarish.Client("pulsarish://127.0.0.1:1", operation_timeout_seconds=1)
    with pytest.raises(pulsarish.ConnectError, match=r"127\.0\.0\.1:1"):
        client.create_producer("t")
    client.close()


def test_failover_to_a_restarted_broker() -> None:
    # The kernel gives it to no connection while the broker is down.
    port = next(free_ports("127.0.0.1"))
    process, address = start_broker(f"port={port}")
    client = pulsarish.Client(f"pulsarish://{address}")
    producer = client.create_producer(
        "t", batching_enabled=True, max_pending_messages=2_000, block_if_queue_full=True
    )
    results: list[pulsarish.Result] = []
    producer.send(b"before")
    process.kill()
    process.communicate()
    for _ in range(2_000):
        producer.send_async(b"x", lambda result, _message_id: results.append(result))
    process, _ = start_broker(f"port={port}")
    producer.flush()
    client.close()
    process.kill()
    process.communicate()
    assert results == [pulsarish.Result.Ok] * 2_000


def test_fork(url: str) -> None:
    """Every call of the child on what its parent made raises, and the child's end is quiet; the
    parent goes on.
    """
    program = f"""
import os, sys, pulsarish
client = pulsarish.Client({url!r})
producer, consumer = client.create_producer("forked"), client.subscribe("forked", "me")
producer.send(b"x")
message = consumer.receive(timeout_millis=30000)
producer.send(b"y")
child = os.fork()
if child == 0:
    calls = [lambda: producer.send(b"x"), lambda: producer.send_async(b"x", None),
             lambda: producer.flush(), lambda: producer.close(),
             lambda: consumer.receive(), lambda: consumer.batch_receive(),
             lambda: consumer.acknowledge(message), lambda: consumer.close(),
             lambda: client.create_producer("t"), lambda: client.close()]
    for call in calls:
        try:
            call()
        except pulsarish.ForkedProcess as error:
            assert "make a new client in the child" in str(error)
        else:
            sys.exit(1)
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert consumer.receive(timeout_millis=30000).data() == b"y"
producer.send(b"z")
client.close()
"""
    assert run(program) == (0, "", "")


@pytest.mark.parametrize(
    "ending", ["", "client.close()", "client.shutdown()", "raise SystemExit(0)"]
)
def test_end_of_the_process_is_quiet(url: str, ending: str) -> None:
    program = f"""
import pulsarish
client = pulsarish.Client({url!r})
producer = client.create_producer("ending", batching_enabled=True)
shared = pulsarish.ConsumerType.Shared
consumer = client.subscribe("ending", "me", consumer_type=shared, message_listener=lambda *_: None)
for _ in range(1000):
    producer.send_async(b"x", lambda *_: None)
{ending}
"""
    assert run(program) == (0, "", "")


def test_interrupted_wait(url: str) -> None:
    """Ctrl-C ends a waiting receive."""
    program = f"""
import pulsarish, signal, sys, threading, time
# A shell that runs the tests in the background ignores SIGINT, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = pulsarish.Client({url!r})
consumer = client.subscribe("interrupted", "me", consumer_type=pulsarish.ConsumerType.Shared)
def tell_once_it_receives():
    frame = None
    while frame is None:
        time.sleep(0.01)
        frame = sys._current_frames()[threading.main_thread().ident]
        while frame is not None and frame.f_code.co_name != "_receive":
            frame = frame.f_back
    print("ready", flush=True)
threading.Thread(target=tell_once_it_receives).start()
try:
    consumer.receive()
except KeyboardInterrupt:
    client.close()
    print("interrupted")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "interrupted\n", "")


def test_asyncio_twin(url: str) -> None:
    """Asyncio clients in several loops and blocking ones live side by side, and one after the
    other, without a word on standard error.
    """
    program = f"""
import asyncio, threading, pulsarish, pulsarish.asyncio
async def main(topic, count):
    async with pulsarish.asyncio.Client({url!r}) as client:
        consumer = await client.subscribe(topic, "me")
        producer = await client.create_producer(topic)
        ids = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(count)))
        assert [int((await consumer.receive()).data()) for _ in range(count)] == list(range(count))
        for number in range(count):
            await producer.send(b"%d" % number)
            await consumer.acknowledge(await consumer.receive())
    finished.append(topic)
finished = []
asyncio.run(main("twin", 100))
with pulsarish.Client({url!r}) as client:
    producer = client.create_producer("twin-blocking")
    programs = [main(f"twin-{{number}}", 100) for number in range(3)]
    threads = [threading.Thread(target=asyncio.run, args=[program]) for program in programs]
    for thread in threads:
        thread.start()
    for _ in range(200):
        producer.send(b"x")
    for thread in threads:
        thread.join()
asyncio.run(main("twin-last", 10))
assert sorted(finished) == ["twin", "twin-0", "twin-1", "twin-2", "twin-last"], finished
"""
    assert run(program) == (0, "", "")


def test_fork_after_an_asyncio_client(url: str) -> None:
    program = f"""
import asyncio, os, sys, pulsarish, pulsarish.asyncio
async def main():
    async with pulsarish.asyncio.Client({url!r}) as client:
        await (await client.create_producer("forked-asyncio")).send(b"x")
asyncio.run(main())
child = os.fork()
if child == 0:
    asyncio.run(main())
    pulsarish.Client({url!r}).close()
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
"""
    assert run(program) == (0, "", "")


def test_import_is_quick_and_touches_nothing() -> None:
    program = (
        "import pulsarish, sys; print([name for name in sys.modules if name.partition('.')[0] "
        "in ('grpc', 'uvloop', 'google', 'kazoo')])"
    )
    assert run(program) == (0, "[]\n", "")


def test_public_names() -> None:
    for name in pulsarish.__all__:
        assert getattr(pulsarish, name) is not None
    assert pulsarish.PulsarException is pulsarish.PulsarishError
    with pytest.raises(AttributeError, match="no_such"):
        _ = pulsarish.no_such


def test_a_client_that_traces_makes_the_spans_of_what_it_sends_and_receives(url: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    failed: list[pulsarish.Result] = []
    heard: list[bytes] = []
    done = threading.Event()

    def listen(_consumer: pulsarish.Consumer, message: pulsarish.Message) -> None:
        heard.append(message.data())
        done.set()

    with pulsarish.Client(url, tracer_provider=provider) as client:
        consumer = client.subscribe("traced", "s")
        client.subscribe("heard", "s", message_listener=listen)
        reader = client.create_reader("traced", pulsarish.MessageId.earliest)
        producer = client.create_producer("traced")
        producer.send(b"one")
        first = consumer.receive(timeout_millis=30_000)
        consumer.acknowledge(first)
        producer.send_async(b"two", None, {"a": "b"})
        producer.flush()
        second = next(iter(consumer))
        consumer.negative_acknowledge(second)
        assert second.properties()["a"] == "b"
        assert reader.read_next(timeout_millis=30_000).data() == b"one"
        producer.send_async(b"x" * (6 << 20), lambda result, _: failed.append(result))
        client.create_producer("heard").send(b"three")
        assert done.wait(30)
        with pytest.raises(pulsarish.InvalidArgument, match="callback"):
            producer.send_async(b"x", 7)  # type: ignore[arg-type]
    assert failed == [pulsarish.Result.MessageTooBig]
    assert heard == [b"three"]
    spans = exporter.get_finished_spans()
    names = sorted(span.name.split()[0] for span in spans)
    assert names == ["ack", "nack", "process", *["receive"] * 3, *["send"] * 4]
    contexts = {span.context.span_id for span in spans if span.name.startswith("send")}
    for span in spans:
        if not span.name.startswith("send"):
            assert [link.context.span_id in contexts for link in span.links] == [True], span.name
    errors = [(span.attributes or {}).get("error.type") for span in spans]
    assert sorted(each for each in errors if each) == ["MessageTooBig"]
    assert get_current_span(pulsarish.trace_context(first)).get_span_context().span_id in contexts


def test_a_client_that_does_not_trace_imports_nothing_for_it(url: str) -> None:
    status, out, errors = run(
        "import sys, pulsarish\n"
        f"with pulsarish.Client({url!r}) as client:\n"
        "    client.create_producer('t').send(b'x')\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    assert (status, out.strip()) == (0, "[]"), errors
