"""Resource groups on simulated brokers: administration, and limits that brokers share."""

from __future__ import annotations

from pulsarish.broker.policies.group_rates import GroupRates
from pulsarish.runtime.seams import World
from tests.integration.test_broker_http import BASE, Web
from tests.integration.test_policies import run
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

GROUPS = "/admin/v2/resourcegroups"
SPACE = "/admin/v2/namespaces/public/default"
NO_LIMITS = dict.fromkeys(
    ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes"), -1
)


def test_groups_are_created_changed_and_deleted() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert await web("GET", GROUPS) == (200, [])
        status, answer = await web("GET", f"{GROUPS}/g")
        assert (status, "there are: none" in answer["reason"]) == (404, True)
        for body, code in (
            ({"publishRateInMsgs": -2}, 412),
            ({"publishRate": 1}, 400),
            ({"dispatchRateInMsgs": 1 << 31}, 412),
        ):
            assert (await web("PUT", f"{GROUPS}/g", body))[0] == code
        assert (await web("PUT", f"{GROUPS}/{'g' * 129}"))[0] == 412
        assert (await web("PUT", f"{GROUPS}/g"))[0] == 204
        assert await web("GET", f"{GROUPS}/g") == (200, NO_LIMITS)
        limits = {"publishRateInMsgs": 10, "dispatchRateInBytes": 1 << 40}
        assert (await web("PUT", f"{GROUPS}/g", {**limits, "publishRateInBytes": None}))[0] == 204
        assert (await web("PUT", f"{GROUPS}/g", {"publishRateInMsgs": 20}))[0] == 204
        assert (await web("GET", f"{GROUPS}/g"))[1] == {
            **NO_LIMITS,
            **limits,
            "publishRateInMsgs": 20,
        }
        assert await web("GET", GROUPS) == (200, ["g"])
        assert (await web("DELETE", f"{GROUPS}/g"))[0] == 204
        assert (await web("DELETE", f"{GROUPS}/g"))[0] == 404

    run(scenario, brokers=1)


def test_a_group_that_is_used_is_not_deleted_and_one_that_does_not_exist_is_not_used() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        topic, parts = f"{BASE}/t/resourceGroup", f"{BASE}/parts/resourceGroup"
        assert (await web("PUT", f"{BASE}/t"))[0] == 204
        assert (await web("PUT", f"{BASE}/parts/partitions", 2))[0] == 204
        for method, path, body in (
            ("POST", f"{SPACE}/resourcegroup/g", None),
            ("POST", topic, "g"),
            ("PUT", "/admin/v2/namespaces/public/new", {"resource_group_name": "g"}),
        ):
            status, answer = await web(method, path, body)
            assert (status, "there is no resource group 'g'" in answer["reason"]) == (404, True)
        assert (await web("GET", f"{SPACE}/resourcegroup"))[0] == 204
        assert (await web("GET", topic))[0] == 204
        assert (await web("PUT", f"{GROUPS}/g"))[0] == 204
        for method, path, body in (
            ("POST", f"{SPACE}/resourcegroup/g", None),
            ("POST", topic, "g"),
            ("POST", parts, "g"),
            ("PUT", "/admin/v2/namespaces/public/new", {"resource_group_name": "g"}),
        ):
            for _ in range(2):  # a second time it changes nothing
                assert (await web(method, path, body))[0] in (204, 409)
        assert await web("GET", f"{SPACE}/resourcegroup") == (200, b"g")
        assert await web("GET", topic) == (200, b"g")
        assert (await web("GET", "/admin/v2/namespaces/public/new"))[1][
            "resource_group_name"
        ] == "g"
        left = [
            ("persistent://public/default/parts", "DELETE", f"{BASE}/parts/partitions"),
            ("persistent://public/default/t", "DELETE", topic),
            ("public/default", "DELETE", f"{SPACE}/resourcegroup"),
            ("public/new", "DELETE", "/admin/v2/namespaces/public/new"),
        ]
        for index in range(len(left)):
            status, answer = await web("DELETE", f"{GROUPS}/g")
            users = ", ".join(user for user, _, _ in left[index:])
            assert (status, f"'g' is used by {users};" in answer["reason"]) == (409, True), answer
            _, method, path = left[index]
            assert (await web(method, path))[0] == 204
        assert (await web("DELETE", f"{GROUPS}/g"))[0] == 204

    run(scenario)


def test_the_group_of_a_topic_comes_before_that_of_its_namespace() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        for name in ("g", "h"):
            assert (await web("PUT", f"{GROUPS}/{name}"))[0] == 204
        assert (await web("POST", f"{SPACE}/resourcegroup/g"))[0] == 204
        _ = await web("PUT", f"{BASE}/t")
        topic = f"{BASE}/t/resourceGroup"
        assert (await web("GET", topic))[0] == 204
        assert await web("GET", f"{topic}?applied=true") == (200, b"g")
        assert (await web("POST", topic, "h"))[0] == 204
        assert await web("GET", f"{topic}?applied=true") == (200, b"h")
        assert (await web("POST", topic, ""))[0] == 204
        assert (await web("GET", topic))[0] == 204

    run(scenario, brokers=1)


class Publisher:
    """Publishes to a topic as fast as its broker takes it, a few messages at a time."""

    def __init__(self, world: World, broker: str, topic: str) -> None:
        self.count = 0
        self.stopped = False
        self._world = world
        self._broker = broker
        self._topic = topic

    async def run(self) -> None:
        client = await PublishClient.connect(self._world, f"{self._broker}:6660")
        await client.open(1, self._topic)
        while not self.stopped:
            await client.send([(1, entry("p", self.count + index)) for index in range(2)])
            self.count += 2
            _ = await client.wait(1, self.count)
            await self._world.clock.sleep(0.01)


