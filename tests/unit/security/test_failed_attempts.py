"""Addresses whose authentications fail too often, and places for checks of passwords."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.model.errors import AuthenticationError, TooManyRequests
from pulsarish.security import failed_attempts
from pulsarish.security.audit import AuditEvent
from pulsarish.security.callers import Callers, Original
from pulsarish.security.credentials import Certificate, Credentials, Secret
from pulsarish.security.failed_attempts import FailedAttempts, address_fault
from pulsarish.security.identity import Identity, Origin
from tests.support.identities import NamedRoles, shown

WRONG = shown("wrong")


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def attempts_of(time: Time, *proxies: str, failures_max: int = 3) -> FailedAttempts:
    return FailedAttempts(
        time, bytes(16), failures_max=failures_max, window_seconds=60.0, proxies=proxies
    )


def fail(attempts: FailedAttempts, host: str, count: int = 3) -> None:
    for _ in range(count):
        attempts.failed(host, WRONG)


def test_an_address_is_refused_until_its_window_ends() -> None:
    time = Time()
    attempts = attempts_of(time)
    fail(attempts, "10.0.0.1", 2)
    assert attempts.refusal("10.0.0.1", WRONG) is None
    time.now = 20.0
    fail(attempts, "10.0.0.1", 1)
    first, second = (attempts.refusal("10.0.0.1", shown("ann")) for _ in range(2))
    assert first is not None
    assert second is not None
    assert "3 authentications from 10.0.0.1 failed within 60 s" in first.text
    assert first.text.endswith("try again in 40 s")
    assert (first.is_first, second.is_first) == (True, False)
    assert attempts.refusal("10.0.0.2", WRONG) is None
    assert attempts.refused_addresses_count == 1
    time.now = 60.0
    assert attempts.refusal("10.0.0.1", WRONG) is None
    assert attempts.refused_addresses_count == 0


def test_credentials_that_were_good_lately_are_still_checked() -> None:
    time = Time()
    attempts = attempts_of(time)
    attempts.succeeded(shown("ann"))
    attempts.succeeded(shown("ben"))
    attempts.failed("10.0.0.9", shown("ben"))
    fail(attempts, "10.0.0.1")
    assert attempts.refusal("10.0.0.1", shown("ann")) is None
    assert attempts.refusal("10.0.0.1", shown("ben")) is not None
    time.now = 3_601.0
    fail(attempts, "10.0.0.1")
    assert attempts.refusal("10.0.0.1", shown("ann")) is not None


def test_many_addresses_and_credentials_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failed_attempts, "ADDRESSES_MAX", 50)
    monkeypatch.setattr(failed_attempts, "_GOOD_MAX", 50)
    attempts = attempts_of(Time())
    for number in range(500):
        fail(attempts, f"10.0.{number // 250}.{number % 250}")
        attempts.succeeded(shown(f"role{number}"))
    assert len(attempts._windows) == 50
    assert len(attempts._good) == 50
    assert attempts.refusal("10.0.1.249", WRONG) is not None
    assert attempts.refusal("10.0.0.0", WRONG) is None


@pytest.mark.parametrize(
    ("host", "other", "same"),
    [
        ("[2001:db8::1]", "2001:db8::ffff:1", True),
        ("[2001:db8::1]", "[2001:db8:0:1::1]", False),
        ("[::ffff:10.0.0.1]", "10.0.0.1", True),
        ("client", "client", True),
    ],
)
def test_addresses_count_by_who_has_them(host: str, other: str, same: bool) -> None:
    attempts = attempts_of(Time())
    fail(attempts, host)
    assert (attempts.refusal(other, WRONG) is not None) is same


def test_proxies_and_a_limit_of_zero_are_not_refused() -> None:
    attempts = attempts_of(Time(), "10.0.0.0/24", "::1")
    for host in ("10.0.0.7", "[::1]", "[::ffff:10.0.0.8]"):
        fail(attempts, host, 100)
        assert attempts.refusal(host, WRONG) is None
    fail(attempts, "10.0.1.7")
    assert attempts.refusal("10.0.1.7", WRONG) is not None
    attempts = attempts_of(Time(), failures_max=0)
    fail(attempts, "10.0.0.1", 100)
    assert attempts.refusal("10.0.0.1", WRONG) is None
    assert attempts._windows == {}
    assert address_fault("10.0.0.0/24") == ""
    assert "10.0.0" in address_fault("10.0.0")


class Slow:
    """An authenticator whose checks of passwords wait."""

    enabled = True

    def __init__(self) -> None:
        self.running: list[str] = []
        self.go = asyncio.Event()

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        self.running.append(credentials.data.reveal().decode())
        await self.go.wait()
        raise AuthenticationError("user or password is wrong")

    def is_revoked(self, identity: Identity) -> bool:
        return False


@pytest.mark.parametrize(("proxies", "limit"), [((), 8), (("10.0.0.1",), 24)])
def test_no_address_has_all_places_for_passwords_not_even_by_leaving(
    proxies: tuple[str, ...], limit: int
) -> None:
    async def check() -> None:
        slow = Slow()
        callers = Callers(slow, attempts=attempts_of(Time(), *proxies, failures_max=1_000))

        def attempt(number: int, peer: str = "10.0.0.1:5") -> asyncio.Future[Identity]:
            credentials = Credentials("basic", Secret(f"ann:{number}"))
            return asyncio.ensure_future(callers.identify(credentials, origin=Origin(peer, "grpc")))

        waiting = [attempt(number) for number in range(limit)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # Who leaves does not get another place: the check goes on.
        for each in waiting[:4]:
            each.cancel()
        await asyncio.gather(*waiting[:4], return_exceptions=True)
        with pytest.raises(TooManyRequests, match=f"{limit} passwords from this address"):
            await attempt(100)
        # The same password needs no other place, and other addresses have their own.
        waiting = [*waiting[4:], attempt(5), attempt(200, "10.0.0.2:5")]
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(slow.running) == limit + 2
        slow.go.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(each) for each in outcomes} == {AuthenticationError}
        assert callers._attempts is not None
        assert callers._attempts._checks == {}

    asyncio.run(check())


def test_a_proxy_is_not_refused_for_the_credentials_of_its_clients() -> None:
    async def check() -> None:
        attempts = attempts_of(Time())
        callers = Callers(
            NamedRoles(), proxy_roles=["proxy"], checks_original=True, attempts=attempts
        )
        origin = Origin("10.0.0.1:5", "binary")
        for _ in range(10):
            with pytest.raises(AuthenticationError):
                await callers.identify(shown("proxy"), None, Original("eve", WRONG), origin)
        good = Original("ann", shown("ann"))
        assert (await callers.identify(shown("proxy"), None, good, origin)).role == "ann"

    asyncio.run(check())


def test_refusals_are_counted_and_one_of_a_window_is_recorded() -> None:
    noted: list[AuditEvent] = []

    class Noting:
        def note(self, event: AuditEvent) -> None:
            noted.append(event)

    async def check() -> None:
        callers = Callers(NamedRoles(), audit=Noting(), attempts=attempts_of(Time()))
        for kind in (*[AuthenticationError] * 3, *[TooManyRequests] * 5):
            with pytest.raises(kind):
                await callers.identify(WRONG, origin=Origin("10.0.0.1:5", "grpc"))
        # A header that is none counts as well.
        for _ in range(3):
            with pytest.raises(AuthenticationError):
                await callers.identify_request("Basic !", None, "", "10.0.0.2:5")
        with pytest.raises(TooManyRequests):
            await callers.identify_request("Basic !", None, "", "10.0.0.2:5")
        assert callers.failures["token", "refused"] == 3
        assert callers.failures["token", "slowed_down"] == 5
        assert len(noted) == 3 + 1 + 3 + 1

    asyncio.run(check())


def test_one_record_of_a_window_says_that_places_for_passwords_are_missing() -> None:
    noted: list[AuditEvent] = []

    class Noting:
        def note(self, event: AuditEvent) -> None:
            noted.append(event)

    async def check() -> None:
        slow, time = Slow(), Time()
        callers = Callers(slow, audit=Noting(), attempts=attempts_of(time, failures_max=1_000))

        def attempt(number: int, peer: str = "10.0.0.1:5") -> asyncio.Future[Identity]:
            credentials = Credentials("basic", Secret(f"ann:{number}"))
            return asyncio.ensure_future(callers.identify(credentials, origin=Origin(peer, "grpc")))

        async def refused(count: int) -> None:
            for number in range(count):
                with pytest.raises(TooManyRequests):
                    await attempt(100 + number)

        waiting = [attempt(number) for number in range(8)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await refused(20)
        assert len(noted) == 1
        time.now = 60.0
        await refused(5)
        assert len(noted) == 2
        assert noted[1].reason.endswith("; 19 more since the last record of this")
        assert callers.failures["basic", "unavailable"] == 25
        slow.go.set()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(check())


def test_many_addresses_without_a_place_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failed_attempts, "ADDRESSES_MAX", 50)
    attempts = attempts_of(Time())
    assert [attempts.busy(f"10.0.{number}.1") for number in range(200)] == [0] * 200
    assert len(attempts._busy) == 50
