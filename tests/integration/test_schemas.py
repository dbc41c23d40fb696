"""Schemas of topics in whole brokers: which schemas are accepted, their versions, and their
deletion with the topic.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pulsarish.broker.clients.authorization import Gate
from pulsarish.broker.clients.commands import (
    GetOrCreateSchema,
    GetSchema,
    SchemaFound,
    SchemaVersion,
)
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.sessions.session import Session
from pulsarish.metadata import paths
from pulsarish.metadata.records import SchemaRecord, SchemasRecord
from pulsarish.model.errors import (
    CorruptData,
    IncompatibleSchema,
    InvalidSchema,
    LimitReached,
    PulsarishError,
    SchemaNotFound,
    TopicNotFound,
    error_from_code,
)
from pulsarish.model.policies import (
    ALLOW_AUTO_UPDATE_SCHEMA,
    SCHEMA_COMPATIBILITY_STRATEGY,
    SCHEMA_VALIDATION_ENFORCED,
    Policy,
)
from pulsarish.model.schema import Schema, SchemaType, version_bytes
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Conflict, Op, World
from pulsarish.security.identity import UNCHECKED
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.json_record import encode_record
from tests.integration.test_broker_http import Web
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "persistent://public/default/t"
PARTITIONED = "persistent://public/default/p"


def run(
    scenario: Callable[[BrokerCluster, World, Web], Awaitable[None]],
    *,
    brokers: int = 1,
    seed: int = 4,
    **settings: object,
) -> None:
    sim = Simulation(seed)
    cluster = BrokerCluster(sim, brokers=brokers, keep_alive_timeout_seconds=10_000.0, **settings)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            await scenario(cluster, world, Web(cluster))

        await sim.node("client").run(client)

    sim.run(main, 3_000.0)


def avro(*names: str, default: object = "", kind: SchemaType = SchemaType.AVRO) -> pb.Schema:
    """Return a record of texts, each with a default unless that is ``None``."""
    fields = [
        {"name": name, "type": "string"} | ({} if default is None else {"default": default})
        for name in names
    ]
    return pb.Schema(
        type=int(kind),
        name="R",
        data=json.dumps({"type": "record", "name": "R", "fields": fields}).encode(),
    )


async def asked(
    world: World, topic: str, version: bytes = b"", *, broker: str = "broker0", **fields: Any
) -> pb.SchemaResponse:
    """Return the broker's answer, or raise its error."""
    request = pb.SchemaRequest(topic=topic, version=version, **fields)
    data = await world.connections.call(
        f"{broker}:6660", "broker.schema", request.SerializeToString(), timeout_seconds=30.0
    )
    answer = pb.SchemaResponse.FromString(data)
    if answer.code:
        raise error_from_code(answer.code, answer.message)
    return answer


async def publisher(world: World, topic: str = TOPIC) -> PublishClient:
    return await PublishClient.connect(world, await find(world, ["broker0"], topic))


async def consumer(world: World, topic: str = TOPIC) -> ConsumeClient:
    return await ConsumeClient.connect(world, await find(world, ["broker0"], topic))


async def in_force(
    cluster: BrokerCluster, world: World, policy: Policy[Any], value: object, topic: str = TOPIC
) -> None:
    """Wait until the loaded topic has applied a change."""
    (found,) = [
        broker._topics.loaded[topic]
        for broker in cluster.brokers.values()
        if topic in broker._topics.loaded
    ]
    while found.topic_limits.policies[policy] != value:
        await world.clock.sleep(0.01)


async def tree_below(world: World, path: str) -> list[str]:
    try:
        names = await world.metadata.children(path)
    except Conflict:
        return []
    return [
        found
        for name in names
        for found in [f"{path}/{name}", *await tree_below(world, f"{path}/{name}")]
    ]


