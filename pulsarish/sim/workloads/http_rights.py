"""Who may do what by HTTP.

Each caller of ``rights_cases`` asks a simulated broker's HTTP port for everything. What there is to
ask for is read from the routes. A permitted request must reach the handler of its route, and only
that. Some routes are for every role, and their handlers look at what the request names: each of
these has a row here, and denied requests must leave the metadata as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import CLUSTER, Permission, Resource
from pulsarish.broker.http.face import HttpFace
from pulsarish.broker.http.route import Call, Parameter, Route, resource_of
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse, World
from pulsarish.sim.workloads.rights_cases import TOPIC, Case, Matrix
from pulsarish.sim.workloads.rights_site import (
    RightsSite,
    http_request,
    in_site,
)

__all__ = ["run_checks_of_handlers", "run_http_rights"]

_TEXTS: Final = {
    "tenant": "acme",
    "namespace": "orders",
    "topic": "new",
    "domain": "persistent",
    "subscription": "mine",
}
_ASKED: Final = Resource.of_topic(TopicName.parse(TOPIC))
_LISTED: Final = Resource("acme", "orders")
_REACHED: Final = 299


def _value_of(parameter: Parameter) -> str:
    if parameter.choices:
        return parameter.choices[0]
    return {int: str(max(parameter.minimum or 1, 1)), bool: "true", str: "x"}[parameter.kind]


def run_http_rights(names: Collection[str] = ()) -> Matrix:
    """Ask each route for each caller. Its handler is replaced by one that answers.

    Args:
        names: only these callers; none: all.
    """

    async def ask(site: RightsSite, matrix: Matrix) -> None:
        cases = site.cases.cases()
        chosen = {name: cases[name] for name in names or cases}
        await site.sim.nodes["broker0"].run(lambda world: _try_routes(site, world, chosen, matrix))

    return in_site(ask)


async def _try_routes(
    site: RightsSite, world: World, cases: Mapping[str, Case], matrix: Matrix
) -> None:
    real, reached = site.broker.http, list[Route]()

    def spied(route: Route) -> Route:
        async def note(_call: Call) -> HttpResponse:
            reached.append(route)
            return HttpResponse(_REACHED)

        return msgspec.structs.replace(route, handler=note, body_required=False)

    config = site.broker._config
    routes = [spied(route) for route in real.routes]
    face = HttpFace(world, config, real._gate, routes, real._share, real._callers)
    number = 0
    for name, case in cases.items():
        for route in routes:
            given = {each.name: _value_of(each) for each in route.parameters}
            texts = {key: _TEXTS.get(key) or given.get(key, "x") for key in route.path_names}
            query = {each.name: _value_of(each) for each in route.query if each.required}
            is_open = route.permission is Permission.NONE
            if case.roles or is_open:
                wanted = _REACHED if case.may(route.permission, resource_of(route, texts)) else 403
            else:
                wanted = 401
            number += not case.roles
            # Each failure from an address of its own: many of one would be slowed down.
            peer = "10.0.0.1:5" if case.roles else f"10.2.{number >> 8}.{number & 255}:5"
            path = route.pattern.format_map(texts)
            reached.clear()
            answer = await face.handle(
                http_request(route.method, path, case, query=query, peer=peer)
            )
            found = answer.status, [each.name for each in reached]
            expected = wanted, [route.name] if wanted == _REACHED else []
            matrix.expect(f"{name} asks {route.name}", found=found, wanted=expected)


@dataclass(frozen=True, slots=True)
class _Inside:
    """A route for every role, whose handler checks what the request names.

    Args:
        wanted: returns the status and the body that a caller gets.
    """

    path: str
    wanted: Callable[[Case], tuple[int, object]]
    body: object = None
    query: Mapping[str, str] = field(default_factory=dict)


_ANY: Final[tuple[int, object]] = (200, None)
_REFUSED: Final[tuple[int, object]] = (403, None)


def _may_grant(case: Case) -> tuple[int, object]:
    return (204, None) if case.may(Permission.ADMIN_TOPIC, _ASKED) else _REFUSED


def _may_explain(case: Case) -> tuple[int, object]:
    itself = case.roles == ("reader",)
    return _ANY if itself or case.may(Permission.READ_POLICIES, _LISTED) else _REFUSED


def _namespaces(case: Case) -> tuple[int, object]:
    return (200, ["acme/orders"]) if case.may(Permission.READ_NAMESPACE, _LISTED) else _REFUSED


def _tenants(case: Case) -> tuple[int, object]:
    if case.may(Permission.READ_CLUSTER, CLUSTER):
        return 200, ["acme", "other", "public"]
    if case.roles == ("elsewhere",):
        return 200, ["other"]
    return 200, ["acme"] if case.may(Permission.READ_NAMESPACE, _LISTED) else []


_GRANT: Final = {"topic": TOPIC, "role": "friend"}
_INSIDE: Final[Mapping[str, _Inside]] = {
    "GET /admin/v2/authorization": _Inside("/admin/v2/authorization", lambda _: _ANY),
    "GET /admin/v2/authorization/explain": _Inside(
        "/admin/v2/authorization/explain",
        _may_explain,
        query={"role": "reader", "action": "consume", "resource": "acme/orders"},
    ),
    "GET /admin/v2/clusters": _Inside("/admin/v2/clusters", lambda _: (200, ["pulsarish"])),
    "GET /lookup/v2/native-urls": _Inside("/lookup/v2/native-urls", lambda _: _ANY),
    "POST /admin/v2/namespaces/grantPermissionsOnTopics": _Inside(
        "/admin/v2/namespaces/grantPermissionsOnTopics",
        _may_grant,
        [{**_GRANT, "actions": ["consume"]}],
    ),
    "POST /admin/v2/namespaces/revokePermissionsOnTopics": _Inside(
        "/admin/v2/namespaces/revokePermissionsOnTopics", _may_grant, [_GRANT]
    ),
    "GET /admin/v2/namespaces/{tenant}": _Inside("/admin/v2/namespaces/acme", _namespaces),
    "GET /admin/v2/tenants": _Inside("/admin/v2/tenants", _tenants),
}


def run_checks_of_handlers() -> Matrix:
    """Ask the routes that are for every role, and whose handlers look at what a caller may do."""

    async def ask(site: RightsSite, matrix: Matrix) -> None:
        await site.sim.nodes["broker0"].run(lambda _: _try_handlers(site, matrix))

    return in_site(ask)


async def _try_handlers(site: RightsSite, matrix: Matrix) -> None:
    routes = [each for each in site.broker.http.routes if each.permission is Permission.ANY_ROLE]
    matrix.expect(
        "routes for every role",
        found=sorted({each.name for each in routes}),
        wanted=sorted(_INSIDE),
    )
    cases = {name: case for name, case in site.cases.cases().items() if case.roles}
    before = site.kept()
    for is_permitted in (False, True):
        for name, case in cases.items():
            for row, inside in _INSIDE.items():
                status, content = inside.wanted(case)
                if is_permitted is not (status < 300):
                    continue
                answer = await site.broker.http.handle(
                    http_request(
                        row.partition(" ")[0], inside.path, case, inside.body, inside.query
                    )
                )
                found = answer.status, None if content is None else msgspec.json.decode(answer.body)
                matrix.expect(f"{name} asks {row}", found=found, wanted=(status, content))
                if is_permitted and inside.body is not None:
                    is_there = any(b"friend" in data for data in site.kept().values())
                    matrix.expect(f"{name}: {row} is done", found=is_there, wanted="/grant" in row)
        if not is_permitted:
            matrix.expect("denied requests change nothing", found=site.kept(), wanted=before)
