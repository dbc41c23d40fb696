"""The HTTP port alone: how a path finds its route, what a route refuses, lanes, places and
timeouts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import Any, get_origin

import msgspec
import pytest
from msgspec.structs import replace

from pulsarish.broker.broker import Broker
from pulsarish.broker.clients.authorization import Gate, Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.admission import PAUSE_SECONDS_MAX, Admission, LoopShare
from pulsarish.broker.http.face import HttpFace, _body
from pulsarish.broker.http.openapi import document
from pulsarish.broker.http.route import (
    AFTER,
    Call,
    Handler,
    Lane,
    Parameter,
    Route,
    answer,
    no_content,
)
from pulsarish.broker.http.route import LIMIT as ALL
from pulsarish.broker.http.router import RouteTable
from pulsarish.broker.http.stats_sum import summed
from pulsarish.model.errors import InvalidArgument, Malformed
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.seams import Clock, HttpRequest, HttpResponse, World
from pulsarish.security.audit import AuditEvent, Disposition
from pulsarish.security.authentication import NoAuthentication
from pulsarish.security.callers import Callers
from pulsarish.sim.world.world import Simulation


class Body(msgspec.Struct, forbid_unknown_fields=True):
    size: int


async def nothing(call: Call) -> HttpResponse:
    return no_content()


def route(method: str, pattern: str, handler: Handler = nothing, **fields: Any) -> Route:
    return Route(method, pattern, handler, Permission.NONE, "", **fields)


def request(method: str, target: str, body: bytes = b"") -> HttpRequest:
    path, _, query = target.partition("?")
    pairs = dict(pair.split("=") for pair in query.split("&") if pair)
    return HttpRequest(method, path, pairs, {}, body, tuple(path.strip("/").split("/")))


def test_only_routes_with_a_body_take_much() -> None:
    async def scenario(face: HttpFace, world: World) -> None:
        assert face.body_limit("POST", ["body"]) == 2 << 20
        assert face.body_limit("GET", ["body"]) == face.body_limit("POST", ["none"]) == 4 << 10

    ask_all([route("POST", "/body", body=Body), route("POST", "/none")], scenario)


def test_large_answers_are_made_a_few_at_a_time() -> None:
    running = [0, 0]

    async def large(call: Call) -> HttpResponse:
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(0.1)
        running[0] -= 1
        return no_content()

    async def scenario(face: HttpFace, world: World) -> None:
        answers = await asyncio.gather(*(face.handle(request("GET", "/large")) for _ in range(10)))
        assert [each.status for each in answers] == [204] * 10

    ask_all([route("GET", "/large", large, large=True)], scenario)
    assert running == [0, 2]


# Finding a route.

TABLE = RouteTable(
    [
        route("GET", "/a"),
        route("GET", "/a/{x}"),
        route("PUT", "/a/{x}"),
        route("GET", "/a/fixed"),
        route("GET", "/a/{x}/unload"),
        route("POST", "/a/clear/{y}"),
        route("GET", "/a/{x}/{y}/deep"),
    ]
)


@pytest.mark.parametrize(
    ("method", "path", "name", "values"),
    [
        ("GET", "/a", "GET /a", {}),
        ("GET", "/a/fixed", "GET /a/fixed", {}),
        ("PUT", "/a/fixed", "PUT /a/{x}", {"x": "fixed"}),
        ("GET", "/a/other", "GET /a/{x}", {"x": "other"}),
        ("POST", "/a/clear/unload", "POST /a/clear/{y}", {"y": "unload"}),
        ("GET", "/a/clear/unload", "GET /a/{x}/unload", {"x": "clear"}),
        ("GET", "/a/clear/b/deep", "GET /a/{x}/{y}/deep", {"x": "clear", "y": "b"}),
    ],
)
def test_fixed_words_come_before_names_and_no_dead_end_is_final(
    method: str, path: str, name: str, values: dict[str, str]
) -> None:
    found = TABLE.find(method, path.strip("/").split("/"))
    assert found is not None
    assert isinstance(found[0], Route)
    assert (found[0].name, found[1]) == (name, values)


def test_an_unknown_path_is_told_from_an_unknown_method() -> None:
    assert TABLE.find("GET", ["b"]) is None
    assert TABLE.find("GET", ["a", ""]) is None
    assert TABLE.find("DELETE", ["a", "fixed"]) == (["GET", "PUT"], None)


def test_two_routes_of_one_shape_are_a_defect() -> None:
    with pytest.raises(AssertionError, match="is there twice"):
        RouteTable([route("GET", "/a/{x}"), route("GET", "/a/{y}")])


# What a route refuses before its handler runs.


def ask_all(
    routes: list[Route],
    scenario: Callable[[HttpFace, World], Awaitable[None]],
    *,
    seconds: float = 100.0,
    messages_flow: Callable[[], bool] = lambda: False,
    clock: Clock | None = None,
    **settings: Any,
) -> None:
    sim = Simulation(1)
    config = msgspec.structs.replace(BrokerConfig(), **settings)

    async def node(world: World) -> None:
        share = LoopShare(clock or world.clock, config.admin_share_beside_messages, messages_flow)
        await scenario(
            HttpFace(world, config, Gate(), routes, share, Callers(NoAuthentication())), world
        )

    async def main() -> None:
        await sim.node("b").run(node)

    sim.run(main, seconds)


LIMIT = Parameter("limit", "", int, minimum=1, maximum=9, default=5)
COLOUR = Parameter("colour", "", choices=("red", "blue"))
FLAG = Parameter("flag", "", bool, default=False)
NUMBER = Parameter("number", "", int, minimum=0)


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "text"),
    [
        ("GET", "/list", b"", 200, '"limit":5'),
        ("GET", "/list?limit=9&colour=red&flag=TRUE", b"", 200, '"flag":true,"limit":9'),
        ("GET", "/list?limit=0", b"", 412, "limit must be 1 to 9, not 0"),
        ("GET", "/list?limit=x", b"", 400, "limit must be a whole number, not 'x'"),
        (
            "GET",
            f"/list?limit=1{'0' * 19}",
            b"",
            400,
            "limit must be a whole number of at most 19 digits, not '1000",
        ),
        ("GET", "/list?limit=1e3", b"", 400, "whole number"),
        ("GET", "/list?limit=" + "9" * 30, b"", 400, "whole number"),
        ("GET", "/list?colour=green", b"", 412, "colour must be one of red, blue, not 'green'"),
        ("GET", "/list?flag=1", b"", 400, "flag must be true or false"),
        (
            "GET",
            "/list?lmit=1",
            b"",
            400,
            "does not know the parameter 'lmit'; it takes limit, colour, flag",
        ),
        ("GET", "/at/7", b"", 200, '"number":7'),
        ("GET", "/at/-1", b"", 412, "number must be 0 or more, not -1"),
        ("GET", "/at/x", b"", 400, "number must be a whole number"),
        ("POST", "/body", b'{"size": 1}', 204, ""),
        ("POST", "/body", b"", 400, "needs a body"),
        ("POST", "/body", b'{"size": "x"}', 400, "$.size"),
        ("POST", "/body", b'{"size": 1, "sise": 2}', 400, "sise"),
        ("POST", "/body", b"{", 400, "not JSON"),
        ("POST", "/body", b"\xff", 400, "not JSON"),
        ("POST", "/body", b"[" * 100_000, 400, "not JSON"),
        ("GET", "/list", b"{}", 200, ""),
        ("GET", "/list", b"[1]", 400, "takes no body"),
        ("GET", "/need", b"", 400, "needs the parameter key"),
        ("HEAD", "/list", b"", 200, ""),
        ("GET", "/nowhere", b"", 404, "nothing at /nowhere"),
        ("DELETE", "/list", b"", 405, "takes GET, not DELETE"),
    ],
)
def test_a_request_is_held_to_its_route(
    method: str, target: str, body: bytes, status: int, text: str
) -> None:
    async def show(call: Call) -> HttpResponse:
        return answer(dict(sorted(call.values.items())))

    routes = [
        route("GET", "/list", show, parameters=(LIMIT, COLOUR, FLAG)),
        route("GET", "/at/{number}", show, parameters=(NUMBER,)),
        route("GET", "/need", show, parameters=(Parameter("key", "", required=True),)),
        route("POST", "/body", body=Body, body_required=True),
    ]
    found: list[HttpResponse] = []

    async def scenario(face: HttpFace, world: World) -> None:
        found.append(await face.handle(request(method, target, body)))

    ask_all(routes, scenario)
    assert (found[0].status, text in found[0].body.decode()) == (status, True), found[0].body
    if status >= 400:
        assert list(json.loads(found[0].body)) == ["reason"]
    assert found[0].headers.get("Allow") == ("GET" if status == 405 else None)


# Lanes, places, timeouts.


def test_lookups_pass_administration_whose_places_and_queue_are_full() -> None:
    gate = asyncio.Event()
    ran: list[str] = []

    async def slow(call: Call) -> HttpResponse:
        ran.append(call["name"])
        await gate.wait()
        return no_content()

    async def scenario(face: HttpFace, world: World) -> None:
        answers: dict[str, int] = {}

        async def ask(name: str) -> None:
            response = await face.handle(request("GET", f"/slow/{name}"))
            answers[name] = response.status
            if response.status == 503:
                assert response.headers["Retry-After"] == "1"
                assert b"max_concurrent_admin_requests" in response.body

        for name in "abcd":
            _ = world.tasks.spawn(ask(name), name=name)
            await world.clock.sleep(0.01)
        assert (ran, answers) == (["a", "b"], {"d": 503}), (
            "two run, one waits, the fourth is refused"
        )
        assert (await face.handle(request("GET", "/prompt"))).status == 204
        gate.set()
        await world.clock.sleep(0.01)
        assert answers == {"a": 204, "b": 204, "c": 204, "d": 503}
        assert (face.admission.running, face.admission.waiting) == (0, 0)

    routes = [route("GET", "/slow/{name}", slow), route("GET", "/prompt", lane=Lane.PROMPT)]
    ask_all(routes, scenario, max_concurrent_admin_requests=2, admin_requests_waiting_max=1)


def test_what_is_late_is_answered_with_what_it_waits_for_and_not_torn_off() -> None:
    done: list[str] = []

    async def scenario(face: HttpFace, world: World) -> None:
        started = world.clock.monotonic()
        response = await face.handle(request("POST", "/slow"))
        assert response.status == 504
        assert b"waited 3 s for the owner of t; it was not given up" in response.body
        # A request keeps its place until it ends. The next one waits for that, and never begins
        # after its caller got a timeout.
        response = await face.handle(request("GET", "/next"))
        assert response.status == 504
        assert b"for a place among" in response.body
        assert (done, world.clock.monotonic() - started < 7) == ([], True)
        await world.clock.sleep(10)
        assert done == ["slow"]
        assert face.admission.running == 0

    def routes(world_of: list[World]) -> list[Route]:
        async def slow(call: Call) -> HttpResponse:
            call.waits_for = "the owner of t"
            await world_of[0].clock.sleep(10)
            done.append("slow")
            return no_content()

        async def following(call: Call) -> HttpResponse:
            done.append("next")
            return no_content()

        return [route("POST", "/slow", slow), route("GET", "/next", following)]

    worlds: list[World] = []

    async def remembered(face: HttpFace, world: World) -> None:
        worlds.append(world)
        await scenario(face, world)

    ask_all(
        routes(worlds),
        remembered,
        http_request_timeout_seconds=3.0,
        max_concurrent_admin_requests=1,
    )


def test_a_defect_of_a_handler_reaches_whoever_asked_and_gives_its_place_back() -> None:
    async def broken(call: Call) -> HttpResponse:
        raise ZeroDivisionError

    async def scenario(face: HttpFace, world: World) -> None:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await face.handle(request("GET", "/broken"))
        assert face.admission.running == 0

    ask_all([route("GET", "/broken", broken)], scenario, max_concurrent_admin_requests=1)


def test_places_go_to_those_who_wait_in_order() -> None:
    async def main() -> None:
        admission, order = Admission(1, 10), list[int]()

        async def user(number: int) -> None:
            await admission.enter()
            order.append(number)
            await asyncio.sleep(0)
            admission.check()
            admission.leave()

        await asyncio.gather(*(user(number) for number in range(5)))
        assert order == [0, 1, 2, 3, 4]
        assert admission.running == 0

    asyncio.run(main())


class HandClock(SystemClock):
    """A clock that only the test moves, and that every sleep moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


