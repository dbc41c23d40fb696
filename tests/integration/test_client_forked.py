"""Clients in forked children of a process that has used a client, against real brokers and the fake
one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pulsarish.local_cluster.ports import free_ports
from tests.integration.conftest import StartCluster
from tests.integration.test_client_blocking import ROOT, run, start_broker

_TOOLS = """
import asyncio, multiprocessing, os, sys, threading, time
import pulsarish, pulsarish.asyncio

def exchange(url, topic, count):
    '''Publish and consume, with a blocking client that is made here.'''
    with pulsarish.Client(url) as client:
        consumer = client.subscribe(topic, "s", initial_position=pulsarish.InitialPosition.Earliest)
        producer = client.create_producer(topic, batching_enabled=True, block_if_queue_full=True)
        for number in range(count):
            producer.send_async(b"%d" % number, lambda *_: None)
        producer.flush()
        for number in range(count):
            message = consumer.receive(timeout_millis=60000)
            assert int(message.data()) == number, (number, message.data())
            consumer.acknowledge(message)

async def exchange_async(url, topic, count):
    async with pulsarish.asyncio.Client(url) as client:
        earliest = pulsarish.InitialPosition.Earliest
        consumer = await client.subscribe(topic, "s", initial_position=earliest)
        producer = await client.create_producer(topic)
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(count)))
        for number in range(count):
            message = await consumer.receive()
            assert int(message.data()) == number, (number, message.data())
            await consumer.acknowledge(message)

def in_child(work):
    '''Fork; the child ends as a program ends, and only then its number is 0.'''
    child = os.fork()
    if child == 0:
        work()
        sys.exit(0)
    return child

def wait(child):
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    process, address = start_broker()
    yield f"pulsarish://{address}"
    process.kill()
    process.communicate()


def test_children_publish_and_consume_while_the_parent_does(start_cluster: StartCluster) -> None:
    cluster = start_cluster(bookies=1, brokers=1)
    program = f"""{_TOOLS}
url = {cluster.service_urls()["pulsarish"]!r}
with pulsarish.Client(url) as client:
    consumer, producer = client.subscribe("parent", "s"), client.create_producer("parent")
    producer.send(b"before")
    children = [
        in_child(lambda: exchange(url, "blocking", 1000)),
        in_child(lambda: asyncio.run(exchange_async(url, "asyncio", 1000))),
        in_child(lambda: wait(in_child(lambda: exchange(url, "nested", 100)))),
    ]
    for number in range(300):
        producer.send(b"%d" % number)
    for child in children:
        wait(child)
    received = [consumer.receive(timeout_millis=60000).data() for _ in range(301)]
    assert received == [b"before", *(b"%d" % number for number in range(300))], received
"""
    assert run(program) == (0, "", "")


def test_pool_of_workers(url: str) -> None:
    """Workers of multiprocessing end without Python's exit handlers."""
    program = f"""{_TOOLS}
def publish(number):
    with pulsarish.Client({url!r}) as client:
        producer = client.create_producer("pool")
        for part in range(50):
            producer.send(b"%d-%d" % (number, part))
        return producer.producer_name()

with pulsarish.Client({url!r}) as client:
    consumer = client.subscribe("pool", "s")
    with multiprocessing.get_context("fork").Pool(4) as pool:
        names = pool.map(publish, range(8), chunksize=1)
    assert len(set(names)) == 8, names
    received = sorted(consumer.receive(timeout_millis=60000).data() for _ in range(400))
    sent = [b"%d-%d" % (number, part) for number in range(8) for part in range(50)]
    assert received == sorted(sent)
"""
    assert run(program) == (0, "", "")


@pytest.mark.parametrize(
    "ending", ["pass", "client.close()", "client.shutdown()", "os._exit(0)", "fork_again()"]
)
@pytest.mark.parametrize("parent", ["blocking", "asyncio"])
def test_the_child_ends_quietly(url: str, ending: str, parent: str) -> None:
    """Whatever the parent had open, and in whatever state the child leaves its own client."""
    program = f"""{_TOOLS}
import gc
async def use():
    client = pulsarish.asyncio.Client({url!r})
    await (await client.create_producer("quiet")).send(b"x")
    opened.set()
    await asyncio.sleep(3600)

opened = threading.Event()
if {parent!r} == "asyncio":
    threading.Thread(target=asyncio.run, args=[use()], daemon=True).start()
    opened.wait()
else:
    inherited = pulsarish.Client({url!r})
    producer = inherited.create_producer("quiet")
    producer.send_async(b"x", lambda *_: None)

def fork_again():
    wait(in_child(lambda: exchange({url!r}, "quiet-nested-{parent}", 10)))

def work():
    globals().pop("inherited", None)
    gc.collect()
    client = pulsarish.Client({url!r})
    producer = client.create_producer("quiet", batching_enabled=True)
    shared = pulsarish.ConsumerType.Shared
    client.subscribe("quiet", "s", consumer_type=shared, message_listener=lambda *_: None)
    for _ in range(1000):
        producer.send_async(b"x", lambda *_: None)
    {ending}

wait(in_child(work))
sys.stdout.flush()
os._exit(0)
"""
    assert run(program) == (0, "", "")


