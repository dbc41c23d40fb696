"""Racks and groups of bookies, as operators set them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pulsarish.broker.http.json_bodies import NewRackBody
from pulsarish.broker.http.route import Call
from pulsarish.broker.http.routes import storage_routes
from pulsarish.broker.http.routes.storage_routes import StorageRoutes
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.options import LedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration
from pulsarish.model.errors import InvalidArgument, LimitReached, NotFound
from pulsarish.runtime.seams import HttpRequest, Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record

RACKS = "/admin/v2/bookies/racks-info"


def test_racks_and_groups_are_set_shown_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        client = LedgerClient(world, LedgerOptions())
        routes = {
            (each.method, each.pattern): each for each in StorageRoutes(records, client).routes()
        }

        async def ask(
            method: str, bookie: str = "", group: str = "default", body: Any = None
        ) -> Any:
            pattern = f"{RACKS}/{{bookie}}" if bookie else RACKS
            call = Call(
                HttpRequest(method, "/", {}, {}, b"", ()),
                "",
                {"bookie": bookie, "group": group},
                body,
            )
            found = await routes[method, pattern].handler(call)
            return msgspec.json.decode(found.body) if found.body else None

        await records.ensure(paths.BOOKIES)
        row = BookieRegistration("b1", "b1~1", "one:3181", "one", rack="r0")
        await records.commit([Op("create", paths.bookie("b1"), encode_record(row))])
        assert await ask("GET") == {"default": {"b1": {"rack": "r0", "hostname": "one"}}}

        await ask("POST", "b1", "pay", NewRackBody("/r1", "one:3181"))
        await ask("POST", "b2", "pay")
        assert await ask("GET") == {
            "pay": {"b1": {"rack": "/r1", "hostname": "one"}, "b2": {"rack": "", "hostname": ""}}
        }
        assert await ask("GET", "b1") == {"rack": "/r1", "hostname": "one"}
        assert await ask("GET", "b2") == {"rack": "", "hostname": ""}
        # Only the group: the rack is the one that the bookie says.
        await ask("POST", "b1", "pay", NewRackBody())
        assert await ask("GET", "b1") == {"rack": "r0", "hostname": "one"}

        # As pulsar-admin names a bookie.
        await ask("POST", "one:3181", "pay", NewRackBody("r2"))
        assert await ask("GET", "one:3181") == {"rack": "r2", "hostname": "one"}

        await ask("DELETE", "b1")
        await ask("DELETE", "b2")
        assert await ask("GET") == {"default": {"b1": {"rack": "r0", "hostname": "one"}}}
        for method in ("GET", "DELETE"):
            with pytest.raises(NotFound, match="b2"):
                await ask(method, "b2")
        with pytest.raises(InvalidArgument, match="group"):
            await ask("POST", "b1", "a,b")
        monkeypatch.setattr(storage_routes, "_RACKS_BYTES_MAX", 100)
        with pytest.raises(LimitReached, match="remove those of bookies that are gone"):
            await ask("POST", "b1", "g" * 100)

    sim = Simulation(1)
    sim.run(lambda: sim.node("broker").run(work), 100)
