"""Ids, hashes, service URLs, back-off, results, schemas: values without state."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.client.backoff import MultiplierRedeliveryBackoff
from pulsarish.client.enums import ConsumerType, HashingScheme, PartitionsRoutingMode
from pulsarish.client.message_id import MessageId
from pulsarish.client.producer.routing import OutgoingMessage, hash_key, make_router
from pulsarish.client.schemas.schema import BytesSchema, JsonSchema, StringSchema
from pulsarish.client.service_url import parse_service_url
from pulsarish.model import errors
from pulsarish.model.hashing import boost_hash, java_string_hash, murmur3_32_hash
from pulsarish.model.result import Result
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.runtime.backoff import Backoff


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", 0),
        ("abc", 96354),
        ("Aa", 2112),
        ("hello", 99162322),
        ("polygenelubricants", 0),  # Integer.MIN_VALUE in Java: the sign is cut off
        ("keykeykeykeykey1", 434058482),
        ("keykeykey2", 42978643),
        ("😀", 0xD83D * 31 + 0xDE00),  # two UTF-16 units
    ],
)
def test_java_string_hash(key: str, value: int) -> None:
    assert java_string_hash(key) == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", 0),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"abc", 0xB3DD93FA & 0x7FFFFFFF),
        (b"key1", 462881061),
        (b"key2", 1936800180),
        (b"key01", 39696932),
        (b"k1", 2110152746),
    ],
)
def test_murmur3(key: bytes, value: int) -> None:
    assert murmur3_32_hash(key) == value


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("a", 6),
        ("ab", 86),
        ("abc", 39),
        ("abcd", 49),
        ("abcde", 94),
        ("abcdefg", 75),
        ("abcdefgh", 11),
        ("abcdefghi", 21),
        ("order-12345678901234567890", 88),
        ("ü", 81),
        ("日本語キー", 31),
        ("x" * 100, 31),
    ],
)
def test_boost_hash(key: str, partition: int) -> None:
    """The partitions are those that Apache Pulsar's Python client 3.13 chooses of 97."""
    assert boost_hash(key.encode()) % 97 == partition
    assert hash_key(HashingScheme.BoostHash, key, 97) == partition


def test_routing() -> None:
    chance = random.Random(1)
    keyed = make_router(
        PartitionsRoutingMode.RoundRobinDistribution, HashingScheme.JavaStringHash, 7, chance
    )
    assert keyed.route(None, None) == -1
    assert (
        keyed.route(None, "hello")
        == 99162322 % 7
        == hash_key(HashingScheme.JavaStringHash, "hello", 7)
    )
    murmur = make_router(
        PartitionsRoutingMode.RoundRobinDistribution, HashingScheme.Murmur3_32Hash, 7, chance
    )
    assert murmur.route(None, "hello") == 0x248BFA47 % 7
    single = make_router(
        PartitionsRoutingMode.UseSinglePartition, HashingScheme.JavaStringHash, 7, chance
    )
    assert len({single.route(None, None) for _ in range(20)}) == 1
    assert single.route(None, "hello") == 99162322 % 7
    custom = make_router(
        PartitionsRoutingMode.CustomPartition,
        HashingScheme.JavaStringHash,
        7,
        chance,
        message_router=lambda message, count: len(message.data()) % count,
    )
    assert custom.route(OutgoingMessage(b"x" * 9, None, {}), None) == 2
    astray = make_router(
        PartitionsRoutingMode.CustomPartition,
        HashingScheme.JavaStringHash,
        7,
        chance,
        message_router=lambda *_: 7,
    )
    with pytest.raises(errors.InvalidArgument, match="0 to 6"):
        astray.route(OutgoingMessage(b"", None, {}), None)


ids = st.builds(
    MessageId,
    st.integers(-1, 1_000),
    st.integers(-1, 2**63 - 2),  # the greatest is that of ``latest``, which has no messages
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 10_000),
    st.integers(0, 10_000),
)


@given(ids)
def test_message_id_round_trip(message_id: MessageId) -> None:
    again = MessageId.deserialize(message_id.serialize())
    assert again == message_id
    assert (again.partition(), again.batch_size()) == (
        message_id.partition(),
        message_id.batch_size(),
    )
    assert hash(again) == hash(message_id)


@given(st.lists(ids))
def test_message_ids_are_in_the_order_of_the_log(some: list[MessageId]) -> None:
    in_order = sorted(some)
    assert in_order == sorted(
        some, key=lambda one: (one.ledger_id(), one.entry_id(), one.batch_index(), one.partition())
    )
    assert all(MessageId.earliest <= one <= MessageId.latest for one in some)


def test_message_id_bytes_are_those_of_apache_pulsar() -> None:
    # MessageIdData {ledgerId 5, entryId 300, partition 2, batch_index 1, batch_size 10} as protobuf
    # writes it.
    data = bytes.fromhex("080510ac0218022001300a")
    assert MessageId(2, 5, 300, 1, 10).serialize() == data
    assert str(MessageId.deserialize(data)) == "(5,300,2,1)"
    assert (
        MessageId.deserialize(bytes.fromhex("08ffffffffffffffffff0110ffffffffffffffffff01"))
        == MessageId.earliest
    )


