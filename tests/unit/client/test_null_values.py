"""Messages with a null value: content that is ``None``, which is not empty content."""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.client.enums import CompressionType, InitialPosition
from pulsarish.client.messages.message import Message
from pulsarish.client.schemas.key_value import KeyValue, KeyValueEncodingType, KeyValueSchema
from pulsarish.client.schemas.schema import BytesSchema, JsonSchema, StringSchema
from pulsarish.wire.entry import decode_metadata, encoded_metadata
from tests.support.client_world import Cast, play

TOPIC = "persistent://public/default/t"


async def received(cast: Cast, count: int, **options: Any) -> list[Message]:
    consumer = await cast.client().subscribe(
        "t", "s", initial_position=InitialPosition.Earliest, **options
    )
    return [await consumer.receive(1_000) for _ in range(count)]


@pytest.mark.parametrize(
    "options",
    [
        {"batching_enabled": False},
        {"batching_enabled": True},
        {"batching_enabled": True, "compression_type": CompressionType.LZ4},
        {"batching_enabled": False, "compression_type": CompressionType.ZSTD},
        {"chunking_enabled": True, "batching_enabled": False},
    ],
    ids=",".join,
)
def test_none_is_a_null_value_and_empty_content_is_not(options: dict[str, Any]) -> None:
    async def scenario(cast: Cast) -> None:
        producer = await cast.client().create_producer("t", **options)
        sent = [
            producer.send_soon(None, partition_key="k", properties={"n": "0"}),
            producer.send_soon(b"", partition_key="k"),
            producer.send_soon(b"text"),
            producer.send_soon(None),
        ]
        for each in sent:
            await each
        messages = await received(cast, 4)
        assert [message.has_null_value() for message in messages] == [True, False, False, True]
        assert [message.value() for message in messages] == [None, b"", b"text", None]
        assert [message.data() for message in messages] == [b"", b"", b"text", b""]
        assert messages[0].partition_key() == "k"
        assert messages[0].properties() == {"n": "0"}

    play(scenario)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (StringSchema(), "text"),
        (BytesSchema(), b"bytes"),
        (JsonSchema(), {"a": 1}),
        (KeyValueSchema(StringSchema(), StringSchema()), KeyValue("k", "v")),
    ],
    ids=["string", "bytes", "json", "key and value"],
)
def test_every_schema_takes_none(schema: Any, value: Any) -> None:
    async def scenario(cast: Cast) -> None:
        producer = await cast.client().create_producer("t", schema=schema)
        await producer.send(value)
        await producer.send(None)
        messages = await received(cast, 2, schema=schema)
        assert [message.value() for message in messages] == [value, None]
        assert [message.has_null_value() for message in messages] == [False, True]

    play(scenario)


def test_none_has_the_key_that_the_program_gives_where_the_schema_makes_keys() -> None:
    schema = KeyValueSchema(StringSchema(), StringSchema(), KeyValueEncodingType.SEPARATED)

    async def scenario(cast: Cast) -> None:
        producer = await cast.client().create_producer("t", schema=schema)
        await producer.send(KeyValue("key", None))
        await producer.send(None, partition_key="a2V5")
        messages = await received(cast, 2, schema=schema)
        assert [message.has_null_value() for message in messages] == [True, True]
        assert messages[0].value() == KeyValue("key", None)
        assert messages[1].partition_key() == "a2V5"

    play(scenario)


def test_brokers_are_told_of_a_null_value_that_is_alone() -> None:
    async def scenario(cast: Cast) -> None:
        producer = await cast.client().create_producer("t", batching_enabled=False)
        await producer.send(None, partition_key="k")
        (stored,) = cast.cluster.topic(TOPIC).entries
        metadata = decode_metadata(encoded_metadata(stored))
        assert metadata.null_value
        assert metadata.partition_key == "k"

    play(scenario)


def test_a_null_value_removes_its_key_from_a_table_view() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", schema=StringSchema())
        for key in ("a", "b"):
            await producer.send(f"value of {key}", partition_key=key)
        view = await client.create_table_view("t", schema=StringSchema())
        changes: list[tuple[str, Any]] = []
        view.for_each_and_listen(lambda key, value: changes.append((key, value)))
        await producer.send(None, partition_key="a")
        await cast.sleep(1)
        assert view.get("a") is None
        assert view.get("b") == "value of b"
        assert len(view) == 1
        assert changes == [("a", "value of a"), ("b", "value of b"), ("a", None)]
        await view.close()

    play(scenario)
