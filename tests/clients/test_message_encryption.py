"""What our own client encrypts Apache Pulsar's clients in Python and Java decrypt, and the other
way round.
"""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

import pulsarish
import pulsarish.asyncio
from tests.clients.programs import Site, StandingProgram
from tests.support.message_keys import Pair, curve_pair, rsa_pair

pulsar = pytest.importorskip(
    "pulsar", reason="left out: Apache Pulsar's Python client (pulsar-client) is not installed"
)

pytestmark = pytest.mark.timeout(600)  # the first one with Java downloads and compiles

PAIRS = [(pulsarish, pulsar), (pulsar, pulsarish)]
WAYS = ("single", "batched", "chunked")
COUNT = 5


def url_of(site: Site, module: ModuleType) -> str:
    return site.cluster.service_urls()["pulsarish" if module is pulsarish else "pulsar"]


def contents(way: str) -> list[bytes]:
    if way == "chunked":
        return [Random(7).randbytes(12 << 20)]
    return [b"%d" % number * 50 for number in range(COUNT)]


def producer_options(module: ModuleType, way: str) -> dict[str, Any]:
    return {
        "batching_enabled": way == "batched",
        "batching_max_publish_delay_ms": 60_000,  # one batch, which the flush ends
        "chunking_enabled": way == "chunked",
        "compression_type": getattr(module.CompressionType, "NONE" if way == "single" else "LZ4"),
        "encryption_key": "own",
    }


def publish(client: Any, module: ModuleType, topic: str, way: str, reader: Any) -> None:
    producer = client.create_producer(
        topic, crypto_key_reader=reader, **producer_options(module, way)
    )
    for content in contents(way):
        producer.send_async(
            content, None, partition_key="k", properties={"crc": str(zlib.crc32(content))}
        )
    producer.flush()
    producer.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("sender", "receiver"), PAIRS, ids=["from ours", "from theirs"])
def test_each_decrypts_what_the_other_encrypted(
    sender: ModuleType, receiver: ModuleType, way: str, site: Site, tmp_path: Path
) -> None:
    own, other = rsa_pair().files(tmp_path, "own"), rsa_pair().files(tmp_path, "other")
    topic = f"encrypted-{sender.__name__}-{way}"
    with_sender = sender.Client(url_of(site, sender))
    publish(with_sender, sender, topic, way, sender.CryptoKeyReader(*own))
    with_sender.close()
    client = receiver.Client(url_of(site, receiver))
    wanted = contents(way)
    options = {"initial_position": receiver.InitialPosition.Earliest}
    consumer = client.subscribe(
        topic, "s", crypto_key_reader=receiver.CryptoKeyReader(*own), **options
    )
    messages = [consumer.receive(20_000) for _ in wanted]
    assert [message.data() for message in messages] == wanted
    assert {message.partition_key() for message in messages} == {"k"}
    context = messages[0].encryption_context()
    keys = context.keys()
    assert [key.key for key in keys] == ["own"]
    assert [key.metadata for key in keys] == [{}]
    assert [len(key.value) for key in keys] == [256]
    assert len(context.param()) == 12
    assert context.algorithm() == ""
    assert not context.is_decryption_failed()
    assert context.batch_size() == (COUNT if way == "batched" else -1)
    assert context.compression_type().name == ("NONE" if way == "single" else "LZ4")
    consumer.close()
    if way != "chunked":
        blind = client.subscribe(
            topic,
            "blind",
            crypto_key_reader=receiver.CryptoKeyReader(*other),
            crypto_failure_action=receiver.ConsumerCryptoFailureAction.CONSUME,
            **options,
        )
        message = blind.receive(20_000)
        assert message.data() not in wanted
        context = message.encryption_context()
        assert context.is_decryption_failed()
        assert context.batch_size() == (COUNT if way == "batched" else -1)
        assert (context.uncompressed_message_size() > 0) == (way == "batched")
    client.close()


def test_the_awaitable_client_encrypts_and_decrypts(site: Site, tmp_path: Path) -> None:
    keys = pulsarish.CryptoKeyReader(*rsa_pair().files(tmp_path, "own"))

    async def both() -> None:
        async with pulsarish.asyncio.Client(url_of(site, pulsarish)) as client:
            producer = await client.create_producer(
                "encrypted-awaitable", encryption_key="own", crypto_key_reader=keys
            )
            await asyncio.gather(*(producer.send(b"%d" % number) for number in range(3)))
            reader = await client.create_reader(
                "encrypted-awaitable", pulsarish.MessageId.earliest, crypto_key_reader=keys
            )
            messages = [await reader.read_next(20_000) for _ in range(3)]
            assert [message.data() for message in messages] == [b"0", b"1", b"2"]
            context = messages[0].encryption_context()
            assert context is not None
            assert not context.is_decryption_failed()

    asyncio.run(both())


@pytest.mark.parametrize("kind", ["rsa", "curve"])
def test_java_and_ours_decrypt_each_other(
    kind: str, site: Site, java_program: StandingProgram, tmp_path: Path
) -> None:
    pair: Pair = {"rsa": rsa_pair, "curve": curve_pair}[kind]()
    reader = pair.reader(tmp_path, "own")
    with pulsarish.Client(url_of(site, pulsarish)) as client:
        for name in (f"java-{kind}", f"ours-{kind}"):
            keys = client.create_producer(f"{name}-keys")
            keys.send(pair.public, partition_key="public")
            keys.send(pair.private, partition_key="private")
        for way in WAYS:
            publish(client, pulsarish, f"ours-{kind}-{way}", way, reader)
        java_program.run("encrypted_consume", site, f"ours-{kind}")
        java_program.run("encrypted_publish", site, f"java-{kind}")
        for way in WAYS:
            consumer = client.subscribe(
                f"java-{kind}-{way}",
                "s",
                initial_position=pulsarish.InitialPosition.Earliest,
                crypto_key_reader=reader,
            )
            for _ in contents(way):
                message = consumer.receive(20_000)
                assert str(zlib.crc32(message.data())) == message.properties()["crc"]
                context = message.encryption_context()
                assert context is not None
                assert context.keys()[0].metadata == {"version": "3"}
