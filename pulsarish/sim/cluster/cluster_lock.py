"""Authentication, authorization and a cluster key for a simulated cluster.

Each program shows a token that is made again at half of its life. Tokens are made by the clock of
the broker that is furthest ahead.
"""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.runtime.client_authentication import Authentication
from pulsarish.runtime.cluster_members import member_credentials, read_cluster_key
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.security.authentication import Authenticator
from pulsarish.security.chain import make_authenticator
from pulsarish.security.client_security import HttpScheme
from pulsarish.security.cluster_key import CLUSTER_METHOD
from pulsarish.security.credentials import Credentials, CredentialsSource, Secret
from pulsarish.security.keys import SigningKey
from pulsarish.security.membership import MemberKind
from pulsarish.security.token_maker import sign_token
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.world import Simulation

__all__ = ["ADMINISTRATOR", "APPLICATION", "FORGERIES", "ClusterLock", "authentication_of"]

_log = get_logger("broker.security")

ADMINISTRATOR: Final = "admin"
"""The role that may do everything."""
APPLICATION: Final = "app"
FORGERIES: Final = ("key", "audience", "late", "unsigned")
"""Tokens of another key, for another audience, expired for a minute, and without a signature."""
_KEY: Final = b"the key of the simulated cluster"
_FOREIGN_KEY: Final = b"a key that no simulated one has."
_LONG_LIFE_MS: Final = 24 * 3_600_000
_FILE_MODE: Final = 0o600
_SALT: Final = b"0123456789abcdef"


class _Shown:
    """What a program's connections show, for its client."""

    is_immediate = True
    holds_secret = True
    secret_file = ""
    http_scheme: HttpScheme = "Bearer"

    def __init__(self, source: CredentialsSource) -> None:
        self.credentials = source


class _Authentication(Authentication):
    def __init__(self, source: CredentialsSource) -> None:
        self.provider = _Shown(source)


def authentication_of(
    world: World, source: CredentialsSource | None = None
) -> Authentication | None:
    """Return what a client of this process shows; ``None``: nothing.

    ``source``: it shows this, and not what its process does.
    """
    if source is None:
        assert isinstance(world.connections, SimConnections)
        source = world.connections.credentials
    return _Authentication(source) if source().method else None


