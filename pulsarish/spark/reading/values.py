"""Decode values into columns by the schemas that they were written with, and handle values that
cannot be decoded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pulsarish.client.schemas.auto_consume import AutoConsumeSchema
from pulsarish.client.schemas.avro import AvroSchema
from pulsarish.client.schemas.schema import Decode
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.schema import Schema, SchemaType, version_number
from pulsarish.spark.options import OnDecodeError
from pulsarish.spark.reading.json_values import json_decoder
from pulsarish.spark.reading.schemas import CORRUPT, TopicSchema
from pulsarish.spark.reading.unpack import Rows

__all__ = ["DecodedValues", "ValueDecoder"]

_UNFIT: Final = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
)


_UNHELD: Final = ("uuid", "time-millis", "time-micros")


class DecodedValues:
    """Columns of one batch. ``keep``: which of its rows stay; ``None`` for all."""

    def __init__(self, columns: dict[str, Any], keep: Any) -> None:
        self.columns = columns
        self.keep = keep


class ValueDecoder:
    """Decodes for the columns of ``schema`` (Arrow's) that are not fixed columns."""

    def __init__(self, topic: str, spec: TopicSchema, schema: Any) -> None:
        self._topic = topic
        self._spec = spec
        self._wanted = [field for field in schema if field.name in spec.types]
        self._decoders: dict[bytes, Decode] = {}

    def decode(self, rows: Rows, raw: Any) -> DecodedValues:
        """Decode a column of bytes.

        Raises ``InvalidArgument`` naming the first undecodable value, where the read is to fail.
        """
        versions = np.repeat(np.arange(len(rows.counts)), rows.counts).tolist()
        decoders = [self._decoder(each) for each in rows.schema_versions]
        data = raw.to_pylist()
        bad: dict[int, str] = {}
        found: list[Any] = []
        for row, (entry, one) in enumerate(zip(versions, data, strict=True)):
            value = None
            if one is not None:
                try:
                    value = decoders[entry](one)
                except InvalidArgument as error:
                    bad[row] = str(error)
            found.append(value)
        columns = {field.name: self._column(field, found, bad) for field in self._wanted}
        if bad and any(found[row] is not None for row in bad):
            # A value that one column cannot hold is null in the others too.
            found = [None if row in bad else value for row, value in enumerate(found)]
            columns = {field.name: self._column(field, found, bad) for field in self._wanted}
        return self._judged(rows, columns, data, bad, versions)

    def _judged(
        self,
        rows: Rows,
        columns: dict[str, Any],
        data: Sequence[Any],
        bad: dict[int, str],
        entries: Sequence[int],
    ) -> DecodedValues:
        if bad and self._spec.on_error is OnDecodeError.FAIL:
            row, why = min(bad.items())
            place = f"{rows.ledgers[entries[row]]}:{rows.entries[entries[row]]}"
            raise InvalidArgument(
                f"a message of topic {self._topic} at {place} does not decode by the topic's "
                f"schema: {why}; option 'onDecodeError' can be"
                f" 'keep' (its bytes in column {CORRUPT}) or 'drop'"
            )
        columns[CORRUPT] = pa.array(
            [data[row] if row in bad else None for row in range(rows.count)], pa.binary()
        )
        keep = None
        if bad and self._spec.on_error is OnDecodeError.DROP:
            mask = np.ones(rows.count, bool)
            mask[list(bad)] = False
            keep = pa.array(mask)
        return DecodedValues(columns, keep)

    def _column(self, field: Any, found: Sequence[Any], bad: dict[int, str]) -> Any:
        name = self._spec.fields.get(field.name)
        try:
            values = (
                found
                if name is None
                else [None if each is None else each.get(name) for each in found]
            )
            return pa.array(values, field.type)
        except _UNFIT:
            return self._one_by_one(field, name, found, bad)

    def _one_by_one(
        self, field: Any, name: str | None, found: Sequence[Any], bad: dict[int, str]
    ) -> Any:
        """Find the values that do not fit."""
        values: list[Any] = []
        for row, each in enumerate(found):
            value = None
            try:
                value = each if name is None or each is None else each.get(name)
                _ = pa.array([value], field.type)
            except _UNFIT as error:
                bad.setdefault(row, f"column {field.name!r}: {error}")
                value = None
            values.append(value)
        return pa.array(values, field.type)

    def _decoder(self, version: bytes) -> Decode:
        decoder = self._decoders.get(version)
        if decoder is None:
            decoder = self._decoders[version] = self._made(version)
        return decoder

    def _made(self, version: bytes) -> Decode:
        # The bytes of a producer without a schema may have the form of the newest one.
        number = version_number(version) if version else self._spec.newest
        if number not in self._spec.versions:
            return _refuse(
                f"it was written with version {number} of the schema, which the topic has no more "
                "or did not have when this was planned"
            )
        schema = self._schema(number)
        try:
            if schema.type is SchemaType.AVRO:
                return AvroSchema(
                    schema_definition=_definition(self._schema(self._spec.newest))
                ).reader_for(_plain(schema))
            if schema.type is SchemaType.JSON:
                kinds = {
                    self._spec.fields.get(field.name, field.name): field.type
                    for field in self._wanted
                }
                return json_decoder(kinds, is_record=bool(self._spec.fields))
            return AutoConsumeSchema().reader_for(schema)
        except InvalidArgument as error:
            return _refuse(str(error))

    def _schema(self, number: int) -> Schema:
        kind, definition, properties = self._spec.versions[number]
        kind = "NONE" if kind == "BYTES" else kind
        return Schema(SchemaType[kind], definition.encode(), kind, dict(properties))


def _definition(schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = _without_unheld(json.loads(schema.data))
    return found


def _plain(schema: Schema) -> Schema:
    return Schema(
        schema.type, json.dumps(_definition(schema)).encode(), schema.name, schema.properties
    )


def _without_unheld(definition: Any) -> Any:
    """Return the definition with types that no column holds replaced by the text or number that
    they are written as.
    """
    if isinstance(definition, list):
        return [_without_unheld(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    return {
        key: _without_unheld(value)
        for key, value in definition.items()
        if key != "logicalType" or value not in _UNHELD
    }


def _refuse(why: str) -> Decode:
    def decode(_data: bytes) -> Any:
        raise InvalidArgument(why)

    return decode
