"""The client's schemas against real brokers: versions in the metadata, decoding by the writer's
schema, and what happens around a fetch.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from pulsarish.client.enums import BatchingType, ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_policies import (
    ConsumerDeadLetterPolicy,
)
from pulsarish.client.schemas.auto_consume import AutoConsumeSchema
from pulsarish.client.schemas.avro import AvroSchema
from pulsarish.client.schemas.key_value import KeyValue, KeyValueEncodingType, KeyValueSchema
from pulsarish.client.schemas.records import Long, Record, String
from pulsarish.client.schemas.schema import BytesSchema, JsonSchema, Schema, StringSchema
from pulsarish.model.errors import ConnectError, IncompatibleSchema, InvalidArgument
from pulsarish.model.schema import version_bytes
from pulsarish.model.topic_name import TopicName
from pulsarish.sim.workloads.safeguard import replaced
from tests.integration.test_broker_http import Web
from tests.support.brokered import Brokered, play_with_brokers

EARLIEST = InitialPosition.Earliest


def record(*names: str, **defaults: object) -> type[Record]:
    """A record named R of texts and, with defaults, of numbers."""
    fields: dict[str, Any] = {name: String(required=True) for name in names}
    fields |= {
        name: Long(default=value, required=True, required_default=True)
        for name, value in defaults.items()
    }
    return type("R", (Record,), fields)


ONE, TWO, THREE = record("a"), record("a", b=5), record("a", b=5, c=6)


def test_a_consumer_reads_each_message_with_the_schema_that_it_was_written_with() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        for kind, batched in ((ONE, False), (TWO, True), (THREE, False), (ONE, True)):
            producer = await client.create_producer(
                "t", schema=AvroSchema(kind), batching_enabled=batched
            )
            await asyncio.gather(*[producer.send_soon(kind(a=f"{number}")) for number in range(3)])
        consumer = await client.subscribe(
            "t", "s", schema=AvroSchema(TWO), initial_position=EARLIEST
        )
        found = [await consumer.receive() for _ in range(12)]
        assert [message.schema_version() for message in found] == [
            version_bytes(each) for each in (0, 1, 2, 0) for _ in range(3)
        ]
        assert [message.value() for message in found] == [
            TWO(a=f"{number}") for _ in range(4) for number in range(3)
        ]
        auto = await client.subscribe(
            "t", "auto", schema=AutoConsumeSchema(), initial_position=EARLIEST
        )
        values = [(await auto.receive()).value() for _ in range(12)]
        assert values[0] == values[9] == {"a": "0"}
        assert values[3] == {"a": "0", "b": 5}
        assert values[6] == {"a": "0", "b": 5, "c": 6}
        reader = await client.create_reader("t", MessageId.earliest, schema=AvroSchema(THREE))
        assert [(await reader.read_next()).value().c for _ in range(12)] == [6] * 12

    play_with_brokers(scenario, brokers=2)


class Defect(Exception):
    """What nobody has thought of."""


def test_messages_whose_schema_cannot_be_prepared_are_delivered_and_say_why() -> None:
    def fail(_was: object) -> object:
        def reader_for(_schema: object, _writer: object) -> object:
            raise Defect

        return reader_for

    async def scenario(brokered: Brokered) -> None:
        brokered.sim.nodes["client"].expect(Defect)
        client = brokered.client()
        producer = await client.create_producer("t", schema=AvroSchema(ONE), batching_enabled=False)
        await producer.send(ONE(a="1"))
        with replaced(AvroSchema, "reader_for", fail):
            consumer = await client.subscribe(
                "t", "s", schema=AvroSchema(TWO), initial_position=EARLIEST
            )
            message = await consumer.receive()
        with pytest.raises(InvalidArgument, match="Defect"):
            message.value()

    play_with_brokers(scenario, seeds=1)


def test_partitions_share_a_schema_and_a_version_is_fetched_once() -> None:
    asked: list[str] = []

    async def scenario(brokered: Brokered) -> None:
        web, client = Web(brokered.cluster), brokered.client()
        assert (await web("PUT", "/admin/v2/persistent/public/default/p/partitions", 4))[0] == 204
        producer = await client.create_producer("p", schema=AvroSchema(TWO), batching_enabled=False)
        for number in range(20):
            await producer.send(TWO(a=f"{number}"))
        lookup = client._parts.lookup
        fetch = lookup.schema

        async def counted(topic: str, version: bytes) -> Any:
            asked.append(topic)
            return await fetch(topic, version)

        lookup.schema = counted  # type: ignore[method-assign]
        consumer = await client.subscribe(
            "p",
            "s",
            schema=AvroSchema(TWO),
            initial_position=EARLIEST,
            consumer_type=ConsumerType.Shared,
        )
        found = sorted([(await consumer.receive()).value().a for _ in range(20)], key=int)
        assert found == [f"{number}" for number in range(20)]
        assert asked == [TopicName.parse("p").full]

    play_with_brokers(scenario, brokers=2, seeds=1)


def test_a_table_view_holds_values_of_every_version() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        for kind in (ONE, TWO):
            producer = await client.create_producer(
                "t", schema=AvroSchema(kind), batching_enabled=True
            )
            await asyncio.gather(
                *(
                    producer.send(kind(a=f"{kind is TWO}"), partition_key=f"{kind is TWO}{each}")
                    for each in range(3)
                )
            )
        view = await client.create_table_view("t", schema=AvroSchema(THREE))
        heard: list[tuple[str, Any]] = []
        view.for_each_and_listen(lambda key, value: heard.append((key, value)))
        assert len(view) == len(heard) == 6
        assert view.get("False1") == THREE(a="False")
        assert view.get("True1") == THREE(a="True")
        await producer.send(TWO(a="new", b=9), partition_key="True1")
        await brokered.until(lambda: len(heard) == 7)
        assert heard[-1] == ("True1", THREE(a="new", b=9))

    play_with_brokers(scenario)


@pytest.mark.parametrize("kind", ["json", "string", "dataclass", "pair"])
def test_other_schemas_have_versions_too(kind: str) -> None:
    @dataclass
    class Point:
        x: int

    schemas: dict[str, tuple[Schema, Any]] = {
        "json": (JsonSchema(TWO), TWO(a="x")),
        "string": (StringSchema(), "text"),
        "dataclass": (AvroSchema(Point), Point(3)),
        "pair": (KeyValueSchema(StringSchema(), AvroSchema(TWO)), KeyValue("k", TWO(a="x"))),
    }
    schema, value = schemas[kind]

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        # The consumer comes first: a topic that nobody has used takes its schema.
        consumer = await client.subscribe("t", "s", schema=schema)
        producer = await client.create_producer("t", schema=schema)
        await producer.send(value)
        message = await consumer.receive()
        assert (message.value(), message.schema_version()) == (value, version_bytes(0))
        with pytest.raises(IncompatibleSchema, match="its type is"):
            await client.create_producer(
                "t", schema=StringSchema() if kind != "string" else JsonSchema(TWO)
            )

    play_with_brokers(scenario, seeds=1)


def test_bytes_and_schemas_side_by_side() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        plain = await client.create_producer("t", schema=BytesSchema())
        await plain.send(b"before")
        typed = await client.create_producer("t", schema=AvroSchema(ONE))
        await typed.send(ONE(a="x"))
        await plain.send(AvroSchema(ONE).encode(ONE(a="y")))
        consumer = await client.subscribe(
            "t", "s", schema=AvroSchema(ONE), initial_position=EARLIEST
        )
        before, versioned, unversioned = [await consumer.receive() for _ in range(3)]
        with pytest.raises(InvalidArgument, match=r"read it with data\(\)"):
            before.value()
        assert before.data() == b"before"
        assert versioned.value() == ONE(a="x")
        assert (unversioned.value(), unversioned.schema_version()) == (ONE(a="y"), b"")

    play_with_brokers(scenario)


def test_messages_wait_for_their_schema_in_order_while_brokers_do_not_answer() -> None:
    """The first versions cannot be had for a while: nothing passes the messages that wait, and a
    reconnection doubles none.
    """

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        for kind in (ONE, TWO, ONE):
            producer = await client.create_producer(
                "t", schema=AvroSchema(kind), batching_enabled=False
            )
            for number in range(5):
                await producer.send(kind(a=f"{number}"))
        lookup = client._parts.lookup
        fetch = lookup.schema
        away = [True]

        async def flaky(topic: str, version: bytes) -> Any:
            if away[0]:
                raise ConnectError("nobody answers")
            return await fetch(topic, version)

        lookup.schema = flaky  # type: ignore[method-assign]
        for queue in (1_000, 1, 0):
            away[0] = True
            consumer = await client.subscribe(
                "t",
                f"s{queue}",
                schema=AvroSchema(TWO),
                initial_position=EARLIEST,
                receiver_queue_size=queue,
            )
            received = asyncio.ensure_future(consumer.receive())
            await brokered.world.clock.sleep(2.0)
            assert not received.done()
            await brokered.cluster.brokers["broker0"]._topics.unload(TopicName.parse("t"))
            await brokered.world.clock.sleep(2.0)
            assert not received.done()
            away[0] = False
            values = [(await received).value()]
            while len(values) < 15:
                message = await consumer.receive()
                values.append(message.value())
            assert [value.a for value in values] == [
                f"{number}" for _ in range(3) for number in range(5)
            ]

    play_with_brokers(scenario, seeds=2)


def test_a_version_that_is_gone_says_so_where_it_is_read() -> None:
    async def scenario(brokered: Brokered) -> None:
        web, client = Web(brokered.cluster), brokered.client()
        producer = await client.create_producer("t", schema=AvroSchema(ONE))
        await producer.send(ONE(a="old"))
        assert (await web("DELETE", "/admin/v2/schemas/public/default/t/schema"))[0] == 200
        newer = await client.create_producer("t", schema=AvroSchema(TWO))
        await newer.send(TWO(a="new"))
        consumer = await client.subscribe(
            "t", "s", schema=AvroSchema(TWO), initial_position=EARLIEST
        )
        old, new = await consumer.receive(), await consumer.receive()
        with pytest.raises(
            InvalidArgument, match=r"version 0 of the schema.*has no schema of version 0"
        ):
            old.value()
        assert old.data() == AvroSchema(ONE).encode(ONE(a="old"))
        assert (new.value(), new.schema_version()) == (TWO(a="new"), version_bytes(2))

    play_with_brokers(scenario)


def test_a_producer_keeps_its_schema_over_a_reconnection_if_it_is_compatible() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer("t", schema=AvroSchema(TWO))
        await producer.send(TWO(a="1"))
        await brokered.cluster.brokers["broker0"]._topics.unload(TopicName.parse("t"))
        await producer.send(TWO(a="2"))
        consumer = await client.subscribe(
            "t", "s", schema=AvroSchema(TWO), initial_position=EARLIEST
        )
        assert [
            ((message := await consumer.receive()).value().a, message.schema_version())
            for _ in range(2)
        ] == [
            ("1", version_bytes(0)),
            ("2", version_bytes(0)),
        ]
        wrong = record("z")
        for attempt in (
            client.create_producer("t", schema=AvroSchema(wrong)),
            client.subscribe("t", "w", schema=AvroSchema(wrong)),
        ):
            with pytest.raises(IncompatibleSchema, match="z: the field is missing"):
                await attempt
        with pytest.raises(InvalidArgument, match="takes R"):
            await producer.send(wrong(z="x"))

    play_with_brokers(scenario)


def test_dead_letters_keep_the_schema_that_they_were_written_with() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        plain = await client.create_producer("t", schema=BytesSchema())
        await plain.send(b"no value")
        for kind in (ONE, TWO):
            producer = await client.create_producer("t", schema=AvroSchema(kind))
            await producer.send(kind(a=f"{kind is TWO}"))
        consumer = await client.subscribe(
            "t",
            "s",
            schema=AvroSchema(TWO),
            initial_position=EARLIEST,
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=ConsumerDeadLetterPolicy(1),
        )
        for _ in range(6):
            await consumer.negative_acknowledge(await consumer.receive())
        # Receiving moves what is dead; nothing else comes.
        waiting = asyncio.ensure_future(consumer.receive())
        dead = await client.subscribe(
            "t-s-DLQ", "d", schema=AutoConsumeSchema(), initial_position=EARLIEST
        )
        found = [await dead.receive() for _ in range(3)]
        assert sorted(
            [(message.value(), message.schema_version()) for message in found], key=str
        ) == sorted(
            [
                (b"no value", b""),
                ({"a": "False"}, version_bytes(0)),
                ({"a": "True", "b": 5}, version_bytes(1)),
            ],
            key=str,
        )
        typed = await client.subscribe(
            "t-s-DLQ", "typed", schema=AvroSchema(THREE), initial_position=EARLIEST
        )
        values = []
        for _ in range(3):
            message = await typed.receive()
            if message.schema_version():
                values.append(message.value())
        assert sorted(values, key=repr) == [THREE(a="False"), THREE(a="True")]
        assert not waiting.done()
        waiting.cancel()

    play_with_brokers(scenario)


def test_dead_letters_without_a_place_for_their_schema_are_kept_as_bytes() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await client.create_producer("t-s-DLQ", schema=StringSchema())
        producer = await client.create_producer("t", schema=AvroSchema(ONE))
        await producer.send(ONE(a="x"))
        consumer = await client.subscribe(
            "t",
            "s",
            initial_position=EARLIEST,
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=ConsumerDeadLetterPolicy(1),
        )
        for _ in range(2):
            await consumer.negative_acknowledge(await consumer.receive())
        waiting = asyncio.ensure_future(consumer.receive())
        dead = await client.subscribe("t-s-DLQ", "d", initial_position=EARLIEST)
        message = await dead.receive()
        assert (message.data(), message.schema_version()) == (
            AvroSchema(ONE).encode(ONE(a="x")),
            b"",
        )
        waiting.cancel()

    play_with_brokers(scenario)


PAIRS = [
    KeyValue("a", TWO(a="1")),
    KeyValue("", TWO(a="2")),
    KeyValue("a", None),
    KeyValue(None, TWO(a="3")),
    KeyValue(None, None),
]


def separated() -> KeyValueSchema:
    return KeyValueSchema(StringSchema(), AvroSchema(TWO), KeyValueEncodingType.SEPARATED)


@pytest.mark.parametrize("batched", [False, True])
def test_a_separated_key_is_the_message_s_own(batched: bool) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer("t", schema=separated(), batching_enabled=batched)
        for message in [producer.send_soon(pair, properties={"n": "1"}) for pair in PAIRS]:
            await message
        with pytest.raises(InvalidArgument, match="partition_key is given"):
            await producer.send(PAIRS[0], partition_key="b")
        with pytest.raises(InvalidArgument, match="takes a KeyValue"):
            await producer.send("a")
        for schema in (separated(), AutoConsumeSchema()):
            consumer = await client.subscribe(
                "t", type(schema).__name__, schema=schema, initial_position=EARLIEST
            )
            found = [await consumer.receive() for _ in PAIRS]
            keys = [message.partition_key() for message in found]
            assert keys == ["YQ==", "", "YQ==", "", ""]
            assert [message.has_partition_key() for message in found] == [
                True,
                True,
                True,
                False,
                False,
            ]
            values = [message.value() for message in found]
            if isinstance(schema, AutoConsumeSchema):
                values = [KeyValue(key, value and TWO(**value)) for key, value in values]
            assert values == PAIRS
        view = await client.create_table_view("t", schema=separated())
        assert (len(view), view.get("")) == (1, PAIRS[1])

    play_with_brokers(scenario)


def test_separated_keys_are_kept_together_and_in_dead_letters() -> None:
    async def scenario(brokered: Brokered) -> None:
        web, client = Web(brokered.cluster), brokered.client()
        assert (await web("PUT", "/admin/v2/persistent/public/default/p/partitions", 4))[0] == 204
        producer = await client.create_producer(
            "p", schema=separated(), batching_enabled=True, batching_type=BatchingType.KeyBased
        )
        pairs = [
            KeyValue(f"k{number % 3}", TWO(a=f"{number}") if number % 4 else None)
            for number in range(12)
        ]
        await asyncio.gather(*[producer.send_soon(pair) for pair in pairs])
        consumer = await client.subscribe(
            "p",
            "s",
            schema=separated(),
            initial_position=EARLIEST,
            consumer_type=ConsumerType.KeyShared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=ConsumerDeadLetterPolicy(1),
        )
        found = [await consumer.receive() for _ in pairs]
        for key in ("k0", "k1", "k2"):
            own = [message for message in found if message.value().key == key]
            assert len({message.topic_name() for message in own}) == 1
            assert [message.value() for message in own] == [
                pair for pair in pairs if pair.key == key
            ]
        for message in found:
            await consumer.negative_acknowledge(message)
        for _ in pairs:
            await consumer.negative_acknowledge(await consumer.receive())
        waiting = asyncio.ensure_future(consumer.receive())
        dead = await client.subscribe("p-s-DLQ", "d", schema=separated(), initial_position=EARLIEST)
        assert sorted([(await dead.receive()).value() for _ in pairs], key=repr) == sorted(
            pairs, key=repr
        )
        waiting.cancel()

    play_with_brokers(scenario, seeds=2)
