"""``CryptoKeyReader``: where the keys of end-to-end encryption come from.

    CryptoKeyReader("/keys/public.pem", "/keys/private.pem")

An error names the key and the file, never what is in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pulsarish.model.errors import CryptoError, InvalidType

__all__ = ["CryptoKeyReader"]

_KEY_BYTES_MAX: Final = 1 << 20


class CryptoKeyReader:
    """Reads a public and a private key in PEM from files, each time a key is needed.

    A subclass may take keys from elsewhere, by the name of the key: ``public_key`` and
    ``private_key`` return PEM, or raise ``CryptoError``. They are called in the thread that sends
    or receives, so they should answer at once.
    """

    def __init__(self, public_key_path: str, private_key_path: str) -> None:
        """Nothing is read yet: a producer needs the public key, a consumer the private one."""
        for argument, path in (
            ("public_key_path", public_key_path),
            ("private_key_path", private_key_path),
        ):
            given: object = path
            if not isinstance(given, str):
                raise InvalidType(
                    f"{argument} is of type {type(given).__name__}: pass the path of a file as str"
                )
        self.public_key_path = public_key_path
        self.private_key_path = private_key_path

    def public_key(self, name: str, metadata: Mapping[str, str]) -> bytes:
        """Return the public key of this name. Raises ``CryptoError``."""
        return _read("public_key_path", self.public_key_path)

    def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes:
        """Return the private key of this name. ``metadata``: what the producer's key reader said of
        the key. Raises ``CryptoError``.
        """
        return _read("private_key_path", self.private_key_path)

    def source_of(self, *, is_private: bool) -> str:
        """Return where a key is from, for errors."""
        argument = "private_key_path" if is_private else "public_key_path"
        path = getattr(self, argument, "")
        return f"{argument} {path!r}" if path else type(self).__name__


def _read(argument: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            found = file.read(_KEY_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CryptoError(
            f"{argument} {path!r} cannot be read ({reason}): give a file with a key in PEM"
        ) from None
    if len(found) > _KEY_BYTES_MAX:
        raise CryptoError(f"{argument} {path!r} has more than {_KEY_BYTES_MAX} bytes: no key has")
    return found