@pytest.mark.parametrize(
    "data", [b"", b"\x08", b"\x08\x01", b"\xff\xff\xff", b"hello", b"\x08" + b"\xff" * 30]
)
def test_other_bytes_are_no_message_id(data: bytes) -> None:
    with pytest.raises(errors.InvalidArgument, match="serialize"):
        MessageId.deserialize(data)


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("pulsarish://localhost:6660", ("localhost:6660",)),
        ("pulsarish://localhost", ("localhost:6660",)),
        ("pulsarish://a:1,b:2,a:1/", ("a:1", "b:2")),
        ("pulsarish://[::1]:7000", ("[::1]:7000",)),
        ("pulsarish+ssl://a,b:7/", ("tls:a:6661", "tls:b:7")),
        ("pulsarish+ssl://[::1]:7000", ("tls:[::1]:7000",)),
        ("pulsarish://[::1]", ("[::1]:6660",)),
        ("pulsar://a,b:7", ("a:6650", "b:7")),
        ("pulsar+ssl://a_1.b-2", ("tls:a_1.b-2:6651",)),
        ("http://a/", ("a:8080",)),
        ("https://a,b:8443", ("tls:a:8081", "tls:b:8443")),
    ],
)
def test_service_url(url: str, addresses: tuple[str, ...]) -> None:
    assert parse_service_url(url).addresses == addresses


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("", "no scheme"),
        ("localhost:6660", "no scheme"),
        ("foo://a", "unknown scheme 'foo'"),
        ("pulsarish+http://a", "unknown scheme 'pulsarish+http'"),
        ("PULSAR://a", "unknown scheme 'PULSAR'; write pulsar"),
        (" pulsar://a", "unknown scheme ' pulsar'; write pulsar"),
        ("pulsarish://", "names no host"),
        ("pulsarish+ssl:///", "names no host"),
        ("pulsar://a:1,", "host 2 is empty"),
        ("pulsar://a:1,,b", "host 2 is empty"),
        ("pulsar://a:1,pulsar://b:2", "host 2, 'pulsar://b:2', has a scheme"),
        ("pulsar://:6650", "the host has no name before the port '6650'"),
        ("pulsar://a:1;b:2", "the host 'a:1;b' is no host name"),
        ("pulsar://a b:1", "the host 'a b' is no host name"),
        ("pulsar://::1", "'::1', is an IPv6 address without brackets"),
        ("pulsarish://a:", "the port ''"),
        ("pulsarish://a:0", "the port '0'"),
        ("pulsarish://a:x", "the port 'x'"),
        ("pulsarish://a:-1", "the port '-1'"),
        ("pulsarish://a:1,b:99999", "host 2 'b' has the port '99999'"),
        ("http://a:1/admin", "the path '/admin'"),
        ("http://a:1?x=1", "the query '?x=1'"),
        ("http://a:1#x", "the fragment '#x'"),
        ("pulsarish://u:secret@a", "names a user"),
        (7, "7 of type int"),
        (None, "None of type NoneType"),
        (b"pulsar://a", "of type bytes"),
    ],
)
def test_bad_service_url(url: object, part: str) -> None:
    with pytest.raises(errors.InvalidConfiguration, match="pulsarish://host") as raised:
        parse_service_url(url)
    assert part in str(raised.value)
    assert "secret" not in str(raised.value)


def test_backoff_grows_to_its_limit() -> None:
    backoff = Backoff(0.1, 1.0, jitter=random.Random(3))
    waits = [backoff.next_seconds() for _ in range(8)]
    for wait, most in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0], strict=True):
        assert most * 0.8 <= wait <= most
    backoff.reset()
    assert backoff.next_seconds() <= 0.1
    redelivery = MultiplierRedeliveryBackoff(100, 1_000, 2)
    assert [redelivery.next(count) for count in (0, 1, 2, 3, 4, 10_000)] == [
        100,
        200,
        400,
        800,
        1_000,
        1_000,
    ]
    with pytest.raises(errors.InvalidArgument, match="min_delay_ms"):
        MultiplierRedeliveryBackoff(100, 10)


def test_every_error_has_a_result() -> None:
    assert errors.Timeout("").error() is Result.Timeout
    assert errors.NotOwner("").error() is Result.ServiceUnitNotReady
    assert errors.MessageTooBig("").error() is Result.MessageTooBig
    assert errors.InvalidTopicName("").error() is Result.InvalidTopicName
    assert errors.CorruptData("").error() is Result.UnknownError


@dataclass
class Reading:
    sensor: str
    value: float


def test_schemas() -> None:
    assert BytesSchema().encode(bytearray(b"a")) == b"a"
    assert StringSchema().decode(StringSchema().encode("é")) == "é"
    assert JsonSchema().decode(JsonSchema().encode({"a": [1, None]})) == {"a": [1, None]}
    schema = JsonSchema(Reading)
    assert schema.decode(schema.encode(Reading("a", 1.5))) == Reading("a", 1.5)
    for call in (
        lambda: BytesSchema().encode("text"),
        lambda: StringSchema().encode(b"bytes"),
        lambda: StringSchema().decode(b"\xff"),
        lambda: JsonSchema().encode(object()),
        lambda: schema.decode(b'{"sensor": 1}'),
    ):
        with pytest.raises(errors.InvalidArgument):
            call()


def test_consumer_types_are_the_subscription_types() -> None:
    declared = {each.title.replace("_", ""): each.value for each in SubscriptionType}
    assert {each.name: each.value for each in ConsumerType} == declared