def test_a_producers_schema_gets_a_version_and_the_same_one_the_same_again() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        publish = await publisher(world)
        assert (await publish.open(1, TOPIC, "plain")).schema_version == b""
        with pytest.raises(SchemaNotFound, match="has no schema"):
            await asked(world, TOPIC)
        assert (
            await publish.open(2, TOPIC, "a", schema=avro("x"))
        ).schema_version == version_bytes(0)
        assert (
            await publish.open(3, TOPIC, "b", schema=avro("x", "y"))
        ).schema_version == version_bytes(1)
        assert (
            await publish.open(4, TOPIC, "c", schema=avro("x"))
        ).schema_version == version_bytes(0)
        with pytest.raises(
            IncompatibleSchema, match=r"version 1 of the topic \(FULL\).*z: the field is missing"
        ):
            await publish.open(5, TOPIC, "d", schema=avro("x", "y", "z", default=None))
        with pytest.raises(InvalidSchema, match="is not JSON"):
            await publish.open(5, TOPIC, "d", schema=pb.Schema(type=4, data=b"{"))
        # A type that says nothing about the content is not a schema, and producers without a schema
        # may still publish.
        for kind in (SchemaType.NONE, SchemaType.AUTO_CONSUME):
            assert (
                await publish.open(6, TOPIC, "e", schema=pb.Schema(type=int(kind)))
            ).schema_version == b""
        assert [
            (await asked(world, TOPIC, version_bytes(each))).schema.data for each in (0, 1)
        ] == [avro("x").data, avro("x", "y").data]
        newest = await asked(world, TOPIC)
        assert (newest.version, newest.schema.name, newest.schema.type) == (
            version_bytes(1),
            "R",
            4,
        )
        for version, words in (
            (version_bytes(2), "no schema of version 2"),
            (b"abc", "8 bytes, not 3"),
        ):
            with pytest.raises((SchemaNotFound, InvalidSchema), match=words):
                await asked(world, TOPIC, version)

    run(scenario)


def test_brokers_that_are_asked_at_once_give_each_schema_one_number() -> None:
    """The partitions of a topic are at several brokers, and share one schema."""
    count = 6

    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("PUT", "/admin/v2/persistent/public/default/p/partitions", count))[
            0
        ] == 204
        assert (await web("PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE"))[
            0
        ] == 204

        async def opened(index: int) -> list[bytes]:
            topic = f"{PARTITIONED}-partition-{index}"
            publish = await publisher(world, topic)
            return [
                (
                    await publish.open(one, topic, f"{index} {one}", schema=avro(f"f{one}"))
                ).schema_version
                for one in range(4)
            ]

        found = await asyncio.gather(*(opened(index) for index in range(count)))
        assert all(each == found[0] for each in found), (
            "the same schemas have the same versions everywhere"
        )
        assert sorted(found[0]) == [version_bytes(each) for each in range(4)]
        for broker in cluster.brokers:
            assert (await asked(world, PARTITIONED, broker=broker)).version == version_bytes(3)
            assert (
                await asked(world, f"{PARTITIONED}-partition-5", broker=broker)
            ).version == version_bytes(3)
        name = TopicName.parse(PARTITIONED)
        assert len(await tree_below(world, paths.schemas(paths.partitioned_topic(name)))) == 4
        assert (await asked(world, PARTITIONED, create=avro("f2"))).version in found[0]
        assert (await asked(world, PARTITIONED, create=avro("more"))).version == version_bytes(4)

    run(scenario, brokers=3)


