"""Workers in threads, on a real server."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from pulsarish import Client, Message, NotAllowedError
from pulsarish.testing import LocalServer

SECONDS_MAX = 60


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def client(server: LocalServer) -> Iterator[Client]:
    with server.client() as client:
        yield client


def publish(client: Client, topic: str, count: int) -> None:
    producer = client.create_producer(topic)
    for number in range(count):
        producer.send(b"%d" % number)


def test_threads_share_the_work(client: Client) -> None:
    publish(client, "shared", 30)
    together = threading.Barrier(3)
    done = threading.Event()
    found: list[bytes] = []

    @client.worker("shared", "s", concurrency=3)
    def handle(message: Message) -> None:
        together.wait(SECONDS_MAX)  # all three are at work at this moment
        found.append(message.data())
        if len(found) == 30:
            done.set()

    with handle:
        assert done.wait(SECONDS_MAX)
        with pytest.raises(NotAllowedError, match="was started before"):
            handle.start()
    assert sorted(found) == sorted(b"%d" % number for number in range(30))
    assert (handle.handled_count, handle.failed_count) == (30, 0)
    assert "0 of 3 at work, 30 handled" in repr(handle)
    assert handle.stop()


def test_a_failure_comes_again_and_then_goes_to_the_dead_letters(client: Client) -> None:
    dead = client.subscribe("persistent://public/default/failing-s-DLQ", "look")
    attempts: list[tuple[bytes, int]] = []

    @client.worker("failing", "s", attempts_max=2, retry_delay=timedelta(milliseconds=10))
    def handle(message: Message) -> None:
        attempts.append((message.data(), message.redelivery_count()))
        if message.data() == b"0":
            raise SystemExit  # also what is no Exception ends no thread

    with handle:
        publish(client, "failing", 2)
        assert dead.receive(timeout_millis=SECONDS_MAX * 1000).data() == b"0"
    assert sorted(attempts) == [(b"0", 0), (b"0", 1), (b"1", 0)]
    assert (handle.handled_count, handle.failed_count) == (1, 2)


def test_a_stop_in_time_gives_back_what_is_not_done(client: Client) -> None:
    publish(client, "stopped", 1)
    began, may_end = threading.Event(), threading.Event()

    @client.worker("stopped", "s")
    def handle(_message: Message) -> None:
        began.set()
        may_end.wait(SECONDS_MAX)

    handle.start()
    assert began.wait(SECONDS_MAX)
    assert not handle.stop(timeout_seconds=0.1)
    consumer = client.subscribe("stopped", "s")
    assert consumer.receive(timeout_millis=SECONDS_MAX * 1000).data() == b"0"
    may_end.set()


def test_the_function_may_end_its_worker(client: Client) -> None:
    publish(client, "ended", 3)

    @client.worker("ended", "s")
    def handle(message: Message) -> None:
        if message.data() == b"1":
            assert not handle.stop()

    handle.run()
    assert handle.handled_count == 2
    assert client.subscribe("ended", "s").receive(SECONDS_MAX * 1000).data() == b"2"


PROGRAM = """
import sys, time, pulsarish
client = pulsarish.Client(sys.argv[1])

@client.worker("signalled", "s", concurrency=2)
def handle(message):
    print("began", flush=True)
    time.sleep(1)
    print("done", flush=True)

handle.run()
client.close()
print(f"ended after {handle.handled_count}", flush=True)
"""


@contextmanager
def program(text: str, server: LocalServer) -> Iterator[subprocess.Popen[str]]:
    """Run a program; it has ended at the end, also when the test failed."""
    with subprocess.Popen(
        [sys.executable, "-c", text, server.service_url], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_program_after_what_is_worked_on(
    server: LocalServer, client: Client, number: signal.Signals
) -> None:
    with program(PROGRAM, server) as process:
        assert process.stdout is not None
        publish(client, "signalled", 1)
        assert process.stdout.readline() == "began\n"
        process.send_signal(number)
        assert process.stdout.read() == "done\nended after 1\n"
        assert process.wait(SECONDS_MAX) == 0


def test_a_second_signal_ends_the_program_at_once(server: LocalServer, client: Client) -> None:
    with program(PROGRAM.replace("time.sleep(1)", "time.sleep(10_000)"), server) as process:
        assert process.stdout is not None
        publish(client, "signalled", 1)
        assert process.stdout.readline() == "began\n"
        process.send_signal(signal.SIGTERM)
        # The first one is noticed, and then the second one.
        deadline = time.monotonic() + SECONDS_MAX
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == -signal.SIGTERM
