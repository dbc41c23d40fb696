"""The ledgers that name a bookie, and the request to have its copies elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pulsarish.broker.http.json_bodies import LedgersBody
from pulsarish.broker.http.route import Call
from pulsarish.broker.http.routes import recover_routes
from pulsarish.broker.http.routes.recover_routes import RecoverRoutes
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.options import LedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, UnderReplicated
from pulsarish.model.errors import InvalidArgument, NotFound
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.runtime.seams import HttpRequest, Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record

PURPOSE = LedgerPurpose(PurposeKind.TOPIC, "t")


def test_ledgers_are_listed_in_pages_and_those_that_name_the_bookie_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recover_routes, "_LOOKED_AT_MAX", 2)
    monkeypatch.setattr(recover_routes, "_READ_AT_ONCE", 1)

    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        client = LedgerClient(world, LedgerOptions())
        routes = {each.method: each for each in RecoverRoutes(records, client).routes()}

        async def ask(
            method: str, bookie: str, *, after: int = -1, only: str = "", body: Any = None
        ) -> Any:
            call = Call(
                HttpRequest(method, "/", {}, {}, b"", ()),
                "",
                {"bookie": bookie, "after": after, "ledgers": only},
                body,
            )
            return msgspec.json.decode((await routes[method].handler(call)).body)

        async def put(path: str, record: msgspec.Struct) -> None:
            await records.make_parents(path)
            await records.commit([Op("create", path, encode_record(record))])

        await put(paths.cookie("b1"), Cookie("b1", "b1~1", "c", "", "", "", 0))
        for ledger_id, members, last in ((3, ("b1~1", "b2~1"), 9), (4, ("b2~1", "b3~1"), 0)):
            closed = LedgerMetadata(
                ledger_id, 2, 2, 2, PURPOSE, (Segment(0, members),), LedgerState.CLOSED, last
            )
            await put(paths.ledger(ledger_id), closed)
        still_open = LedgerMetadata(7, 2, 2, 2, PURPOSE, (Segment(0, ("b2~1", "b1~1")),))
        await put(paths.ledger(7), still_open)

        page = await ask("GET", "b1")
        row = {"ledgerId": 3, "state": "closed", "entries": 10, "isLeaving": False, "reason": ""}
        assert page == {"instanceId": "b1~1", "ledgers": [row], "next": 4}
        page = await ask("GET", "b1~1", after=page["next"])
        assert [(each["ledgerId"], each["entries"]) for each in page["ledgers"]] == [(7, 0)]
        assert page["next"] is None

        page = await ask("GET", "b1", only="7,4,5")
        assert ([each["ledgerId"] for each in page["ledgers"]], page["next"]) == ([7], None)
        for only, why in (("7,x", "'x' is not the id"), ("9" * 19, "above"), ("7,", "''")):
            with pytest.raises(InvalidArgument, match=why):
                await ask("GET", "b1", only=only)

        assert await ask("PUT", "b1", body=LedgersBody([3, 4, 5])) == {"ledgers": [3]}
        assert await ask("PUT", "b1", body=LedgersBody([3])) == {"ledgers": [3]}
        found = await records.get(paths.underreplicated(3), UnderReplicated)
        assert found is not None
        assert found[0].leaving_members == ("b1~1",)
        assert (await ask("GET", "b1"))["ledgers"][0]["isLeaving"]
        with pytest.raises(InvalidArgument, match="at most 200"):
            await ask("PUT", "b1", body=LedgersBody(list(range(201))))
        with pytest.raises(NotFound, match="'b9'"):
            await ask("GET", "b9")

    sim = Simulation(1)

    async def scenario() -> None:
        await sim.node("a").run(work)

    sim.run(scenario)