def test_policies_say_what_is_taken_and_hold_at_once() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        publish = await publisher(world)
        await publish.open(1, TOPIC, "a", schema=avro("x"))
        with pytest.raises(IncompatibleSchema):
            await publish.open(2, TOPIC, "b", schema=avro("x", "y", default=None))
        assert (await web("PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", "FORWARD"))[0] == 204
        await in_force(cluster, world, SCHEMA_COMPATIBILITY_STRATEGY, "FORWARD")
        assert await web("GET", f"{NAMESPACE}/schemaCompatibilityStrategy") == (200, "FORWARD")
        assert (
            await publish.open(2, TOPIC, "b", schema=avro("x", "y", default=None))
        ).schema_version == version_bytes(1)
        # Older tools set the same policy by another name.
        old = f"{NAMESPACE}/schemaAutoUpdateCompatibilityStrategy"
        assert await web("GET", old) == (200, "Forward")
        assert (await web("PUT", old, "FullTransitive"))[0] == 204
        assert await web("GET", f"{NAMESPACE}/schemaCompatibilityStrategy") == (
            200,
            "FULL_TRANSITIVE",
        )
        assert (await web("PUT", old, "AutoUpdateDisabled"))[0] == 204
        await in_force(cluster, world, SCHEMA_COMPATIBILITY_STRATEGY, "ALWAYS_INCOMPATIBLE")
        assert (await web("PUT", old, "Forward"))[0] == 204
        await in_force(cluster, world, SCHEMA_COMPATIBILITY_STRATEGY, "FORWARD")
        # The topic's own policy wins.
        own = "/admin/v2/persistent/public/default/t/schemaCompatibilityStrategy"
        assert await web("GET", f"{own}?applied=true") == (200, "FORWARD")
        assert (await web("PUT", own, "ALWAYS_INCOMPATIBLE"))[0] == 204
        await in_force(cluster, world, SCHEMA_COMPATIBILITY_STRATEGY, "ALWAYS_INCOMPATIBLE")
        with pytest.raises(IncompatibleSchema, match="the strategy allows no other schema"):
            await publish.open(3, TOPIC, "c", schema=avro("x", "y", "z", default=None))
        assert (await web("PUT", own, "UNDEFINED"))[0] == 204
        await in_force(cluster, world, SCHEMA_COMPATIBILITY_STRATEGY, "FORWARD")
        assert await web("GET", own) == (200, "UNDEFINED")
        await publish.open(3, TOPIC, "c", schema=avro("x", "y", "z", default=None))
        # Only admin requests add new ones.
        assert await web("GET", f"{NAMESPACE}/isAllowAutoUpdateSchema") == (200, True)
        assert (await web("POST", f"{NAMESPACE}/isAllowAutoUpdateSchema", False))[0] == 204
        await in_force(cluster, world, ALLOW_AUTO_UPDATE_SCHEMA, False)
        with pytest.raises(IncompatibleSchema, match="isAllowAutoUpdateSchema"):
            await publish.open(4, TOPIC, "d", schema=avro("x", "w"))
        await publish.open(4, TOPIC, "d", schema=avro("x"))
        # On a topic with a schema, a producer without one cannot publish.
        assert (await publish.open(5, TOPIC, "e")).schema_version == b""
        assert await web("GET", f"{NAMESPACE}/schemaValidationEnforced?applied=true") == (
            200,
            False,
        )
        assert (await web("POST", f"{NAMESPACE}/schemaValidationEnforced", True))[0] == 204
        assert await web("GET", f"{NAMESPACE}/schemaValidationEnforced?applied=true") == (200, True)
        await in_force(cluster, world, SCHEMA_VALIDATION_ENFORCED, True)
        with pytest.raises(IncompatibleSchema, match="schemaValidationEnforced"):
            await publish.open(6, TOPIC, "f")
        other = "persistent://public/default/without"
        assert (await (await publisher(world, other)).open(1, other, "a")).schema_version == b""

    run(scenario, seed=9)


