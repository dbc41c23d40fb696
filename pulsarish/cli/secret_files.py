"""Secrets of commands: read by reference, and written to files that only their owner may read."""

from __future__ import annotations

import base64
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

from pulsarish.model.errors import AlreadyExists

__all__ = ["check_absent", "key_reference", "read_stdin", "write_file"]

_STDIN_BYTES_MAX: Final = 1 << 20
_STDIN: Final = "-"


def read_stdin() -> bytes:
    """Return what stdin has. Raises ``click.UsageError`` for more than a key or token has."""
    content = sys.stdin.buffer.read(_STDIN_BYTES_MAX + 1)
    if len(content) > _STDIN_BYTES_MAX:
        raise click.UsageError("stdin has more than 1 MiB: this is no key and no token")
    return content


def key_reference(option: str, text: str) -> str:
    """Return the reference to a key: a file, ``env:NAME``, or ``-`` for stdin.

    A key itself is refused, because other users of the machine can see command lines. Raises
    ``click.UsageError``.
    """
    if text == _STDIN:
        return f"data:;base64,{base64.b64encode(read_stdin()).decode()}"
    if text.startswith("data:"):
        raise click.UsageError(
            f"{option}: a key on the command line can be seen by others; name a file, env:NAME, or "
            "- for stdin"
        )
    return text


def check_absent(path: str, *, force: bool) -> None:
    """Raise ``AlreadyExists`` when a file is there that may not be replaced."""
    if not force and os.path.lexists(path):
        raise AlreadyExists(f"{path} is there; choose another name, or --force replaces it")


def write_file(path: str, content: bytes, *, force: bool = False, mode: int = 0o600) -> None:
    """Write a file, synced, and with its mode from the first byte.

    Raises ``AlreadyExists`` when it is there and ``force`` is not set. With ``force`` no reader
    finds a part of it, and a wider mode of the old file is not kept.
    """
    if not force:
        check_absent(path, force=False)
        # Exclusive: it follows no link, and fails when another process has made it meanwhile.
        _write(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), content)
        return
    descriptor, fresh = tempfile.mkstemp(prefix=".", suffix=".new", dir=Path(path).parent)
    try:
        os.fchmod(descriptor, mode)
        _write(descriptor, content)
        os.replace(fresh, path)
    finally:
        Path(fresh).unlink(missing_ok=True)


def _write(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)