class ClusterLock:
    """The keys of a locked cluster, its list of revoked roles, and what its programs show.

    Args:
        directory: for the files that the options of nodes name.
        brokers: their names.
        life_seconds: of a token.
    """

    def __init__(
        self, sim: Simulation, directory: Path, brokers: Iterable[str], life_seconds: float
    ) -> None:
        self._sim = sim
        self._brokers = tuple(brokers)
        self._life_ms = int(life_seconds * 1_000)
        self._renewals_count = 0
        self._key_file = directory / "cluster.key"
        self._key_file.touch(_FILE_MODE)
        self._key_file.write_bytes(b64encode(_KEY) + b"\n")
        self._revoked_file = directory / "revoked"
        self._revoked_file.write_text("")
        self._roles: dict[str, CredentialsSource] = {}
        self._members: dict[str, MemberKind] = {}
        self._last_end_ms: dict[str, int] = {}

    def broker_options(self) -> dict[str, Any]:
        return {
            "authentication_enabled": True,
            "authentication_providers": ["token"],
            "token_secret_key": f"data:;base64,{b64encode(_KEY).decode()}",
            "token_require_expiry": True,
            "token_audience": "sim",
            "authorization_enabled": True,
            "super_user_roles": [ADMINISTRATOR],
            "revocation_file": str(self._revoked_file),
            "cluster_key_file": str(self._key_file),
        }

    def bookie_options(self) -> dict[str, Any]:
        return {"cluster_key_file": str(self._key_file)}

    def authenticator(self, world: World, config: BrokerConfig) -> Authenticator:
        """Return what checks the callers of a broker."""
        return make_authenticator(
            config,
            wall_ms=world.clock.wall_ms,
            offload=_not_here,
            fetch=_not_here,
            salt=_SALT,
            on_problem=lambda problem: _log.error("a check failed", reason=problem),
        )

    def set_calendars(self) -> None:
        """Set the brokers' calendars, which differ by up to 1,000 s otherwise, right to 0.5 s:
        else a short token never expires at some.
        """
        for name in self._brokers:
            clock = self._sim.nodes[name].clock
            ahead_seconds = clock.monotonic() - self._sim.loop.time()
            clock.wall_offset_ms -= int(ahead_seconds * 1_000)

    # -- what is shown

    def now_ms(self) -> int:
        """Return the time by which tokens are made."""
        return max(self._sim.nodes[name].clock.wall_ms() for name in self._brokers)

    def show(self, node: str, source: CredentialsSource) -> None:
        """Have the processes of a node show these credentials from their next start on."""
        self._roles[node] = source

    def show_member(self, node: str, kind: MemberKind) -> None:
        """Have the processes of a node show that they are members of the cluster."""
        self._members[node] = kind

    def source_of_role(self, role: str) -> CredentialsSource:
        """Return what the node shows that has the name of this role."""
        return self._roles[role]

    def source_of(self, world: World, node: str) -> CredentialsSource:
        """Return what a process of a node shows."""
        if node in self._members:
            return member_credentials(str(self._key_file), self._members[node])(world.clock)
        return self._roles[node]

    def reader(self, ledger_id: int) -> CredentialsSource:
        """Return what a job shows to bookies that reads this ledger."""
        key = read_cluster_key(str(self._key_file), self.now_ms)
        token = key.reader_token(self._life_ms, [ledger_id])
        return lambda: Credentials(CLUSTER_METHOD, token)

    def lengthen_lives(self) -> None:
        """Make longer tokens from now on: where one ends, consumers come again, and what is asked
        of a group of consumers is not asked of one that changes.
        """
        self._life_ms = _LONG_LIFE_MS
        self._renewals_count += 1

    def tokens_of(
        self,
        role: str,
        *,
        life_seconds: float = 0.0,
        is_made_again: Callable[[], bool] = lambda: True,
    ) -> CredentialsSource:
        """Return the tokens of a role.

        Args:
            life_seconds: 0: as long as those of others.
            is_made_again: whether the next token may be made; if not, the last one stays.
        """
        made: Credentials | None = None
        renew_ms = renewals_count = 0

        def current() -> Credentials:
            nonlocal made, renew_ms, renewals_count
            now_ms = self.now_ms()
            is_due = now_ms >= renew_ms or renewals_count != self._renewals_count
            if made is None or (is_due and is_made_again()):
                life_ms = int(life_seconds * 1_000) or self._life_ms
                end_seconds = (now_ms + life_ms) // 1_000
                made = _token(role, end_seconds)
                renew_ms, renewals_count = now_ms + life_ms // 2, self._renewals_count
                self._last_end_ms[role] = end_seconds * 1_000
            return made

        return current

    def forged(self, role: str, kind: str) -> CredentialsSource:
        """Return a token that says that it is of a role, and must be refused.

        Args:
            kind: one of ``FORGERIES``.
        """
        key, algorithm, audience, life_ms = _KEY, "HS256", "sim", self._life_ms
        if kind == "key":
            key = _FOREIGN_KEY
        elif kind == "audience":
            audience = "other"
        elif kind == "late":
            life_ms = -60_000
        claims = {"sub": role, "aud": audience, "exp": (self.now_ms() + life_ms) // 1_000}
        signed = sign_token(claims, SigningKey(key, (algorithm,)))
        if kind == "unsigned":
            header = urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=")
            signed = header + b"." + signed.split(b".")[1] + b"."
        shown = Credentials("token", Secret(signed))
        return lambda: shown

    def last_end_seconds(self, role: str) -> float:
        """Return the time in the simulation at which the role's last token ends at every broker."""
        slowest_ms = min(self._sim.nodes[name].clock.wall_ms() for name in self._brokers)
        left_ms = self._last_end_ms.get(role, 0) - slowest_ms
        return self._sim.loop.time() + left_ms / 1_000

    def revoke(self, role: str) -> None:
        """Add a role to the list."""
        self._sim.trace(f"role {role} is revoked")
        self._revoked_file.write_text(f"{self._revoked_file.read_text()}role:{role}\n")


def _token(role: str, end_seconds: int) -> Credentials:
    claims = {"sub": role, "aud": "sim", "exp": end_seconds}
    return Credentials("token", Secret(sign_token(claims, SigningKey(_KEY, ("HS256",)))))


async def _not_here(_what: object) -> Any:
    raise AssertionError("tokens with a secret need neither a thread nor a fetch")
