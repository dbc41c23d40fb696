"""How a value becomes the bytes of a message and back. A schema registry comes later; these are the client's own conversions."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from pulsarish.client.checks import check_text, shown
from pulsarish.model.errors import InvalidArgument

__all__ = ["BytesSchema", "JsonSchema", "Schema", "StringSchema"]


class Schema(Protocol):
    """Converts between the value of a message and its bytes."""

    def encode(self, value: Any) -> bytes:
        """The bytes of a value. Raises ``InvalidArgument`` for a value of another type."""
        ...

    def decode(self, data: bytes) -> Any:
        """The value of bytes. Raises ``InvalidArgument`` for bytes that hold none."""
        ...


class BytesSchema:
    """Bytes as they are; the default."""

    def encode(self, value: object) -> bytes:
        if type(value) is bytes:
            return value
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        raise InvalidArgument(f"content is of type {type(value).__name__}: pass bytes, or give the producer a schema")

    def decode(self, data: bytes) -> bytes:
        return data


class StringSchema:
    """Text as UTF-8."""

    def encode(self, value: object) -> bytes:
        if not isinstance(value, str):
            raise InvalidArgument(f"content is of type {type(value).__name__}: StringSchema takes str")
        return check_text("content", value).encode()

    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"the message is no UTF-8 text ({error}): read it with data()") from None


class JsonSchema:
    """JSON. ``record_cls``: a dataclass, msgspec Struct or TypedDict to read into and to check against; any JSON value without it."""

    def __init__(self, record_cls: Any = Any) -> None:
        """Raises ``InvalidArgument`` for what is no type that JSON can be read into."""
        try:
            self._decoder = msgspec.json.Decoder(record_cls)
        except TypeError as error:
            raise InvalidArgument(f"record_cls is {shown(record_cls)}: pass a dataclass, msgspec Struct or TypedDict ({error})") from None

    def encode(self, value: object) -> bytes:
        try:
            return msgspec.json.encode(value)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"content cannot be written as JSON: {error}") from None

    def decode(self, data: bytes) -> Any:
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise InvalidArgument(f"the message is not the JSON that was asked for ({error}): read it with data()") from None
