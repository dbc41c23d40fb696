"""Rows a second that a consumer gets as an Arrow table, against a loop with ``receive()``.

    python -m bench.arrow

A server in this process; one topic of JSON records in batches, read by each way in turn.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import pulsarish
from pulsarish import InitialPosition
from pulsarish.testing import LocalServer

ROWS = 50_000
RUNS = 5


@dataclass
class Order:
    number: int
    price: float
    customer: str


def fetched(consumer: pulsarish.Consumer) -> int:
    rows = 0
    while rows < ROWS:
        batch = consumer.fetch_arrow()
        consumer.acknowledge(batch.messages)
        rows += batch.table.num_rows
    return rows


def received(consumer: pulsarish.Consumer) -> int:
    """The values only."""
    values = []
    for _ in range(ROWS):
        message = consumer.receive()
        values.append(message.value())
        consumer.acknowledge(message)
    return len(values)


def received_as_table(consumer: pulsarish.Consumer) -> int:
    """The table that a program makes itself, with the message's key and times."""
    rows: list[dict[str, Any]] = []
    for _ in range(ROWS):
        message = consumer.receive()
        value, place = message.value(), message.message_id()
        rows.append(
            {
                "number": value.number,
                "price": value.price,
                "customer": value.customer,
                "key": message.partition_key(),
                "properties": message.properties(),
                "topic": message.topic_name(),
                "partition": place.partition(),
                "ledger": place.ledger_id(),
                "entry": place.entry_id(),
                "batch_index": place.batch_index(),
                "publish_time": message.publish_timestamp(),
                "event_time": message.event_timestamp(),
                "sequence_id": message.sequence_id(),
                "producer_name": message.producer_name(),
            }
        )
        consumer.acknowledge(message)
    return pa.Table.from_pylist(rows).num_rows


WAYS: dict[str, Callable[[pulsarish.Consumer], int]] = {
    "fetch_arrow()": fetched,
    "receive(), the same columns": received_as_table,
    "receive(), values only": received,
}


def main() -> None:
    schema = pulsarish.JsonSchema(Order)
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    with LocalServer() as server, server.client() as client:
        producer = client.create_producer(
            "orders", schema=schema, batching_enabled=True, block_if_queue_full=True
        )
        keep = client.subscribe("orders", "keep", initial_position=InitialPosition.Earliest)
        for number in range(ROWS):
            producer.send_async(Order(number, number / 4, f"customer {number % 100}"), None)
        producer.flush()
        for run in range(RUNS):
            for way, read in WAYS.items():
                consumer = client.subscribe(
                    "orders",
                    f"{way} {run}",
                    initial_position=InitialPosition.Earliest,
                    schema=schema,
                )
                began = time.perf_counter()
                assert read(consumer) == ROWS
                rates[way].append(ROWS / (time.perf_counter() - began))
                consumer.close()
        keep.close()
    for way, found in rates.items():
        middle = statistics.median(found)
        print(f"{way:30} {middle:9,.0f} rows/s ({min(found):,.0f}-{max(found):,.0f})")


if __name__ == "__main__":
    main()
