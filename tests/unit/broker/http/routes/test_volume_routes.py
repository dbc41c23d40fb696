"""Drains and removals of volumes, as they are asked for and answered."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from pulsarish.broker.http.route import Call
from pulsarish.broker.http.routes.volume_addition_routes import VolumeAdditionRoutes
from pulsarish.broker.http.routes.volume_drain_routes import VolumeDrainRoutes
from pulsarish.broker.http.routes.volume_removal_routes import VolumeRemovalRoutes
from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.bookie_states import AdditionState, VolumeState
from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration, Cookie, VolumeRecord
from pulsarish.model.errors import NotAllowedError, NotFound, ServiceNotReady
from pulsarish.runtime.seams import HttpRequest, World
from tests.unit.broker.http.routes.test_cordon_routes import play, put, volume

OPTIONS = ManagedLedgerOptions(ensemble_size=2, write_quorum=2, ack_quorum=2)
VOLUMES = {"": volume("a"), "1": volume("b")}


class Control:
    """Answers for the bookie."""

    def __init__(self) -> None:
        self.state = VolumeState(False, False, 0, 0, "", [])
        self.error = ""
        self.asked: list[tuple[str, str, bool]] = []

    @property
    def control(self) -> Control:
        return self

    async def volume(self, member: str, directory: str, *, remove: bool = False) -> VolumeState:
        self.asked.append((member, directory, remove))
        if self.error:
            raise NoAnswer(self.error)
        return self.state


class AddControl:
    """Answers for a bookie that is asked to add volumes."""

    def __init__(self) -> None:
        self.answers: list[AdditionState] = []
        self.asked: list[tuple[str, tuple[str, ...], bool]] = []

    @property
    def control(self) -> AddControl:
        return self

    async def add_volume(
        self, member: str, directories: tuple[str, ...], *, add: bool = False
    ) -> AdditionState:
        self.asked.append((member, directories, add))
        if not self.answers:
            raise NoAnswer("it is silent")
        return self.answers.pop(0)


def cookie_with(volumes: dict[str, VolumeRecord]) -> Cookie:
    return Cookie("b1", "b1~1", "c", "", "/a/ledgers", "", 0, volumes=volumes)


async def ask(routes: Any, method: str, directory: str, **more: str) -> dict[str, Any]:
    (route,) = [each for each in routes.routes() if each.method == method]
    request = HttpRequest(method, route.pattern, {}, {}, b"", ())
    call = Call(request, "", {"bookie": "b1", "directory": directory, **more})
    found: dict[str, Any] = msgspec.json.decode((await route.handler(call)).body)
    return found


def test_a_drain_is_stored_and_the_bookie_says_how_far_it_is() -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        bookie = Control()
        routes = VolumeDrainRoutes(records, cast("LedgerClient", bookie), OPTIONS)
        await put(records, paths.cookie("b1"), cookie_with(VOLUMES))
        state = await ask(routes, "PUT", "/b/ledgers/")
        assert (state["asked"], state["alive"], state["drained"]) == (True, False, False)
        assert state["directory"] == "/b/ledgers"
        assert bookie.asked == []
        await put(records, paths.bookie("b1"), BookieRegistration("b1", "b1~1", "b1", "b1"))
        bookie.state = VolumeState(True, True, 2, 1, "", [(7, "unload it")])
        state = await ask(routes, "GET", "/b/ledgers")
        assert (state["closedLedgers"], state["openLedgers"]) == (2, 1)
        assert state["waiting"] == [{"ledgerId": 7, "reason": "unload it"}]
        assert not state["drained"]
        # Only what was looked at, and is whole, is drained.
        for draining, looked, failure in (
            (True, False, ""),
            (False, True, ""),
            (True, True, "no metadata"),
        ):
            bookie.state = VolumeState(draining, looked, 0, 0, failure, [])
            assert not (await ask(routes, "GET", "/b/ledgers"))["drained"]
        bookie.state = VolumeState(True, True, 0, 0, "", [])
        assert (await ask(routes, "GET", "/b/ledgers"))["drained"]
        bookie.error = "it is silent"
        state = await ask(routes, "GET", "/b/ledgers")
        assert (state["failure"], state["drained"]) == ("it is silent", False)
        assert {each[1:] for each in bookie.asked} == {("/b/ledgers", False)}
        with pytest.raises(NotFound, match="it has /a/ledgers, /b/ledgers"):
            await ask(routes, "PUT", "/c/ledgers")
        with pytest.raises(NotAllowedError, match="0 bookies are writable"):
            await ask(routes, "PUT", "/a/ledgers")

    play(work)


def test_a_removal_is_asked_of_the_bookie_and_known_for_good() -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        bookie = Control()
        routes = VolumeRemovalRoutes(records, cast("LedgerClient", bookie))
        path = paths.cookie("b1")
        await put(records, path, cookie_with(VOLUMES))
        bookie.state = VolumeState(True, True, 0, 0, "", [], removing=True)
        state = await ask(routes, "PUT", "/b/ledgers/")
        assert (state["removing"], state["removed"], state["refusal"]) == (True, False, "")
        bookie.state = VolumeState(True, True, 0, 0, "", [], refusal="ledger 7")
        assert (await ask(routes, "GET", "/b/ledgers"))["refusal"] == "ledger 7"
        assert bookie.asked == [("b1~1", "/b/ledgers", True), ("b1~1", "/b/ledgers", False)]
        bookie.error = "it is silent"
        with pytest.raises(ServiceNotReady, match="it is silent"):
            await ask(routes, "PUT", "/b/ledgers")
        # The metadata know it, whether the bookie runs or not.
        gone = msgspec.structs.replace(volume("b", is_lost=True), is_removed=True)

        async def store(volumes: dict[str, VolumeRecord]) -> None:
            await records.update(path, Cookie, lambda _found: cookie_with(volumes))

        await store({"": volume("a"), "1": gone})
        assert (await ask(routes, "PUT", "/b/ledgers/"))["removed"]
        # Another disk is there now.
        await store({"": volume("a"), "1": gone, "2": volume("b")})
        bookie.error = ""
        assert not (await ask(routes, "GET", "/b/ledgers"))["removed"]
        # One that was lost was not removed.
        await store({"": volume("a"), "1": volume("b", is_lost=True)})
        with pytest.raises(NotFound):
            await ask(routes, "PUT", "/b/ledgers")

    play(work)


def test_an_addition_is_asked_of_the_bookie() -> None:
    async def work(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        bookie = AddControl()
        routes = VolumeAdditionRoutes(records, cast("LedgerClient", bookie))
        await put(records, paths.cookie("b1"), cookie_with(VOLUMES))
        others = {"journalDirectory": "/c/journal", "indexDirectory": "/c/index"}
        bookie.answers = [AdditionState(True, False, ""), AdditionState(False, False, "no space")]
        state = await ask(routes, "PUT", "/c/ledgers/", **others)
        assert (state["adding"], state["added"], state["refusal"]) == (True, False, "")
        assert (state["bookieId"], state["directory"]) == ("b1", "/c/ledgers")
        state = await ask(routes, "GET", "/c/ledgers")
        assert (state["adding"], state["added"], state["refusal"]) == (False, False, "no space")
        with pytest.raises(ServiceNotReady, match="it is silent"):
            await ask(routes, "GET", "/c/ledgers")
        assert bookie.asked == [
            ("b1~1", ("/c/journal", "/c/ledgers", "/c/index"), True),
            ("b1~1", ("", "/c/ledgers", ""), False),
            ("b1~1", ("", "/c/ledgers", ""), False),
        ]

    play(work)
