"""The name that this program sends to its peers."""

from __future__ import annotations

from functools import cache

__all__ = ["program_name"]


@cache
def program_name() -> str:
    """Return the name, in the form of Apache Pulsar's clients; without the version where none is
    installed.
    """
    # Not needed before the first connection, and slow to import.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"Pulsarish-Python-v{version('pulsarish')}"
    except PackageNotFoundError:
        return "Pulsarish-Python"
