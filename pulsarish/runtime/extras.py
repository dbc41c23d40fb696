"""Commands that install an optional part of the package, such as Spark or Avro."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from pulsarish.model.errors import OperationNotSupported

__all__ = ["install_command", "optional_module"]


def optional_module(name: str, extra: str, what: str) -> Any:
    """Return a module of an optional part.

    Raises ``OperationNotSupported``, which says that ``what`` needs it and how to install it.
    """
    try:
        return import_module(name)
    except ImportError:
        raise OperationNotSupported(
            f"{what} needs {name}, of the extra {extra!r}: {install_command(extra)}"
        ) from None


def install_command(extra: str) -> str:
    """Return the command that installs the libraries of an optional part.

    It names the libraries themselves, so it works from a checkout and from a wheel alike: the
    package is on no index.

    Args:
        extra: its name in ``pyproject.toml``, such as ``spark``.
    """
    # Only a program that lacks something waits for the import.
    from importlib import metadata

    marker = re.compile(rf"""extra\s*==\s*["']{re.escape(extra)}["']""")
    try:
        required = metadata.requires("pulsarish") or []
    except metadata.PackageNotFoundError:  # imported from a source tree that is not installed
        required = []
    libraries = [
        name.strip()
        for name, _, condition in (each.partition(";") for each in required)
        if marker.search(condition)
    ]
    if not libraries:
        return f"pip install -e '.[{extra}]' in a checkout of pulsarish"
    return "python -m pip install " + " ".join(f"'{library}'" for library in libraries)
