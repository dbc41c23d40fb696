"""The version of this program, and the name that it sends to its peers."""

from __future__ import annotations

from functools import cache

__all__ = ["program_name", "program_version"]


@cache
def program_version() -> str:
    """Return the version of the installed package; ``0+unknown`` where none is installed."""
    # Not needed before the first connection, and slow to import.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pulsarish")
    except PackageNotFoundError:
        return "0+unknown"


def program_name() -> str:
    """Return the name, in the form of Apache Pulsar's clients."""
    return f"Pulsarish-Python-v{program_version()}"
