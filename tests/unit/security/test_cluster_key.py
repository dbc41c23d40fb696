"""The tokens that members of a cluster show each other."""

from __future__ import annotations

import time
from base64 import b64encode
from pathlib import Path

import jwt
import pytest

from pulsarish.model.errors import AuthenticationError, ConfigError
from pulsarish.security.cluster_key import ClusterKey, member_credentials
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials, Secret

OLD, NEW = b"o" * 64, b"n" * 48
START_MS = 1_790_000_000_000


class Calendar:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


def written(path: Path, *keys: bytes) -> str:
    path.write_bytes(b"\n".join(map(b64encode, keys)) + b"\n")
    path.chmod(0o600)
    return str(path)


def key(*keys: bytes, calendar: Calendar | None = None) -> ClusterKey:
    return ClusterKey([Secret(each) for each in keys], calendar or Calendar())


def test_a_member_is_known_by_its_token(tmp_path: Path) -> None:
    path = written(tmp_path / "key", OLD)
    shown = member_credentials(path, "broker", Calendar())()
    identity = ClusterKey.read(path, Calendar()).identify(shown)
    assert (identity.role, identity.method) == ("broker", "cluster")
    assert identity.expires_at_ms == START_MS + 600_000
    assert shown.data.reveal() not in repr(shown).encode()


def test_without_a_file_a_member_shows_nothing() -> None:
    assert member_credentials("", "broker", Calendar())() is NO_CREDENTIALS


def test_a_key_is_replaced_step_by_step() -> None:
    for signing, checking in (
        ((OLD,), (OLD, NEW)),
        ((OLD, NEW), (OLD,)),
        ((NEW, OLD), (OLD, NEW)),
        ((OLD, NEW), (NEW, OLD)),
        ((NEW,), (NEW, OLD)),
    ):
        shown = key(*signing).credentials_of("bookie")()
        assert key(*checking).identify(shown).role == "bookie"
    with pytest.raises(AuthenticationError, match="another key"):
        key(NEW).identify(key(OLD).credentials_of("bookie")())


def test_a_token_is_made_again_at_half_of_its_life_and_when_the_clock_was_set_back() -> None:
    calendar = Calendar()
    current = key(OLD, calendar=calendar).credentials_of("broker")
    first = current()
    calendar.now_ms += 299_000
    assert current() is first
    calendar.now_ms += 2_000
    second = current()
    assert second.data != first.data
    calendar.now_ms -= 3_600_000
    assert current().data not in (first.data, second.data)


def test_a_token_ends() -> None:
    calendar = Calendar()
    members = key(OLD, calendar=calendar)
    shown = members.credentials_of("broker")()
    calendar.now_ms += 1_499_000
    assert members.identify(shown).role == "broker"
    calendar.now_ms += 2_000
    with pytest.raises(AuthenticationError, match="clocks"):
        members.identify(shown)


def test_a_token_that_ends_later_than_a_member_makes_it_is_refused() -> None:
    longest = START_MS // 1_000 + 1_500
    assert key(OLD).identify(token(exp=longest)).role == "broker"
    with pytest.raises(AuthenticationError, match="lasts longer than a member makes it"):
        key(OLD).identify(token(exp=longest + 1))


def token(secret: bytes | None = OLD, algorithm: str = "HS256", **changed: object) -> Credentials:
    end = START_MS // 1_000 + 60
    claims = {"sub": "broker", "aud": "pulsarish-cluster", "exp": end, **changed}
    claims = {name: value for name, value in claims.items() if value is not None}
    return Credentials("cluster", Secret(jwt.encode(claims, secret, algorithm=algorithm)))


@pytest.mark.parametrize(
    "shown",
    [
        NO_CREDENTIALS,
        Credentials("token", token().data),
        Credentials("cluster", Secret(b"")),
        Credentials("cluster", Secret(b"junk")),
        Credentials("cluster", Secret(b"a.b.c")),
        Credentials("cluster", Secret(b"x" * 5_000)),
        token(b"w" * 32),
        token(None, algorithm="none"),
        token(algorithm="HS512"),
        token(sub=None),
        token(exp=None),
        token(aud=None),
        token(aud="clients"),
        token(exp=START_MS // 1_000 - 3_600),
        token(exp=START_MS // 1_000 + 3_600),
        token(exp=1 << 62),
    ],
)
def test_nothing_else_is_a_token_of_a_member(shown: Credentials) -> None:
    with pytest.raises(AuthenticationError) as refused:
        key(OLD).identify(shown)
    assert not shown.data or shown.data.reveal().decode() not in str(refused.value)


def test_a_large_token_takes_no_time() -> None:
    shown = Credentials("cluster", Secret(b"." * (1 << 20)))
    began = time.process_time()
    with pytest.raises(AuthenticationError, match="bytes"):
        key(OLD).identify(shown)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"", 0o600, "is empty"),
        (b"\n \n", 0o600, "is empty"),
        (b64encode(OLD) + b"\n!!\n", 0o600, "line 2 .* is not base64"),
        (b64encode(b"short"), 0o600, "has 5 bytes; 32"),
        (b64encode(OLD), 0o640, "chmod 600"),
        (b64encode(OLD), 0o604, "chmod 600"),
    ],
)
def test_a_bad_key_file_says_what_to_do(
    tmp_path: Path, content: bytes, mode: int, why: str
) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=why) as refused:
        ClusterKey.read(str(path), Calendar())
    assert b64encode(OLD).decode() not in str(refused.value)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster_key_file: .*none: No such file"):
        ClusterKey.read(str(tmp_path / "none"), Calendar())
