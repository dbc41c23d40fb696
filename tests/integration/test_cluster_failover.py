"""A client of two clusters of real processes: the primary one dies, and comes back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import pulsarish
import pulsarish.asyncio
from tests.integration.test_tls_proxy import options, running
from tests.support.until import until

pytestmark = pytest.mark.xdist_group("cluster-failover")


@contextmanager
def cluster(data: Path, address: str = "127.0.0.1:0") -> Iterator[str]:
    """Run a server with everything. Yields the ``host:port`` of its binary protocol."""
    settings = {
        "listen_address": "127.0.0.1:0",
        "http_address": "",
        "pulsar_address": address,
    }
    words = ["standalone", "--data", str(data), "--bookie-set", "listen_address=127.0.0.1:0"]
    with running(*words, *options("--broker-set", settings)) as ready:
        found = re.search(r"pulsar://(\S+)", " ".join(ready))
        assert found is not None, ready
        yield found[1]


def failover(primary: str, secondary: str) -> pulsarish.AutoClusterFailover:
    return pulsarish.AutoClusterFailover(
        pulsarish.ServiceInfo(f"pulsar://{primary}"),
        [pulsarish.ServiceInfo(f"pulsar://{secondary}")],
        check_interval_ms=500,
        failover_threshold=2,
        switch_back_threshold=2,
    )


def test_the_primary_cluster_dies_and_comes_back(tmp_path: Path) -> None:
    with cluster(tmp_path / "b") as secondary, ExitStack() as first:
        primary = first.enter_context(cluster(tmp_path / "a"))
        with pulsarish.Client(failover(primary, secondary)) as client:

            def uses(address: str) -> bool:
                return client.get_service_info().service_url == f"pulsar://{address}"

            producer = client.create_producer("t", send_timeout_millis=120_000)
            consumer = client.subscribe(
                "t",
                "s",
                initial_position=pulsarish.InitialPosition.Earliest,
                ack_receipt_enabled=True,
            )

            def exchange(content: bytes) -> None:
                producer.send(content)
                message = consumer.receive(60_000)
                assert message.data() == content
                consumer.acknowledge(message)

            exchange(b"1")
            assert uses(primary)
            first.close()
            exchange(b"2")
            assert uses(secondary)
            with cluster(tmp_path / "a", primary) as again:
                assert again == primary
                until("the client is at its primary cluster", lambda: uses(primary))
                exchange(b"3")


def test_a_provider_moves_an_awaitable_client(tmp_path: Path) -> None:
    class Provider(pulsarish.ServiceInfoProvider):
        def initial_service_info(self) -> pulsarish.ServiceInfo:
            return here

        def initialize(self, on_service_info_update: object) -> None:
            updates.append(on_service_info_update)

    async def run() -> None:
        async with pulsarish.asyncio.Client(Provider()) as client:
            producer = await client.create_producer("t")
            await producer.send(b"1")
            (update,) = updates
            await asyncio.to_thread(update, there)  # type: ignore[arg-type]
            assert client.get_service_info() is there
            consumer = await client.subscribe(
                "t", "s", initial_position=pulsarish.InitialPosition.Earliest
            )
            await producer.send(b"2")
            assert (await consumer.receive()).data() == b"2"

    updates: list[object] = []
    with cluster(tmp_path / "a") as one, cluster(tmp_path / "b") as two:
        here = pulsarish.ServiceInfo(f"pulsar://{one}")
        there = pulsarish.ServiceInfo(f"pulsar://{two}")
        asyncio.run(run())
