"""Messages that a producer encrypts and a consumer decrypts, with good keys and bad ones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pulsarish.client.api.asyncio_client import AsyncReader
from pulsarish.client.enums import (
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
)
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerDeadLetterPolicy
from pulsarish.client.messages.encryption_context import EncryptionContext
from pulsarish.client.messages.message import Message
from pulsarish.client.producer.encryption import DATA_KEY_SECONDS
from pulsarish.client.schemas.schema import StringSchema
from pulsarish.model.errors import CryptoError, InvalidArgument, Timeout
from pulsarish.runtime.crypto_key_reader import CryptoKeyReader
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry, split_entry
from tests.support.client_world import Cast, play
from tests.support.message_keys import Pair, curve_pair, rsa_pair

TOPIC = "persistent://public/default/t"
OWN, OTHER, CURVE = rsa_pair(), rsa_pair(), curve_pair()
CONSUME = ConsumerCryptoFailureAction.CONSUME
DISCARD = ConsumerCryptoFailureAction.DISCARD
FAIL = ConsumerCryptoFailureAction.FAIL


class Keys(CryptoKeyReader):
    """Keys that are held by name; notes what it was asked for."""

    def __init__(self, **pairs: Pair) -> None:
        super().__init__("", "")
        self._pairs = pairs
        self.asked: list[str] = []

    def _pair(self, name: str) -> Pair:
        self.asked.append(name)
        if name not in self._pairs:
            raise CryptoError(f"there is no key {name}")
        return self._pairs[name]

    def public_key(self, name: str, metadata: Mapping[str, str]) -> bytes:
        return self._pair(name).public

    def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes:
        return self._pair(name).private


async def publish(cast: Cast, contents: list[Any], **options: Any) -> None:
    options.setdefault("crypto_key_reader", Keys(own=OWN))
    options.setdefault("encryption_key", "own")
    producer = await cast.client().create_producer("t", **options)
    sent = [
        producer.send_soon(content, partition_key=f"k{number}", properties={"n": str(number)})
        for number, content in enumerate(contents)
    ]
    for each in sent:
        await each


async def subscribe(cast: Cast, **options: Any) -> Any:
    options.setdefault("crypto_key_reader", Keys(own=OWN))
    options.setdefault("initial_position", InitialPosition.Earliest)
    return await cast.client().subscribe("t", "s", **options)


def names_of(context: EncryptionContext | None) -> list[str]:
    assert context is not None
    keys = context.keys()
    return [key.key for key in keys]


def stored(cast: Cast) -> list[tuple[MessageMetadata, bytes]]:
    return [
        (metadata, bytes(payload))
        for metadata, payload in map(split_entry, cast.cluster.topic(TOPIC).entries)
    ]


@pytest.mark.parametrize("pair", [OWN, CURVE], ids=["rsa", "curve"])
@pytest.mark.parametrize(
    "options",
    [
        {"batching_enabled": False},
        {"batching_enabled": True},
        {"batching_enabled": False, "compression_type": CompressionType.ZSTD},
        {"batching_enabled": True, "compression_type": CompressionType.LZ4},
        {"batching_enabled": False, "chunking_enabled": True},
    ],
    ids=["single", "batch", "single packed", "batch packed", "chunking"],
)
def test_what_is_encrypted_comes_back(options: dict[str, Any], pair: Pair) -> None:
    async def scenario(cast: Cast) -> None:
        contents = ["secret" * 20, "", "other secret", None]
        keys = Keys(own=pair)
        await publish(cast, contents, schema=StringSchema(), crypto_key_reader=keys, **options)
        for metadata, payload in stored(cast):
            assert [key.key for key in metadata.encryption_keys] == ["own"]
            assert len(metadata.encryption_param) == 12
            assert not metadata.encryption_algo
            assert b"secret" not in payload
        consumer = await subscribe(cast, schema=StringSchema(), crypto_key_reader=keys)
        keys.asked.clear()
        messages: list[Message] = [await consumer.receive(1_000) for _ in contents]
        assert [message.value() for message in messages] == contents
        assert [message.partition_key() for message in messages] == ["k0", "k1", "k2", "k3"]
        assert keys.asked == ["own"], "the data key is decrypted once"
        context = messages[0].encryption_context()
        assert context is not None
        assert names_of(context) == ["own"]
        assert context.keys()[0].metadata == {}
        assert len(context.param()) == 12
        assert not context.algorithm()
        assert not context.is_decryption_failed()
        kind = options.get("compression_type", CompressionType.NONE)
        assert context.compression_type() is kind
        assert (context.uncompressed_message_size() > 0) == (kind is not CompressionType.NONE)
        assert context.batch_size() == (4 if options["batching_enabled"] else -1)
        await cast.sleep(1)

    play(scenario, seeds=1)


def test_a_message_in_chunks_is_encrypted_chunk_by_chunk() -> None:
    content = bytes(range(256)) * 200

    async def scenario(cast: Cast) -> None:
        cast.broker.max_message_bytes = 10_000
        await publish(cast, [content], batching_enabled=False, chunking_enabled=True)
        entries = stored(cast)
        assert len(entries) > 5
        assert len({metadata.encryption_param for metadata, _ in entries}) == len(entries)
        assert all(len(payload) <= 10_000 for _, payload in entries)
        assert {metadata.total_chunk_msg_size for metadata, _ in entries} == {len(content)}
        consumer = await subscribe(cast)
        assert (await consumer.receive(1_000)).data() == content
        await consumer.close()
        blind = await subscribe(cast, crypto_key_reader=None, crypto_failure_action=CONSUME)
        message = await blind.receive(1_000)
        assert message.data() == b"".join(payload for _, payload in entries)
        context = message.encryption_context()
        assert context is not None
        assert context.is_decryption_failed()
        assert context.param() == entries[0][0].encryption_param

    play(scenario, seeds=1)


def test_one_of_several_keys_is_enough() -> None:
    async def scenario(cast: Cast) -> None:
        keys = Keys(own=OWN, curve=CURVE)
        await publish(cast, [b"x"], encryption_key=["curve", "own"], crypto_key_reader=keys)
        for number, reader in enumerate((Keys(own=OWN), Keys(curve=CURVE), keys)):
            consumer = await cast.client().subscribe(
                "t",
                f"s{number}",
                initial_position=InitialPosition.Earliest,
                crypto_key_reader=reader,
            )
            message = await consumer.receive(1_000)
            assert message.data() == b"x"
            assert names_of(message.encryption_context()) == ["curve", "own"]

    play(scenario, seeds=1)


def bad_keys(tmp_path: Path) -> list[tuple[CryptoKeyReader | None, str]]:
    public, private = OWN.files(tmp_path, "own")
    missing = str(tmp_path / "missing.pem")
    return [
        (None, "the consumer has no keys: give it a crypto_key_reader"),
        (
            CryptoKeyReader(public, missing),
            rf"key 'own': private_key_path '{missing}' cannot be read \(No such file",
        ),
        (CryptoKeyReader(public, str(tmp_path)), r"key 'own': .* cannot be read \(Is a directory"),
        (CryptoKeyReader(private, public), rf"key 'own': private_key_path '{public}': .*in PEM"),
        (OTHER.reader(tmp_path, "other"), "key 'own': private_key_path '.*other.*another key"),
        (CURVE.reader(tmp_path, "curve"), "key 'own': private_key_path '.*curve.*another key"),
    ]


@pytest.mark.parametrize("number", range(6))
def test_fail_raises_in_the_place_of_the_message(number: int, tmp_path: Path) -> None:
    reader, words = bad_keys(tmp_path)[number]

    async def scenario(cast: Cast) -> None:
        await publish(cast, [b"secret"])
        await (await cast.client().create_producer("t")).send(b"plain")
        consumer = await subscribe(cast, crypto_key_reader=reader)
        with pytest.raises(CryptoError, match=words) as caught:
            await consumer.receive(1_000)
        assert "is encrypted" in str(caught.value)
        assert "-----BEGIN" not in str(caught.value)
        message = await consumer.receive(1_000)
        assert message.data() == b"plain"
        assert message.encryption_context() is None
        await consumer.acknowledge(message)
        await cast.sleep(1)
        assert cast.cluster.topic(TOPIC).subscriptions["s"].acked == {1}

    play(scenario, seeds=1)


@pytest.mark.parametrize("batching", [False, True])
def test_a_message_comes_again_after_its_timeout_when_the_key_is_there(*, batching: bool) -> None:
    async def scenario(cast: Cast) -> None:
        await publish(cast, [b"a", b"b"], batching_enabled=batching)
        keys = Keys()
        consumer = await subscribe(
            cast,
            consumer_type=ConsumerType.Shared,
            unacked_messages_timeout_ms=10_000,
            crypto_key_reader=keys,
        )
        for _ in range(1 if batching else 2):
            with pytest.raises(CryptoError):
                await consumer.receive(1_000)
        keys._pairs = {"own": OWN}
        with pytest.raises(Timeout):
            await consumer.receive(8_000)
        received = [await consumer.receive(4_000) for _ in range(2)]
        assert sorted(message.data() for message in received) == [b"a", b"b"]
        for message in received:
            await consumer.acknowledge(message)
        with pytest.raises(Timeout):
            await consumer.receive(30_000)

    play(scenario, seeds=1)


@pytest.mark.parametrize("number", range(6))
def test_discard_acknowledges(number: int, tmp_path: Path) -> None:
    reader, _ = bad_keys(tmp_path)[number]

    async def scenario(cast: Cast) -> None:
        await publish(cast, [b"secret"])
        await (await cast.client().create_producer("t")).send(b"plain")
        consumer = await subscribe(cast, crypto_key_reader=reader, crypto_failure_action=DISCARD)
        assert (await consumer.receive(1_000)).data() == b"plain"
        await cast.sleep(1)
        assert 0 in cast.cluster.topic(TOPIC).subscriptions["s"].acked

    play(scenario, seeds=1)


@pytest.mark.parametrize("number", range(6))
def test_consume_delivers_what_is_stored(number: int, tmp_path: Path) -> None:
    reader, _ = bad_keys(tmp_path)[number]

    async def scenario(cast: Cast) -> None:
        await publish(cast, [b"a" * 99, b"b"], compression_type=CompressionType.LZ4)
        ((metadata, payload),) = stored(cast)
        consumer = await subscribe(cast, crypto_key_reader=reader, crypto_failure_action=CONSUME)
        message = await consumer.receive(1_000)
        assert message.data() == payload
        context = message.encryption_context()
        assert context is not None
        assert context.is_decryption_failed()
        assert context.batch_size() == 2
        assert context.compression_type() is CompressionType.LZ4
        assert context.uncompressed_message_size() == metadata.uncompressed_size
        assert context.keys()[0].value == metadata.encryption_keys[0].value
        assert "is_decryption_failed=True" in repr(context)
        with pytest.raises(CryptoError, match="was not decrypted"):
            message.value()
        with pytest.raises(Timeout):
            await consumer.receive(10)

    play(scenario, seeds=1)


def test_consume_decrypts_where_it_can() -> None:
    async def scenario(cast: Cast) -> None:
        await publish(cast, [b"secret"])
        await publish(cast, [b"other"], encryption_key="b", crypto_key_reader=Keys(b=OTHER))
        consumer = await subscribe(cast, crypto_failure_action=CONSUME)
        first, second = [await consumer.receive(1_000) for _ in range(2)]
        assert first.data() == b"secret"
        assert not first.encryption_context().is_decryption_failed()
        assert second.encryption_context().is_decryption_failed()

    play(scenario, seeds=1)


@pytest.mark.parametrize("action", [FAIL, DISCARD, CONSUME], ids=lambda action: action.name)
def test_one_flipped_bit_is_refused(action: ConsumerCryptoFailureAction) -> None:
    async def scenario(cast: Cast) -> None:
        await publish(cast, [b"secret"])
        topic = cast.cluster.topic(TOPIC)
        ((metadata, payload),) = stored(cast)
        damaged = bytes([payload[0] ^ 1]) + payload[1:]
        topic.entries[0] = encode_entry(metadata, damaged)
        await publish(cast, [b"after"])
        consumer = await subscribe(cast, crypto_failure_action=action)
        if action is FAIL:
            with pytest.raises(CryptoError, match="is encrypted, and its content is damaged"):
                await consumer.receive(1_000)
        elif action is CONSUME:
            message = await consumer.receive(1_000)
            assert message.data() == damaged
            assert message.encryption_context().is_decryption_failed()
        assert (await consumer.receive(1_000)).data() == b"after"

    play(scenario, seeds=1)


def test_a_producer_without_a_usable_key_is_not_made(tmp_path: Path) -> None:
    public, private = OWN.files(tmp_path, "own")
    missing = str(tmp_path / "missing.pem")

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        for reader, words in (
            (
                CryptoKeyReader(missing, private),
                rf"encryption_key 'own': public_key_path '{missing}' cannot be read",
            ),
            (
                CryptoKeyReader(private, private),
                rf"encryption_key 'own': public_key_path '{private}': .*no public key in PEM",
            ),
            (Keys(), "encryption_key 'own': there is no key own"),
        ):
            with pytest.raises(CryptoError, match=words) as caught:
                await client.create_producer("t", encryption_key="own", crypto_key_reader=reader)
            assert "-----BEGIN" not in str(caught.value)
        # The other key may be missing.
        reader = CryptoKeyReader(public, missing)
        await publish(cast, [b"x"], crypto_key_reader=reader)

    play(scenario, seeds=1)


def test_a_key_reader_that_raises_anything_else_is_named() -> None:
    class Broken(CryptoKeyReader):
        def __init__(self) -> None:
            pass

        def public_key(self, name: str, metadata: Mapping[str, str]) -> bytes:
            raise KeyError(name)

        def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes:
            return None  # type: ignore[return-value]

    async def scenario(cast: Cast) -> None:
        with pytest.raises(CryptoError, match=r"'own': the crypto_key_reader raised KeyError"):
            await publish(cast, [b"x"], crypto_key_reader=Broken())
        await publish(cast, [b"x"])
        consumer = await subscribe(cast, crypto_key_reader=Broken())
        with pytest.raises(CryptoError, match="key 'own': Broken: it holds no private key"):
            await consumer.receive(1_000)

    play(scenario, seeds=1)


def test_the_data_key_changes_every_four_hours_and_the_old_one_stays_readable() -> None:
    async def scenario(cast: Cast) -> None:
        keys = Keys(own=OWN)
        producer = await cast.client().create_producer(
            "t", encryption_key="own", crypto_key_reader=keys
        )
        await producer.send(b"0")
        await producer.send(b"1")
        await cast.sleep(DATA_KEY_SECONDS)
        await producer.send(b"2")
        keys._pairs = {}  # the key is gone for a while
        await cast.sleep(DATA_KEY_SECONDS)
        await producer.send(b"3")
        keys._pairs = {"own": OWN}
        await producer.send(b"4")
        await cast.sleep(60)
        await producer.send(b"5")
        wrapped = [metadata.encryption_keys[0].value for metadata, _ in stored(cast)]
        assert [wrapped.index(each) for each in wrapped] == [0, 0, 2, 2, 2, 5]
        consumer = await subscribe(cast)
        assert [(await consumer.receive(1_000)).data() for _ in range(6)] == [
            b"%d" % number for number in range(6)
        ]

    play(scenario, seeds=1, max_virtual_seconds=3 * DATA_KEY_SECONDS)


def test_readers_and_seeks_decrypt() -> None:
    async def scenario(cast: Cast) -> None:
        await publish(cast, [b"0", b"1", b"2"])
        reader = await cast.client().create_reader(
            "t", MessageId.earliest, crypto_key_reader=Keys(own=OWN)
        )
        assert isinstance(reader, AsyncReader)
        assert [(await reader.read_next(1_000)).data() for _ in range(3)] == [b"0", b"1", b"2"]
        await reader.seek(MessageId.earliest)
        assert (await reader.read_next(1_000)).data() == b"0"

    play(scenario, seeds=1)


@pytest.mark.parametrize("names", ["own", ["own", "curve"]])
def test_dead_letters_are_encrypted_for_the_same_keys(names: Any) -> None:
    keys = Keys(own=OWN, curve=CURVE)

    async def scenario(cast: Cast) -> None:
        await publish(cast, [b"secret"], encryption_key=names, crypto_key_reader=keys)
        consumer = await subscribe(
            cast,
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=ConsumerDeadLetterPolicy(1, "dead"),
            crypto_key_reader=keys,
        )
        for _ in range(2):
            await consumer.negative_acknowledge(await consumer.receive(5_000))
        with pytest.raises(Timeout):
            await consumer.receive(5_000)
        (letter,) = cast.cluster.topic("persistent://public/default/dead").entries
        metadata, payload = split_entry(letter)
        expected = [names] if isinstance(names, str) else names
        assert [key.key for key in metadata.encryption_keys] == expected
        assert b"secret" not in bytes(payload)
        dead = await cast.client().subscribe(
            "dead", "d", initial_position=InitialPosition.Earliest, crypto_key_reader=keys
        )
        assert (await dead.receive(1_000)).data() == b"secret"

    play(scenario, seeds=1)


def test_what_was_not_decrypted_is_not_copied() -> None:
    async def scenario(cast: Cast) -> None:
        await publish(cast, [b"secret"])
        consumer = await subscribe(
            cast,
            consumer_type=ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=ConsumerDeadLetterPolicy(1, "dead", None, "retry"),
            retry_enabled=True,
            crypto_key_reader=Keys(),
            crypto_failure_action=CONSUME,
        )
        with pytest.raises(CryptoError, match="was not decrypted, and so is not copied"):
            await consumer.reconsume_later(await consumer.receive(5_000), timedelta(0))
        await consumer.negative_acknowledge(await consumer.receive(5_000))
        await cast.sleep(5.0)
        assert cast.cluster.topic("persistent://public/default/dead").entries == []
        assert cast.cluster.topic("persistent://public/default/retry").entries == []
        assert cast.cluster.topic(TOPIC).subscriptions["s"].acked == set()

    play(scenario, seeds=1)


def test_a_batch_that_is_full_keeps_the_limit_of_the_broker() -> None:
    async def scenario(cast: Cast) -> None:
        cast.broker.max_message_bytes = 1_000
        await publish(
            cast, [b"x" * 40] * 100, batching_enabled=True, batching_max_publish_delay_ms=1_000
        )
        sizes = [len(payload) for _, payload in stored(cast)]
        assert len(sizes) > 1
        assert max(sizes) <= 1_000

    play(scenario, seeds=1)


@pytest.mark.parametrize("paths", [(None, "b"), ("a", 5), (b"a", "b")])
def test_paths_are_text(paths: Any) -> None:
    with pytest.raises(InvalidArgument, match="pass the path of a file as str"):
        CryptoKeyReader(*paths)
