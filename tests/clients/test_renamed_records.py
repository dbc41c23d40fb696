"""A topic takes a record of another name with the same fields, and Apache Pulsar's Python client
reads both as either.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.programs import Site

pulsar = pytest.importorskip(
    "pulsar", reason="left out: Apache Pulsar's Python client (pulsar-client) is not installed"
)
schemas = pytest.importorskip("pulsar.schema")


@pytest.mark.parametrize("kind", [schemas.AvroSchema, schemas.JsonSchema])
def test_a_renamed_record_follows_the_one_before(site: Site, kind: Any) -> None:
    records = [
        type(name, (schemas.Record,), {"name": schemas.String(), "age": schemas.Integer()})
        for name in ("User1", "User2")
    ]
    topic = f"persistent://public/default/renamed-{kind.__name__}"
    client = pulsar.Client(site.service_url)
    for number, record in enumerate(records):
        client.create_producer(topic, schema=kind(record)).send(record(name="Ada", age=number))
    for record in records:
        earliest = pulsar.InitialPosition.Earliest
        consumer = client.subscribe(
            topic, record.__name__, schema=kind(record), initial_position=earliest
        )
        found = [consumer.receive(20_000).value() for _ in records]
        assert [(type(each), each.name, each.age) for each in found] == [
            (record, "Ada", 0),
            (record, "Ada", 1),
        ]
    client.close()
