"""The HTTP port of a cluster of brokers: typical use, status codes, and redirection to the
owner.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.sim.world.world import Simulation
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

TOPIC = "persistent://public/default/t"
BASE = "/admin/v2/persistent/public/default"


class Web:
    def __init__(self, cluster: BrokerCluster) -> None:
        self.cluster = cluster
        self.redirected = 0

    async def __call__(
        self, method: str, target: str, body: object = None, *, broker: str = "broker0"
    ) -> tuple[int, Any]:
        """Return the status and the decoded answer, redirects followed."""
        for _ in range(4):
            parts = urlsplit(target)
            segments = tuple(unquote(part) for part in parts.path.strip("/").split("/"))
            query = dict(pair.split("=") for pair in parts.query.split("&") if pair)
            request = HttpRequest(
                method,
                "/" + "/".join(segments),
                query,
                {},
                b"" if body is None else json.dumps(body).encode(),
                segments,
            )
            node = self.cluster.brokers[broker]

            async def ask(world: World, node: Any = node, request: HttpRequest = request) -> Any:
                return await node.http.handle(request)

            answer = await self.cluster.nodes[broker].run(ask)
            if answer.status != 307:
                is_json = answer.content_type == "application/json"
                return answer.status, json.loads(
                    answer.body
                ) if is_json and answer.body else answer.body or None
            self.redirected += 1
            location = urlsplit(answer.headers["Location"])
            broker = location.netloc.split(":")[0]
            target = f"{location.path}?{location.query}"
        raise AssertionError("redirected too often")


def run(
    scenario: Callable[[BrokerCluster, World, Web], Awaitable[None]], *, brokers: int = 2
) -> None:
    sim = Simulation(5)
    cluster = BrokerCluster(sim, brokers=brokers)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            await scenario(cluster, world, Web(cluster))

        await sim.node("client").run(client)

    sim.run(main, 300.0)


def test_tenants_namespaces_and_topics_come_and_go() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        steps: list[tuple[str, str, object, int]] = [
            ("PUT", "/admin/v2/tenants/acme", {"adminRoles": ["a"], "allowedClusters": []}, 204),
            ("PUT", "/admin/v2/tenants/acme", {}, 409),
            ("PUT", "/admin/v2/tenants/a%20b", {}, 412),
            ("PUT", "/admin/v2/namespaces/nobody/n", None, 404),
            ("PUT", "/admin/v2/namespaces/acme/n", {"bundles": {"numBundles": 1025}}, 412),
            ("PUT", "/admin/v2/namespaces/acme/n", {"bundles": {"numBundles": 8}}, 204),
            ("PUT", "/admin/v2/namespaces/acme/n", None, 409),
            (
                "POST",
                "/admin/v2/namespaces/acme/n/retention",
                {"retentionTimeInMinutes": 5, "retentionSizeInMB": 0},
                412,
            ),
            ("POST", "/admin/v2/namespaces/acme/n/retention", {"retentionTimeInMinutes": 5}, 400),
            (
                "POST",
                "/admin/v2/namespaces/acme/none/retention",
                {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1},
                404,
            ),
            (
                "POST",
                "/admin/v2/namespaces/acme/n/retention",
                {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1},
                204,
            ),
            ("PUT", "/admin/v2/persistent/acme/n/plain", None, 204),
            ("PUT", "/admin/v2/persistent/acme/n/plain", None, 409),
            ("PUT", "/admin/v2/persistent/acme/n/parts/partitions", 3, 204),
            ("PUT", "/admin/v2/persistent/acme/n/parts/partitions", 3, 409),
            ("PUT", "/admin/v2/persistent/acme/n/plain/partitions", 3, 409),
            ("PUT", "/admin/v2/persistent/acme/n/parts", None, 409),
            ("PUT", "/admin/v2/persistent/acme/n/parts-partition-9", None, 404),
            ("POST", "/admin/v2/persistent/acme/n/parts/partitions", 2, 412),
            ("POST", "/admin/v2/persistent/acme/n/parts/partitions", 4, 204),
            ("DELETE", "/admin/v2/namespaces/acme/n", None, 409),
            ("DELETE", "/admin/v2/tenants/acme", None, 409),
        ]
        for method, target, body, status in steps:
            assert (await web(method, target, body))[0] == status, (method, target)
        retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
        assert await web("GET", "/admin/v2/namespaces/acme/n/retention") == (200, retention)
        assert (await web("DELETE", "/admin/v2/namespaces/acme/n/retention"))[0] == 204
        assert await web("GET", "/admin/v2/namespaces/acme/n/retention") == (204, None)
        assert (await web("GET", "/admin/v2/persistent/acme/n/parts/partitions")) == (
            200,
            {"partitions": 4},
        )
        names = [f"persistent://acme/n/parts-partition-{index}" for index in range(4)] + [
            "persistent://acme/n/plain"
        ]
        assert await web("GET", "/admin/v2/persistent/acme/n", broker="broker1") == (200, names)
        assert await web("GET", "/admin/v2/persistent/acme/n/partitioned") == (
            200,
            ["persistent://acme/n/parts"],
        )
        for method, target, status in [
            ("DELETE", "/admin/v2/persistent/acme/n/parts/partitions", 204),
            ("DELETE", "/admin/v2/persistent/acme/n/parts/partitions", 404),
            ("DELETE", "/admin/v2/persistent/acme/n/plain", 204),
            ("DELETE", "/admin/v2/persistent/acme/n/plain", 404),
            ("DELETE", "/admin/v2/namespaces/acme/n", 204),
            ("DELETE", "/admin/v2/tenants/acme", 204),
            ("GET", "/admin/v2/tenants/acme", 404),
        ]:
            assert (await web(method, target, None))[0] == status, (method, target)

    run(scenario)


def test_skip_counts_messages_also_within_a_batch() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        sub = f"{BASE}/t/subscription/s"
        assert (await web("PUT", sub, "earliest"))[0] == 204
        await publish.send([(1, entry("p", 5 * number, batch=5)) for number in range(4)])
        await publish.wait(1, 4)
        assert (await web("POST", f"{sub}/skip/2"))[0] == 204
        assert (await web("POST", f"{sub}/skip/5"))[0] == 204
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "s")
        got = await consume.take(3)
        assert [(each.entry, each.ack_set) for each in got] == [
            (1, bytes([0b11100])),
            (2, None),
            (3, None),
        ]

    run(scenario)


def test_a_deletion_that_was_interrupted_is_finished_by_another() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("PUT", f"{BASE}/half"))[0] == 204
        path = paths.topic(TopicName.parse("persistent://public/default/half"))
        records = Records(world.metadata, world.clock, world.random)
        await records.update(
            path,
            TopicRecord,
            lambda record: msgspec.structs.replace(record or TopicRecord(), deleted=True),
        )
        assert (await web("GET", f"{BASE}/half/stats"))[0] == 404
        assert await web("GET", BASE) == (200, ["persistent://public/default/half"])
        assert (await web("DELETE", f"{BASE}/half"))[0] == 204
        assert await web("GET", BASE) == (200, [])
        assert (await web("DELETE", f"{BASE}/half"))[0] == 404

    run(scenario)


def test_the_owner_acts_whoever_is_asked() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        address = await find(world, ["broker0"], TOPIC)
        owner = address.split(":")[0]
        other = "broker1" if owner == "broker0" else "broker0"
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send(
            [
                (1, entry("p", number, b"payload %d" % number, time_ms=number))
                for number in range(10)
            ]
        )
        await publish.wait(1, 10)
        assert await web("GET", f"{BASE}/none/stats", broker=other) == (
            404,
            {"reason": "topic persistent://public/default/none does not exist"},
        )
        web.redirected = 0
        status, stats = await web("GET", f"{BASE}/t/stats", broker=other)
        assert (status, stats["msgInCounter"], web.redirected) == (200, 10, 1)
        assert [each["producerName"] for each in stats["publishers"]] == ["p"]
        assert (await web("DELETE", f"{BASE}/t", broker=other))[0] == 412, "somebody is connected"

        sub = f"{BASE}/t/subscription/s"
        assert (await web("PUT", sub, "earliest", broker=other))[0] == 204
        assert (await web("PUT", sub, "earliest"))[0] == 409
        assert (await web("PUT", f"{BASE}/t/subscription/x", "somewhere"))[0] == 400
        assert await web("GET", f"{BASE}/t/subscriptions") == (200, ["s"])
        assert await web("GET", f"{sub}/position/3") == (200, b"payload 2")
        assert (await web("POST", f"{sub}/skip/2"))[0] == 204
        assert await web("GET", f"{sub}/position/1") == (200, b"payload 2")
        assert (await web("POST", f"{sub}/resetcursor/7"))[0] == 204
        assert await web("GET", f"{sub}/position/1") == (200, b"payload 7")
        assert (await web("POST", f"{sub}/resetcursor", "earliest"))[0] == 204
        assert await web("GET", f"{sub}/position/1") == (200, b"payload 0")
        _, message = await web("GET", f"{BASE}/t/internalStats")
        place = {"ledgerId": int(message["ledgers"][0]["ledgerId"]), "entryId": 3}
        for body, payload in (
            (place, b"payload 3"),
            ({**place, "isExcluded": True}, b"payload 4"),
            ({**place, "entryId": -1}, b"payload 0"),
        ):
            assert (await web("POST", f"{sub}/resetcursor", body))[0] == 204
            assert await web("GET", f"{sub}/position/1") == (200, payload)
        status, refused = await web(
            "POST", f"{sub}/resetcursor", {"ledgerId": 999999, "entryId": 0}
        )
        assert status in (400, 412)
        assert "names ledger id 999999, which is no ledger of topic" in refused["reason"]
        assert await web("GET", f"{sub}/position/1") == (200, b"payload 0"), "nothing has moved"
        assert (await web("POST", f"{sub}/resetcursor", {**place, "entryId": 999999}))[0] == 204
        assert (await web("GET", f"{sub}/position/1"))[0] == 404, "beyond the end is the end"
        _, stats = await web("GET", f"{BASE}/t/stats")
        assert stats["subscriptions"]["s"]["trimmedPositions"] == 0
        assert (await web("POST", f"{sub}/resetcursor", "earliest"))[0] == 204
        assert (await web("POST", f"{sub}/expireMessages/0"))[0] == 204
        assert (await web("GET", f"{sub}/position/1"))[0] == 404
        _, stats = await web("GET", f"{BASE}/t/stats")
        assert stats["subscriptions"]["s"]["msgBacklog"] == 0

        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "s")
        assert (await web("DELETE", sub))[0] == 412
        assert (await web("DELETE", f"{sub}?force=true"))[0] == 204
        assert (await web("DELETE", sub))[0] == 404
        assert (await web("POST", f"{BASE}/t/terminate"))[0] == 200
        assert (await web("PUT", f"{BASE}/t/unload", broker=other))[0] == 204
        assert (await web("DELETE", f"{BASE}/t?force=true", broker=other))[0] == 204
        assert await web("GET", BASE) == (200, [])
        status, ledgers = await web("GET", "/admin/v2/ledgers")
        assert (status, ledgers) == (200, []), "nothing of the topic is left"

    run(scenario)


def test_lists_of_the_cluster() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert await web("GET", "/admin/v2/brokers") == (200, ["broker0:8080", "broker1:8080"])
        _, brokers = await web("GET", "/admin/v2/brokers/registrations")
        assert [each["broker_id"] for each in brokers] == ["broker0", "broker1"]
        assert (await web("GET", "/admin/v2/brokers/leaderBroker"))[1]["brokerId"] == "broker0"
        _, bookies = await web("GET", "/admin/v2/bookies", broker="broker1")
        assert [each["bookie_id"] for each in bookies] == ["bookie0", "bookie1", "bookie2"]
        assert await web("GET", "/health") == (200, {"status": "ok"})
        status, found = await web(
            "GET", "/lookup/v2/topic/persistent/public/default/t", broker="broker1"
        )
        assert status == 200
        assert found["nativeUrl"] in ("pulsarish://broker0:6660", "pulsarish://broker1:6660")
        address = await find(world, ["broker0"], TOPIC)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        _, ledgers = await web("GET", "/admin/v2/ledgers")
        status, ledger = await web("GET", f"/admin/v2/ledgers/{ledgers[0]}")
        assert (status, ledger["state"], ledger["purpose"]["owner"]) == (200, "open", TOPIC)
        status, scraped = await web("GET", "/metrics", broker=address.split(":")[0])
        assert status == 200
        assert b'pulsar_topics_count{cluster="pulsarish",namespace="public/default"} 1\n' in scraped

    run(scenario)
