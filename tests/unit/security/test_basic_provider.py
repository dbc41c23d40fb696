"""Passwords: the file, how users are checked, what is remembered, and bad input."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsarish.model.errors import AuthenticationError, ConfigError, TooManyRequests
from pulsarish.security.basic_provider import BasicProvider
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.security.identity import Identity
from tests.support.tokens import Clock, bcrypt_hash


class Server:
    """A provider with a file of users, and what it did."""

    def __init__(self, directory: Path, content: str | bytes | None = None) -> None:
        self.file = directory / "users"
        if content is None:
            ann, bob = bcrypt_hash("secret"), bcrypt_hash("other", prefix="2y")
            content = f"# people\n\nann:{ann}\nbob:{bob}\n"
        self.file.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.clock = Clock()
        self.problems: list[str] = []
        self.checks = 0
        self.hold: asyncio.Event | None = None
        config = AuthenticationConfig(
            authentication_enabled=True,
            authentication_providers=("basic",),
            basic_auth_conf=str(self.file),
        )
        config.validate()
        self.provider = BasicProvider(
            config, self.clock, self.offload, b"s" * 16, self.problems.append
        )

    async def offload(self, function: Callable[[], bool]) -> bool:
        self.checks += 1
        if self.hold is not None:
            await self.hold.wait()
        return function()

    async def ask(self, data: bytes) -> Identity:
        return await self.provider.authenticate(Credentials("basic", Secret(data)), None)

    def check(self, data: bytes) -> Identity:
        return asyncio.run(self.ask(data))

    def refusal(self, data: bytes) -> str:
        with pytest.raises(AuthenticationError) as raised:
            self.check(data)
        return str(raised.value)

    def replace(self, content: str) -> None:
        """Write a new file over the old one, and let the time pass after which it is seen."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(content)
        os.replace(fresh, self.file)
        self.clock.now_ms += 1_000


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def test_the_user_is_the_role(server: Server) -> None:
    assert server.check(b"ann:secret") == Identity("ann", "basic")
    assert server.check(b"bob:other").role == "bob"  # $2y$, as htpasswd writes it


def test_all_prefixes_of_bcrypt_and_colons_in_passwords(tmp_path: Path) -> None:
    lines = [f"u{prefix}:{bcrypt_hash('a:b', prefix=prefix)}" for prefix in ("2a", "2b", "2y")]
    server = Server(tmp_path, "\r\n".join(lines))
    for prefix in ("2a", "2b", "2y"):
        assert server.check(f"u{prefix}:a:b".encode()).role == f"u{prefix}"


def test_an_unknown_user_and_a_wrong_password_look_the_same(server: Server) -> None:
    unknown = server.refusal(b"eve:secret")
    assert server.refusal(b"ann:wrong") == unknown
    assert server.checks == 2
    # with the password of the user whose hash was checked in its place
    assert [server.refusal(b"eve:" + each) for each in (b"secret", b"other")] == [unknown] * 2
    assert server.checks == 4
    # the same unknown name is always checked with the same hash
    names = [f"n{number}" for number in range(32)]
    users = {"ann": b"1", "bob": b"2"}
    chosen = [server.provider._hash_of_another(users, name) for name in names]
    assert chosen == [server.provider._hash_of_another(users, name) for name in names]
    assert set(chosen) == {b"1", b"2"}


def test_an_unknown_user_is_checked_with_the_hash_of_a_known_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes: list[bytes] = []

    def check_password(_: bytes, hashed: bytes) -> bool:
        hashes.append(hashed)
        return True

    monkeypatch.setattr("pulsarish.security.basic_provider.bcrypt.checkpw", check_password)
    for number in range(20):
        server.refusal(b"eve%d:secret" % number)
    assert set(hashes) == set(server.provider._users.read().values())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b":",
        b"ann",
        b"ann:",
        b":secret",
        b"\xff:secret",
        b"ann:\0secret",
        b"ann:" + b"x" * 73,
        b"a" * 5_000,
        b"ann:" + b"x" * 100_000,
    ],
)
def test_a_credential_of_another_form_is_refused_without_a_check(
    server: Server, data: bytes
) -> None:
    assert "secret" not in server.refusal(data)
    assert server.checks == 0


def test_a_verified_password_is_remembered_for_a_minute(server: Server) -> None:
    for _ in range(50):
        server.check(b"ann:secret")
    assert server.checks == 1
    server.refusal(b"ann:wrong")
    server.clock.now_ms += 59_999
    server.check(b"ann:secret")
    assert server.checks == 2
    server.clock.now_ms += 1
    server.check(b"ann:secret")
    assert server.checks == 3
    server.clock.now_ms -= 3_600_000  # a clock that is set back does not prolong it
    server.check(b"ann:secret")
    assert server.checks == 4


def test_wrong_passwords_are_not_remembered(server: Server) -> None:
    for _ in range(3):
        server.refusal(b"ann:wrong")
    assert server.checks == 3
    assert not server.provider._verified


def test_what_is_remembered_is_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulsarish.security.basic_provider._VERIFIED_MAX", 1)
    for data in (b"ann:secret", b"bob:other", b"ann:secret"):
        server.check(data)
        assert len(server.provider._verified) == 1
    assert server.checks == 3