def test_a_consumer_reads_with_what_reads_the_newest_and_gives_a_new_topic_its_schema() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        consume = await consumer(world)
        # A consumer that decodes with any schema does not make the topic used.
        await consume.subscribe(
            1, TOPIC, "any", schema=pb.Schema(type=int(SchemaType.AUTO_CONSUME))
        )
        await consume.subscribe(2, TOPIC, "first", schema=avro("x"))
        assert (await asked(world, TOPIC)).version == version_bytes(0)
        await consume.subscribe(3, TOPIC, "narrow", schema=avro())
        with pytest.raises(IncompatibleSchema, match="z: the field is missing"):
            await consume.subscribe(4, TOPIC, "wide", schema=avro("z", default=None))
        assert (await asked(world, TOPIC)).version == version_bytes(0), "a consumer adds no version"
        # A client reads or has written bytes: a consumer must not decide what they mean.
        for topic in ("persistent://public/default/read", "persistent://public/default/written"):
            there = await consumer(world, topic)
            if topic.endswith("read"):
                await there.subscribe(1, topic, "plain")
            else:
                publish = await publisher(world, topic)
                await publish.open(1, topic)
                await publish.send([(1, entry("p", 0))])
                await publish.wait(1, 1)
                await publish.close(1)
            with pytest.raises(IncompatibleSchema, match="in use without a schema"):
                await there.subscribe(2, topic, "typed", schema=avro("x"))
            await (await publisher(world, topic)).open(7, topic, "typed", schema=avro("x"))
            await there.subscribe(2, topic, "typed", schema=avro("x"))

    run(scenario)


@pytest.mark.parametrize("partitions", [0, 2])
def test_schemas_go_with_their_topic(partitions: int) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        url = f"/admin/v2/persistent/public/default/t{'/partitions' if partitions else ''}"
        used = f"{TOPIC}-partition-1" if partitions else TOPIC
        for again in range(2):
            if partitions:
                assert (await web("PUT", url, partitions))[0] == 204
            publish = await publisher(world, used)
            for version in range(3):
                names = [f"f{index}" for index in range(version + again)]
                assert (
                    await publish.open(version, used, f"p{version}", schema=avro(*names))
                ).schema_version == version_bytes(version)
                await publish.close(version)
            assert (await web("DELETE", url))[0] == 204
            left = [
                path
                for root in (paths.TOPICS, paths.PARTITIONED)
                for path in await tree_below(world, f"{root}/public/default")
            ]
            assert left == []
            with pytest.raises(TopicNotFound, match="does not exist"):
                await asked(world, TOPIC)

    run(scenario)


def test_limits_have_names() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        publish = await publisher(world)
        with pytest.raises(InvalidSchema, match="above max_schema_size_bytes 2000"):
            await publish.open(1, TOPIC, schema=avro("x" * 2_000))
        for number in range(3):
            await publish.open(
                1, TOPIC, f"p{number}", schema=avro(*(f"f{each}" for each in range(number)))
            )
        with pytest.raises(LimitReached, match="max_schema_versions_per_topic is 3"):
            await publish.open(1, TOPIC, "one more", schema=avro("a"))
        assert (
            await publish.open(1, TOPIC, "again", schema=avro())
        ).schema_version == version_bytes(0)

    run(scenario, max_schema_size_bytes=2_000, max_schema_versions_per_topic=3)


def test_a_session_answers_what_clients_of_any_face_ask_of_schemas() -> None:
    wished = Schema(SchemaType.AVRO, avro("x").data, "R", {"owner": "billing"})
    bad = Schema(SchemaType.AVRO, b"{")

    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await (await publisher(world)).open(1, TOPIC)

        async def ask(node: World) -> list[object]:
            changed = asyncio.Event()
            outbox = Outbox(delivery_bytes_max=1, changed=changed.set)
            broker = cluster.brokers["broker0"]
            session = Session(
                topics=broker._topics,
                gate=Gate(),
                identity=UNCHECKED,
                peer="x",
                tasks=node.tasks,
                outbox=outbox,
                config=BrokerConfig(),
            )
            answers: list[object] = []
            for command in (
                GetSchema(1, TOPIC),
                GetOrCreateSchema(2, TOPIC, wished),
                GetOrCreateSchema(3, TOPIC, wished),
                GetSchema(4, TOPIC),
                GetSchema(5, TOPIC, version_bytes(0)),
                GetSchema(6, TOPIC, version_bytes(1)),
                GetOrCreateSchema(7, TOPIC, bad),
                GetOrCreateSchema(8, "none", wished),
                GetSchema(9, "://"),
            ):
                changed.clear()
                session.handle(command)
                await changed.wait()
                answers.append(outbox.answers.popleft())
            return answers

        answers = await cluster.nodes["broker0"].run(ask)
        found = SchemaFound(4, None, wished, version_bytes(0))
        assert answers[1:5] == [
            SchemaVersion(2, None, version_bytes(0)),
            SchemaVersion(3, None, version_bytes(0)),
            found,
            SchemaFound(5, None, wished, version_bytes(0)),
        ]
        refused: list[type[PulsarishError]] = [
            SchemaNotFound,
            SchemaNotFound,
            InvalidSchema,
            TopicNotFound,
        ]
        for answer, kind in zip([answers[0], *answers[5:8]], refused, strict=True):
            assert isinstance(answer, SchemaFound | SchemaVersion)
            assert type(answer.error) is kind, answer
        assert isinstance(answers[8], SchemaFound)
        assert answers[8].error is not None

    run(scenario)


