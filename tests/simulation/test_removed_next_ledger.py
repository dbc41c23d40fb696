"""The next ledger of a topic is in no list until the current one has ended, which may take hours where its bookies cannot say what they
have. Whoever looks for orphans may take it for one and remove it meanwhile.
"""

from __future__ import annotations

import pytest

from pulsarish.model.position import EARLIEST
from pulsarish.sim.world import Simulation
from tests.simulation.test_ledger_scripts import Cluster, play
from tests.simulation.test_topic_creation import Maker, ledgers_in


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_topic_does_not_name_a_ledger_that_was_removed_as_an_orphan(is_gone: bool) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        owner, job, heir = Maker(await cluster.client("one")), await cluster.client("two"), Maker(await cluster.client("three"))
        log = await owner.create(0)
        await owner.client.node.run(lambda _world: log.open_cursor("keep", initial=EARLIEST))
        await owner.append(log, b"one")
        (current,) = ledgers_in(sim)
        end_current = log._appender._end_current

        async def while_the_next_is_removed(goal: object) -> None:
            log._appender._end_current = end_current  # type: ignore[method-assign]
            (following,) = ledgers_in(sim) - {current}
            # Recovered first, and then either gone already or about to be.
            await job.do(job.ledgers.delete(following) if is_gone else job.ledgers.open(following))
            await end_current(goal)  # type: ignore[arg-type]

        log._appender._end_current = while_the_next_is_removed  # type: ignore[method-assign]
        await owner.client.node.run(lambda _world: log.roll())
        found = await owner.topic(0)
        assert found is not None
        assert {link.ledger_id for link in found[0].ledgers} <= ledgers_in(sim)
        await owner.append(log, b"two")
        assert owner.heard[0].confirmed == [b"one", b"two"]
        assert (await heir.open(0)).entries == 2

    play(scenario)
