"""References to secrets: where a token, password or key stands, instead of the secret itself.

Forms: ``file:///path`` (``file:path`` for a relative one), ``env:NAME``,
``data:[type];base64,TEXT``. An error names the reference, never what it refers to. Imports only the
standard library, since the command line waits for the import.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pulsarish.model.errors import AuthenticationError, InvalidArgument
from pulsarish.security.credentials import Secret

__all__ = ["FORMS", "SecretReference", "check_private", "is_reference"]

FORMS: Final = "file:///path, env:NAME or data:;base64,TEXT"
_SECRET_BYTES_MAX: Final = 1 << 20


def is_reference(text: str) -> bool:
    return text.startswith(("file:", "env:", "data:"))


def check_private(path: str) -> None:
    """Raise ``AuthenticationError`` if other users of this machine can read a file or change it.

    A file that is missing passes: reading it gives the better error. So does an empty ``path``.
    """
    if not path:
        return
    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
    except OSError:
        return
    if mode & 0o007:
        raise AuthenticationError(
            f"other users can read or change {path} (mode {mode:04o}): chmod 600 {path}"
        )


class SecretReference:
    """Reads a secret where its reference says, again at each ``read``.

    Args:
        name: of the option that holds the reference, for errors.

    Raises ``InvalidArgument`` for a text of another form.
    """

    def __init__(self, name: str, text: str) -> None:
        self._name = name
        scheme, _, rest = text.partition(":")
        self._data: Secret | None = None
        self.path = self._variable = ""
        if scheme == "file":
            self.path = self._path_of(text, rest)
        elif scheme == "env" and rest:
            self._variable = rest
        elif scheme == "data":
            self._data = self._data_of(rest)
        else:
            raise InvalidArgument(f"{name} is no reference to a secret: give {FORMS}")

    def _path_of(self, text: str, rest: str) -> str:
        if not rest.startswith("//"):
            path = unquote(rest)
        else:
            parts = urlsplit(text)
            if parts.netloc not in ("", "localhost"):
                raise InvalidArgument(
                    f"{self._name} is a file on another host: give file:///path with three slashes"
                )
            path = unquote(parts.path)
        if not path or "\0" in path:
            raise InvalidArgument(f"{self._name} names no file: give file:///path")
        return path

    def _data_of(self, rest: str) -> Secret:
        kind, comma, text = rest.partition(",")
        if not comma:
            raise InvalidArgument(f"{self._name} has data without a comma: give data:;base64,TEXT")
        if not kind.endswith(";base64"):
            return Secret(unquote(text))
        try:
            return Secret(base64.b64decode(unquote(text), validate=True))
        except binascii.Error:
            raise InvalidArgument(
                f"{self._name} has data that are not base64: give data:;base64,TEXT"
            ) from None

    def __str__(self) -> str:
        """Return the reference; data are not shown."""
        if self.path:
            return self.path
        return f"environment variable {self._variable}" if self._variable else "data:***"

    @property
    def is_immediate(self) -> bool:
        """Whether ``read`` reads no file."""
        return not self.path

    @property
    def holds_secret(self) -> bool:
        """Whether the reference is the secret itself."""
        return self._data is not None

    def read(self) -> Secret:
        """Return the secret without line ends around it.

        Raises ``AuthenticationError`` when it is missing, unreadable or empty.
        """
        if self._data is not None:
            value = self._data.reveal()
        elif self._variable:
            value = os.environ.get(self._variable, "").encode()
        else:
            value = self._read_file()
        value = value.strip(b"\r\n")
        if not value:
            raise AuthenticationError(f"{self._name}: {self} is empty or not set")
        return Secret(value)

    def _read_file(self) -> bytes:
        try:
            with Path(self.path).open("rb") as file:
                value = file.read(_SECRET_BYTES_MAX + 1)
        except OSError as error:
            raise AuthenticationError(
                f"{self._name}: {self.path} cannot be read: {error.strerror}"
            ) from None
        if len(value) > _SECRET_BYTES_MAX:
            raise AuthenticationError(
                f"{self._name}: {self.path} has more than {_SECRET_BYTES_MAX} bytes: it is no "
                "token, password or key"
            )
        return value
