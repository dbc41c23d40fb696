"""``pulsarish audit verify``: what it prints, and with what it ends."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from pulsarish.cli.main import pulsarish
from pulsarish.security.audit_chain import file_name, hash_of
from tests.unit.security.test_audit_chain import trail


def verify(directory: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(pulsarish, ["audit", "verify", str(directory), *words])
    return done.exit_code, done.output


def write(directory: Path, lines: list[bytes]) -> None:
    for number, part in enumerate((lines[:5], lines[5:]), 1):
        (directory / file_name(number)).write_bytes(b"".join(line + b"\n" for line in part))


def test_a_whole_trail_gets_an_anchor(tmp_path: Path) -> None:
    lines = trail()
    write(tmp_path, lines)
    (tmp_path / "LOCK").write_text("1\n")
    anchor = f"10:{hash_of(lines[-1])}"
    code, text = verify(tmp_path)
    assert code == 0
    assert text.splitlines() == [
        "10 records in 2 files, 1 to 10",
        f"anchor {anchor}",
        "the chain is whole",
    ]
    assert verify(tmp_path, "--anchor", anchor)[0] == 0
    write(tmp_path, lines[:-2])
    code, text = verify(tmp_path, "--anchor", anchor)
    assert (code, "record 10, which the anchor names, is not there" in text) == (1, True)


def test_a_change_ends_with_one_and_names_its_place(tmp_path: Path) -> None:
    lines = trail()
    lines[2] = lines[2].replace(b"ann", b"bob")
    write(tmp_path, lines)
    code, text = verify(tmp_path)
    assert code == 1
    assert f"{file_name(1)}:3: record 3 is not the one that was written" in text
    assert "the chain is whole" not in text


def test_what_is_no_trail_is_no_success(tmp_path: Path) -> None:
    code, text = verify(tmp_path)
    assert (code, "no file of an audit trail" in text) == (1, True)
    (tmp_path / file_name(1)).write_bytes(b"")
    code, text = verify(tmp_path)
    assert (code, "has no record" in text) == (1, True)
    assert verify(tmp_path, "--anchor", "1:2")[0] == 2
