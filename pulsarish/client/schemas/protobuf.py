"""Protobuf: messages of a generated class in binary form, with the definition of Apache Pulsar's
Java and Python clients.

The definition (type PROTOBUF_NATIVE) holds the class's file and all files that it imports, so a
consumer without the class can decode too.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, cast

import msgspec
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from pulsarish.client.checks import shown
from pulsarish.client.errors import InvalidType
from pulsarish.client.schemas.schema import Decode
from pulsarish.model import schema as model
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.schema import SchemaType

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Kind = TypeVar("Kind", bound=Message, default=Any)
else:
    from typing import TypeVar

    Kind = TypeVar("Kind")

__all__ = ["ProtobufNativeSchema", "protobuf_decoder"]

_UNFIT: Final = (
    msgspec.MsgspecError,
    UnicodeDecodeError,
    binascii.Error,
    DecodeError,
    TypeError,
    KeyError,
    ValueError,
    RecursionError,
)
"""Errors that decoding an invalid definition raises."""


class _Definition(msgspec.Struct):
    fileDescriptorSet: str  # noqa: N815 - Apache Pulsar's own names
    rootMessageTypeName: str  # noqa: N815
    rootFileDescriptorName: str  # noqa: N815


class ProtobufNativeSchema(Generic[Kind]):
    """The schema of a message class. ``record_cls``: a class that protoc generated."""

    def __init__(self, record_cls: type[Kind]) -> None:
        """Raises ``InvalidArgument`` for another class."""
        given: Any = record_cls
        if not (isinstance(given, type) and issubclass(given, Message)):
            raise InvalidType(
                f"record_cls is {shown(record_cls)}: pass a class that protoc has generated of a "
                "message"
            )
        self._class = record_cls
        self._info = model.Schema(
            SchemaType.PROTOBUF_NATIVE, _definition_of(record_cls), "PROTOBUF_NATIVE"
        )

    def encode(self, value: Kind) -> bytes:
        if not isinstance(value, self._class):
            raise InvalidType(
                f"content is of type {type(value).__name__}: this producer's schema takes "
                f"{self._class.__name__}"
            )
        try:
            return value.SerializeToString()
        except EncodeError as error:
            raise InvalidArgument(
                f"content cannot be written as {self._class.__name__}: {error}"
            ) from None

    def decode(self, data: bytes) -> Kind:
        return cast("Kind", _parsed(self._class, data))

    def reader_for(self, writer: model.Schema) -> Decode:
        """Return how to decode another version.

        Fields that only the other version has become unknown fields.

        Raises ``InvalidArgument`` for a schema of another type.
        """
        if writer.type is not SchemaType.PROTOBUF_NATIVE:
            raise InvalidArgument(
                f"it was written with a schema of type {writer.type.name}, not PROTOBUF_NATIVE: "
                "read it with data()"
            )
        return self.decode

    def schema_info(self) -> model.Schema:
        return self._info


def _definition_of(record_cls: type[Message]) -> bytes:
    root = record_cls.DESCRIPTOR
    files: dict[str, FileDescriptorProto] = {}
    _gather(root.file, files)
    whole = FileDescriptorSet(file=files.values()).SerializeToString()
    definition = _Definition(base64.b64encode(whole).decode(), root.full_name, root.file.name)
    # In the layout of the Python client: brokers compare versions by their bytes.
    return msgspec.json.format(msgspec.json.encode(definition), indent=1)


def _gather(file: Any, found: dict[str, FileDescriptorProto]) -> None:
    """Add a file after the files that it imports."""
    if file.name in found:
        return
    for imported in file.dependencies:
        _gather(imported, found)
    own = FileDescriptorProto()
    file.CopyToProto(own)
    found[file.name] = own


def _parsed(kind: type[Message], data: bytes) -> Message:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise InvalidArgument(
            f"the message is no {kind.DESCRIPTOR.full_name} ({error}): read it with data()"
        ) from None


def protobuf_decoder(writer: model.Schema) -> Decode:
    """Return a decoder that gives dicts.

    It needs only the schema that the messages were written with.

    Raises ``InvalidArgument`` for an invalid definition. The dicts have all fields. An unset field
    that tracks presence is ``None``; other unset fields have their defaults. Enums are names.
    """
    try:
        definition = msgspec.json.decode(writer.data, type=_Definition)
        files = FileDescriptorSet.FromString(
            base64.b64decode(definition.fileDescriptorSet, validate=True)
        )
        pool = DescriptorPool()
        _fill(pool, {file.name: file for file in files.file}, definition.rootFileDescriptorName)
        kind = GetMessageClass(pool.FindMessageTypeByName(definition.rootMessageTypeName))
    except _UNFIT as error:
        raise InvalidArgument(
            f"the schema that it was written with is no definition of a protobuf message: {error!r}"
        ) from None
    return lambda data: _as_dict(_parsed(kind, data))


def _fill(pool: DescriptorPool, files: dict[str, FileDescriptorProto], name: str) -> None:
    """Add a file after the files that it imports. The Java client writes files in any order."""
    # added already, or missing; for a missing file the pool raises when it adds the importing file
    file = files.pop(name, None)
    if file is not None:
        for imported in file.dependency:
            _fill(pool, files, imported)
        pool.AddSerializedFile(file.SerializeToString())


def _as_dict(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _plain(field, getattr(message, field.name))
    return found


def _plain(field: Any, value: Any) -> Any:
    if isinstance(value, (str, bytes)):
        return value
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value_field = field.message_type.fields_by_name["value"]
        return {key: _plain_one(value_field, value[key]) for key in value}
    if isinstance(value, Sequence):
        return [_plain_one(field, each) for each in value]
    return _plain_one(field, value)


def _plain_one(field: Any, value: Any) -> Any:
    if isinstance(value, Message):
        return _as_dict(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
