"""What one client published the others consume: cross_client.py MODULE cross_publish|cross_consume
SERVICE_URL ADMIN_URL NAME.

``MODULE`` is ``pulsar``, Apache Pulsar's official Python client, or ``pulsarish``, ours, which has
its names. The cases are the same in the programs of the other clients; ``NAME`` ends with the
publisher's name.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

MODULE, SCENARIO, SERVICE_URL, _, NAME = sys.argv[1:]
client_module = import_module(MODULE)
schemas = import_module(f"{MODULE}.schema")

RECEIVE_MS = 20_000
COMPRESSIONS = {"none": "NONE", "lz4": "LZ4", "zlib": "ZLib", "zstd": "ZSTD", "snappy": "SNAPPY"}
BIG = bytes(range(256)) * (6 << 12)
COUNT = 10


class Person(schemas.Record):  # type: ignore[misc, name-defined]
    age = schemas.Integer(required=True)
    name = schemas.String(required=True)


def cases() -> list[str]:
    # The client in Go has no Snappy.
    snappy = not NAME.endswith("-go")
    kinds = [kind for kind in COMPRESSIONS if kind != "snappy" or snappy]
    return [f"{kind}-{way}" for kind in kinds for way in ("single", "batched")] + [
        "keyed",
        "chunked",
        "json",
        "avro",
    ]


def schema_of(case: str) -> dict[str, Any]:
    made = {"json": schemas.JsonSchema, "avro": schemas.AvroSchema}.get(case)
    return {"schema": made(Person)} if made else {}


def producer_options(case: str) -> dict[str, Any]:
    kind, _, way = case.partition("-")
    options: dict[str, Any] = {"batching_enabled": way == "batched"}
    if case == "keyed":
        options = {"batching_enabled": True, "batching_type": client_module.BatchingType.KeyBased}
    elif case == "chunked":
        options = {"batching_enabled": False, "chunking_enabled": True}
    elif way:
        options["compression_type"] = getattr(client_module.CompressionType, COMPRESSIONS[kind])
    return {**options, **schema_of(case)}


def content(case: str, number: int) -> Any:
    if case == "chunked":
        return BIG
    text = f"{case}-{number}"
    return Person(age=number, name=text) if case in {"json", "avro"} else text.encode()


def publish(client: Any, case: str) -> None:
    producer = client.create_producer(
        f"persistent://public/default/{NAME}-{case}", **producer_options(case)
    )
    for number in range(1 if case == "chunked" else COUNT):
        producer.send_async(
            content(case, number),
            None,
            properties={"n": str(number)},
            partition_key=f"k{number % 3}",
        )
    producer.flush()
    producer.close()


def consume(client: Any, case: str) -> None:
    first = client_module.InitialPosition.Earliest
    topic = f"persistent://public/default/{NAME}-{case}"
    consumer = client.subscribe(topic, MODULE, initial_position=first, **schema_of(case))
    found = []
    for _ in range(1 if case == "chunked" else COUNT):
        message = consumer.receive(RECEIVE_MS)
        number = int(message.properties()["n"])
        assert message.partition_key() == f"k{number % 3}", (case, number, message.partition_key())
        value, wanted = message.value(), content(case, number)
        if case in {"json", "avro"}:
            value, wanted = (value.age, value.name), (wanted.age, wanted.name)
        assert value == wanted, (
            f"{case} {number}: found {str(value)[:100]}, wanted {str(wanted)[:100]}"
        )
        found.append(number)
        consumer.acknowledge(message)
    assert (sorted(found) if case == "keyed" else found) == list(range(len(found))), (case, found)
    consumer.close()


def main() -> None:
    client = client_module.Client(SERVICE_URL)
    for case in cases():
        (publish if SCENARIO == "cross_publish" else consume)(client, case)
    client.close()


main()
