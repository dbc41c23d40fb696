"""The last steps before an orphan goes, on a simulated cluster and without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from pulsarish.spark.jobs.removal import PlannedLedger, Removal, _closed, _remove_one
from tests.simulation.test_ledger_scripts import Cluster, play
from tests.simulation.test_topic_creation import Maker, name_of


def site_of(world: World) -> Any:
    records = Records(world.metadata, world.clock, world.random)
    return SimpleNamespace(records=records, ledgers=LedgerStore(records, world.clock))


def test_what_came_into_use_since_the_look_at_everything_is_not_fenced() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        owner, job = Maker(await cluster.client("one")), await cluster.client("two")
        log = await owner.create(0)
        await owner.append(log, b"one")
        ledger_id = log.ledgers[0].ledger_id
        here = site_of(job.world)
        (node,) = await job.do(here.records.nodes([paths.ledger(ledger_id)]))
        planned = PlannedLedger(ledger_id, name_of(0).full, 0, 0, node.created)
        assert (
            await job.do(_closed(here, job.ledgers, planned, {ledger_id}))
            == "it is no orphan any more"
        )
        await owner.append(log, b"two")
        assert owner.heard[0].confirmed == [b"one", b"two"]

    play(scenario)


def test_what_could_not_be_removed_is_told_with_what_was() -> None:
    class Unreachable:
        async def delete(self, _ledger_id: int, _version: int) -> None:
            raise MetadataUnavailable("the metadata store did not answer")

    metadata = LedgerMetadata(
        ledger_id=7,
        ensemble_size=1,
        write_quorum=1,
        ack_quorum=1,
        purpose=LedgerPurpose(PurposeKind.TOPIC, name_of(0).full),
        segments=(Segment(0, ("a",)),),
        created_ms=1,
        state=LedgerState.CLOSED,
    )

    async def scenario(sim: Simulation) -> None:
        job = await Cluster(sim, 3).client()
        here = site_of(job.world)
        here.ledgers = Unreachable()
        removal = Removal(removed=[6])
        await job.do(_remove_one(here, metadata, 0, removal))
        assert removal.removed == [6]
        assert removal.kept == {
            7: "whether it was removed is not known: the metadata store did not answer"
        }

    play(scenario)
