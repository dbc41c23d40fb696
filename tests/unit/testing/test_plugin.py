"""What each run of pytest imports of Pulsarish, wherever it is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pulsarish.testing

PROGRAM = """
import sys
import pulsarish.testing.plugin
print(sorted(name for name in sys.modules if name.startswith("pulsarish")))
"""


def test_the_plugin_imports_nothing_before_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(
        ["pulsarish", "pulsarish.testing", "pulsarish.testing.plugin"]
    )


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pulsarish.testing.nothing
