"""Requests to set bookies read-only, as they are stored and answered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pulsarish.broker.http.route import Call
from pulsarish.broker.http.routes.read_only_routes import ReadOnlyRoutes
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration, Cookie, ReadOnlyBookie
from pulsarish.model.errors import NotAllowedError, NotFound
from pulsarish.runtime.seams import HttpRequest, Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record

PATTERN = "/admin/v2/bookies/read-only/{bookie}"


async def put(records: Records, path: str, record: msgspec.Struct) -> None:
    await records.make_parents(path)
    await records.commit([Op("create", path, encode_record(record))])


def test_a_request_is_stored_for_the_instance_and_refused_when_too_few_are_left() -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        options = ManagedLedgerOptions(ensemble_size=2, write_quorum=2, ack_quorum=2)
        routes = {
            each.method: each for each in ReadOnlyRoutes(records, world.clock, options).routes()
        }

        async def ask(method: str, bookie: str, **values: Any) -> dict[str, Any]:
            request = HttpRequest(method, PATTERN, {}, {}, b"", ())
            call = Call(request, "", {"bookie": bookie, **values})
            state: dict[str, Any] = msgspec.json.decode((await routes[method].handler(call)).body)
            return state

        for name in ("b1", "b2"):
            await put(records, paths.cookie(name), Cookie(name, f"{name}~1", "c", "", "", "", 0))
            await put(
                records, paths.bookie(name), BookieRegistration(name, f"{name}~1", name, name)
            )
        with pytest.raises(NotFound, match="'b9'"):
            await ask("PUT", "b9")
        with pytest.raises(NotFound, match="there is no bookie instance 'b1~0', or not any more"):
            await ask("PUT", "b1~0", force=True)
        with pytest.raises(
            NotAllowedError, match="without b1 1 bookies are writable, and 2 hold each"
        ):
            await ask("PUT", "b1", reason="disk")
        state = await ask("PUT", "b1", reason="disk", force=True)
        assert (state["asked"], state["alive"], state["readOnly"]) == (True, True, False)
        await put(records, paths.bookie("b3"), BookieRegistration("b3", "b3~1", "b3", "b3"))
        await put(
            records,
            paths.bookie("b4"),
            BookieRegistration("b4", "b4~1", "b4", "b4", read_only=True),
        )
        assert (await ask("PUT", "b1~1"))["instanceId"] == "b1~1"
        found = await records.get(paths.read_only_bookie("b1~1"), ReadOnlyBookie)
        assert found is not None
        assert (found[0].bookie_id, found[0].reason) == ("b1", "disk")
        # Of a former instance, which the one that runs is not.
        assert not (await ask("GET", "b1~0"))["alive"]
        state = await ask("DELETE", "b1")
        assert (state["asked"], state["readOnly"]) == (False, False)
        assert await records.get(paths.read_only_bookie("b1~1"), ReadOnlyBookie) is None

    sim = Simulation(1)

    async def scenario() -> None:
        await sim.node("a").run(work)

    sim.run(scenario)