async def steps(
    clock: HandClock, count: int, seconds: float, log: list[str], name: str = ""
) -> int:
    """Run ``count`` steps of ``seconds`` each, with longer waits between them."""
    for number in range(count):
        clock.now += seconds
        log.append(f"{name}{number}")
        if number + 1 < count:
            answered = asyncio.get_running_loop().create_future()

            def arrive(answered: asyncio.Future[None] = answered) -> None:
                clock.now += 7 * seconds
                answered.set_result(None)

            asyncio.get_running_loop().call_soon(arrive)
            await answered
    return count


def test_administration_takes_its_share_of_the_loop_while_messages_flow() -> None:
    clock, flows, log = HandClock(), [True], list[str]()

    async def main() -> None:
        share = LoopShare(clock, 0.1, lambda: flows[0])
        assert share.pause_seconds == 0
        assert await share.run(steps(clock, 1, 0.002, log)) == 1
        assert share.pause_seconds == pytest.approx(0.018)  # 2 of 20 ms
        began = clock.now
        await share.turn()
        assert clock.now - began == pytest.approx(0.018)
        assert await share.run(steps(clock, 3, 0.001, log)) == 3
        # The waits between the steps do not count as work, so they count as pauses.
        assert share.pause_seconds == pytest.approx(0.030 - 0.017)
        await share.run(steps(clock, 1, 60.0, log))
        assert share.pause_seconds == pytest.approx(PAUSE_SECONDS_MAX)
        flows[0] = False
        assert share.pause_seconds == 0
        clock.now += PAUSE_SECONDS_MAX
        await share.run(steps(clock, 1, 0.5, log))
        flows[0] = True
        assert share.pause_seconds == 0  # time taken while no messages flowed does not count

    asyncio.run(main())


