"""The list of revoked tokens and roles."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarish.model.errors import ConfigError
from pulsarish.security.identity import Identity
from pulsarish.security.revocation import Revocations
from tests.support.tokens import Clock

ANN = Identity("ann", "token", credential_id="t-1")
BOB = Identity("bob", "basic")


def test_ids_roles_and_proxies_are_revoked(tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    file.write_text("# list\n\n t-1 \nrole:bob\r\n")
    revocations = Revocations(str(file), Clock(), lambda _: None)
    assert revocations.is_revoked(ANN)
    assert not revocations.is_revoked(Identity("ann", "token", credential_id="t-2"))
    assert not revocations.is_revoked(Identity("ann", "token"))
    assert revocations.is_revoked(BOB)
    assert revocations.is_revoked(Identity("ann", "token", proxy_role="bob"))
    assert not revocations.is_revoked(Identity("t-1", "token"))
    assert not revocations.is_revoked(Identity("ann", "token", credential_id="bob"))


def test_a_change_is_seen_within_a_second_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "revoked"
    file.write_text("")
    clock, problems = Clock(), list[str]()
    revocations = Revocations(str(file), clock, problems.append)
    assert (revocations.is_revoked(ANN), revocations.count_changes()) == (False, 0)
    file.write_text("t-1\n")
    clock.now_ms += 999
    assert not revocations.is_revoked(ANN)
    clock.now_ms += 1
    assert revocations.count_changes() == 1
    assert revocations.is_revoked(ANN)
    # A clock that is set back does not stop it.
    file.write_text("role:bob\n")
    clock.now_ms -= 3_600_000
    assert (revocations.is_revoked(ANN), revocations.is_revoked(BOB)) == (False, True)
    # What is wrong leaves the list before it in force, and is no change.
    file.write_text("role:\n")
    clock.now_ms += 1_000
    assert (revocations.is_revoked(BOB), revocations.count_changes()) == (True, 2)
    file.unlink()
    clock.now_ms += 1_000
    assert (revocations.is_revoked(BOB), revocations.count_changes()) == (True, 2)
    assert len(problems) == 2
    file.write_text("")
    clock.now_ms += 1_000
    assert (revocations.is_revoked(BOB), revocations.count_changes()) == (False, 3)


def test_without_a_file_no_credential_is_revoked() -> None:
    revocations = Revocations("", Clock(), lambda _: None)
    assert (revocations.is_revoked(ANN), revocations.count_changes()) == (False, 0)


@pytest.mark.parametrize("line", [b"role:", b"a\0b", b"\xff", b"a\x1b[2J"])
def test_a_bad_line_is_named(tmp_path: Path, line: bytes) -> None:
    file = tmp_path / "revoked"
    file.write_bytes(b"t-1\n" + line)
    with pytest.raises(ConfigError, match=f"revocation_file: {file}, line 2"):
        Revocations(str(file), Clock(), lambda _: None)


def test_a_missing_or_great_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError, match=r"revocation_file: the file .* cannot be read"):
            Revocations(str(path), Clock(), lambda _: None)
    monkeypatch.setattr("pulsarish.security.watched_file.FILE_BYTES_MAX", 1 << 20)
    great = tmp_path / "great"
    great.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(ConfigError, match="more than 1 MiB"):
        Revocations(str(great), Clock(), lambda _: None)
