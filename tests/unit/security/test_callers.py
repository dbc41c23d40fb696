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


def behind_a_proxy(before: Identity, *renewals: Credentials) -> Identity:
    async def renew() -> Identity:
        callers = Callers(Tokens(), proxy_roles=["proxy"], checks_original=True)
        found = before
        for credentials in renewals:
            found = await callers.refresh(credentials, None, found)
        return found

    return asyncio.run(renew())


@pytest.mark.parametrize(
    ("proxy_end", "original_end", "renewals", "end"),
    [
        (5, 8, [shown("proxy", 7)], 7),
        (5, 8, [shown("proxy", 20)], 8),
        (5, 8, [shown("ann", 20)], 5),
        (5, 8, [shown("proxy", 20), shown("ann", 30)], 20),
        (5, 8, [shown("ann", 30), shown("proxy", 20)], 20),
        (5, 8, [shown("ann", 30), shown("proxy", 40)], 30),
        (0, 8, [shown("ann", 30)], 30),
        (5, 0, [shown("proxy", 30)], 30),
        (5, 8, [shown("proxy"), shown("ann")], 0),
        (5, 8, [shown("proxy", 4)], 4),
        (5, 8, [shown("ann", 4)], 4),
    ],
)
def test_behind_a_proxy_each_renewal_moves_its_own_end_and_both_hold(
    proxy_end: int, original_end: int, renewals: list[Credentials], end: int
) -> None:
    callers = Callers(Tokens(), proxy_roles=["proxy"], checks_original=True)
    original = Original("ann", shown("ann", original_end))
    opened = asyncio.run(callers.identify(shown("proxy", proxy_end), None, original, HERE))
    assert opened.expires_at_ms == min(filter(None, (proxy_end, original_end)))
    renewed = behind_a_proxy(opened, *renewals)
    assert (renewed.role, renewed.proxy_role) == ("ann", "proxy")
    assert renewed.expires_at_ms == end


def test_behind_a_proxy_nothing_but_its_two_roles_renews() -> None:
    async def check() -> None:
        for checks_original, refused in ((True, ("ben",)), (False, ("ben", "ann"))):
            callers = Callers(Tokens(), proxy_roles=["proxy"], checks_original=checks_original)
            asked = Original("ann", shown("ann", 8))
            opened = await callers.identify(shown("proxy", 5), None, asked, HERE)
            for role in refused:
                with pytest.raises(AuthenticationError, match="open another one"):
                    await callers.refresh(shown(role, 20), None, opened)

    asyncio.run(check())


def test_behind_a_proxy_renewal_keeps_the_limits_and_ids_of_both() -> None:
    async def check() -> None:
        roles = Tokens()
        callers = Callers(roles, proxy_roles=["proxy"], checks_original=True)
        opened = await callers.identify(
            shown("proxy", 5), None, Original("ann", shown("ann", 9)), HERE
        )
        assert opened.limits == (LIMITED,)
        with pytest.raises(AuthenticationError, match="other limits"):
            await callers.refresh(shown("ann", 20), None, opened)
        renewed = await callers.refresh(shown("ann", 9), None, opened)
        renewed = await callers.refresh(shown("proxy", 20), None, renewed)
        assert renewed.limits == (LIMITED,)
        for revoked in ("ann-id", "proxy-id"):
            roles.revoked = {revoked}
            assert callers.is_revoked(renewed), revoked

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
