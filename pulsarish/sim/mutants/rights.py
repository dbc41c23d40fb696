"""Mutants of what ends rights and keeps strangers out, noticed by locked clusters and by the matrix
of callers and permissions.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from dataclasses import replace
from typing import Any, Final

from pulsarish.bookie import access
from pulsarish.bookie.access import Access
from pulsarish.broker.clients import authorization
from pulsarish.broker.clients.authorization import PERMISSIONS, Gate
from pulsarish.broker.policies.grant_policy import GrantPolicy
from pulsarish.broker.sessions.open_sessions import OpenSessions
from pulsarish.broker.sessions.session import Session
from pulsarish.model.errors import AuthenticationError
from pulsarish.security import callers as security_callers
from pulsarish.security import cluster_key, signed_token, token_provider
from pulsarish.security.callers import Callers
from pulsarish.security.cluster_key import ClusterKey
from pulsarish.security.credentials import Caller, Credentials
from pulsarish.security.failed_attempts import FailedAttempts
from pulsarish.security.identity import Identity
from pulsarish.security.limits import Limits
from pulsarish.security.revocation import Revocations
from pulsarish.security.token_provider import TokenProvider
from pulsarish.sim.workloads.cluster import run_seed
from pulsarish.sim.workloads.rights_matrix import run_rights_matrix
from pulsarish.sim.workloads.safeguard import Mutant, Patch, all_replaced, replacing

__all__ = ["RIGHTS_MUTANTS"]


def _check_rights(seed: int) -> None:
    """Run a locked cluster in which nothing fails."""
    result = run_seed(seed, faults=(), extras=("brief", "locked"))
    assert not result.anomalies, "; ".join(map(str, result.anomalies))


def _check_matrix(_seed: int) -> None:
    """Try every row of the table for every kind of caller."""
    anomalies = run_rights_matrix().anomalies
    assert not anomalies, "; ".join(anomalies[:3])


def _no_end(_was: object) -> object:
    def expiry_of(_claims: object, _now_ms: int, **_options: object) -> int:
        return 0

    return expiry_of


def _endless(was: Any) -> object:
    def expiry_of(claims: Any, now_ms: int, **options: Any) -> int:
        found: int = was(claims, now_ms, **{**options, "skew_seconds": 1 << 30})
        return found

    return expiry_of


def _never_revoked(_was: object) -> object:
    def is_revoked(_revocations: Revocations, _identity: Identity) -> bool:
        return False

    return is_revoked


def _opened_once(_was: object) -> object:
    async def check_again(_session: Session) -> None:
        return

    return check_again


def _never_ended(_was: object) -> object:
    def end_expired(_sessions: OpenSessions) -> None:
        return

    return end_expired


def _any_caller(_was: object) -> object:
    def check(_access: Access, _caller: Caller, _method: str) -> None:
        return

    return check


def _any_method(_was: object) -> object:
    def may_call(_role: str, _method: str) -> bool:
        return True

    return may_call


def _any_audience(_was: object) -> object:
    def audience_matches(_value: object, _allowed: object) -> bool:
        return True

    return audience_matches


def _algorithm_of_the_token(was: Any) -> object:
    """Believe the header: a token that says ``none`` needs no signature."""

    def check(provider: TokenProvider, token: bytes) -> Identity:
        if b'"none"' not in urlsafe_b64decode(token.partition(b".")[0] + b"=="):
            found: Identity = was(provider, token)
            return found
        claims = signed_token.read_unverified_claims(token)
        return Identity(claims["sub"], "token", claims["exp"] * 1_000)

    return check


def _any_role_renews(_was: object) -> object:
    async def renewed(callers: Callers, shown: Any, certificate: Any, before: Identity) -> Identity:
        return await callers._authenticated(shown, certificate, before.origin)

    return renewed


def _latest_end(was: Any) -> object:
    def behind_proxy(parts: Any, role: str) -> Identity:
        found: Identity = was(parts, role)
        return replace(found, expires_at_ms=max(part.expires_at_ms for part in parts))

    return behind_proxy


def _any_role_speaks_for_others(was: Any) -> object:
    async def identity(
        callers: Callers, shown: Any, certificate: Any, original: Any, origin: Any
    ) -> Identity:
        try:
            found: Identity = await was(callers, shown, certificate, original, origin)
        except AuthenticationError:
            found = await callers._authenticated(shown, certificate, origin)
            if not original.role or found.role in callers._proxy_roles:
                raise
            return replace(found, role=original.role)
        return found

    return identity


def _no_row_needed(was: Any) -> object:
    async def check(gate: Gate, name: str, identity: Identity, resource: Any) -> None:
        if name in PERMISSIONS:
            await was(gate, name, identity, resource)

    return check


def _client_only(was: Any) -> object:
    """Forget the proxy that speaks for the role."""

    async def asked(policy: GrantPolicy, *arguments: Any) -> object:
        alone = [
            replace(each, proxy_role="") if isinstance(each, Identity) and each.role else each
            for each in arguments
        ]
        return await was(policy, *alone)

    return asked


def _whole_list(_was: object) -> object:
    async def visible(_policy: GrantPolicy, _identity: Identity, _resource: object) -> None:
        return None

    return visible


def _within(_was: object) -> object:
    def permit(_limits: Limits, _what: str) -> bool:
        return True

    return permit


def _any_action(was: Any) -> object:
    def is_within(limits: Limits, permission: object, resource: object) -> bool:
        found: bool = was(replace(limits, actions=()), permission, resource)
        return found

    return is_within


def _never_slowed(_was: object) -> object:
    def refusal(_attempts: FailedAttempts, _host: str, _credentials: Credentials) -> None:
        return None

    return refusal


def _any_key(_was: object) -> object:
    def identify(_key: ClusterKey, credentials: Credentials) -> Identity:
        try:
            claims = signed_token.read_unverified_claims(credentials.data.reveal())
        except ValueError as error:
            raise AuthenticationError(str(error)) from None
        now_ms = _key._wall_ms()
        if credentials.method != "cluster" or not 0 < claims["exp"] * 1_000 - now_ms < 1_500_000:
            raise AuthenticationError("no token of a member")
        return Identity(claims["sub"], "cluster", claims["exp"] * 1_000)

    return identify


def _unlimited(_was: object) -> object:
    return 1 << 60


def _matrix_mutant(name: str, removes: str, *patches: Patch) -> Mutant:
    return Mutant(name, removes, (22,), all_replaced(*patches), _check_matrix, seeds=1)


def _mutant(name: str, removes: str, *patches: Patch) -> Mutant:
    return Mutant(name, removes, (22,), all_replaced(*patches), _check_rights, seeds=9)


RIGHTS_MUTANTS: Final = (
    _mutant(
        "expiry_not_checked",
        "a token that has expired is refused",
        replacing(token_provider, "expiry_of", _no_end),
    ),
    _mutant(
        "unlimited_skew",
        "clocks of two machines may differ by a limited time",
        replacing(token_provider, "expiry_of", _endless),
    ),
    _mutant(
        "session_outlives_its_credentials",
        "an open session ends when its credentials expire or are revoked",
        replacing(OpenSessions, "_end_expired", _never_ended),
    ),
    _mutant(
        "revocation_not_checked",
        "a revoked role is refused, and loses its open sessions",
        replacing(Revocations, "is_revoked", _never_revoked),
    ),
    _mutant(
        "grant_not_checked_again",
        "producers and consumers are closed when their grant is taken away",
        replacing(Session, "check_again", _opened_once),
    ),
    _mutant(
        "cluster_key_not_checked",
        "a bookie serves members of the cluster only",
        replacing(Access, "check", _any_caller),
    ),
    _mutant(
        "member_permissions_not_checked",
        "the token of a reader opens nothing but reads",
        replacing(access, "may_call", _any_method),
    ),
    _mutant(
        "audience_not_checked",
        "a token for another audience is refused",
        replacing(token_provider, "audience_matches", _any_audience),
    ),
    _mutant(
        "algorithm_of_the_token",
        "the key decides by which algorithm a token is checked, not the token",
        replacing(TokenProvider, "check", _algorithm_of_the_token),
    ),
    _matrix_mutant(
        "another_role_renews",
        "a connection is renewed by the role that opened it only",
        replacing(Callers, "_renewed", _any_role_renews),
    ),
    _matrix_mutant(
        "proxy_outlives_its_client",
        "behind a proxy the rights end with the first of both credentials",
        replacing(security_callers, "_behind_proxy", _latest_end),
    ),
    _matrix_mutant(
        "any_role_speaks_for_others",
        "only a proxy names the role for which it speaks",
        replacing(Callers, "_identity", _any_role_speaks_for_others),
    ),
    _matrix_mutant(
        "proxy_itself_not_checked",
        "a proxy needs the permission as well as its client",
        replacing(GrantPolicy, "decide", _client_only),
    ),
    _matrix_mutant(
        "lists_of_the_proxy_not_checked",
        "a proxy's client sees only what both may see",
        replacing(GrantPolicy, "visible", _client_only),
    ),
    _matrix_mutant(
        "missing_row_permits",
        "what has no row in the table is denied",
        replacing(Gate, "check", _no_row_needed),
    ),
    _matrix_mutant(
        "lists_not_filtered",
        "lists leave out what a role may not see",
        replacing(GrantPolicy, "visible", _whole_list),
    ),
    _matrix_mutant(
        "topics_of_a_token_ignored",
        "a token that is limited to topics opens no others",
        replacing(Limits, "permit_topic", _within),
    ),
    _matrix_mutant(
        "actions_of_a_token_ignored",
        "a token that is limited to actions permits no others",
        replacing(authorization, "_is_within", _any_action),
    ),
    _matrix_mutant(
        "networks_of_a_token_ignored",
        "a token that is limited to networks opens nothing from others",
        replacing(Limits, "permit_address", _within),
    ),
    _matrix_mutant(
        "guesses_not_slowed_down",
        "an address whose attempts fail too often is refused unchecked",
        replacing(FailedAttempts, "refusal", _never_slowed),
    ),
    _matrix_mutant(
        "member_of_another_cluster",
        "a member's token is made with a key of this cluster",
        replacing(ClusterKey, "identify", _any_key),
    ),
    _matrix_mutant(
        "member_token_lasts",
        "a member's token ends",
        replacing(cluster_key, "_SKEW_MS", _unlimited),
    ),
)
