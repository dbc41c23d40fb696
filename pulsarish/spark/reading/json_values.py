"""JSON values as columns.

Decimals keep all their digits, and a number that is not whole is rejected by an integer column.

Bytes stay text: programs write them as text or in Base64, and the schema does not define which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from pulsarish.client.schemas.schema import Decode
from pulsarish.model.errors import InvalidArgument

__all__ = ["json_decoder"]

_Fit = Callable[[Any], Any]
"""Converts a JSON value to one that Arrow accepts.

Raises ``ValueError``, ``TypeError`` for one that the column would change.
"""


def json_decoder(kinds: Mapping[str, Any], *, is_record: bool) -> Decode:
    """Return how to decode values for columns of these Arrow types: a record by its fields, any
    other value by its one type.

    The function raises ``InvalidArgument`` for bytes that do not hold such a value.
    """
    # A float has too few digits for a decimal.
    parse = json.JSONDecoder(
        parse_float=Decimal if any("decimal" in str(kind) for kind in kinds.values()) else None
    ).decode
    fits = {name: fit for name, kind in kinds.items() if (fit := _fit_of(kind)) is not None}

    def decode(data: bytes) -> Any:
        try:
            found = parse(data.decode())
        except ValueError as error:
            raise InvalidArgument(
                f"the message is not JSON ({error}): read it with data()"
            ) from None
        if not is_record:
            return _fitted("value", next(iter(fits.values())), found) if fits else found
        if not isinstance(found, dict):
            raise InvalidArgument(f"it is no object of JSON but {type(found).__name__}")
        for name, fit in fits.items():
            if name in found:
                found[name] = _fitted(name, fit, found[name])
        return found

    return decode


def _fitted(name: str, fit: _Fit, value: Any) -> Any:
    try:
        return None if value is None else fit(value)
    except (ValueError, TypeError, ArithmeticError, AttributeError) as error:
        raise InvalidArgument(f"column {name!r}: {error}") from None


def _fit_of(kind: Any) -> _Fit | None:
    """Return the conversion; ``None`` where Arrow accepts JSON's values unchanged."""
    for is_kind, fit in _FITS:
        if is_kind(kind):
            return fit
    if pa.types.is_struct(kind):
        fits = {field.name: each for field in kind if (each := _fit_of(field.type)) is not None}
        return _of_struct(fits) if fits else None
    if pa.types.is_list(kind) and (each := _fit_of(kind.value_type)) is not None:
        return _of_list(each)
    if pa.types.is_map(kind) and (each := _fit_of(kind.item_type)) is not None:
        return _of_map(each)
    return None


def _of_struct(fits: Mapping[str, _Fit]) -> _Fit:
    return lambda value: {
        **value,
        **{name: _fitted(name, fits[name], value[name]) for name in fits if name in value},
    }


def _of_list(fit: _Fit) -> _Fit:
    return lambda values: [None if value is None else fit(value) for value in values]


def _of_map(fit: _Fit) -> _Fit:
    return lambda pairs: {
        key: None if value is None else fit(value) for key, value in pairs.items()
    }


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool | float):
        raise TypeError(f"here stands {value!r}, which is no decimal number")
    return Decimal(value)


def _whole(value: Any) -> Any:
    if isinstance(value, float | Decimal):
        if value != int(value):
            raise ValueError(f"{value} is no whole number")
        return int(value)
    return value


def _float(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


_FITS: Final[tuple[tuple[Callable[[Any], bool], _Fit], ...]] = (
    (pa.types.is_decimal, _decimal),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _float),
)
