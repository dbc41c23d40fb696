"""Schemas that not all official clients have: what the ones in Java and Go published ours reads,
and the other way round.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.api_pb2 import Api, Method
from google.protobuf.source_context_pb2 import SourceContext
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.type_pb2 import SYNTAX_PROTO3

import pulsarish
from pulsarish.schema import (
    AutoConsumeSchema,
    AvroSchema,
    Integer,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    ProtobufNativeSchema,
    Record,
    String,
)
from tests.clients.complaints import GO_COMPLAINTS
from tests.clients.programs import ClientProgram, Site, StandingProgram

pytestmark = pytest.mark.timeout(600)  # the first one downloads and compiles

WAYS = ("single", "batched")


class Person(Record):
    age = Integer(required=True)
    name = String(required=True)


def person(number: int) -> Person:
    return Person(age=number, name=f"n{number}")


# As SchemaCrossScenarios.java has them.
PAIRS = {
    "text": [
        KeyValue("k0", person(0)),
        KeyValue("", person(1)),
        KeyValue("k2", None),
        KeyValue(None, person(3)),
        KeyValue(None, None),
    ],
    "record": [
        KeyValue(person(7), person(8)),
        KeyValue(person(7), None),
        KeyValue(None, person(9)),
    ],
}
CASES = [
    (keys, encoding, way) for keys in PAIRS for encoding in KeyValueEncodingType for way in WAYS
]
APIS = [
    Api(
        name="first",
        methods=[
            Method(name="get", request_streaming=True),
            Method(name="put", syntax=SYNTAX_PROTO3),
        ],
        source_context=SourceContext(file_name="f.proto"),
        syntax=SYNTAX_PROTO3,
    ),
    Api(version="2"),
]


def key_values(keys: str, encoding: KeyValueEncodingType) -> KeyValueSchema:
    if keys == "text":
        return KeyValueSchema(pulsarish.StringSchema(), AvroSchema(Person), encoding)
    return KeyValueSchema(AvroSchema(Person), JsonSchema(Person), encoding)


def program(
    name: str, request: pytest.FixtureRequest, directory: Path
) -> ClientProgram | StandingProgram:
    if name == "go":
        return ClientProgram(request.getfixturevalue("go_command"), directory, GO_COMPLAINTS)
    found: StandingProgram = request.getfixturevalue("java_program")
    return found


def publish(client: pulsarish.Client, topic: str, schema: Any, values: list[Any]) -> None:
    with client.create_producer(
        topic, schema=schema, batching_enabled=topic.endswith("batched")
    ) as producer:
        for value in values:
            producer.send_async(value, None)
        producer.flush()


def consume(
    client: pulsarish.Client, topic: str, schema: Any, count: int
) -> list[pulsarish.Message]:
    with client.create_reader(topic, pulsarish.MessageId.earliest, schema=schema) as reader:
        return [reader.read_next(20_000) for _ in range(count)]


def plain(value: Any) -> Any:
    """Records as dicts, as who knows no class has them."""
    if isinstance(value, KeyValue):
        return KeyValue(plain(value.key), plain(value.value))
    return {"age": value.age, "name": value.name} if isinstance(value, Person) else value


def test_key_values_of_the_java_client(site: Site, java_program: StandingProgram) -> None:
    java_program.run("key_values_publish", site, "java-key-values")
    with pulsarish.Client(site.cluster.service_urls()["pulsarish"]) as client:
        for keys, encoding, way in CASES:
            topic, wanted = f"java-key-values-{keys}-{encoding.value}-{way}", PAIRS[keys]
            found = consume(client, topic, key_values(keys, encoding), len(wanted))
            assert [message.value() for message in found] == wanted, topic
            anything = consume(client, topic, AutoConsumeSchema(), len(wanted))
            assert [message.value() for message in anything] == [plain(pair) for pair in wanted], (
                topic
            )
            publish(client, topic, key_values(keys, encoding), wanted)
            both = consume(client, topic, pulsarish.BytesSchema(), 2 * len(wanted))
            written = [
                (message.data(), message.has_partition_key(), message.partition_key())
                for message in both
            ]
            if keys == "text":  # the records' JSON is laid out in another way
                assert written[: len(wanted)] == written[len(wanted) :], topic
            told, own = (each["properties"] for each in site.admin.schemas.list(topic))
            assert set(told) == set(own)
            for name in ("kv.encoding.type", "key.schema.type", "value.schema.type"):
                assert told[name] == own[name], topic


def test_key_values_for_the_java_client(site: Site, java_program: StandingProgram) -> None:
    with pulsarish.Client(site.cluster.service_urls()["pulsarish"]) as client:
        for keys, encoding, way in CASES:
            publish(
                client,
                f"our-key-values-{keys}-{encoding.value}-{way}",
                key_values(keys, encoding),
                PAIRS[keys],
            )
    java_program.run("key_values_consume", site, "our-key-values")


def check_dicts(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert (first["name"], first["syntax"], first["source_context"]) == (
        "first",
        "SYNTAX_PROTO3",
        {"file_name": "f.proto"},
    )
    assert [(method["name"], method["request_streaming"]) for method in first["methods"]] == [
        ("get", True),
        ("put", False),
    ]
    assert (second["version"], second["methods"], second["source_context"]) == ("2", [], None)


@pytest.mark.parametrize("name", ["java", "go"])
def test_protobuf_of_another_client(
    name: str, site: Site, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    program(name, request, tmp_path).run("protobuf_publish", site, name)
    with pulsarish.Client(site.cluster.service_urls()["pulsarish"]) as client:
        for way in WAYS:
            topic = f"{name}-protobuf-{way}"
            found = consume(client, topic, ProtobufNativeSchema(Api), len(APIS))
            assert [message.value() for message in found] == APIS
            # The client in Go does not say by which version a message was written that is in no
            # batch.
            has_version = name == "java" or way == "batched"
            assert {bool(message.schema_version()) for message in found} == {has_version}
            if has_version:
                check_dicts(
                    *[
                        message.value()
                        for message in consume(client, topic, AutoConsumeSchema(), len(APIS))
                    ]
                )
            publish(client, topic, ProtobufNativeSchema(Api), APIS)
            both = [
                message.data()
                for message in consume(client, topic, pulsarish.BytesSchema(), 2 * len(APIS))
            ]
            assert both[: len(APIS)] == both[len(APIS) :]
            with pytest.raises(pulsarish.IncompatibleSchema, match=r"google\.protobuf\.Timestamp"):
                client.create_producer(topic, schema=ProtobufNativeSchema(Timestamp))


@pytest.mark.parametrize("name", ["java", "go"])
def test_protobuf_for_another_client(
    name: str, site: Site, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with pulsarish.Client(site.cluster.service_urls()["pulsarish"]) as client:
        for way in WAYS:
            publish(client, f"for-{name}-protobuf-{way}", ProtobufNativeSchema(Api), APIS)
    program(name, request, tmp_path).run("protobuf_consume", site, f"for-{name}")
