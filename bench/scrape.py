"""What a scrape costs a broker with many loaded topics: ``python bench/scrape.py [TOPICS]``.

Topics are opened on a simulated broker; then ``/metrics`` is asked for, and the longest time is
taken for which the loop could do nothing else, beside the whole time and the size, with series for
single topics and without.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec

from bench.measure import percentile
from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.stats.topic_metrics import TopicMetrics
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.metrics import Metrics, Page
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from tests.support.brokers import BrokerCluster, find

SCRAPES = 5


def measured(broker: Broker, config: BrokerConfig) -> tuple[list[float], int]:
    """Seconds of processor time of each slice (others may use the machine), and bytes, of one
    scrape with that configuration.
    """
    metrics = Metrics()
    topics = TopicMetrics(metrics, broker._topics, config, broker._world.clock)
    page = Page({"cluster": "bench"}, sorted(metrics.families))
    slices: list[float] = []
    source = topics._collect(page)
    while True:
        began = time.thread_time()
        done = next(source, "done") == "done"
        slices.append(time.thread_time() - began)
        if done:
            return slices, sum(len(line) + 1 for lines in page.lines.values() for line in lines)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    sim = Simulation(1)
    cluster = BrokerCluster(sim)

    async def scenario() -> None:
        await cluster.start()
        broker: Any = cluster.brokers["broker0"]

        async def work(world: World) -> None:
            began = time.perf_counter()
            for number in range(count):
                name = TopicName.parse(f"persistent://public/default/t{number}")
                if number < 64:
                    await find(world, ["broker0"], name.full)  # until every bundle is owned
                topic = await broker._topics.get(name, create=True)
                if number < 1_000:
                    await topic.create_subscription("s", topic.log.last_confirmed)
            print(
                f"{count} topics, 1,000 subscriptions, opened in "
                f"{time.perf_counter() - began:.0f} s"
            )

        await cluster.nodes["broker0"].run(work)
        for title, changes in (
            ("1,000 topics with series of their own", {}),
            ("all topics with series of their own", {"topic_level_metrics_topics_max": count}),
            ("sums by namespace only", {"expose_topic_level_metrics_in_prometheus": False}),
        ):
            config = msgspec.structs.replace(cluster.config("broker0"), **changes)
            runs = [measured(broker, config) for _ in range(SCRAPES)]
            slices = sorted(each for run, _ in runs for each in run)
            whole = sorted(sum(run) for run, _ in runs)[SCRAPES // 2]
            print(
                f"{title}: {whole * 1000:.0f} ms in {len(runs[0][0])} slices, p50 "
                f"{percentile(slices, 50) * 1000:.2f} ms, p99 {percentile(slices, 99) * 1000:.2f} "
                f"ms, longest {slices[-1] * 1000:.2f} ms; {runs[0][1] / 1e6:.1f} MB"
            )

    sim.run(scenario, 1e9)


if __name__ == "__main__":
    main()
