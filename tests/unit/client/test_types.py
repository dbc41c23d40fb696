"""What type checkers say of programs: those in ``typed`` whose names begin with "accepts" have no
error, the others have one at each line that ends with ``# E: WORDS``, with these words.

mypy checks all of them at once, as strictly as it checks the package.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAMS = sorted((Path(__file__).parent / "typed").glob("*.py"))
REFUSED = [each for each in PROGRAMS if each.name.startswith("refuses_")]

_FOUND = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<words>.*)$", re.MULTILINE)
_EXPECTED = re.compile(r"# E: (.+)$")


@pytest.fixture(scope="module")
def errors() -> dict[str, dict[int, str]]:
    """What mypy says, by program and line."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-codes"]
    run = subprocess.run(
        [*command, *(str(each.relative_to(ROOT)) for each in PROGRAMS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode in (0, 1), run.stderr + run.stdout
    found: dict[str, dict[int, str]] = {}
    for each in _FOUND.finditer(run.stdout):
        of_program = found.setdefault(Path(each["file"]).name, {})
        line = int(each["line"])
        of_program[line] = " | ".join(filter(None, (of_program.get(line), each["words"])))
    return found


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 30
    assert len(REFUSED) >= 10


@pytest.mark.xdist_group("types")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program(program: Path, errors: dict[str, dict[int, str]]) -> None:
    expected = {
        number: marked[1]
        for number, line in enumerate(program.read_text().splitlines(), 1)
        if (marked := _EXPECTED.search(line)) is not None
    }
    found = errors.get(program.name, {})
    assert (program in REFUSED) == bool(expected)
    assert found.keys() == expected.keys(), found
    for number, words in expected.items():
        assert words in found[number]
