"""What operators ask of auto-recovery, as it is stored and answered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pulsarish.broker.http.route import Call
from pulsarish.broker.http.routes.autorecovery_routes import AutoRecoveryRoutes
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AutoRecoverySwitch
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.seams import HttpRequest, Op, World
from pulsarish.sim.world.world import Simulation

ROOT = "/admin/v2/bookies/autorecovery"


def test_each_request_is_stored_and_answered_with_the_state() -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        routes = {each.name: each for each in AutoRecoveryRoutes(records, world.clock).routes()}

        async def ask(method: str, path: str = "", **values: Any) -> dict[str, Any]:
            request = HttpRequest(method, ROOT + path, {}, {}, b"", ())
            found = await routes[f"{method} {ROOT}{path}"].handler(Call(request, "", values))
            state: dict[str, Any] = msgspec.json.decode(found.body)
            return state

        state = await ask("GET")
        assert (state["enabled"], state["auditor"], state["looksAsked"]) == (True, "", 0)
        state = await ask("PUT", "/disable", reason="disks")
        since = state["offSinceMs"]
        assert (state["enabled"], state["reason"], since > 0) == (False, "disks", True)
        await world.clock.sleep(5.0)
        state = await ask("PUT", "/disable", reason="")
        assert (state["offSinceMs"], state["reason"]) == (since, "disks")
        with pytest.raises(InvalidArgument, match="501 characters"):
            await ask("PUT", "/disable", reason="x" * 501)
        await ask("PUT", "/trigger", askBookies=True)
        state = await ask("PUT", "/trigger", askBookies=False)
        assert (state["looksAsked"], state["looksDone"]) == (2, 0)
        await ask("PUT", "/lost-bookie-delay", seconds=1800)
        found = await records.get(paths.autorecovery_switch(), AutoRecoverySwitch)
        assert found is not None
        assert msgspec.structs.replace(found[0], token="") == AutoRecoverySwitch(
            off_since_ms=since,
            reason="disks",
            lost_bookie_recovery_delay_seconds=1800,
            looks_asked=2,
            looks_asking_bookies=1,
        )
        await records.commit([Op("create_ephemeral", paths.auditor(), b"bookie-1~00")])
        state = await ask("PUT", "/enable")
        assert (state["enabled"], state["offSinceMs"], state["reason"]) == (True, 0, "")
        assert (state["lostBookieRecoveryDelaySeconds"], state["auditor"]) == (1800, "bookie-1~00")
        state = await ask("DELETE", "/lost-bookie-delay")
        assert state["lostBookieRecoveryDelaySeconds"] is None

    sim = Simulation(1)

    async def scenario() -> None:
        await sim.node("a").run(work)

    sim.run(scenario)
