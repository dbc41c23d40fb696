"""Who may do what: every row of the table of permissions for every kind of caller.

Rows are read from a broker: its routes, streams, calls and commands. Callers show real tokens to
what brokers use to check them. What a caller may do is written here a second time, in short, and
each difference is an anomaly that names its case. A denial must not tell whether the resource
exists, so each is compared with that of one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from google.protobuf.message import Message

from pulsarish.bookie.access import Access
from pulsarish.broker.broker import Broker
from pulsarish.broker.clients.authorization import (
    CLUSTER,
    PERMISSIONS,
    Gate,
    Permission,
    Resource,
)
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.route import resource_of
from pulsarish.broker.policies.grant_policy import GrantPolicy
from pulsarish.metadata.records import TenantRecord
from pulsarish.model.errors import (
    AuthenticationError,
    AuthorizationError,
    PulsarishError,
    ServiceNotReady,
    TooManyRequests,
)
from pulsarish.model.policies import AUTH_POLICIES
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.security.callers import Callers, Original
from pulsarish.security.cluster_key import CLUSTER_METHOD
from pulsarish.security.credentials import Caller, Credentials, Secret
from pulsarish.security.failed_attempts import FailedAttempts
from pulsarish.security.identity import Identity, Origin
from pulsarish.sim.cluster.cluster_lock import ClusterLock
from pulsarish.sim.workloads.rights_cases import (
    FOREIGN_KEY,
    GRANTS,
    HOUR_MS,
    PROXIES,
    REVOKED_ID,
    RIGHTS,
    TOPIC,
    Case,
    Cases,
    Matrix,
)
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["run_rights_matrix"]

_HERE: Final = Origin("10.0.0.1:5", "binary")
_TEXTS: Final = {
    "tenant": "acme",
    "namespace": "orders",
    "topic": "new",
    "domain": "persistent",
    "subscription": "mine",
}

_REFUSED: Final = "AuthenticationError: "
_CALLS: Final[Mapping[str, tuple[Message, Callable[[bytes], object]]]] = {
    "broker.lookup": (
        pb.LookupsRequest(lookups=[pb.LookupRequest(topic=TOPIC)]),
        lambda answer: pb.LookupsResponse.FromString(answer).answers[0].code,
    ),
    "broker.topics": (
        pb.TopicsRequest(namespace="acme/orders"),
        lambda answer: pb.TopicsResponse.FromString(answer).code,
    ),
    "broker.schema": (
        pb.SchemaRequest(topic=TOPIC),
        lambda answer: pb.SchemaResponse.FromString(answer).code,
    ),
    "broker.ping": (pb.PingRequest(), lambda answer: answer),
    "broker.admin": (
        pb.AdminRequest(method="GET", segments=["admin", "v2", "tenants"]),
        lambda answer: pb.AdminResponse.FromString(answer).status,
    ),
    "broker.take": (
        pb.TakeRequest(tenant="public", namespace="default", range="0x00000000_0xffffffff"),
        lambda answer: pb.TakeResponse.FromString(answer).code,
    ),
    "broker.capture": (
        pb.CaptureRequest(into=TOPIC, rule="acme/orders/r", range="0x00000000_0xffffffff"),
        lambda answer: pb.CaptureResponse.FromString(answer).code,
    ),
}
"""A request for each call of a broker, and what of its answer says that it was refused."""
_ANSWERS: Final[Mapping[str, object]] = {
    "broker.ping": b"",
    "broker.admin": 403,
    "broker.take": ServiceNotReady.code,
    "broker.capture": ServiceNotReady.code,
}
"""Answers of calls that say less than ``AuthenticationError``."""


@dataclass(slots=True)
class _RefusedStream:
    """A stream that keeps why it was ended."""

    caller: Caller
    reason: str = ""

    @property
    def peer(self) -> str:
        return self.caller.address

    def abort(self, reason: str) -> None:
        self.reason = reason

    async def deliver(self, on_message: object) -> None:
        """Return at once: a caller that is served all the same has nothing to say."""

    async def feed(self, next_message: object, signal: object) -> None:
        """Send nothing."""


class _Grants:
    """The tenants ``acme`` and ``other``, in the place of the metadata."""

    changes_count = 0

    async def admin_roles(self, tenant: str) -> tuple[str, ...]:
        return {"acme": ("admin",), "other": ("elsewhere",)}.get(tenant, ())

    async def values(self, tenant: str, namespace: str) -> Mapping[Any, Any]:
        return (await self.all_values(tenant)).get(namespace, {})

    async def all_tenants(self) -> Mapping[str, TenantRecord]:
        return {"acme": TenantRecord(("admin",)), "other": TenantRecord(("elsewhere",))}

    async def all_values(self, tenant: str) -> Mapping[str, Mapping[Any, Any]]:
        return {"orders": {AUTH_POLICIES: GRANTS}, "empty": {}} if tenant == "acme" else {}


def run_rights_matrix() -> Matrix:
    """Try all cases on one simulated broker."""
    matrix, sim = Matrix(), Simulation(1)

    async def main() -> None:
        await sim.node("broker0").run(lambda world: _Run(sim, world, matrix).run())

    sim.run(main)
    return matrix


class _Run:
    def __init__(self, sim: Simulation, world: World, matrix: Matrix) -> None:
        self._sim = sim
        self._world = world
        self._matrix = matrix
        self._cases = Cases(world)

    async def run(self) -> None:
        with TemporaryDirectory() as directory:
            lock = ClusterLock(self._sim, Path(directory), ["broker0"], 60.0)
            lock.revoke("banned")
            with (Path(directory) / "revoked").open("a") as file:
                file.write(f"{REVOKED_ID}\n")
            options = {**lock.broker_options(), "super_user_roles": ["root"]}
            config = BrokerConfig(**options, proxy_roles=PROXIES)
            authenticator = lock.authenticator(self._world, config)
            self._broker = Broker(self._world, config, authenticator=authenticator)
            self._authenticator = authenticator
            namespaces: Any = _Grants()
            self._gate = Gate(GrantPolicy(namespaces, ["root"]))
            callers = Callers(authenticator, proxy_roles=PROXIES)
            checking = Callers(authenticator, proxy_roles=PROXIES, checks_original=True)
            for name, case in self._cases.cases().items():
                await self._try(name, case, callers)
            for name, case in self._cases.checked_cases().items():
                await self._try(name, case, checking)
            await self._check_faces()
            await self._check_lists()
            await self._check_renewals(callers)
            await self._check_both_ends(checking)
            await self._check_guesses()
            self._check_members()

    async def _identified(self, callers: Callers, case: Case) -> Identity | None:
        try:
            return await callers.identify(case.shown, None, case.original, _HERE)
        except AuthenticationError:
            return None

    async def _try(self, name: str, case: Case, callers: Callers) -> None:
        """Try every row for one caller, or that it is refused."""
        identity = await self._identified(callers, case)
        self._matrix.expect(
            f"{name} is identified", found=identity is not None, wanted=bool(case.roles)
        )
        if identity is None or not case.roles:
            return
        topic = Resource.of_topic(TopicName.parse(TOPIC))
        for row, permission in PERMISSIONS.items():
            for resource in (topic, replace(topic, subscription="mine"), CLUSTER):
                await self._try_row(name, case, identity, row, permission, resource)
        for route in self._broker.http.routes:
            texts = {key: _TEXTS.get(key, "x") for key in route.path_names}
            resource = resource_of(route, texts)
            await self._try_row(name, case, identity, route.name, route.permission, resource)
        found = await self._denial(None, "broker.no_such_method", identity, topic)
        self._matrix.expect(f"{name}, no row", found=bool(found), wanted=True)

    async def _try_row(
        self,
        name: str,
        case: Case,
        identity: Identity,
        row: str,
        permission: Permission,
        resource: Resource,
    ) -> None:
        denial = await self._denial(
            None if row in PERMISSIONS else permission, row, identity, resource
        )
        where = f"{name}, {row} ({permission.value}) on {resource}"
        self._matrix.expect(where, found=not denial, wanted=case.may(permission, resource))
        if not denial or not resource.tenant:
            return
        missing = _missing(resource)
        other = await self._denial(permission, row, identity, missing)
        wanted = denial.replace(str(resource), str(missing))
        self._matrix.expect(f"{where}, missing", found=other, wanted=wanted)

    async def _denial(
        self, permission: Permission | None, row: str, identity: Identity, resource: Resource
    ) -> str:
        try:
            if permission is None:
                await self._gate.check(row, identity, resource)
            else:
                await self._gate.permit(permission, row, identity, resource)
        except AuthorizationError as error:
            return str(error)
        return ""

    # -- faces

    async def _check_faces(self) -> None:
        """Ask each route of a broker with what opens nothing, and each must answer 401."""
        reached = {*self._broker.streams("internal"), *self._broker.calls.handlers("internal")}
        self._matrix.expect(
            "methods without a row", found=sorted(reached - set(PERMISSIONS)), wanted=[]
        )
        await self._check_calls_and_streams()
        headers = {
            name: f"Bearer {shown.data.reveal().decode()}" if shown.data else ""
            for name, shown in self._cases.bad().items()
        }
        number = 0
        for route in self._broker.http.routes:
            if route.permission is Permission.NONE:
                continue
            path = route.pattern.format_map({key: _TEXTS.get(key, "x") for key in route.path_names})
            for name, header in headers.items():
                # Each from an address of its own: failures of one would be slowed down.
                number += 1
                request = HttpRequest(
                    route.method,
                    path,
                    {},
                    {"authorization": header},
                    b"",
                    tuple(path.strip("/").split("/")),
                    peer=f"10.2.{number >> 8}.{number & 255}:5",
                )
                answer = await self._broker.http.handle(request)
                self._matrix.expect(
                    f"{route.name} with credentials: {name}", found=answer.status, wanted=401
                )

    async def _check_calls_and_streams(self) -> None:
        """Open each stream and make each call with what opens nothing."""
        calls = self._broker.calls.handlers("internal")
        number = 0
        for name, shown in self._cases.bad().items():
            for method, serve in self._broker.streams("internal").items():
                number += 1
                stream: Any = _RefusedStream(
                    Caller(f"10.3.{number >> 8}.{number & 255}:5", credentials=shown)
                )
                await serve(stream)
                case = f"{method} with credentials: {name}"
                self._matrix.expect(case, found=stream.reason.startswith(_REFUSED), wanted=True)
            for method, call in calls.items():
                number += 1
                caller = Caller(f"10.3.{number >> 8}.{number & 255}:5", credentials=shown)
                # A method that is missing here ends the run.
                request, code_of = _CALLS[method]
                found = code_of(await call(request.SerializeToString(), caller))
                wanted = _ANSWERS.get(method, AuthenticationError.code)
                case = f"{method} with credentials: {name}"
                self._matrix.expect(case, found=found, wanted=wanted)

    async def _check_lists(self) -> None:
        space = Resource("acme", "orders")
        lists: Sequence[tuple[str, Resource, object]] = [
            ("root", CLUSTER, None),
            ("writer", CLUSTER, frozenset({"acme"})),
            ("guest", CLUSTER, frozenset({"acme"})),
            ("elsewhere", CLUSTER, frozenset({"other"})),
            ("stranger", CLUSTER, frozenset()),
            ("admin", Resource("acme"), None),
            ("guest", Resource("acme"), frozenset({"orders"})),
            ("stranger", Resource("acme"), "denied"),
            ("writer", space, None),
            ("guest", space, frozenset({TOPIC})),
            ("stranger", space, "denied"),
            ("elsewhere", space, "denied"),
        ]
        for role, resource, wanted in lists:
            nothing: object = "denied" if resource.tenant else frozenset()
            for proxy, expected in (("", wanted), ("root", wanted), ("bare", nothing)):
                try:
                    found: object = await self._gate.visible(
                        "lists", Identity(role, "token", proxy_role=proxy), resource
                    )
                except AuthorizationError:
                    found = "denied"
                case = f"what {role} through proxy {proxy!r} sees in {resource}"
                self._matrix.expect(case, found=found, wanted=expected)

    # -- renewal, guesses, members

    async def _check_renewals(self, callers: Callers) -> None:
        for role in ("writer", "root"):
            before = await self._identified(callers, Case(self._cases.token(role), (role,)))
            assert before is not None, role
            shown = {**self._cases.bad(), **{each: self._cases.token(each) for each in RIGHTS}}
            shown["limited"] = self._cases.limited(role, actions=["consume"])
            for name, credentials in shown.items():
                found = await self._renewed(callers, credentials, before)
                case = f"{role} renews with {name}"
                self._matrix.expect(case, found=found is not None, wanted=name == role)

    async def _renewed(
        self, callers: Callers, shown: Credentials, before: Identity
    ) -> Identity | None:
        try:
            return await callers.refresh(shown, None, before)
        except AuthenticationError:
            return None

    async def _check_both_ends(self, callers: Callers) -> None:
        """Renew the proxy and its client, each by itself: the rights end with the first."""
        shown = {
            (role, hours): self._cases.token(role, life_ms=hours * HOUR_MS)
            for role in ("gateway", "writer")
            for hours in (1, 2, 3)
        }
        original = Original("writer", shown["writer", 2])
        found = await callers.identify(shown["gateway", 1], None, original, _HERE)
        start_ms = found.expires_at_ms - HOUR_MS
        for role, hours, wanted in (("gateway", 3, 2), ("writer", 3, 3), ("gateway", 1, 1)):
            renewed = await self._renewed(callers, shown[role, hours], found)
            assert renewed is not None, role
            found = renewed
            case = f"behind a proxy {role} renews for {hours} h"
            left = (found.expires_at_ms - start_ms) / HOUR_MS
            self._matrix.expect(case, found=left, wanted=wanted)

    async def _check_guesses(self) -> None:
        attempts = FailedAttempts(
            self._world.clock.monotonic, bytes(16), failures_max=3, window_seconds=60.0
        )
        callers = Callers(self._authenticator, attempts=attempts)
        for number in range(5):
            shown = Credentials("token", Secret(f"guess {number}"))
            found: type[PulsarishError] | None = None
            try:
                await callers.identify(shown, origin=_HERE)
            except (AuthenticationError, TooManyRequests) as error:
                found = type(error)
            wanted = AuthenticationError if number < 3 else TooManyRequests
            self._matrix.expect(f"guess {number}", found=found, wanted=wanted)

    def _check_members(self) -> None:
        access = Access(self._cases.cluster_key(), None)
        audience = {"aud": "pulsarish-cluster"}
        members = {
            "a member": self._cases.member(),
            "a member of another cluster": self._cases.member(FOREIGN_KEY),
            "no member": self._cases.token("root", claims=audience),
            "an expired member": self._cases.token("broker", life_ms=-HOUR_MS, claims=audience),
        }
        for name, shown in {**members, **self._cases.bad()}.items():
            if name == "member's":
                continue
            data = Credentials(CLUSTER_METHOD, shown.data) if name in members else shown
            try:
                access.check(Caller(credentials=data), "bookie.read")
                found = True
            except (AuthenticationError, AuthorizationError):
                found = False
            case = f"{name} asks a bookie"
            self._matrix.expect(case, found=found, wanted=name == "a member")


def _missing(resource: Resource) -> Resource:
    """Return a resource like this one in a namespace, or tenant, that does not exist."""
    if not resource.namespace:
        return replace(resource, tenant="missing")
    topic = resource.topic
    return replace(
        resource,
        namespace="missing",
        topic=None if topic is None else replace(topic, namespace="missing"),
    )
