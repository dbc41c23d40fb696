"""Who may do what: every row of the table of permissions for every kind of caller.

Rows are read from a broker: its routes, streams, calls and commands. Callers show real tokens to
what brokers use to check them. What a caller may do is written here a second time, in short, and
each difference is an anomaly that names its case. A denial must not tell whether the resource
exists, so each is compared with that of one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    TooManyRequests,
)
from pulsarish.model.grants import AuthPolicies
from pulsarish.model.policies import AUTH_POLICIES
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.security.callers import NO_ORIGINAL, Callers, Original
from pulsarish.security.cluster_key import CLUSTER_METHOD, ClusterKey
from pulsarish.security.credentials import NO_CREDENTIALS, Caller, Credentials, Secret
from pulsarish.security.failed_attempts import FailedAttempts
from pulsarish.security.identity import Identity, Origin
from pulsarish.security.keys import SigningKey
from pulsarish.security.limits import LIMITS_CLAIM
from pulsarish.security.token_maker import sign_token
from pulsarish.sim.cluster.cluster_lock import ClusterLock
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["Matrix", "run_rights_matrix"]

_KEY: Final = b"the key of the simulated cluster"
_FOREIGN_KEY: Final = b"a key that no simulated one has."
_HERE: Final = Origin("10.0.0.1:5", "binary")
_HOUR_MS: Final = 3_600_000
_TOPIC: Final = "persistent://acme/orders/new"
_REVOKED_ID: Final = "lost"
_NO_CLAIMS: Final[Mapping[str, object]] = {}
_TEXTS: Final = {
    "tenant": "acme",
    "namespace": "orders",
    "topic": "new",
    "domain": "persistent",
    "subscription": "mine",
}
_SUPER: Final = frozenset({Permission.SUPER_USER, Permission.READ_CLUSTER, Permission.PEER})
_EVERYBODY: Final = frozenset({Permission.NONE, Permission.OPENED})
_EVERY_ROLE: Final = _EVERYBODY | {Permission.ANY_ROLE}
_READS: Final = frozenset({Permission.LOOKUP, Permission.READ_TOPIC, Permission.READ_NAMESPACE})
_ALL: Final = frozenset(Permission)
_RIGHTS: Final[Mapping[str, frozenset[Permission]]] = {
    "root": _ALL,
    "admin": _ALL - _SUPER,
    "elsewhere": _EVERY_ROLE,
    "stranger": _EVERY_ROLE,
    "writer": _EVERY_ROLE | _READS | {Permission.PRODUCE},
    "reader": _EVERY_ROLE | _READS | {Permission.CONSUME},
    "gateway": _EVERY_ROLE | _READS | {Permission.PRODUCE, Permission.CONSUME},
    "bare": _EVERY_ROLE,
}
"""What each role may do on a topic with the grants below."""
_PROXIES: Final = ("gateway", "bare")
_GRANTS: Final = AuthPolicies(
    namespace={
        "writer": ("produce",),
        "reader": ("consume",),
        "gateway": ("produce", "consume"),
    },
    topics={_TOPIC: {"guest": ("consume",)}},
)


_REFUSED: Final = "AuthenticationError: "
_CALLS: Final[Mapping[str, tuple[Message, Callable[[bytes], object]]]] = {
    "broker.lookup": (
        pb.LookupsRequest(lookups=[pb.LookupRequest(topic=_TOPIC)]),
        lambda answer: pb.LookupsResponse.FromString(answer).answers[0].code,
    ),
    "broker.topics": (
        pb.TopicsRequest(namespace="acme/orders"),
        lambda answer: pb.TopicsResponse.FromString(answer).code,
    ),
    "broker.schema": (
        pb.SchemaRequest(topic=_TOPIC),
        lambda answer: pb.SchemaResponse.FromString(answer).code,
    ),
    "broker.ping": (pb.PingRequest(), lambda answer: answer),
    "broker.admin": (
        pb.AdminRequest(method="GET", segments=["admin", "v2", "tenants"]),
        lambda answer: pb.AdminResponse.FromString(answer).status,
    ),
}
"""A request for each call of a broker, and what of its answer says that it was refused."""
_ANSWERS: Final[Mapping[str, object]] = {"broker.ping": b"", "broker.admin": 403}
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
        return {"orders": {AUTH_POLICIES: _GRANTS}, "empty": {}} if tenant == "acme" else {}


@dataclass(frozen=True, slots=True)
class _Case:
    """A caller. ``roles`` all need a permission; none: it must be refused.

    ``topics`` and ``actions`` are the limits of its token.
    """

    shown: Credentials
    roles: tuple[str, ...] = ()
    original: Original = NO_ORIGINAL
    topics: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()

    def may(self, permission: Permission, resource: Resource) -> bool:
        if permission in _EVERY_ROLE:
            return True
        if self.topics and (resource.topic is None or resource.topic.full not in self.topics):
            return False
        if self.actions and permission.value not in (*self.actions, Permission.LOOKUP.value):
            return False
        return all(_has(role, permission, resource) for role in self.roles)


def _has(role: str, permission: Permission, resource: Resource) -> bool:
    if not resource.tenant and role != "root":
        return False
    if permission is Permission.PURGE and resource.subscription:
        permission = Permission.CONSUME
    return permission in _RIGHTS[role]


@dataclass(slots=True)
class Matrix:
    """``cases_count`` cases were tried; ``anomalies`` names those with another outcome."""

    cases_count: int = 0
    anomalies: list[str] = field(default_factory=list)

    def expect(self, case: str, *, found: object, wanted: object) -> None:
        """Count a case, and note it if what was found is not what was wanted."""
        self.cases_count += 1
        if found != wanted:
            self.anomalies.append(f"{case}: {found!r} and not {wanted!r}")


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

    async def run(self) -> None:
        with TemporaryDirectory() as directory:
            lock = ClusterLock(self._sim, Path(directory), ["broker0"], 60.0)
            lock.revoke("banned")
            with (Path(directory) / "revoked").open("a") as file:
                file.write(f"{_REVOKED_ID}\n")
            options = {**lock.broker_options(), "super_user_roles": ["root"]}
            config = BrokerConfig(**options, proxy_roles=_PROXIES)
            authenticator = lock.authenticator(self._world, config)
            self._broker = Broker(self._world, config, authenticator=authenticator)
            self._authenticator = authenticator
            namespaces: Any = _Grants()
            self._gate = Gate(GrantPolicy(namespaces, ["root"]))
            callers = Callers(authenticator, proxy_roles=_PROXIES)
            checking = Callers(authenticator, proxy_roles=_PROXIES, checks_original=True)
            for name, case in self._cases().items():
                await self._try(name, case, callers)
            for name, case in self._checked_cases().items():
                await self._try(name, case, checking)
            await self._check_faces()
            await self._check_lists()
            await self._check_renewals(callers)
            await self._check_both_ends(checking)
            await self._check_guesses()
            self._check_members()

    # -- callers

    def _token(
        self,
        role: str,
        *,
        key: bytes = _KEY,
        life_ms: int = _HOUR_MS,
        claims: Mapping[str, object] = _NO_CLAIMS,
    ) -> Credentials:
        end_seconds = (self._world.clock.wall_ms() + life_ms) // 1_000
        content = {"sub": role, "aud": "sim", "exp": end_seconds, **claims}
        return Credentials("token", Secret(sign_token(content, SigningKey(key, ("HS256",)))))

    def _limited(self, role: str, **limits: list[str]) -> Credentials:
        return self._token(role, claims={LIMITS_CLAIM: limits})

    def _bad(self) -> dict[str, Credentials]:
        """Return what never opens anything."""
        return {
            "none": NO_CREDENTIALS,
            "junk": Credentials("token", Secret(b"junk")),
            "unknown method": Credentials("sasl", Secret(b"root")),
            "expired": self._token("root", life_ms=-60_000),
            "another key": self._token("root", key=_FOREIGN_KEY),
            "another audience": self._token("root", claims={"aud": "other"}),
            "revoked role": self._token("banned"),
            "revoked token": self._token("root", claims={"jti": _REVOKED_ID}),
            "member's": Credentials(CLUSTER_METHOD, self._member().data),
            "another network": self._limited("root", networks=["10.1.0.0/16"]),
        }

    def _cases(self) -> dict[str, _Case]:
        roles = [role for role in _RIGHTS if role not in _PROXIES]
        return {
            **{f"credentials: {name}": _Case(shown) for name, shown in self._bad().items()},
            **{role: _Case(self._token(role), (role,)) for role in roles},
            **{
                f"{proxy} for {role}": _Case(self._token(proxy), (proxy, role), Original(role))
                for proxy in _PROXIES
                for role in roles
            },
            **{f"{proxy} for none": _Case(self._token(proxy)) for proxy in _PROXIES},
            "proxy for a proxy": _Case(self._token("gateway"), original=Original("bare")),
            "proxy for a revoked role": _Case(self._token("gateway"), original=Original("banned")),
            "no proxy for root": _Case(self._token("writer"), original=Original("root")),
            "root for writer": _Case(self._token("root"), original=Original("writer")),
            "limited to the topic": _Case(
                self._limited("root", topics=[_TOPIC]), ("root",), topics=(_TOPIC,)
            ),
            "limited to another topic": _Case(
                self._limited("root", topics=[f"{_TOPIC}er"]), ("root",), topics=(f"{_TOPIC}er",)
            ),
            "limited to consume": _Case(
                self._limited("root", actions=["consume"]), ("root",), actions=("consume",)
            ),
            "limited beyond its role": _Case(
                self._limited("reader", actions=["produce"]), ("reader",), actions=("produce",)
            ),
            "limited to this network": _Case(
                self._limited("root", networks=["10.0.0.0/16"]), ("root",)
            ),
        }

    def _checked_cases(self) -> dict[str, _Case]:
        gateway, names = self._token("gateway"), ("gateway", "writer")
        return {
            "checked client": _Case(gateway, names, Original("writer", self._token("writer"))),
            "client of another name": _Case(
                gateway, original=Original("root", self._token("writer"))
            ),
            **{
                f"client's credentials: {name}": _Case(gateway, original=Original("root", shown))
                for name, shown in self._bad().items()
                if name != "another network"
            },
        }

    async def _identified(self, callers: Callers, case: _Case) -> Identity | None:
        try:
            return await callers.identify(case.shown, None, case.original, _HERE)
        except AuthenticationError:
            return None

    async def _try(self, name: str, case: _Case, callers: Callers) -> None:
        """Try every row for one caller, or that it is refused."""
        identity = await self._identified(callers, case)
        self._matrix.expect(
            f"{name} is identified", found=identity is not None, wanted=bool(case.roles)
        )
        if identity is None or not case.roles:
            return
        topic = Resource.of_topic(TopicName.parse(_TOPIC))
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
        case: _Case,
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
        reached = {*self._broker.streams, *self._broker.calls.handlers("internal")}
        self._matrix.expect(
            "methods without a row", found=sorted(reached - set(PERMISSIONS)), wanted=[]
        )
        await self._check_calls_and_streams()
        headers = {
            name: f"Bearer {shown.data.reveal().decode()}" if shown.data else ""
            for name, shown in self._bad().items()
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
        for name, shown in self._bad().items():
            for method, serve in self._broker.streams.items():
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
            ("guest", space, frozenset({_TOPIC})),
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
            before = await self._identified(callers, _Case(self._token(role), (role,)))
            assert before is not None, role
            shown = {**self._bad(), **{each: self._token(each) for each in _RIGHTS}}
            shown["limited"] = self._limited(role, actions=["consume"])
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
            (role, hours): self._token(role, life_ms=hours * _HOUR_MS)
            for role in ("gateway", "writer")
            for hours in (1, 2, 3)
        }
        original = Original("writer", shown["writer", 2])
        found = await callers.identify(shown["gateway", 1], None, original, _HERE)
        start_ms = found.expires_at_ms - _HOUR_MS
        for role, hours, wanted in (("gateway", 3, 2), ("writer", 3, 3), ("gateway", 1, 1)):
            renewed = await self._renewed(callers, shown[role, hours], found)
            assert renewed is not None, role
            found = renewed
            case = f"behind a proxy {role} renews for {hours} h"
            left = (found.expires_at_ms - start_ms) / _HOUR_MS
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

    def _member(self, key: bytes = _KEY) -> Credentials:
        return self._cluster_key(key).credentials_of("broker")()

    def _cluster_key(self, key: bytes = _KEY) -> ClusterKey:
        return ClusterKey(lambda: [Secret(key)], self._world.clock.wall_ms)

    def _check_members(self) -> None:
        access = Access(self._cluster_key(), None)
        audience = {"aud": "pulsarish-cluster"}
        members = {
            "a member": self._member(),
            "a member of another cluster": self._member(_FOREIGN_KEY),
            "no member": self._token("root", claims=audience),
            "an expired member": self._token("broker", life_ms=-_HOUR_MS, claims=audience),
        }
        for name, shown in {**members, **self._bad()}.items():
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
