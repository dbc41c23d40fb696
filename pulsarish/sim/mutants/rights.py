"""Mutants of what ends rights and keeps strangers out, noticed by locked clusters."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any, Final

from pulsarish.bookie import access
from pulsarish.bookie.access import Access
from pulsarish.broker.sessions.open_sessions import OpenSessions
from pulsarish.broker.sessions.session import Session
from pulsarish.security import signed_token, token_provider
from pulsarish.security.credentials import Caller
from pulsarish.security.identity import Identity
from pulsarish.security.revocation import Revocations
from pulsarish.security.token_provider import TokenProvider
from pulsarish.sim.workloads.cluster import run_seed
from pulsarish.sim.workloads.safeguard import Mutant, Patch, all_replaced, replacing

__all__ = ["RIGHTS_MUTANTS"]


def _check_rights(seed: int) -> None:
    """Run a locked cluster in which nothing fails."""
    result = run_seed(seed, faults=(), extras=("brief", "locked"))
    assert not result.anomalies, "; ".join(map(str, result.anomalies))


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
)
