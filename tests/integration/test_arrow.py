"""Tables of messages from a real broker, with schemas that the topic keeps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

import pulsarish
from pulsarish import InitialPosition, MessageId
from pulsarish.schema import AutoConsumeSchema, AvroSchema, JsonSchema
from pulsarish.testing import LocalServer


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer() as server:
        yield server


@pytest.fixture
def client(server: LocalServer) -> Iterator[pulsarish.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@dataclass
class First:
    number: int


@dataclass
class Second:
    number: int
    note: str = "none"


def test_columns_are_those_of_the_newest_schema(client: pulsarish.Client, topic: str) -> None:
    with client.create_producer(topic, schema=AvroSchema(First)) as producer:
        producer.send(First(1))
    with client.create_producer(topic, schema=AvroSchema(Second)) as producer:
        producer.send(Second(2, "new"), partition_key="k")
    for schema in (AutoConsumeSchema(), AvroSchema(Second)):
        reader = client.create_reader(topic, MessageId.earliest, schema=schema)
        table = reader.to_arrow()
        assert table.column("number").to_pylist() == [1, 2]
        assert table.column("note").to_pylist() == ["none", "new"]
        assert table.column("key").to_pylist() == [None, "k"]
        reader.close()


def test_topics_with_several_schemas_are_refused_before_a_message_is_taken(
    client: pulsarish.Client, topic: str
) -> None:
    topics = [f"{topic}-{kind}" for kind in "ab"]
    consumer = client.subscribe(topics, "s", schema=AutoConsumeSchema())
    for name, kind in zip(topics, (First, Second), strict=True):
        client.create_producer(name, schema=JsonSchema(kind)).send(kind(1))
    with pytest.raises(pulsarish.InvalidArgument, match="have 2 schemas"):
        consumer.fetch_arrow()
    assert consumer.receive(5_000).value()["number"] == 1


def keys(directory: Path) -> pulsarish.CryptoKeyReader:
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (directory / "private.pem").write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    (directory / "public.pem").write_bytes(
        private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return pulsarish.CryptoKeyReader(str(directory / "public.pem"), str(directory / "private.pem"))


def test_an_encrypted_message_is_not_lost(
    client: pulsarish.Client, topic: str, tmp_path: Path
) -> None:
    key_reader = keys(tmp_path)
    consumers = {
        action: client.subscribe(
            topic,
            str(action),
            initial_position=InitialPosition.Earliest,
            crypto_failure_action=action,
        )
        for action in (
            pulsarish.ConsumerCryptoFailureAction.FAIL,
            pulsarish.ConsumerCryptoFailureAction.CONSUME,
        )
    }
    plain = client.create_producer(topic)
    sealed = client.create_producer(topic, encryption_key="k", crypto_key_reader=key_reader)
    plain.send(b"before")
    sealed.send(b"secret")
    plain.send(b"after")

    failing, consuming = consumers.values()
    assert failing.fetch_arrow(max_rows=3).table.column("value").to_pylist() == [b"before"]
    with pytest.raises(pulsarish.CryptoError):
        failing.fetch_arrow(max_rows=3)
    assert failing.fetch_arrow(max_rows=1).table.column("value").to_pylist() == [b"after"]

    table = consuming.fetch_arrow(max_rows=3).table
    assert table.column("value").to_pylist() == [b"before", None, b"after"]
    corrupt = table.column("_corrupt").to_pylist()
    assert corrupt[0] is corrupt[2] is None
    assert corrupt[1]


def test_nothing_is_imported_when_unused(server: LocalServer) -> None:
    program = (
        "import pulsarish, sys\n"
        f"with pulsarish.Client({server.service_url!r}) as client:\n"
        "    client.create_producer('t').send(b'x')\n"
        "    client.subscribe('t', 's').close()\n"
        "assert not {'pyarrow', 'pandas', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