def test_what_is_measured_hears_of_errors_and_of_its_cancellation() -> None:
    clock, log = HandClock(), list[str]()

    async def fails(broken: asyncio.Future[None]) -> None:
        with pytest.raises(KeyError, match="asked"):
            await asyncio.shield(broken)
        clock.now += 0.001
        raise ValueError("mine")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    async def main() -> None:
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        broken.set_exception(KeyError("asked"))
        share = LoopShare(clock, 0.1, lambda: True)
        with pytest.raises(ValueError, match="mine"):
            await share.run(fails(broken))
        assert share.pause_seconds == pytest.approx(0.009)
        task = asyncio.get_running_loop().create_task(share.run(waits()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == ["cancelled"]

    asyncio.run(main())


def test_requests_begin_in_the_order_in_which_they_came() -> None:
    clock, log = HandClock(), list[str]()

    async def main() -> None:
        share = LoopShare(clock, 0.1, lambda: True)

        async def ask(name: str) -> None:
            await share.turn()
            await share.run(steps(clock, 1, 0.001, log, name))

        began = clock.now
        await asyncio.gather(*(ask(name) for name in "abcd"))
        assert log == ["a0", "b0", "c0", "d0"]
        assert clock.now - began == pytest.approx(3 * 0.010 + 0.001)

    asyncio.run(main())


def test_what_a_request_takes_holds_the_next_one_back_but_not_the_prompt_ones() -> None:
    clock = HandClock()

    async def heavy(call: Call) -> HttpResponse:
        clock.now += 0.002
        return no_content()

    async def scenario(face: HttpFace, world: World) -> None:
        began = clock.now
        await asyncio.gather(*(face.handle(request("GET", "/heavy")) for _ in range(3)))
        assert clock.now - began == pytest.approx(2 * 0.020 + 0.002)
        # the request that is done has waited, and its time counts too
        await face.forwarded(request("GET", "/heavy"))
        assert clock.now - began == pytest.approx(2 * 0.020 + 0.004)
        await face.handle(request("GET", "/prompt"))
        assert clock.now - began == pytest.approx(2 * 0.020 + 0.006)
        await face.handle(request("GET", "/heavy"))
        assert clock.now - began == pytest.approx(4 * 0.020 + 0.002)

    routes = [route("GET", "/heavy", heavy), route("GET", "/prompt", heavy, lane=Lane.PROMPT)]
    ask_all(
        routes, scenario, clock=clock, messages_flow=lambda: True, admin_share_beside_messages=0.1
    )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "abcd"),
        ("?limit=2", "ab"),
        ("?after=b", "cd"),
        ("?after=b&limit=1", "c"),
        ("?after=bb", "cd"),
        ("?after=d", ""),
    ],
)
def test_a_list_comes_in_pages(query: str, expected: str) -> None:
    async def list_all(call: Call) -> HttpResponse:
        return answer(call.page([{"name": name} for name in "dbca"], itemgetter("name")))

    found: list[HttpResponse] = []

    async def scenario(face: HttpFace, world: World) -> None:
        found.append(await face.handle(request("GET", "/list" + query)))

    ask_all([route("GET", "/list", list_all, parameters=(AFTER, ALL))], scenario)
    assert "".join(each["name"] for each in msgspec.json.decode(found[0].body)) == expected