def test_callers_with_the_same_password_share_one_check(server: Server) -> None:
    async def main() -> None:
        server.hold = asyncio.Event()
        callers = [asyncio.ensure_future(server.ask(b"ann:secret")) for _ in range(20)]
        await asyncio.sleep(0)
        # one leaves: the others still get their answer
        callers[0].cancel()
        await asyncio.sleep(0)
        server.hold.set()
        answers = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert {each.role for each in answers[1:] if isinstance(each, Identity)} == {"ann"}
        assert server.checks == 1

    asyncio.run(main())


def test_checks_that_wait_are_bounded_also_when_their_callers_leave(server: Server) -> None:
    async def main() -> None:
        server.hold = asyncio.Event()
        callers = [asyncio.ensure_future(server.ask(b"ann:%d" % n)) for n in range(32)]
        await asyncio.sleep(0)
        for each in callers:
            each.cancel()
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests, match="try again"):
            await server.ask(b"ann:secret")
        server.hold.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (await server.ask(b"ann:secret")).role == "ann"

    asyncio.run(main())


def test_an_error_of_the_other_thread_denies_and_is_forgotten(server: Server) -> None:
    async def main() -> None:
        server.hold = asyncio.Event()
        failed = asyncio.ensure_future(server.ask(b"ann:secret"))
        await asyncio.sleep(0)
        next(iter(server.provider._checks.values())).cancel()
        with pytest.raises(asyncio.CancelledError):
            await failed
        server.hold = None
        assert (await server.ask(b"ann:secret")).role == "ann"

    asyncio.run(main())


def test_an_error_of_the_check_denies_every_caller_and_is_forgotten(server: Server) -> None:
    async def fail(_: Callable[[], bool]) -> bool:
        raise MemoryError

    async def main() -> None:
        works = server.provider._offload
        server.provider._offload = fail
        for data in (b"ann:secret", b"ann:secret"):
            with pytest.raises(MemoryError):
                await server.ask(data)
        server.provider._offload = works
        assert (await server.ask(b"ann:secret")).role == "ann"

    asyncio.run(main())


# The file.


def test_a_changed_file_is_read_again(server: Server) -> None:
    server.check(b"ann:secret")
    server.replace(f"ann:{bcrypt_hash('new')}\n")
    assert server.refusal(b"ann:secret")  # although it was remembered
    assert server.check(b"ann:new").role == "ann"
    assert server.refusal(b"bob:other")
    assert not server.problems


def test_a_bad_new_file_leaves_the_old_one_in_force_and_is_reported_once(server: Server) -> None:
    server.replace("ann:plain\n")
    for _ in range(3):
        assert server.check(b"ann:secret").role == "ann"
        server.clock.now_ms += 1_000
    assert len(server.problems) == 1
    assert "line 1" in server.problems[0]
    assert "stays in force" in server.problems[0]
    server.file.unlink()
    server.clock.now_ms += 1_000
    assert server.check(b"bob:other").role == "bob"
    assert len(server.problems) == 2
    server.replace(f"ann:{bcrypt_hash('new')}\n")
    assert server.check(b"ann:new").role == "ann"
    assert len(server.problems) == 2


GOOD = bcrypt_hash("secret")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "has no user"),
        ("# only\n\n", "has no user"),
        (f"ann:{GOOD}\nbob\n", "line 2: the hash is not bcrypt"),
        (f"ann:{GOOD}\nbob:password\n", "line 2: the hash is not bcrypt"),
        ("ann:$apr1$lzxsIfXG$tmB2wBlvdqVQLJ5YOhcBD1", "line 1: the hash is not bcrypt"),
        ("ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "line 1: the hash is not bcrypt"),
        ("ann:mc6E1vTlW0Wyo", "line 1: the hash is not bcrypt"),
        (f"ann:{GOOD}x", "line 1: the hash is not bcrypt"),
        (f"ann:{GOOD[:-1]}", "line 1: the hash is not bcrypt"),
        (f"ann:{GOOD[:28]}/{GOOD[29:]}", "line 1: the hash is not bcrypt"),
        (f"ann:{GOOD.replace('$04$', '$31$')}", "cost 31 is not allowed"),
        (f"ann:{GOOD.replace('$04$', '$03$')}", "cost 3 is not allowed"),
        (f"ann:{GOOD}\nann:{GOOD}", "line 2: the user stands in an earlier line"),
        (f":{GOOD}", "line 1: the user's name is empty"),
        (f"ann :{GOOD}", "line 1: the user's name begins or ends with a space"),
        (f"a\tn:{GOOD}", "line 1: the user's name has characters"),
        (f"ann:{GOOD}\nb\udcffb:{GOOD}", "line 2 is not UTF-8"),
    ],
    ids=lambda _: "case",
)
def test_a_bad_line_is_named_at_start(tmp_path: Path, content: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Server(tmp_path, content.encode(errors="surrogateescape"))
    message = str(raised.value)
    assert text in message
    assert f"basic_auth_conf: {tmp_path}/users" in message
    assert "pulsarish passwords" in message or "cost" in message or "earlier" in message
    assert GOOD[7:] not in message


def test_a_missing_file_is_named_at_start(tmp_path: Path) -> None:
    config = AuthenticationConfig(basic_auth_conf=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"basic_auth_conf: the file .*none cannot be read"):
        BasicProvider(config, Clock(), _never, b"s" * 16, lambda _: None)


async def _never(_: Callable[[], bool]) -> bool:
    raise AssertionError
