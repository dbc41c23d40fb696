"""The tokens that members of a cluster show each other."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import jwt
import pytest

from pulsarish.model.errors import AuthenticationError, ConfigError, InvalidArgument
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.cluster_members import member_credentials, read_cluster_key
from pulsarish.security.cluster_key import READER_LEDGERS_MAX, ClusterKey
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
    kept = [Secret(each) for each in keys]
    return ClusterKey(lambda: kept, calendar or Calendar())


def test_a_member_is_known_by_its_token(tmp_path: Path) -> None:
    path = written(tmp_path / "key", OLD)
    member = read_cluster_key(path, Calendar())
    shown = member.credentials_of("broker")()
    found = read_cluster_key(path, Calendar()).identify(shown)
    assert (found.role, found.ledgers) == ("broker", None)
    assert found.expires_at_ms == START_MS + 600_000
    assert b64encode(OLD).decode() not in repr(found)
    assert shown.data.reveal() not in repr(shown).encode()


def test_without_a_file_a_member_shows_nothing() -> None:
    assert member_credentials("", "broker")(SystemClock())() is NO_CREDENTIALS


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


def test_a_member_whose_clock_is_ahead_is_served() -> None:
    assert key(OLD).identify(token(exp=START_MS // 1_000 + 86_400)).role == "broker"


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
        read_cluster_key(str(path), Calendar())
    assert b64encode(OLD).decode() not in str(refused.value)


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster_key_file: .*none cannot be read: No such file"):
        read_cluster_key(str(tmp_path / "none"), Calendar())


def test_a_key_is_replaced_in_the_file_of_a_running_process(tmp_path: Path) -> None:
    path, calendar = written(tmp_path / "key", OLD), Calendar()
    problems: list[str] = []
    bookie = ClusterKey.read(path, calendar, problems.append)
    broker = ClusterKey.read(path, calendar, problems.append)
    shown = broker.credentials_of("broker")
    first, before = shown(), bookie.identify(shown())

    def becomes(*keys: bytes) -> None:
        written(tmp_path / "key", *keys)
        calendar.now_ms += 1_001

    becomes(OLD, NEW)
    assert shown() == first
    becomes(NEW, OLD)
    assert shown() != first
    after = bookie.identify(shown())
    assert (bookie.end_of(before), bookie.end_of(after)) == ("", "")
    becomes(NEW)
    assert "removed from cluster_key_file" in bookie.end_of(before)
    assert bookie.end_of(after) == ""
    with pytest.raises(AuthenticationError, match="another key"):
        bookie.identify(first)
    (tmp_path / "key").write_bytes(b"!!")
    calendar.now_ms += 1_001
    assert bookie.identify(shown()).role == "broker"
    assert ["is not base64" in problem for problem in problems] == [True] * len(problems)
    assert problems


def reader(calendar: Calendar, life_ms: int, *ledger_ids: int) -> tuple[ClusterKey, Credentials]:
    keys = key(OLD, calendar=calendar)
    return keys, Credentials("cluster", keys.reader_token(life_ms, ledger_ids or None))


def test_the_token_of_a_reader_names_ledgers() -> None:
    keys, shown = reader(Calendar(), 60_000, 7, 3, ID_MAX)
    assert (keys.identify(shown).role, keys.identify(shown).ledgers) == (
        "reader",
        frozenset({3, 7, ID_MAX}),
    )
    keys, shown = reader(Calendar(), 60_000)
    assert (keys.identify(shown).role, keys.identify(shown).ledgers) == ("auditor", None)
    most = range(ID_MAX, 0, -(ID_MAX // READER_LEDGERS_MAX) - 1)
    keys, shown = reader(Calendar(), 60_000, *most)
    assert keys.identify(shown).ledgers == frozenset(most)


@pytest.mark.parametrize(
    ("life_ms", "ledger_ids"),
    [(0, [1]), (1 << 40, [1]), (1, []), (1, range(READER_LEDGERS_MAX + 1)), (1, [-1])],
)
def test_a_token_for_reading_has_limits(life_ms: int, ledger_ids: Sequence[int]) -> None:
    with pytest.raises(InvalidArgument, match="token for reading"):
        key(OLD).reader_token(life_ms, ledger_ids)


def test_what_a_reader_has_opened_ends_with_its_token_and_that_of_members_does_not() -> None:
    calendar = Calendar()
    keys, shown = reader(calendar, 60_000, 1)
    one = keys.identify(shown)
    member = keys.identify(keys.credentials_of("broker")())
    calendar.now_ms += 959_000
    assert keys.end_of(one) == ""
    calendar.now_ms += 2_000
    assert "ended" in keys.end_of(one)
    calendar.now_ms += 3_600_000
    assert keys.end_of(member) == ""


@pytest.mark.parametrize("ledgers", [[], "all", [True], [-1], [1.5], None, [0] * 129])
def test_a_reader_without_ledgers_is_refused(ledgers: object) -> None:
    with pytest.raises(AuthenticationError, match="which ledgers"):
        key(OLD).identify(token(sub="reader", ledgers=ledgers))
