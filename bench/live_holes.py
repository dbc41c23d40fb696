"""Acknowledgement holes on a real standalone broker, with a kill and a restart.

    python -m bench.live_holes [--messages 10000000] [--batch 1000]

Publishes messages in batches, acknowledges every second one by itself with our own client, kills
the broker, starts it again on the same data, and receives what is left: each message that was not
acknowledged, and none that was. Prints rates, and the resident memory of the process, which is
broker, bookie and metadata at once.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.standalone import Standalone
from pulsarish import Client, ConsumerType
from pulsarish.model.errors import Timeout

TOPIC = "persistent://public/default/holes"
SUBSCRIPTION = "s"
FLUSH_SECONDS = 5.0  # after this what was acknowledged is durable


def publish(server: Standalone, messages: int, batch: int) -> None:
    client = Client(server.url)
    producer = client.create_producer(
        TOPIC,
        batching_enabled=True,
        batching_max_messages=batch,
        batching_max_allowed_size_in_bytes=4 << 20,
        batching_max_publish_delay_ms=100,
        max_pending_messages=max(20 * batch, 10_000),
        block_if_queue_full=True,
    )
    began = time.monotonic()
    for number in range(messages):
        producer.send_async(number.to_bytes(8, "big"), None)
    producer.flush()
    print(f"published    {messages / (time.monotonic() - began):12,.0f} messages/s")
    client.close()


def subscribe(client: Client) -> Any:
    return client.subscribe(
        TOPIC, SUBSCRIPTION, consumer_type=ConsumerType.Shared, receiver_queue_size=10_000
    )


def acknowledge_every_second(server: Standalone, messages: int) -> None:
    """Receive everything, and acknowledge the odd numbers one by one."""
    client = Client(server.url)
    consumer = subscribe(client)
    began = time.monotonic()
    for _ in range(messages):
        message = consumer.receive(60_000)
        if message.data()[-1] & 1:
            consumer.acknowledge(message)
    seconds = time.monotonic() - began
    print(f"received     {messages / seconds:12,.0f} messages/s, each second one acknowledged")
    time.sleep(FLUSH_SECONDS)
    client.shutdown()


def receive_the_rest(server: Standalone, messages: int) -> None:
    client = Client(server.url)
    consumer = subscribe(client)
    seen = bytearray(messages)
    began = time.monotonic()
    first_seconds = 0.0
    acknowledged_before = again = 0
    while True:
        try:
            message = consumer.receive(10_000)
        except Timeout:
            break
        first_seconds = first_seconds or time.monotonic() - began
        number = int.from_bytes(message.data(), "big")
        acknowledged_before += number & 1
        again += seen[number]
        seen[number] = 1
        consumer.acknowledge(message)
        last = time.monotonic()
    count = sum(seen)
    print(f"first        {first_seconds:12.2f} s after the subscription")
    rate = count / (last - began)
    print(f"the rest     {rate:12,.0f} messages/s, {count:,} of {messages // 2:,}")
    print(f"twice        {again:12,}, and {acknowledged_before:,} that had been acknowledged")
    assert count == messages // 2, "each message that was left comes"
    assert not acknowledged_before, "what was acknowledged does not come"
    time.sleep(FLUSH_SECONDS)
    client.close()


def show(server: Standalone, what: str) -> None:
    found = server.subscription(TOPIC, SUBSCRIPTION)
    shown = server.admin().subscriptions.holes(TOPIC, SUBSCRIPTION)
    print(
        f"{what:12} {server.resident_mib():12,.0f} MiB; {found['msgBacklog']:,} entries, "
        f"{found['backlogMessages']:,} messages left; "
        f"{shown['acknowledgedRanges']:,} ranges and parts, {shown['memoryBytes']:,} bytes"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    _ = parser.add_argument("--messages", type=int, default=10_000_000)
    _ = parser.add_argument("--batch", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory:
        server = Standalone(
            Path(directory),
            "max_unacked_messages_per_consumer=0",
            "max_unacked_messages_per_subscription=0",
        )
        _ = server.start()
        try:
            client = Client(server.url)
            subscribe(client).close()
            client.close()
            show(server, "empty")
            publish(server, options.messages, options.batch)
            show(server, "published")
            acknowledge_every_second(server, options.messages)
            show(server, "holes")
            server.stop(signal.SIGKILL)
            print(f"restart      {server.start():12.1f} s")
            show(server, "restarted")
            receive_the_rest(server, options.messages)
            show(server, "done")
        finally:
            server.stop(signal.SIGKILL)


if __name__ == "__main__":
    main()
