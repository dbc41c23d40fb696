"""A broker on real sockets, files and RocksDB: the same paths as in simulation, through gRPC and
aiohttp.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata.local import open_local
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.world import production
from pulsarish.wire._pb import broker_pb2 as pb
from tests.support.brokers import ConsumeClient, PublishClient, entry
from tests.support.worlds import run_in_production_loop

TOPIC = "persistent://public/default/t"
LOOKUP = pb.LookupsRequest(lookups=[pb.LookupRequest(topic=TOPIC)]).SerializeToString()


def test_publish_consume_and_restart_on_real_sockets(tmp_path: Path) -> None:
    async def scenario() -> None:
        parts = production(outside=OutsideWork())
        tree = await open_local(
            "",
            clock=parts.clock,
            tasks=parts.tasks,
            rng=parts.random,
            files=parts.files,
            open_index=parts.open_index,
        )
        bookie = Bookie(
            parts.world(await tree.new_store()),
            BookieConfig(
                bookie_id="b1",
                listen_address="127.0.0.1:0",
                http_address="",
                data_directory=str(tmp_path),
                read_only_free_bytes=600 << 20,
            ),
        )
        await bookie.start()
        config = BrokerConfig(
            listen_address="127.0.0.1:0",
            http_address="127.0.0.1:0",
            pulsar_address="127.0.0.1:0",
            managed_ledger=ManagedLedgerOptions(ensemble_size=1, write_quorum=1, ack_quorum=1),
        )
        broker = Broker(parts.world(await tree.new_store()), config)
        await broker.start()
        world = parts.world(await tree.new_store())

        data = await world.connections.call(
            broker.address, "broker.lookup", LOOKUP, timeout_seconds=30
        )
        assert [answer.address for answer in pb.LookupsResponse.FromString(data).answers] == [
            broker.address
        ]
        publish = await PublishClient.connect(world, broker.address)
        await publish.open(1, TOPIC)
        big = [entry("p", number, bytes([number]) * 200_000) for number in range(30)]
        for each in big:
            await publish.send([(1, each)])
        await publish.wait(1, 30)
        consume = await ConsumeClient.connect(world, broker.address)
        await consume.subscribe(1, TOPIC)
        got = await consume.take(30)
        assert [each.payload for each in got] == big
        await consume.ack(1, [(got[19].ledger, got[19].entry)], cumulative=True)

        def health() -> object:
            with urllib.request.urlopen(
                f"http://{broker.http_address}/health", timeout=30
            ) as answer:
                return json.loads(answer.read())

        assert await asyncio.to_thread(health) == {"status": "ok"}
        await broker.stop()
        assert publish.closed == {}
        again = Broker(parts.world(await tree.new_store()), config)
        await again.start()
        await world.connections.call(again.address, "broker.lookup", LOOKUP, timeout_seconds=30)
        consume = await ConsumeClient.connect(world, again.address)
        await consume.subscribe(1, TOPIC)
        assert [each.payload for each in await consume.take(10)] == big[20:]
        await again.stop()
        await bookie.stop()
        await tree.close()
        await parts.close()

    run_in_production_loop(scenario)
