"""The request to move copies to emptier bookies, and its progress."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pulsarish.broker.http.route import Call
from pulsarish.broker.http.routes.rebalance_routes import RebalanceRoutes
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import RebalanceRecord
from pulsarish.model.errors import NotAllowedError
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.sim.world.world import Simulation


def test_one_is_asked_for_at_a_time_and_ends_or_is_stopped() -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        routes = {
            each.method if each.pattern.endswith("rebalance") else "audit": each
            for each in RebalanceRoutes(records, world.clock).routes()
        }

        async def ask(method: str, **values: Any) -> dict[str, Any]:
            given = {each.name: each.default for each in routes[method].parameters} | values
            call = Call(HttpRequest(method, "/", {}, {}, b"", ()), "", given, None)
            body: dict[str, Any] = msgspec.json.decode((await routes[method].handler(call)).body)
            return body

        async def note(**fields: Any) -> None:
            await records.update(
                paths.rebalance(),
                RebalanceRecord,
                lambda found: found and msgspec.structs.replace(found, **fields),
            )

        for method in ("GET", "DELETE"):
            never = await ask(method)
            assert (never["running"], never["askedMs"], never["auditor"]) == (False, 0, "")
        asked = await ask("PUT", rateBytes=5_000, maxLedgers=3)
        assert (asked["running"], asked["dryRun"]) == (True, False)
        assert (asked["rateBytes"], asked["maxLedgers"], asked["tolerancePercent"]) == (
            5_000,
            3,
            10,
        )
        with pytest.raises(NotAllowedError, match="rebalance stop"):
            await ask("PUT")
        await note(ledgers_moved=2, held={"b2~1": 7, "b1~1": 9}, held_then={"b1~1": 8, "b2~1": 8})
        now = await ask("GET")
        assert now["ledgersMoved"] == 2
        assert now["bookies"] == [
            {"bookieId": "b1", "instanceId": "b1~1", "bytes": 9, "bytesThen": 8},
            {"bookieId": "b2", "instanceId": "b2~1", "bytes": 7, "bytesThen": 8},
        ]
        stopped = await ask("DELETE")
        assert (stopped["running"], stopped["reason"]) == (False, "an operator has stopped it")
        assert await ask("DELETE") == stopped
        again = await ask("PUT", dryRun=True)
        assert (again["running"], again["dryRun"], again["ledgersMoved"]) == (True, True, 0)
        found = await records.get(paths.rebalance(), RebalanceRecord)
        assert found is not None
        assert found[0].number == 2
        with pytest.raises(NotAllowedError):
            await ask("audit")
        await ask("DELETE")
        looked = await ask("audit", maxLedgers=4)
        assert (looked["placement"], looked["dryRun"], looked["maxLedgers"]) == (True, True, 4)
        await ask("DELETE")
        assert (await ask("audit", repair=True))["dryRun"] is False

    sim = Simulation(1)

    async def scenario() -> None:
        await sim.node("a").run(work)

    sim.run(scenario)
