"""Renewal, revocation and proxies: what of two credentials counts for one connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pulsarish.model.errors import AuthenticationError, TooManyRequests
from pulsarish.runtime.grpc.grpc_streams import peer_address
from pulsarish.security.callers import Callers, Original
from pulsarish.security.credentials import NO_CREDENTIALS, Certificate, Credentials
from pulsarish.security.failed_attempts import FailedAttempts
from pulsarish.security.identity import Identity, Origin
from pulsarish.security.limits import read_limits
from tests.support.identities import NamedRoles, shown

HERE = Origin("10.0.0.1:5", "binary")
LIMITED = read_limits({"actions": ["consume"]})


class Tokens(NamedRoles):
    """Roles whose token has the id ``ROLE-id``; that of ``limited`` is limited."""

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        found = await super().authenticate(credentials, certificate)
        limits = (LIMITED,) if credentials.data.reveal() == b"ann@9" else ()
        return replace(found, credential_id=f"{found.role}-id", limits=limits)

    def is_revoked(self, identity: Identity) -> bool:
        ids = {identity.credential_id, *identity.wider_ids, *identity.proxy_ids}
        return identity.role in self.revoked or bool(ids & self.revoked)


def attempts() -> FailedAttempts:
    return FailedAttempts(lambda: 0.0, bytes(16), failures_max=3, window_seconds=60.0, proxies=())


def test_guesses_by_renewal_are_counted_with_the_others() -> None:
    async def check() -> None:
        callers = Callers(NamedRoles(), attempts=attempts())
        known = await callers.identify(shown("ann"), origin=HERE)
        for _ in range(3):
            with pytest.raises(AuthenticationError):
                await callers.refresh(shown("wrong"), None, known)
        with pytest.raises(TooManyRequests):
            await callers.refresh(shown("wrong"), None, known)
        # What was good lately renews the connection all the same.
        assert (await callers.refresh(shown("ann"), None, known)).role == "ann"

    asyncio.run(check())


def test_a_certificate_is_no_guess() -> None:
    async def check() -> None:
        limit = attempts()
        for _ in range(3):
            limit.failed(HERE.host, shown("wrong"))
        callers = Callers(NamedRoles(), attempts=limit)
        certificate = Certificate("ann", (), 1 << 60)
        with pytest.raises(AuthenticationError):  # this authenticator knows no certificates
            await callers.identify(NO_CREDENTIALS, certificate, origin=HERE)
        with pytest.raises(TooManyRequests):
            await callers.identify(shown("ben"), certificate, origin=HERE)

    asyncio.run(check())


@pytest.mark.parametrize("checks_original", [False, True])
def test_a_revoked_role_is_refused_behind_a_proxy(checks_original: bool) -> None:
    async def check() -> None:
        roles = Tokens()
        callers = Callers(roles, proxy_roles=["proxy"], checks_original=checks_original)
        asked = Original("ann", shown("ann"))
        found = await callers.identify(shown("proxy"), None, asked, HERE)
        assert not callers.is_revoked(found)
        for revoked in ("ann", "proxy-id"):
            roles.revoked = {revoked}
            assert callers.is_revoked(found), revoked
        if not checks_original:
            roles.revoked = {"ann"}
            with pytest.raises(AuthenticationError, match="revoked"):
                await callers.identify(shown("proxy"), None, asked, HERE)

    asyncio.run(check())


@pytest.mark.parametrize("checks_original", [False, True])
def test_the_renewed_token_of_a_proxy_is_the_one_that_can_be_revoked(
    checks_original: bool,
) -> None:
    async def check() -> None:
        roles = Tokens()
        callers = Callers(roles, proxy_roles=["proxy"], checks_original=checks_original)
        found = await callers.identify(shown("proxy"), None, Original("ann", shown("ann")), HERE)
        found = replace(found, proxy_ids=("old",) if checks_original else ())
        if not checks_original:
            found = replace(found, credential_id="old")
        renewed = await callers.refresh(shown("proxy"), None, found)
        roles.revoked = {"old"}
        assert not callers.is_revoked(renewed)
        roles.revoked = {"proxy-id"}
        assert callers.is_revoked(renewed)

    asyncio.run(check())


def test_renewal_does_not_change_the_limits_of_a_connection() -> None:
    async def check() -> None:
        callers = Callers(Tokens())
        limited = await callers.identify(shown("ann", 9), origin=HERE)
        assert limited.limits == (LIMITED,)
        whole = await callers.identify(shown("ann"), origin=HERE)
        assert (await callers.refresh(shown("ann", 9), None, limited)).limits == (LIMITED,)
        for credentials, before in ((shown("ann"), limited), (shown("ann", 9), whole)):
            with pytest.raises(AuthenticationError, match="other limits"):
                await callers.refresh(credentials, None, before)

    asyncio.run(check())


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:5", "10.0.0.1:5"),
        ("ipv6:%5B2001:db8::1%5D:49438", "[2001:db8::1]:49438"),
    ],
)
def test_addresses_of_grpc_are_those_of_other_ports(peer: str, address: str) -> None:
    assert peer_address(SimpleNamespace(peer=lambda: peer)) == address