SCHEMAS = "/admin/v2/schemas/public/default"


def payload(schema: pb.Schema, **properties: str) -> dict[str, object]:
    return {
        "type": SchemaType(schema.type).name,
        "schema": schema.data.decode(),
        "properties": properties,
    }


def test_schemas_over_http_have_apache_pulsars_form() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        one, text = f"{SCHEMAS}/t/schema", avro("x").data.decode()
        assert (await web("GET", one))[0] == 404
        # The topic is created, as by its first client.
        assert await web("POST", one, payload(avro("x"), owner="billing")) == (
            200,
            {"version": {"version": 0}},
        )
        assert (await web("GET", "/admin/v2/persistent/public/default"))[1] == [TOPIC]
        status, found = await web("GET", one)
        assert status == 200
        assert found.pop("timestamp") > 0
        assert found == {
            "version": 0,
            "type": "AVRO",
            "data": text,
            "properties": {"owner": "billing"},
        }
        assert await web("POST", one, payload(avro("x", "y")), broker="broker1") == (
            200,
            {"version": {"version": 1}},
        )
        assert await web("POST", one, payload(avro("x"))) == (200, {"version": {"version": 0}})
        assert (await web("GET", f"{one}/0"))[1]["data"] == text
        assert (await web("GET", f"{one}/1"))[1]["version"] == 1
        assert (await web("GET", f"{one}/2"))[0] == 404
        assert (await web("GET", f"{one}/-1"))[0] == 412
        assert [
            each["version"]
            for each in (await web("GET", f"{SCHEMAS}/t/schemas"))[1]["getSchemaResponses"]
        ] == [0, 1]
        # An incompatible schema, and an invalid one.
        status, found = await web("POST", one, payload(avro("z", default=None)))
        assert (status, "z: the field is missing" in found["reason"]) == (409, True)
        for bad in (
            {"type": "AVRO", "schema": "{"},
            {"type": "BYTES"},
            {"type": "odd"},
            {"type": "INT8", "schema": "x"},
            {"type": "NONE"},
        ):
            assert (await web("POST", one, bad))[0] == 422, bad
        ask = f"{SCHEMAS}/t/compatibility"
        assert await web("POST", ask, payload(avro("w"))) == (
            200,
            {"compatibility": True, "schemaCompatibilityStrategy": "FULL"},
        )
        status, found = await web("POST", ask, payload(avro("z", default=None)))
        assert (status, found["compatibility"], "z: the field is missing" in found["reason"]) == (
            200,
            False,
            True,
        )
        version = f"{SCHEMAS}/t/version"
        assert await web("POST", version, payload(avro("x", "y"))) == (200, {"version": 1})
        assert await web("POST", version, payload(avro("w"))) == (200, {"version": -1})
        # After a deletion version numbers continue; by force they begin again.
        assert await web("DELETE", one) == (200, {"version": 2})
        assert (
            (await web("GET", one))[0]
            == (await web("GET", f"{one}/0"))[0]
            == (await web("DELETE", one))[0]
            == 404
        )
        assert (await web("GET", f"{SCHEMAS}/t/schemas"))[1] == {"getSchemaResponses": []}
        assert await web("POST", one, payload(avro("z", default=None))) == (
            200,
            {"version": {"version": 3}},
        )
        assert await web("DELETE", f"{one}?force=true") == (200, {"version": 3})
        assert await web("POST", one, payload(avro("x"))) == (200, {"version": {"version": 0}})

    run(scenario, brokers=2)