async def spread(cluster: BrokerCluster, world: World, web: Web) -> dict[str, str]:
    """Return a topic of each broker, by broker."""
    found: dict[str, str] = {}
    assert (await web("PUT", "/admin/v2/namespaces/public/n", {"bundles": {"numBundles": 8}}))[
        0
    ] == 204
    for number in range(30):
        topic = f"persistent://public/n/t{number}"
        asked = f"broker{number % len(cluster.brokers)}"
        owner = (await find(world, [asked], topic)).split(":")[0]
        found.setdefault(owner, topic)
    return found


def rates(cluster: BrokerCluster, broker: str) -> GroupRates | None:
    groups = cluster.brokers[broker]._namespaces.store.defaults.groups
    return groups.in_use().get("g")


def test_brokers_share_what_the_topics_of_a_group_publish() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        limits = {"publishRateInMsgs": 100, "publishRateInBytes": 1 << 30}
        assert (await web("PUT", f"{GROUPS}/g", limits))[0] == 204
        topics = await spread(cluster, world, web)
        assert (await web("POST", "/admin/v2/namespaces/public/n/resourcegroup/g"))[0] == 204
        both = {name: Publisher(world, name, topic) for name, topic in topics.items()}
        assert len(both) == 2
        for name, publisher in both.items():
            _ = world.tasks.spawn(publisher.run(), name=f"publish to {name}")
        await world.clock.sleep(15.0)
        begun = {name: publisher.count for name, publisher in both.items()}
        await world.clock.sleep(10.0)
        counts = [publisher.count - begun[name] for name, publisher in both.items()]
        assert 900 < sum(counts) < 1_100, "100 a second, together"
        assert min(counts) > 350, "each of them about half"
        both["broker1"].stopped = True
        await world.clock.sleep(15.0)
        before = both["broker0"].count
        await world.clock.sleep(10.0)
        assert both["broker0"].count - before > 850, "what the other one leaves"
        text = (await web("GET", "/metrics"))[1].decode()
        for name in ("messages_used", "calculated_messages_quota"):
            assert f'pulsar_resource_group_{name}{{cluster="pulsarish",resource_group="g"' in text
        # A higher limit is in force at once, and without the group there is none.
        assert (await web("PUT", f"{GROUPS}/g", {"publishRateInMsgs": 1_000}))[0] == 204
        await world.clock.sleep(0.5)
        found = rates(cluster, "broker0")
        assert found is not None
        assert 800 < found.publish.messages.rate < 1_000
        assert (await web("DELETE", "/admin/v2/namespaces/public/n/resourcegroup"))[0] == 204
        del found
        await world.clock.sleep(3.0)
        assert rates(cluster, "broker0") is rates(cluster, "broker1") is None
        both["broker0"].stopped = True

    run(scenario, load_balancer_enabled=False)


def test_a_group_that_one_broker_uses_has_the_whole_limit_there_at_once() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("PUT", f"{GROUPS}/g", {"dispatchRateInMsgs": 10}))[0] == 204
        await world.clock.sleep(6.0)  # the first leader has led for long
        topics = await spread(cluster, world, web)
        (broker, topic) = next(iter(topics.items()))
        path = topic.replace("persistent://", "/admin/v2/persistent/")
        publisher = Publisher(world, broker, topic)
        _ = world.tasks.spawn(publisher.run(), name="publish")
        await world.clock.sleep(5.0)
        publisher.stopped = True
        assert (await web("POST", f"{path}/resourceGroup", "g"))[0] == 204
        await world.clock.sleep(1.0)
        found = rates(cluster, broker)
        assert found is not None
        assert found.shares == (1.0,) * 4
        consumer = await ConsumeClient.connect(world, f"{broker}:6660")
        began = world.clock.monotonic()
        await consumer.subscribe(1, topic)
        while len(consumer.got) < 60:
            await consumer.receive()
        assert world.clock.monotonic() - began > 4.5, "10 a second, and one second saved up"
        waiting = (await web("GET", f"{path}/explain"))[1]
        assert "the dispatch rate of resource group 'g' (10 messages a second)" in str(waiting)

    run(scenario, load_balancer_enabled=False)


def test_another_leader_divides_when_the_former_one_is_gone() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        leader = next(
            name for name, each in cluster.brokers.items() if each._ownership.leader.is_leader
        )
        users = [name for name in cluster.brokers if name != leader]
        assert (await web("PUT", f"{GROUPS}/g", {"publishRateInMsgs": 50}))[0] == 204
        topics = await spread(cluster, world, web)
        assert (await web("POST", "/admin/v2/namespaces/public/n/resourcegroup/g"))[0] == 204
        for name in users:
            _ = world.tasks.spawn(
                Publisher(world, name, topics[name]).run(), name=f"publish to {name}"
            )
        await world.clock.sleep(10.0)
        cluster.nodes[leader].crash()
        await world.clock.sleep(30.0)
        found = [rates(cluster, name) for name in users]
        now = [cluster.brokers[name]._world.clock.monotonic() for name in users]
        shares = [each.shares[0] for each in found if each is not None]
        assert len(shares) == 2
        assert min(shares) > 0.4
        assert sum(shares) <= 1.01
        assert all(
            each.shares_until > at for each, at in zip(found, now, strict=True) if each is not None
        ), "they were divided by the next leader"

    run(scenario, brokers=3, load_balancer_enabled=False)
