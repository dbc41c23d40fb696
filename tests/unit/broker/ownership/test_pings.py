"""A broker without others pings none and reads no lag; the first other one wakes it."""

from __future__ import annotations

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata import paths
from pulsarish.metadata.paths import ROOTS
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.runtime.seams import Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record

ALONE_SECONDS = 60.0


def test_a_broker_alone_times_nothing_until_another_one_registers() -> None:
    sim = Simulation(1)
    node = sim.node("broker")
    lag_reads = 0

    def take_lag_max() -> float:
        nonlocal lag_reads
        lag_reads += 1
        return 0.0

    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        for path in ROOTS:
            await records.ensure(path)
        config = BrokerConfig(
            broker_id="b", listen_address="broker:6660", http_address="", metadata_url="memory:"
        )
        ownership = Ownership(
            world,
            config,
            records,
            ledgers=LedgerClient(world, config.ledger),
            lost=lambda _: None,
            taken=lambda _: None,
            take_lag_max=take_lag_max,
        )
        await ownership.start(BrokerRegistration("b", "", "broker:6660"))
        await world.clock.sleep(ALONE_SECONDS)
        assert lag_reads == 0
        # Its process is gone: a connection to it is refused.
        gone = BrokerRegistration("gone", "gone~1", "gone:6660")
        await records.commit([Op("create", paths.broker("gone~1"), encode_record(gone))])
        await world.clock.sleep(config.broker_ping_interval_ms / 1000 * 2)
        assert lag_reads > 0
        assert (await records.nodes([paths.broker("gone~1")]))[0] is None
        assert ownership.peers.names() == []
        # Alone again.
        before = lag_reads
        await world.clock.sleep(ALONE_SECONDS)
        assert lag_reads <= before + 1
        await ownership.stop()

    async def scenario() -> None:
        await node.run(work)

    sim.run(scenario, ALONE_SECONDS * 4)
