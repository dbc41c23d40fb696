"""What kombu asks of a transport, of the one for Pulsarish."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu
import kombu.common
import pytest
from kombu.transport import TRANSPORT_ALIASES

import pulsarish
from pulsarish.integrations.kombu import Transport, register
from pulsarish.integrations.kombu.sources import SubscriptionSource
from pulsarish.testing import LocalServer
from tests.support.until import until

CLASS = "pulsarish.integrations.kombu:Transport"
WAIT = 30


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def connection(server: LocalServer) -> Iterator[kombu.Connection]:
    with kombu.Connection(server.service_url, transport=CLASS) as connection:
        yield connection


@pytest.fixture
def name() -> str:
    return f"kombu-{uuid.uuid4().hex[:8]}"


def backlog(server: LocalServer, queue: str) -> int:
    """Return how many messages of a queue are not acknowledged."""
    stats = server.admin().topics.stats(f"public/default/{queue}")
    return int(stats["subscriptions"][queue]["msgBacklog"])


def drain(connection: kombu.Connection, queues: Any, count: int, **options: Any) -> list[Any]:
    """Return the bodies of the next messages, acknowledged."""
    bodies: list[Any] = []

    def take(body: Any, message: kombu.Message) -> None:
        bodies.append(body)
        message.ack()

    with connection.Consumer(queues, callbacks=[take], **options):
        while len(bodies) < count:
            connection.drain_events(timeout=WAIT)
    return bodies


def is_silent(connection: kombu.Connection, queues: Any) -> bool:
    """Whether nothing comes for a while."""
    with connection.Consumer(queues, callbacks=[lambda body, message: message.ack()]):
        try:
            connection.drain_events(timeout=0.5)
        except TimeoutError:
            return True
    return False


# -- where it leads


def test_the_scheme_is_known_when_it_is_registered(
    monkeypatch: pytest.MonkeyPatch, server: LocalServer
) -> None:
    monkeypatch.setitem(TRANSPORT_ALIASES, "pulsarish", "")
    register()
    with kombu.Connection(server.service_url) as connection:
        assert isinstance(connection.transport, Transport)
        assert connection.as_uri() == f"{server.service_url}/public/default"
    secure = kombu.Connection("pulsarish+ssl://broker:6661")
    assert secure.as_uri() == "pulsarish+ssl://broker:6661/public/default"


def test_kombu_is_imported_only_by_its_users(tmp_path: Path) -> None:
    (tmp_path / "kombu.py").write_text("raise ImportError('not installed')")
    program = (
        "import sys, pulsarish.integrations.kombu as part\n"
        "assert 'kombu' not in sys.modules\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "try:\n    part.register()\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True
    )
    assert "pulsarish.integrations.kombu needs kombu: " in done.stdout
    assert "celery" in done.stdout


def test_the_next_broker_is_asked_when_one_is_gone(
    server: LocalServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gone = f"pulsarish://127.0.0.1:{port}"
    options = {"client": {"operation_timeout_seconds": 1}}
    connection = kombu.Connection(gone, transport=CLASS, transport_options=options)
    with pytest.raises(connection.connection_errors, match=str(port)):
        connection.connect()
    monkeypatch.setitem(TRANSPORT_ALIASES, "pulsarish", "")
    register()
    urls = f"{gone};{server.service_url}/public/default"
    with kombu.Connection(urls, transport_options=options) as connection:
        connection.ensure_connection(max_retries=3, interval_start=0, interval_step=0)
        with connection.SimpleBuffer(name) as buffer:
            buffer.put("here")
            assert buffer.get(timeout=WAIT).payload == "here"


def test_refusals_are_not_tried_again(server: LocalServer) -> None:
    url = f"{server.service_url}/public/unheard-of"
    with (
        kombu.Connection(url, transport=CLASS) as connection,
        pytest.raises(pulsarish.NotFound, match="pulsarish namespaces create"),
    ):
        connection.ensure_connection(max_retries=3)


# -- queues


def test_messages_are_what_was_published(connection: kombu.Connection, name: str) -> None:
    queue = kombu.Queue(name, kombu.Exchange(name), routing_key=name)
    producer = connection.Producer()
    for serializer, compression in (("json", None), ("pickle", "zlib"), ("yaml", None)):
        producer.publish(
            {"text": "naïve"},
            exchange=queue.exchange,
            routing_key=name,
            declare=[queue],
            serializer=serializer,
            compression=compression,
            headers={"by": serializer},
            correlation_id="c-1",
        )
    seen: list[kombu.Message] = []
    with connection.Consumer([queue], on_message=seen.append, accept=["json", "pickle", "yaml"]):
        while len(seen) < 3:
            connection.drain_events(timeout=WAIT)
    assert [message.decode() for message in seen] == [{"text": "naïve"}] * 3
    assert [message.headers["by"] for message in seen] == ["json", "pickle", "yaml"]
    assert seen[0].properties["correlation_id"] == "c-1"
    assert seen[0].delivery_info["routing_key"] == name
    assert not seen[0].delivery_info["redelivered"]
    assert len({message.delivery_tag for message in seen}) == 3


def test_a_message_is_requeued_and_rejected(connection: kombu.Connection, name: str) -> None:
    with connection.SimpleQueue(name) as queue:
        queue.put("again")
        message = queue.get(timeout=WAIT)
        message.requeue()
        message = queue.get(timeout=WAIT)
        assert (message.payload, message.delivery_info["redelivered"]) == ("again", True)
        message.reject()
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.5)


def test_what_is_not_acknowledged_comes_again(server: LocalServer, name: str) -> None:
    with kombu.Connection(server.service_url, transport=CLASS) as first:
        queue = first.SimpleQueue(name)
        queue.put("done")
        queue.put("kept")
        queue.get(timeout=WAIT).ack()
        assert queue.get(timeout=WAIT).payload == "kept"
    with kombu.Connection(server.service_url, transport=CLASS) as second:
        message = second.SimpleQueue(name).get(timeout=WAIT)
        assert (message.payload, message.delivery_info["redelivered"]) == ("kept", True)
        message.ack()
    with pytest.raises(pulsarish.AlreadyClosed):
        message.channel.basic_ack(message.delivery_tag)
    assert backlog(server, name) == 0


def test_prefetch_leaves_the_rest_to_others(server: LocalServer, name: str) -> None:
    url = server.service_url
    with (
        kombu.Connection(url, transport=CLASS) as one,
        kombu.Connection(url, transport=CLASS) as other,
    ):
        queue = kombu.Queue(name)
        for number in range(6):
            one.Producer().publish(number, routing_key=name, declare=[queue])
        held: list[kombu.Message] = []
        consumer = one.Consumer([queue], on_message=held.append, prefetch_count=2)
        consumer.consume()
        while len(held) < 2:
            one.drain_events(timeout=WAIT)
        with pytest.raises(TimeoutError):
            one.drain_events(timeout=0.3)
        assert len(held) == 2
        assert len(drain(other, [queue], 4)) == 4
        held[0].ack()
        held[1].requeue()
        while len(held) < 3:
            one.drain_events(timeout=WAIT)
        held[2].ack()


def test_one_message_is_got_and_a_queue_purged(connection: kombu.Connection, name: str) -> None:
    queue = kombu.Queue(name)(connection.channel())
    queue.declare()
    producer = connection.Producer()
    for text in ("a", "b", "c"):
        producer.publish(text, routing_key=name)
    message = queue.get()
    assert message.payload == "a"
    message.ack()
    assert queue.purge() == 2
    assert queue.get() is None
    queue.delete()
    producer.publish("unheard", routing_key=name)
    queue.declare()
    assert queue.get() is None


def test_a_queue_goes_with_its_last_consumer(
    connection: kombu.Connection, server: LocalServer, name: str
) -> None:
    queue = kombu.Queue(name, durable=True, auto_delete=True)
    connection.Producer().publish("one", routing_key=name, declare=[queue])
    assert drain(connection, [queue], 1) == ["one"]
    topics = server.admin().topics
    assert list(topics.stats(f"public/default/{name}")["subscriptions"]) == [name]
    connection.default_channel.close()
    assert topics.stats(f"public/default/{name}")["subscriptions"] == {}


def test_urgent_messages_come_first(
    connection: kombu.Connection, server: LocalServer, name: str
) -> None:
    queue = kombu.Queue(name)
    queue(connection.default_channel).declare()
    server.admin().topics.set_policy(f"public/default/{name}", "message-priority-window", 100)
    for priority in (0, 9, None, 5):
        connection.Producer().publish(str(priority), routing_key=name, priority=priority)
    assert drain(connection, [queue], 4) == ["9", "5", "0", "None"]


def test_a_task_with_a_time_waits_at_the_broker(connection: kombu.Connection, name: str) -> None:
    queue = kombu.Queue(name)
    later = datetime.now(UTC) + timedelta(seconds=2)
    producer = connection.Producer()
    for text, eta in (
        ("late", later.isoformat()),
        ("early", None),
        ("no zone", "2100-01-01T00:00"),
    ):
        producer.publish(text, routing_key=name, declare=[queue], headers={"eta": eta})
    assert drain(connection, [queue], 3) == ["early", "no zone", "late"]
    assert datetime.now(UTC) >= later


def test_messages_of_other_programs(
    connection: kombu.Connection, server: LocalServer, name: str
) -> None:
    queue = kombu.Queue(name)
    queue(connection.default_channel).declare()
    properties = {"content-type": "application/json", "content-encoding": "utf-8", "by": "hand"}
    with server.client() as client:
        client.create_producer(name).send(b'{"n": 1}', properties=properties)
    assert drain(connection, [queue], 1) == [{"n": 1}]


# -- exchanges


def test_a_direct_exchange_finds_queues_of_other_connections(
    connection: kombu.Connection, server: LocalServer, name: str
) -> None:
    exchange = kombu.Exchange(name, type="direct")
    red = kombu.Queue(f"{name}-red", exchange, routing_key="red")
    keys = [kombu.binding(exchange, routing_key=key) for key in ("red", "it's")]
    both = kombu.Queue(f"{name}-both", bindings=keys)
    for queue in (red, both):
        queue(connection.default_channel).declare()
    with kombu.Connection(server.service_url, transport=CLASS) as other:
        producer = other.Producer(exchange=exchange)
        for key in ("red", "it's", "blue"):
            producer.publish(key, routing_key=key)
    assert sorted(drain(connection, [both], 2)) == ["it's", "red"]
    assert drain(connection, [red], 1) == ["red"]
    assert is_silent(connection, [red, both])


@pytest.mark.parametrize("durable", [True, False])
def test_a_topic_exchange_matches_words(
    connection: kombu.Connection, server: LocalServer, name: str, durable: bool
) -> None:
    exchange = kombu.Exchange(name, type="topic")
    queue = kombu.Queue(
        name, exchange, routing_key="news.*.eu", durable=durable, auto_delete=not durable
    )
    consumer = connection.Consumer([queue], callbacks=[lambda body, message: got.append(body)])
    got: list[str] = []
    with consumer, kombu.Connection(server.service_url, transport=CLASS) as other:
        producer = other.Producer(exchange=exchange)
        for key in ("news.us", "news.sports.us", "news.sports.eu", "news.art.eu"):
            producer.publish(key, routing_key=key)
        while len(got) < 2:
            connection.drain_events(timeout=WAIT)
    assert got == ["news.sports.eu", "news.art.eu"]


def test_a_fanout_exchange_reaches_all(
    connection: kombu.Connection, server: LocalServer, name: str
) -> None:
    exchange = kombu.Exchange(name, type="fanout")
    queues = [
        kombu.Queue(f"{name}-kept", exchange),
        kombu.Queue(f"{name}-own", exchange, exclusive=True, durable=False),
        kombu.common.Broadcast(name, exchange=exchange),
    ]
    got: list[str] = []

    def take(_body: Any, message: kombu.Message) -> None:
        got.append(message.payload)
        message.ack()

    with (
        connection.Consumer(queues, callbacks=[take]),
        kombu.Connection(server.service_url, transport=CLASS) as other,
    ):
        other.Producer(exchange=exchange).publish("all")
        while len(got) < 3:
            connection.drain_events(timeout=WAIT)
    assert got == ["all"] * 3
    connection.default_channel.close()
    topics = server.admin().topics
    left = topics.stats(f"public/default/exchange:{name}")["subscriptions"]
    assert list(left) == [f"{name}-kept"]


def test_a_reply_reaches_the_queue_of_its_client(
    connection: kombu.Connection, server: LocalServer, name: str
) -> None:
    reply_to = kombu.Queue(f"{name}-reply", exclusive=True, auto_delete=True)
    reply_to(connection.default_channel).declare()
    work = kombu.Queue(name)
    connection.Producer(connection.default_channel).publish(
        "question", routing_key=name, declare=[work], reply_to=reply_to.name
    )
    with kombu.Connection(server.service_url, transport=CLASS) as server:
        message = server.SimpleQueue(work).get(timeout=WAIT)
        server.Producer().publish("answer", routing_key=message.properties["reply_to"])
        message.ack()
    assert drain(connection, [reply_to], 1, no_ack=True) == ["answer"]


def test_brokers_hear_that_a_message_is_worked_on(
    connection: kombu.Connection, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulsarish.integrations.kombu.transport.EXTEND_SECONDS", 0.01)
    extended: list[bytes] = []
    arrived = threading.Event()

    class Watched(SubscriptionSource):
        def extend(self, message: pulsarish.Message) -> None:
            super().extend(message)
            extended.append(message.data())
            arrived.set()

    monkeypatch.setattr("pulsarish.integrations.kombu.transport.SubscriptionSource", Watched)
    with connection.SimpleQueue(name) as queue:
        queue.put("long work", serializer="raw")
        message = queue.get(timeout=WAIT)
        assert arrived.wait(WAIT)
        message.ack()
    assert set(extended) == {b"long work"}


def test_a_lost_connection_is_made_again(server: LocalServer, name: str) -> None:
    with kombu.Connection(server.service_url, transport=CLASS) as connection:
        queue = kombu.Queue(name)
        producer = connection.Producer()
        producer.publish("first", routing_key=name, declare=[queue], retry=True)
        held: list[kombu.Message] = []
        connection.Consumer([queue], on_message=held.append).consume()
        while not held:
            connection.drain_events(timeout=WAIT)
        connection.collect()
        with pytest.raises(connection.connection_errors):
            held[0].ack()
        producer.publish("second", routing_key=name, declare=[queue], retry=True)
        assert sorted(drain(connection, [queue], 2)) == ["first", "second"]
    until(
        "the threads have ended",
        lambda: not any("kombu" in thread.name for thread in threading.enumerate()),
    )
