"""The version of the package, installed or not."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

import pytest

import pulsarish
from pulsarish.runtime.version import program_name, program_version


@pytest.fixture(autouse=True)
def _read_again() -> Iterator[None]:
    program_version.cache_clear()
    yield
    program_version.cache_clear()


def test_an_installed_package() -> None:
    installed = importlib.metadata.version("pulsarish")
    assert pulsarish.__version__ == installed
    assert program_name() == f"Pulsarish-Python-v{installed}"


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert pulsarish.__version__ == "0+unknown"
    assert program_name() == "Pulsarish-Python-v0+unknown"
