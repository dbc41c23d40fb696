"""The callers that the matrices of rights try: what each shows, and what it may do.

Their rights are written here a second time, in short.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pulsarish.broker.clients.authorization import Permission, Resource
from pulsarish.model.grants import AuthPolicies
from pulsarish.runtime.seams import World
from pulsarish.security.callers import NO_ORIGINAL, Original
from pulsarish.security.cluster_key import CLUSTER_METHOD, ClusterKey
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials, Secret
from pulsarish.security.keys import SigningKey
from pulsarish.security.limits import LIMITS_CLAIM
from pulsarish.security.token_maker import sign_token

__all__ = [
    "FOREIGN_KEY",
    "GRANTS",
    "HOUR_MS",
    "KEY",
    "PROXIES",
    "REVOKED_ID",
    "RIGHTS",
    "TOPIC",
    "Case",
    "Cases",
    "Matrix",
]

KEY: Final = b"the key of the simulated cluster"
FOREIGN_KEY: Final = b"a key that no simulated one has."
HOUR_MS: Final = 3_600_000
TOPIC: Final = "persistent://acme/orders/new"
REVOKED_ID: Final = "lost"
_NO_CLAIMS: Final[Mapping[str, object]] = {}
_SUPER: Final = frozenset({Permission.SUPER_USER, Permission.READ_CLUSTER, Permission.PEER})
_EVERYBODY: Final = frozenset({Permission.NONE, Permission.OPENED})
_EVERY_ROLE: Final = _EVERYBODY | {Permission.ANY_ROLE}
_READS: Final = frozenset({Permission.LOOKUP, Permission.READ_TOPIC, Permission.READ_NAMESPACE})
_ALL: Final = frozenset(Permission)
RIGHTS: Final[Mapping[str, frozenset[Permission]]] = {
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
PROXIES: Final = ("gateway", "bare")
GRANTS: Final = AuthPolicies(
    namespace={
        "writer": ("produce",),
        "reader": ("consume",),
        "gateway": ("produce", "consume"),
    },
    topics={TOPIC: {"guest": ("consume",)}},
)


@dataclass(frozen=True, slots=True)
class Case:
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
    return permission in RIGHTS[role]


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


class Cases:
    """Makes the callers, by the clock of ``world``."""

    def __init__(self, world: World) -> None:
        self._world = world

    def token(
        self,
        role: str,
        *,
        key: bytes = KEY,
        life_ms: int = HOUR_MS,
        claims: Mapping[str, object] = _NO_CLAIMS,
    ) -> Credentials:
        end_seconds = (self._world.clock.wall_ms() + life_ms) // 1_000
        content = {"sub": role, "aud": "sim", "exp": end_seconds, **claims}
        return Credentials("token", Secret(sign_token(content, SigningKey(key, ("HS256",)))))

    def limited(self, role: str, **limits: list[str]) -> Credentials:
        return self.token(role, claims={LIMITS_CLAIM: limits})

    def bad(self) -> dict[str, Credentials]:
        """Return what never opens anything."""
        return {
            "none": NO_CREDENTIALS,
            "junk": Credentials("token", Secret(b"junk")),
            "unknown method": Credentials("sasl", Secret(b"root")),
            "expired": self.token("root", life_ms=-60_000),
            "another key": self.token("root", key=FOREIGN_KEY),
            "another audience": self.token("root", claims={"aud": "other"}),
            "revoked role": self.token("banned"),
            "revoked token": self.token("root", claims={"jti": REVOKED_ID}),
            "member's": Credentials(CLUSTER_METHOD, self.member().data),
            "another network": self.limited("root", networks=["10.1.0.0/16"]),
        }

    def cases(self) -> dict[str, Case]:
        roles = [role for role in RIGHTS if role not in PROXIES]
        return {
            **{f"credentials: {name}": Case(shown) for name, shown in self.bad().items()},
            **{role: Case(self.token(role), (role,)) for role in roles},
            **{
                f"{proxy} for {role}": Case(self.token(proxy), (proxy, role), Original(role))
                for proxy in PROXIES
                for role in roles
            },
            **{f"{proxy} for none": Case(self.token(proxy)) for proxy in PROXIES},
            "proxy for a proxy": Case(self.token("gateway"), original=Original("bare")),
            "proxy for a revoked role": Case(self.token("gateway"), original=Original("banned")),
            "no proxy for root": Case(self.token("writer"), original=Original("root")),
            "root for writer": Case(self.token("root"), original=Original("writer")),
            "limited to the topic": Case(
                self.limited("root", topics=[TOPIC]), ("root",), topics=(TOPIC,)
            ),
            "limited to another topic": Case(
                self.limited("root", topics=[f"{TOPIC}er"]), ("root",), topics=(f"{TOPIC}er",)
            ),
            "limited to consume": Case(
                self.limited("root", actions=["consume"]), ("root",), actions=("consume",)
            ),
            "limited beyond its role": Case(
                self.limited("reader", actions=["produce"]), ("reader",), actions=("produce",)
            ),
            "limited to this network": Case(
                self.limited("root", networks=["10.0.0.0/16"]), ("root",)
            ),
        }

    def checked_cases(self) -> dict[str, Case]:
        gateway, names = self.token("gateway"), ("gateway", "writer")
        return {
            "checked client": Case(gateway, names, Original("writer", self.token("writer"))),
            "client of another name": Case(
                gateway, original=Original("root", self.token("writer"))
            ),
            **{
                f"client's credentials: {name}": Case(gateway, original=Original("root", shown))
                for name, shown in self.bad().items()
                if name != "another network"
            },
        }

    def member(self, key: bytes = KEY) -> Credentials:
        return self.cluster_key(key).credentials_of("broker")()

    def cluster_key(self, key: bytes = KEY) -> ClusterKey:
        return ClusterKey(lambda: [Secret(key)], self._world.clock.wall_ms)
