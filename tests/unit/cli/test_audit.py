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


def test_lines_from_a_topic_are_checked_whatever_their_order(tmp_path: Path) -> None:
    lines = trail()
    exported = b"\n".join([*lines[4:], *lines[2:6], *reversed(lines[2:4])]) + b"\n"
    file = tmp_path / "exported.jsonl"
    file.write_bytes(exported)
    for source in (str(file), "-"):
        done = CliRunner().invoke(pulsarish, ["audit", "verify", source], input=exported)
        assert done.exit_code == 0, done.output
        where = str(file) if source != "-" else "the standard input"
        assert done.output.splitlines()[:2] == [
            f"note: {where}: 4 lines came a second time",
            "note: records 1 to 2 are missing at the beginning: they are not in what was taken",
        ]
        assert f"8 records in {where}, 3 to 10" in done.output
        assert f"anchor 10:{hash_of(lines[-1])}" in done.output
    lines[5] = lines[5].replace(b"ann", b"bob")
    for damaged, said in (
        (lines, ":6: record 6 is not the one that was written"),
        (lines[:4] + lines[6:], "records 5 to 6 are missing before record 7"),
        ([*lines, b"junk"], ":11: this is no record"),
    ):
        data = b"\n".join(damaged)
        done = CliRunner().invoke(pulsarish, ["audit", "verify", "-"], input=data)
        assert done.exit_code == 1
        assert said in done.output
    done = CliRunner().invoke(pulsarish, ["audit", "verify", "-"], input=b"")
    assert (done.exit_code, "has no record" in done.output) == (1, True)