def test_every_list_of_what_can_be_many_comes_in_pages() -> None:
    sim = Simulation(1)

    async def main() -> None:
        routes = await sim.node("b").run(routes_of)
        whole = [
            each.pattern
            for each in routes
            if get_origin(each.answers) is list
            and "limit" not in {one.name for one in each.parameters}
        ]
        # One cluster, its peers, options that can be set, kinds of subscriptions, and the form of
        # metrics of Apache Pulsar's tools.
        assert [
            pattern
            for pattern in whole
            if not pattern.endswith(("/subscriptionTypesEnabled", "/configuration"))
        ] == [
            "/admin/v2/clusters",
            "/admin/v2/clusters/{cluster}/peers",
            "/admin/v2/broker-stats/metrics",
        ]

    sim.run(main, 10.0)


async def routes_of(world: World) -> tuple[Route, ...]:
    return Broker(world, BrokerConfig(metadata_url="memory:")).http.routes


# The document and the sums.


def test_the_document_says_what_the_face_does() -> None:
    found = document(
        [
            route("GET", "/a/{number}", parameters=(NUMBER, LIMIT), answers=list[str], owner=True),
            route("PUT", "/a/{number}", body=Body, body_required=True, statuses=(409,)),
        ],
        "1",
    )
    get, put = found["paths"]["/a/{number}"]["get"], found["paths"]["/a/{number}"]["put"]
    assert [(each["name"], each["in"], each["required"]) for each in get["parameters"]] == [
        ("number", "path", True),
        ("limit", "query", False),
        ("authoritative", "query", False),
    ]
    assert get["parameters"][1]["schema"] == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "default": 5,
    }
    assert get["responses"]["200"]["content"]["application/json"]["schema"] == {
        "type": "array",
        "items": {"type": "string"},
    }
    assert {"307", "504"} <= set(get["responses"])
    assert {"204", "409"} <= set(put["responses"])
    assert put["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/Body"
    }
    assert found["components"]["schemas"]["Body"]["additionalProperties"] is False


