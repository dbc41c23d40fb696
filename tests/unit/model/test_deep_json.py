"""JSON that is nested deeper than Python can follow: every parser of what peers bring refuses it by
name.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pulsarish.broker.http.routes.schema_routes import _key_value_data
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.avro import parse_avro
from pulsarish.model.errors import CorruptData, InvalidSchema
from pulsarish.model.schema import Schema, SchemaType, fingerprint, split_key_value
from pulsarish.model.schema_compatibility import check_valid
from pulsarish.wire.json_record import decode_record

DEEP = "[" * 100_000
FIELD = f'{{"a": {DEEP}'
NATIVE = Schema(SchemaType.PROTOBUF_NATIVE, FIELD.encode())
PAIR = Schema(
    SchemaType.KEY_VALUE,
    bytes(8),
    "",
    {"key.schema.type": "STRING", "key.schema.properties": FIELD},
)


@pytest.mark.parametrize(
    ("parse", "error"),
    [
        (lambda: parse_avro(DEEP.encode()), InvalidSchema),
        (lambda: check_valid(NATIVE), InvalidSchema),
        (lambda: split_key_value(PAIR), InvalidSchema),
        (lambda: _key_value_data(FIELD), InvalidSchema),
        (lambda: decode_record(FIELD.encode(), BrokerRegistration, "/brokers/a"), CorruptData),
    ],
    ids=["avro", "protobuf", "key and value", "key and value over HTTP", "metadata"],
)
def test_it_is_refused(parse: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        parse()


def test_it_has_a_fingerprint() -> None:
    assert fingerprint(Schema(SchemaType.JSON, DEEP.encode()))