def test_garbage_of_the_parent_does_not_crash_children(url: str) -> None:
    """Objects of gRPC that the parent had not freed at the moment of the fork; the children collect
    garbage at their end.
    """
    program = f"""{_TOOLS}
async def use():
    while True:
        async with pulsarish.asyncio.Client({url!r}) as client:
            producer = await client.create_producer("garbage")
            await asyncio.gather(*(producer.send(b"x") for _ in range(50)))

def work():
    with pulsarish.Client({url!r}) as client:
        producer = client.create_producer("garbage-children")
        for _ in range(50):
            producer.send(b"x")

inherited = pulsarish.Client({url!r})
producer = inherited.create_producer("garbage-blocking", batching_enabled=True)
threading.Thread(target=asyncio.run, args=[use()], daemon=True).start()
for _ in range(20):
    for _ in range(1000):
        producer.send_async(b"x" * 100, lambda *_: None)
    time.sleep(0.02)
    wait(in_child(work))
os._exit(0)
"""
    assert run(program) == (0, "", "")


def test_ids_differ_between_children(url: str) -> None:
    """What names readers and chooses partitions is drawn by each process for itself."""
    program = f"""{_TOOLS}
from pulsarish.runtime.background import background
with pulsarish.Client({url!r}):
    drawn = {{background().world.random.getrandbits(64)}}
    for _ in range(3):
        ours, theirs = os.pipe()
        wait(in_child(lambda: os.write(theirs, b"%d" % background().world.random.getrandbits(64))))
        drawn.add(int(os.read(ours, 100)))
assert len(drawn) == 4, drawn
"""
    assert run(program) == (0, "", "")


def test_a_fork_before_any_client_changes_nothing(url: str) -> None:
    program = f"""{_TOOLS}
def work():
    exchange({url!r}, "early", 10)
    assert "grpclib" not in sys.modules
wait(in_child(work))
exchange({url!r}, "early-parent", 10)
assert "grpclib" not in sys.modules
"""
    assert run(program) == (0, "", "")


def test_the_childs_client_connects_again() -> None:
    # The kernel gives it to no connection while the broker is down.
    port = next(free_ports("127.0.0.1"))
    broker, address = start_broker(f"port={port}")
    program = f"""{_TOOLS}
url = "pulsarish://{address}"
def work():
    results = []
    client = pulsarish.Client(url)
    producer = client.create_producer(
        "t", batching_enabled=True, max_pending_messages=2000, block_if_queue_full=True
    )
    producer.send(b"before")
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(2000):
        producer.send_async(b"x", lambda result, _message_id: results.append(result))
    print("sent", flush=True)
    producer.flush()
    client.close()
    assert results == [pulsarish.Result.Ok] * 2000
with pulsarish.Client(url):
    wait(in_child(work))
os._exit(0)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        broker.send_signal(signal.SIGKILL)
        broker.communicate()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "sent\n"
        broker, _ = start_broker(f"port={port}")
        _, err = process.communicate(timeout=60)
    broker.kill()
    broker.communicate()
    assert (process.returncode, err) == (0, "")


def test_a_child_passes_the_proxy() -> None:
    """The environment names the proxy for both ways to speak gRPC."""
    broker, address = start_broker()
    program = f"""{_TOOLS}
import contextlib, socket
listener = socket.create_server(("127.0.0.1", 0))
asked = []

def relay(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)

def serve():
    while True:
        accepted, _ = listener.accept()
        head = b""
        while not head.endswith(b"\\r\\n\\r\\n"):
            head += accepted.recv(1)
        line = head.split(b"\\r\\n")[0].decode()
        asked.append(line)
        peer = socket.create_connection(("127.0.0.1", {address.rpartition(":")[2]}))
        accepted.sendall(b"HTTP/1.1 200 Connection established\\r\\n\\r\\n")
        for one, other in ((accepted, peer), (peer, accepted)):
            threading.Thread(target=relay, args=[one, other], daemon=True).start()

threading.Thread(target=serve, daemon=True).start()
pulsarish.Client("pulsarish://127.0.0.1:1").close()
os.environ["grpc_proxy"] = f"http://127.0.0.1:{{listener.getsockname()[1]}}"
wait(in_child(lambda: exchange("pulsarish://{address}", "proxied", 10)))
assert asked
assert set(asked) == {{"CONNECT {address} HTTP/1.1"}}, asked
os._exit(0)
"""
    assert run(program) == (0, "", "")
    broker.kill()
    broker.communicate()
