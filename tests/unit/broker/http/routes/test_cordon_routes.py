"""Requests to cordon volumes of bookies, as they are stored and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from pulsarish.broker.http.bookie_names import BookieInstance
from pulsarish.broker.http.route import Call
from pulsarish.broker.http.routes.cordon_routes import CordonRoutes
from pulsarish.broker.http.routes.volume_requests import ask_to_cordon, end_cordon
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration, Cookie, CordonedVolumes, VolumeRecord
from pulsarish.model.errors import CorruptData, NotAllowedError, NotFound
from pulsarish.runtime.seams import HttpRequest, Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record

PATTERN = "/admin/v2/bookies/cordoned/{bookie}"


async def put(records: Records, path: str, record: msgspec.Struct) -> None:
    await records.make_parents(path)
    await records.commit([Op("create", path, encode_record(record))])


def volume(place: str, *, is_lost: bool = False) -> VolumeRecord:
    directories = (f"/{place}/journal", f"/{place}/ledgers", f"/{place}/index")
    return VolumeRecord(directories, is_lost=is_lost)


def test_a_request_is_stored_for_the_volume_and_refused_where_it_does_not_fit() -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        options = ManagedLedgerOptions(ensemble_size=2, write_quorum=2, ack_quorum=2)
        routes = {each.method: each for each in CordonRoutes(records, options).routes()}

        async def ask(method: str, bookie: str, place: str = "", **values: Any) -> dict[str, Any]:
            request = HttpRequest(method, PATTERN, {}, {}, b"", ())
            given = {"bookie": bookie, "directory": f"/{place}/ledgers", **values}
            call = Call(request, "", given)
            state: dict[str, Any] = msgspec.json.decode((await routes[method].handler(call)).body)
            return state

        several = {"": volume("a"), "1": volume("b"), "2": volume("c", is_lost=True)}
        for name, volumes in (("b1", several), ("b2", {}), ("b3", {"": volume("a")})):
            cookie = Cookie(name, f"{name}~1", "c", "", "/a/ledgers", "", 0, volumes=volumes)
            await put(records, paths.cookie(name), cookie)
        found = BookieRegistration("b1", "b1~1", "b1", "b1", cordoned_directories=("/a/ledgers",))
        await put(records, paths.bookie("b1"), found)
        with pytest.raises(NotFound, match="'b9'"):
            await ask("PUT", "b9", "a")
        with pytest.raises(NotFound, match="there is no bookie instance 'b1~0', or not any more"):
            await ask("PUT", "b1~0", "a")
        for single in ("b2", "b3"):
            with pytest.raises(
                NotAllowedError, match=f"instead: pulsarish bookies set-read-only {single}"
            ):
                await ask("PUT", single, "a")
        for method in ("PUT", "DELETE"):
            for place in ("x", "c"):
                refusal = f"no ledger directory '/{place}/ledgers'; it has /a/ledgers, /b/ledgers"
                with pytest.raises(NotFound, match=refusal):
                    await ask(method, "b1", place)
        state = await ask("PUT", "b1", "a", reason="it clicks")
        assert state == {
            "bookieId": "b1",
            "instanceId": "b1~1",
            "asked": {"/a/ledgers": "it clicks"},
            "alive": True,
            "cordoned": ["/a/ledgers"],
            "readOnly": False,
        }
        # Asked again without a reason, it keeps its reason.
        assert await ask("PUT", "b1", "a") == state
        assert await ask("PUT", "b1", directory="/a//ledgers/") == state
        with pytest.raises(
            NotAllowedError, match="without b1 0 bookies are writable, and 2 hold each"
        ):
            await ask("PUT", "b1", "b")
        assert await ask("GET", "b1") == state
        state = await ask("PUT", "b1", "b", force=True)
        assert state["asked"] == {"/a/ledgers": "it clicks", "/b/ledgers": ""}
        for _ in range(2):
            assert (await ask("DELETE", "b1", "a"))["asked"] == {"/b/ledgers": ""}
        assert (await ask("DELETE", "b2", "a"))["asked"] == {}
        # What a volume that is lost since was asked for goes with the next request.
        path = paths.cordoned_volumes("b1~1")
        record = CordonedVolumes("b1", "b1~1", {"2": "it clicked"})
        await records.commit([Op("put", path, encode_record(record))])
        assert (await ask("PUT", "b1", "a"))["asked"] == {"/a/ledgers": ""}
        stored = await records.get(path, CordonedVolumes)
        assert stored is not None
        assert stored[0].volumes == {"": ""}
        # A damaged record is no request.
        await records.commit([Op("put", path, b"damaged")])
        for method in ("GET", "PUT"):
            with pytest.raises(CorruptData, match="/cordoned-volumes/b1~1"):
                await ask(method, "b1", "a")
        assert (await ask("DELETE", "b1", "a"))["asked"] == {}
        assert (await ask("PUT", "b1", "a"))["asked"] == {"/a/ledgers": ""}

    play(work)


def test_two_requests_at_once_do_not_cordon_all_volumes() -> None:
    """The second one to be stored sees that it is about the last volume."""

    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        options = ManagedLedgerOptions(ensemble_size=2, write_quorum=2, ack_quorum=2)
        cookie = Cookie("b1", "b1~1", "c", "", "/a/ledgers", "", 0)
        volumes = {"": volume("a"), "1": volume("b")}
        cookie = msgspec.structs.replace(cookie, volumes=volumes)
        await put(records, paths.cookie("b1"), cookie)
        bookie = BookieInstance("b1", "b1~1")
        requests = [
            asyncio.create_task(
                ask_to_cordon(records, options, bookie, directory, reason="", force=False)
            )
            for directory in ("/a/ledgers/", "/b//ledgers")
        ]
        _ = await asyncio.wait(requests)
        errors = [each.exception() for each in requests]
        assert sorted(isinstance(each, NotAllowedError) for each in errors) == [False, True]
        stored = await records.get(paths.cordoned_volumes("b1~1"), CordonedVolumes)
        assert stored is not None
        assert len(stored[0].volumes) == 1

    play(work)


def test_a_drain_cordons_and_the_end_of_the_cordon_ends_it() -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        options = ManagedLedgerOptions(ensemble_size=2, write_quorum=2, ack_quorum=2)
        cookie = Cookie("b1", "b1~1", "c", "", "/a/ledgers", "", 0)
        volumes = {"": volume("a"), "1": volume("b"), "2": volume("c", is_lost=True)}
        await put(records, paths.cookie("b1"), msgspec.structs.replace(cookie, volumes=volumes))
        bookie = BookieInstance("b1", "b1~1")
        path = paths.cordoned_volumes("b1~1")
        given = CordonedVolumes("b1", "b1~1", {"2": ""}, draining=("2",))
        await put(records, path, given)

        async def ask(**values: Any) -> tuple[dict[str, str], tuple[str, ...]]:
            await ask_to_cordon(
                records, options, bookie, "/b/ledgers/", **{"reason": "", "force": False, **values}
            )
            found = await records.get(path, CordonedVolumes)
            assert found is not None
            return found[0].volumes, found[0].draining

        assert await ask(reason="old") == ({"1": "old"}, ())
        assert await ask(drain=True) == ({"1": "old"}, ("1",))
        assert await ask() == ({"1": "old"}, ("1",))
        await end_cordon(records, bookie, "/b/ledgers/")
        assert await ask() == ({"1": ""}, ())

    play(work)


def play(work: Callable[[World], Awaitable[None]]) -> None:
    sim = Simulation(1)

    async def scenario() -> None:
        await sim.node("a").run(work)

    sim.run(scenario)