def test_key_and_value_are_one_object_over_http() -> None:
    properties = {
        "key.schema.type": "STRING",
        "value.schema.type": "AVRO",
        "kv.encoding.type": "SEPARATED",
    }
    definition = json.loads(avro("x").data)

    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        body = {
            "type": "KEY_VALUE",
            "schema": json.dumps({"key": "", "value": definition}),
            "properties": properties,
        }
        assert await web("POST", f"{SCHEMAS}/t/schema", body) == (200, {"version": {"version": 0}})
        found = (await web("GET", f"{SCHEMAS}/t/schema"))[1]
        assert json.loads(found["data"]) == {"key": "", "value": definition}
        assert found["properties"] == properties
        stored = (await asked(world, TOPIC)).schema
        assert stored.data[:4] == bytes(4)
        assert json.loads(stored.data[8:]) == definition
        for text in ("", "{}", '{"key": ""}', "[1]"):
            assert (await web("POST", f"{SCHEMAS}/t/schema", {**body, "schema": text}))[0] == 422

    run(scenario)


def test_an_upload_makes_no_topic_where_topics_are_not_made_on_first_use() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        creation = {"allowAutoTopicCreation": False}
        assert (await web("POST", f"{NAMESPACE}/autoTopicCreation", creation))[0] == 204
        assert (await web("POST", f"{SCHEMAS}/t/schema", payload(avro("x"))))[0] == 404
        creation = {
            "allowAutoTopicCreation": True,
            "topicType": "partitioned",
            "defaultNumPartitions": 3,
        }
        assert (await web("POST", f"{NAMESPACE}/autoTopicCreation", creation))[0] == 204
        assert (await web("POST", f"{SCHEMAS}/t/schema", payload(avro("x"))))[0] == 200
        assert (await web("GET", "/admin/v2/persistent/public/default/t/partitions"))[1][
            "partitions"
        ] == 3
        assert (await asked(world, f"{TOPIC}-partition-2")).version == version_bytes(0)

    run(scenario)


def test_a_restored_tree_whose_count_is_behind_gives_no_number_twice() -> None:
    """A backup reads the count before the versions.

    A version added in between is in the tree without being counted.
    """

    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        publish = await publisher(world)
        for number in range(3):
            await publish.open(
                number, TOPIC, f"p{number}", schema=avro(*(f"f{each}" for each in range(number)))
            )
        parent = paths.schemas(paths.topic(TopicName.parse(TOPIC)))
        (node,) = await world.metadata.get_many([parent])
        assert node is not None
        await world.metadata.commit(
            [Op("put", parent, encode_record(SchemasRecord(2)), node.version)]
        )
        assert (
            await publish.open(3, TOPIC, "p3", schema=avro("new"))
        ).schema_version == version_bytes(3)
        assert [
            each["version"]
            for each in (await web("GET", f"{SCHEMAS}/t/schemas"))[1]["getSchemaResponses"]
        ] == [0, 1, 2, 3]

    run(scenario)


def test_a_type_of_a_newer_version_is_not_passed_over() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        publish = await publisher(world)
        await publish.open(1, TOPIC, schema=avro("x"))
        parent = paths.schemas(paths.topic(TopicName.parse(TOPIC)))
        (child,) = await world.metadata.children(parent)
        (node,) = await world.metadata.get_many([f"{parent}/{child}"])
        assert node is not None
        await world.metadata.commit(
            [Op("put", f"{parent}/{child}", encode_record(SchemaRecord(99)), node.version)]
        )
        with pytest.raises(CorruptData, match="schema of type 99"):
            await publish.open(2, TOPIC, "q", schema=avro("x", "y"))
        assert (await web("GET", f"{SCHEMAS}/t/schema"))[0] == 500

    run(scenario)
