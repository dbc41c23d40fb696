"""Metrics of whole brokers: which series there are, what is summed up beyond the limits, and that
no counter ever falls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pulsarish.runtime.seams import HttpRequest, HttpResponse, World
from pulsarish.sim.world.world import Simulation
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find
from tests.support.scraped import Labels, Scraped, parsed

NAMESPACE = "public/default"


def topic(number: int) -> str:
    return f"persistent://{NAMESPACE}/t{number}"


async def answered(cluster: BrokerCluster, **query: str) -> HttpResponse:
    async def ask(_world: World) -> HttpResponse:
        return await cluster.brokers["broker0"].http.handle(
            HttpRequest("GET", "/metrics", query, {}, b"", ("metrics",))
        )

    return await cluster.nodes["broker0"].run(ask)


async def scrape(cluster: BrokerCluster, **query: str) -> Scraped:
    answer = await answered(cluster, **query)
    assert answer.status == 200
    found = parsed(answer.body.decode())
    return {
        name: {
            tuple(label for label in labels if label[0] != "cluster"): value
            for labels, value in series.items()
        }
        for name, series in found.items()
    }


def run(
    scenario: Callable[[BrokerCluster, World, str], Awaitable[None]], **settings: object
) -> None:
    sim = Simulation(4)
    cluster = BrokerCluster(sim, **settings)

    async def main() -> None:
        await cluster.start()

        async def client(world: World) -> None:
            await scenario(cluster, world, await find(world, ["broker0"], topic(0)))

        await sim.node("client").run(client)

    sim.run(main, 600.0)


async def publish_to(world: World, address: str, count: int) -> PublishClient:
    publish = await PublishClient.connect(world, address)
    for number in range(count):
        await find(world, ["broker0"], topic(number))
        await publish.open(number + 1, topic(number), name=f"p{number}")
        await publish.send(
            [
                (number + 1, entry(f"p{number}", sequence, b"x" * 200))
                for sequence in range(number + 1)
            ]
        )
        await publish.wait(number + 1, number + 1)
    return publish


def labels(name: str = "", **others: str) -> Labels:
    return tuple(
        sorted({"namespace": NAMESPACE, **({"topic": name} if name else {}), **others}.items())
    )


def test_topics_beyond_the_limit_are_summed_up_and_counted() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await publish_to(world, address, 5)
        found = await scrape(cluster)
        assert found["pulsar_topics_count"] == {labels(): 5}
        assert found["pulsarish_metrics_folded_topics"] == {labels(): 3}
        assert found["pulsar_in_messages_total"] == {
            labels(topic(0)): 1,
            labels(topic(1)): 2,
            labels(): 3 + 4 + 5,
        }
        assert found["pulsar_broker_producers_count"] == {(): 5}
        assert found["pulsar_entry_size_le_512"][labels(topic(1))] == 2
        assert found["pulsar_entry_size_count"][labels()] == 12
        assert sum(found["pulsar_storage_write_latency_count"].values()) == 15
        assert (
            found["pulsar_storage_size"][labels(topic(0))]
            == 3 * found["pulsar_storage_logical_size"][labels(topic(0))]
            > 600
        )

    run(scenario, topic_level_metrics_topics_max=2)


def test_a_counter_never_falls_when_topics_leave() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        publish = await publish_to(world, address, 4)
        assert (await scrape(cluster))["pulsar_in_messages_total"] == {labels(): 10}
        await publish.stream.finish()
        path = ("admin", "v2", "persistent", *NAMESPACE.split("/"), "t3", "unload")

        async def unload(_world: World) -> int:
            return (
                await cluster.brokers["broker0"].http.handle(
                    HttpRequest("PUT", "/" + "/".join(path), {}, {}, b"", path)
                )
            ).status

        assert await cluster.nodes["broker0"].run(unload) == 204
        found = await scrape(cluster)
        assert found["pulsar_in_messages_total"] == {labels(): 10}
        assert found["pulsar_topics_count"] == {labels(): 3}
        again = await PublishClient.connect(world, address)
        await again.open(1, topic(3), name="q")
        await again.send([(1, entry("q", sequence)) for sequence in range(3)])
        await again.wait(1, 3)
        assert (await scrape(cluster))["pulsar_in_messages_total"] == {labels(): 13}

    run(scenario, expose_topic_level_metrics_in_prometheus=False)


def test_subscriptions_and_consumers_have_series_up_to_their_limits() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await publish_to(world, address, 1)
        consume = await ConsumeClient.connect(world, address)
        for number in range(3):
            await consume.subscribe(
                number, topic(0), f"s{number}", type=1, permits=10, consumer_name=f"c{number}"
            )
        await consume.subscribe(7, topic(0), "s0", type=1, permits=0, consumer_name="c7")
        await consume.take(3)
        found = await scrape(cluster)
        assert found["pulsar_subscription_back_log"] == {
            labels(topic(0), subscription=f"s{number}"): 1 for number in range(2)
        }
        assert (
            found["pulsar_subscription_unacked_messages"][labels(topic(0), subscription="s0")] == 1
        )
        assert (
            found["pulsar_subscription_last_consumed_timestamp"][
                labels(topic(0), subscription="s0")
            ]
            > 0
        )
        assert found["pulsarish_metrics_folded_subscriptions"] == {(): 1}
        one = labels(topic(0), subscription="s0", consumer_name="c0", consumer_id="0")
        assert found["pulsar_consumer_available_permits"] == {one: 9}
        assert found["pulsarish_metrics_folded_consumers"] == {(): 2}
        assert found["pulsar_out_messages_total"] == {labels(topic(0)): 3}

    run(
        scenario,
        topic_level_metrics_subscriptions_max=2,
        expose_consumer_level_metrics_in_prometheus=True,
        consumer_level_metrics_consumers_max=1,
    )


def test_non_persistent_topics_have_the_same_series_and_what_they_drop() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        name = "non-persistent://public/default/passing"
        await find(world, ["broker0"], name)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(7, name, "s", permits=3)
        publish = await PublishClient.connect(world, address)
        await publish.open(1, name)
        await world.clock.sleep(0.1)
        await publish.send([(1, entry("p", number)) for number in range(10)])
        await publish.wait(1, 10)
        await world.clock.sleep(2.0)
        found = await scrape(cluster)
        mine = labels(name)
        assert (
            found["pulsar_in_messages_total"][mine],
            found["pulsar_out_messages_total"][mine],
        ) == (10, 3)
        assert (found["pulsar_storage_size"][mine], found["pulsar_msg_backlog"][mine]) == (0, 0)
        of_subscription = labels(name, subscription="s")
        assert (
            found["pulsar_subscription_msg_drop_rate"][of_subscription]
            > found["pulsar_subscription_msg_rate_out"][of_subscription]
            > 0
        )
        assert found["pulsar_subscription_consumers_count"][of_subscription] == 1
        assert of_subscription not in found.get("pulsar_subscription_back_log", {})

    run(scenario)


def test_chosen_topics_have_their_series_on_request() -> None:
    async def scenario(cluster: BrokerCluster, world: World, address: str) -> None:
        await publish_to(world, address, 4)
        consume = await ConsumeClient.connect(world, address)
        for number, name in enumerate((topic(2), f"{topic(8)}-partition-0"), 1):
            await find(world, ["broker0"], name)
            await consume.subscribe(number, name)
        assert labels(topic(2)) not in (await scrape(cluster))["pulsar_in_messages_total"]
        found = await scrape(cluster, topics=f"t2, {topic(8)},t9")
        assert found["pulsar_in_messages_total"] == {
            labels(topic(2)): 3,
            labels(f"{topic(8)}-partition-0"): 0,
        }
        assert set(found["pulsar_subscription_back_log"]) == {
            labels(topic(2), subscription="s"),
            labels(f"{topic(8)}-partition-0", subscription="s"),
        }
        assert found["pulsarish_metrics_folded_subscriptions"] == {(): 0}
        assert "pulsar_broker_topics_count" not in found
        assert "process_open_fds" not in found
        assert not found.get("pulsarish_metrics_folded_topics")
        whole = await scrape(cluster, topics=NAMESPACE)
        assert len(whole["pulsar_in_messages_total"]) == 2
        assert whole["pulsarish_metrics_folded_topics"] == {labels(): 3}
        assert not (await scrape(cluster, topics="other/space")).get("pulsar_in_messages_total")
        for text, reason in (
            (" ,", "give 1 to 100"),
            (",".join(f"t{number}" for number in range(101)), "topics has 101 names"),
            ("what://a/b/c", "unknown domain"),
            ("a b/c", "tenant"),
        ):
            refused = await answered(cluster, topics=text)
            assert (refused.status, reason in refused.body.decode()) == (412, True), refused.body

    run(scenario, topic_level_metrics_topics_max=2)
