"""Protobuf of the client by itself: what the definition holds, what is read with and without the
class, what is refused.
"""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
from google.protobuf.api_pb2 import Api, Method
from google.protobuf.descriptor_pb2 import (
    FileDescriptorProto,
    FileDescriptorSet,
    UninterpretedOption,
)
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.source_context_pb2 import SourceContext
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.type_pb2 import SYNTAX_PROTO3

from pulsarish.client.schemas.auto_consume import AutoConsumeSchema
from pulsarish.client.schemas.key_value import KeyValue, KeyValueSchema
from pulsarish.client.schemas.protobuf import ProtobufNativeSchema
from pulsarish.client.schemas.schema import StringSchema
from pulsarish.model import schema as model
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.schema import SchemaType
from pulsarish.model.schema_compatibility import check_valid


def definition(schema: ProtobufNativeSchema) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(schema.schema_info().data)
    return found


def test_the_definition_has_the_file_behind_all_that_it_imports() -> None:
    schema = ProtobufNativeSchema(Api)
    check_valid(schema.schema_info())
    told = definition(schema)
    files = FileDescriptorSet.FromString(base64.b64decode(told.pop("fileDescriptorSet")))
    assert told == {
        "rootMessageTypeName": "google.protobuf.Api",
        "rootFileDescriptorName": "google/protobuf/api.proto",
    }
    names = [file.name for file in files.file]
    assert sorted(names) == [
        f"google/protobuf/{name}.proto" for name in ("any", "api", "source_context", "type")
    ]
    assert all(
        names.index(each) < index
        for index, file in enumerate(files.file)
        for each in file.dependency
    )


def test_a_message_is_read_with_its_class_and_as_a_dict_without() -> None:
    schema = ProtobufNativeSchema(Api)
    api = Api(
        name="a",
        methods=[Method(name="m", syntax=SYNTAX_PROTO3)],
        source_context=SourceContext(file_name="f"),
    )
    data = schema.encode(api)
    assert schema.decode(data) == schema.reader_for(schema.schema_info())(data) == api
    found = AutoConsumeSchema().reader_for(schema.schema_info())(data)
    assert (found["name"], found["version"], found["syntax"], found["mixins"]) == (
        "a",
        "",
        "SYNTAX_PROTO2",
        [],
    )
    assert found["source_context"] == {"file_name": "f"}
    assert [(each["name"], each["syntax"], each["options"]) for each in found["methods"]] == [
        ("m", "SYNTAX_PROTO3", [])
    ]
    assert AutoConsumeSchema().reader_for(schema.schema_info())(b"")["source_context"] is None


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (FieldMask(paths=["a", "b"]), {"paths": ["a", "b"]}),
        (Timestamp(seconds=-1 << 40), {"seconds": -1 << 40, "nanos": 0}),
        (
            Struct(fields={"x": Value(number_value=0.5)}),
            {
                "fields": {
                    "x": {
                        "null_value": None,
                        "number_value": 0.5,
                        "string_value": None,
                        "bool_value": None,
                        "struct_value": None,
                        "list_value": None,
                    }
                }
            },
        ),
        # Of version 2, whose fields say whether they are set.
        (FileDescriptorProto(name="f", public_dependency=[3, 4]), None),
    ],
)
def test_dicts_have_every_field(message: Any, wanted: dict[str, Any] | None) -> None:
    schema = ProtobufNativeSchema(type(message))
    found = AutoConsumeSchema().reader_for(schema.schema_info())(schema.encode(message))
    if wanted is None:
        assert (found["name"], found["package"], found["public_dependency"], found["options"]) == (
            "f",
            None,
            [3, 4],
            None,
        )
    else:
        assert found == wanted


def test_an_enum_s_number_without_a_name_stays_a_number() -> None:
    schema = ProtobufNativeSchema(Api)
    data = schema.encode(Api()) + b"\x38\x63"
    assert AutoConsumeSchema().reader_for(schema.schema_info())(data)["syntax"] == 99


def test_files_may_stand_in_any_order_and_again_in_key_and_value() -> None:
    schema = ProtobufNativeSchema(Api)
    told = definition(schema)
    files = FileDescriptorSet.FromString(base64.b64decode(told["fileDescriptorSet"]))
    turned = FileDescriptorSet(file=reversed(files.file))
    told["fileDescriptorSet"] = base64.b64encode(turned.SerializeToString()).decode()
    writer = model.Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(told).encode())
    assert AutoConsumeSchema().reader_for(writer)(Api(name="a").SerializeToString())["name"] == "a"
    pair = KeyValueSchema(StringSchema(), schema)
    data = pair.encode(("k", Api(name="a")))
    assert pair.decode(data) == KeyValue("k", Api(name="a"))
    assert AutoConsumeSchema().reader_for(pair.schema_info())(data).value["name"] == "a"


def test_what_is_no_message_is_refused() -> None:
    for wrong in (Api(), dict, "Api"):
        given: Any = wrong
        with pytest.raises(InvalidArgument, match="record_cls is"):
            ProtobufNativeSchema(given)
    schema = ProtobufNativeSchema(Api)
    with pytest.raises(InvalidArgument, match="takes Api"):
        schema.encode(Timestamp())
    # the one of the library's own that has required fields
    unset = ProtobufNativeSchema(UninterpretedOption.NamePart)
    with pytest.raises(InvalidArgument, match="cannot be written"):
        unset.encode(UninterpretedOption.NamePart())
    for decode in (schema.decode, AutoConsumeSchema().reader_for(schema.schema_info())):
        with pytest.raises(
            InvalidArgument, match=r"no google\.protobuf\.Api .*read it with data\(\)"
        ):
            decode(b"\xff")
    with pytest.raises(InvalidArgument, match="of type STRING"):
        schema.reader_for(model.Schema(SchemaType.STRING))


def test_a_definition_that_is_none_is_refused_by_name() -> None:
    told = definition(ProtobufNativeSchema(Api))
    files = FileDescriptorSet.FromString(base64.b64decode(told["fileDescriptorSet"]))
    alone = base64.b64encode(FileDescriptorSet(file=files.file[-1:]).SerializeToString()).decode()
    broken = [
        b"",
        b"{}",
        b"\xff",
        *(
            json.dumps(told | changed).encode()
            for changed in (
                {"fileDescriptorSet": "no Base64"},
                {"fileDescriptorSet": base64.b64encode(struct.pack(">Q", 1 << 63)).decode()},
                {"fileDescriptorSet": alone},
                {"rootMessageTypeName": "google.protobuf.Nothing"},
                {"rootFileDescriptorName": "nothing.proto"},
            )
        ),
    ]
    for data in broken:
        with pytest.raises(InvalidArgument, match="no definition of a protobuf message"):
            AutoConsumeSchema().reader_for(model.Schema(SchemaType.PROTOBUF_NATIVE, data))
