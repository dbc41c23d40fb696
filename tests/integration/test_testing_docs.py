"""The examples of docs/testing.md run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BLOCKS = re.findall(
    r"```python\n(.*?)```",
    (Path(__file__).parents[2] / "docs" / "testing.md").read_text(),
    re.DOTALL,
)
IMPORTS = "import pytest\nfrom pulsarish.testing import LocalServer\n"


def test_the_examples_hold(tmp_path: Path) -> None:
    tests = [block for block in BLOCKS if "def test_" in block or "@pytest.fixture" in block]
    programs = [block for block in BLOCKS if block not in tests]
    assert (len(tests), len(programs)) == (3, 1)
    own_server, fixtures = sorted(tests[:2], key=lambda block: "def test_" in block)
    (tmp_path / "test_fixtures.py").write_text(IMPORTS + own_server + fixtures)
    (tmp_path / "test_virtual.py").write_text(tests[2])
    (tmp_path / "test_program.py").write_text(
        "def test_program(capsys):\n    "
        + programs[0].replace("\n", "\n    ")
        + "\n    assert capsys.readouterr().out.startswith('1\\npulsarish://')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr
