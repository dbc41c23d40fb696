"""How functions turn messages into values and back."""

from __future__ import annotations

import pickle
from abc import abstractmethod
from typing import Any, Final

from pulsarish.client.errors import InvalidType

__all__ = ["IdentitySerDe", "PickleSerDe", "SerDe"]

_NUMBERS: Final = (int, float, complex)
"""Types that are written as text, in the order in which text is read."""

# ruff: noqa: A002  # names of Apache Pulsar's Python client


class SerDe:
    """Converts between a value and its bytes; a program writes a subclass."""

    @abstractmethod
    def serialize(self, input: Any) -> bytes:
        """Return the bytes of a value."""
        raise NotImplementedError

    @abstractmethod
    def deserialize(self, input_bytes: bytes) -> Any:
        """Return the value of bytes."""
        raise NotImplementedError


class PickleSerDe(SerDe):
    """Values as Python's pickles: only for topics to which no stranger can publish, since a pickle
    can run code.
    """

    def serialize(self, input: Any) -> bytes:
        return pickle.dumps(input)

    def deserialize(self, input_bytes: bytes) -> Any:
        return pickle.loads(input_bytes)  # noqa: S301  # said above


class IdentitySerDe(SerDe):
    """Bytes as they are, and numbers and str as text. Text that is a number is read as one."""

    def serialize(self, input: Any) -> bytes:
        if type(input) is bytes:
            return input
        if type(input) in (*_NUMBERS, str):
            return str(input).encode()
        raise InvalidType(
            f"a value is of type {type(input).__name__}: IdentitySerDe writes bytes, str, int, "
            "float and complex; pass another SerDe"
        )

    def deserialize(self, input_bytes: bytes) -> Any:
        try:
            text = input_bytes.decode()
        except UnicodeDecodeError:
            return input_bytes
        for kind in _NUMBERS:
            try:
                return kind(text)
            except ValueError:
                continue
        return text
