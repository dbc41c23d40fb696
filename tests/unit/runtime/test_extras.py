"""The advice to install an optional part works from a checkout and from a wheel: it names the
libraries.
"""

from __future__ import annotations

from importlib import metadata

import pytest

from pulsarish.runtime.extras import install_command


def test_it_names_the_libraries_of_the_part() -> None:
    assert install_command("avro") == "python -m pip install 'fastavro>=1.9'"
    words = install_command("spark")
    assert words.startswith("python -m pip install '")
    assert "'pyspark" in words
    assert "pulsarish" not in words


def test_in_a_source_tree_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_name: str) -> list[str]:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", absent)
    assert install_command("spark") == "pip install -e '.[spark]' in a checkout of pulsarish"