def test_statistics_of_partitions_add_up() -> None:
    first = {
        "msgInCounter": 2,
        "bytesInCounter": 10,
        "averageMsgSize": 5.0,
        "waiting": {"sinceMs": 0},
        "publishers": [1],
    }
    second = {
        "msgInCounter": 2,
        "bytesInCounter": 30,
        "averageMsgSize": 15.0,
        "waiting": {"sinceMs": 70},
        "publishers": [2],
    }
    third = {
        "msgInCounter": 0,
        "waiting": {"sinceMs": 60},
        "subscriptions": {"s": {"blocked": True, "type": "Shared"}},
    }
    fourth = {"subscriptions": {"s": {"blocked": False, "type": ""}, "r": {"blocked": False}}}
    assert summed([first, second, third, fourth]) == {
        "msgInCounter": 4,
        "bytesInCounter": 40,
        "averageMsgSize": 10.0,
        "waiting": {"sinceMs": 60},
        "publishers": [1, 2],
        "subscriptions": {"s": {"blocked": True, "type": "Shared"}, "r": {"blocked": False}},
    }
    assert first["publishers"] == [1], "what was summed is not changed"
    assert summed([]) == {}


def test_what_is_no_amount_is_not_added_up_over_partitions() -> None:
    def partition(number: int) -> dict[str, Any]:
        subscription = {
            "lastConsumedTimestamp": 1000 + number,
            "lastExpireTimestamp": 0,
            "oldestUnackedAgeMs": 70 - number,
            "markDeletePosition": f"{number}:4",
            "readPosition": f"{number}:5",
            "msgRateExpired": 1.5,
            "isReplicated": False,
            "oldestUnackedPosition": f"{number}:5",
            "subscriptionProperties": {"owner": "billing"},
        }
        return {
            "ownerBroker": "broker-1",
            "owner": {"broker": "broker-1"},
            "oldestBacklogMessageAgeSeconds": 0,
            "oldestBacklogMessageSubscriptionName": "owner",
            "backlogQuotaLimitSize": -1,
            "lastPublishTimeStamp": 20 + number,
            "topicCreationTimeStamp": 9 + number,
            "topicEpoch": 3,
            "ledger": {"ledgerId": number, "writeQuorum": 3},
            "lastAddFailure": {"error": f"error {number}", "atMs": 900 - number},
            "compaction": {
                "lastCompactionSucceedTimestamp": 500 * number,
                "lastCompactionDurationTimeInMills": 10 * number,
            },
            "bookies": {"writable": 4 - number, "down": number, "needed": 2},
            "waiting": {"state": "idle", "explanation": "", "sinceMs": 0},
            "diagnosis": ["nothing stands still"],
            "subscriptions": {"owner": subscription},
        }

    held: dict[str, Any] = {"state": "waiting", "explanation": "the broker holds it", "sinceMs": 60}
    stuck = {**partition(2), "waiting": held, "diagnosis": ["it is held"]}
    assert summed([partition(1), stuck, partition(3) | {"diagnosis": ["it is held"]}]) == {
        "lastAddFailure": {"error": "error 1", "atMs": 899},
        "oldestBacklogMessageAgeSeconds": 0,
        "oldestBacklogMessageSubscriptionName": "owner",
        "backlogQuotaLimitSize": -1,
        "lastPublishTimeStamp": 23,
        "topicCreationTimeStamp": 10,
        "compaction": {
            "lastCompactionSucceedTimestamp": 1500,
            "lastCompactionDurationTimeInMills": 30,
        },
        "bookies": {"writable": 1, "down": 3, "needed": 2},
        "waiting": held,
        "diagnosis": ["it is held"],
        "subscriptions": {
            "owner": {
                "lastConsumedTimestamp": 1003,
                "lastExpireTimestamp": 0,
                "msgRateExpired": 4.5,
                "isReplicated": False,
                "oldestUnackedAgeMs": 69,
                "subscriptionProperties": {"owner": "billing"},
            }
        },
    }
    assert summed([partition(1), partition(2)])["diagnosis"] == ["nothing stands still"]


