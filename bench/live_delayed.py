"""Delayed messages on a real standalone broker, with a kill and a restart.

    python -m bench.live_delayed [--messages 5000000] [--hours 24]

Publishes messages that are due at random times of the next hours, kills the broker, starts it
again on the same data, and looks at what a new owner reads. Then publishes a thousand that are due
soon: each must come, none early. Prints rates, and the resident memory of the process, which is
broker, bookie and metadata at once.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measure import wait_until
from bench.standalone import Standalone
from pulsarish import Client, ConsumerType
from pulsarish.model.errors import PulsarishError

TOPIC = "persistent://public/default/delayed"
SUBSCRIPTION = "s"
SOON, SOON_SECONDS = 1_000, 10.0


def subscribe(client: Client) -> Any:
    return client.subscribe(TOPIC, SUBSCRIPTION, consumer_type=ConsumerType.Shared)


def publish(client: Client, due_ms: list[int]) -> None:
    """Publish one message for each time, whose content is that time."""
    producer = client.create_producer(TOPIC, max_pending_messages=10_000, block_if_queue_full=True)
    began = time.monotonic()
    for at in due_ms:
        producer.send_async(at.to_bytes(8, "big"), None, deliver_at=at)
    producer.flush()
    producer.close()
    print(f"published    {len(due_ms) / (time.monotonic() - began):12,.0f} messages/s", flush=True)


def wait_for(server: Standalone, messages: int) -> None:
    """Wait until the broker knows of each message that it is delayed."""
    began = time.monotonic()

    def is_indexed() -> bool:
        try:
            found: int = server.subscription(TOPIC, SUBSCRIPTION)["msgDelayed"]
        except (PulsarishError, KeyError):
            return False  # it has just been started
        return found >= messages

    wait_until("all messages are indexed", is_indexed, every_seconds=0.2)
    print(f"indexed      {time.monotonic() - began:12,.1f} s later", flush=True)


def receive_soon(consumer: Any, due_ms: list[int]) -> None:
    late = []
    for _ in due_ms:
        message = consumer.receive(60_000)
        late.append(time.time() * 1000 - int.from_bytes(message.data(), "big"))
        consumer.acknowledge(message)
    print(f"due          {len(late):12,} came {min(late):,.0f} to {max(late):,.0f} ms late")
    assert min(late) >= 0, "none comes early"


def show(server: Standalone, what: str) -> None:
    found = server.subscription(TOPIC, SUBSCRIPTION)
    print(
        f"{what:12} {server.resident_mib():12,.0f} MiB; {found['msgDelayed']:,} delayed in "
        f"{found['delayedMessageBuckets']:,} buckets, "
        f"{found['delayedMessageIndexSizeInBytes']:,} bytes",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    _ = parser.add_argument("--messages", type=int, default=5_000_000)
    _ = parser.add_argument("--hours", type=float, default=24.0)
    options = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="pulsarish-bench-") as directory:
        server = Standalone(Path(directory))
        _ = server.start()
        try:
            client = Client(server.url)
            consumer = subscribe(client)
            show(server, "empty")
            now = int(time.time() * 1000)
            # None is due during the run: the first of them comes in an hour.
            due = [
                now + int(rng.uniform(1.0, 1.0 + options.hours) * 3_600_000)
                for _ in range(options.messages)
            ]
            publish(client, due)
            wait_for(server, options.messages)
            show(server, "published")
            client.shutdown()
            server.stop(signal.SIGKILL)
            print(f"restart      {server.start():12.1f} s")
            client = Client(server.url)
            consumer = subscribe(client)
            wait_for(server, options.messages)
            show(server, "restarted")
            soon = [int((time.time() + SOON_SECONDS) * 1000) for _ in range(SOON)]
            publish(client, soon)
            receive_soon(consumer, soon)
            show(server, "done")
            client.close()
        finally:
            server.stop(signal.SIGKILL)


if __name__ == "__main__":
    main()
