"""Replacing names of a library in one module, while all other threads keep the real ones."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

__all__ = ["changed"]


def changed(library: ModuleType, **names: object) -> SimpleNamespace:
    """Return the names of a library with some replaced, to set in the module under test."""
    return SimpleNamespace(**{**vars(library), **names})