def test_a_change_without_an_answer_in_time_is_recorded_as_unknown() -> None:
    noted: list[AuditEvent] = []

    class Noting:
        def note(self, event: AuditEvent) -> None:
            noted.append(event)

    async def never(call: Call) -> HttpResponse:
        await asyncio.Event().wait()
        return no_content()

    async def refusing(call: Call) -> HttpResponse:
        raise InvalidArgument("no")

    async def scenario(face: HttpFace, world: World) -> None:
        face._audit = Noting()
        for path in ("/never", "/refusing"):
            await face.handle(request("POST", path))

    ask_all(
        [
            replace(each, permission=Permission.SUPER_USER)
            for each in (route("POST", "/never", never), route("POST", "/refusing", refusing))
        ],
        scenario,
        http_request_timeout_seconds=3.0,
    )
    assert [each.disposition for each in noted] == [Disposition.UNKNOWN, Disposition.FAILED]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [(b'"group"', "group"), (b"group", "group"), (b"rack-1 a", "rack-1 a"), (b'"12"', "12")],
)
def test_a_text_as_a_body_may_be_json_or_plain(sent: bytes, expected: str) -> None:
    async def handler(call: Call) -> HttpResponse:
        return no_content()

    route = Route("POST", "/x", handler, Permission.NONE, "X.", body=str, body_required=True)
    assert _body(route, sent) == expected
    for wrong in (b"", b"{", b'"a', b'["a"]', b'{"a": 1}', b"12"):
        with pytest.raises(Malformed):
            _ = _body(route, wrong)
