"""Validate values from outside against a type.

Errors name the field, the value that was found and the allowed values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from pulsarish.model.errors import InvalidArgument, Malformed

__all__ = ["value_of"]

_AT: Final = re.compile(
    r"(?P<what>.*?)(?: - at `(?:\$(?P<path>[^`]*)|key in \$(?P<keys>[^`]*))`)?", re.DOTALL
)
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")
_OTHER_FORM: Final = re.compile(r", got `|unknown field|missing required field|Invalid enum value")
_SHOWN_MAX: Final = 80


def value_of(kind: Any, raw: Any, name: str) -> Any:
    """Return ``raw``, a decoded JSON value, as the type ``kind``.

    ``name`` names the whole value in errors.

    Raises ``Malformed`` for a value of another form, ``InvalidArgument`` for a value that is out of
    range or contradicts another one.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        match = _AT.fullmatch(str(error))
        assert match is not None
        what = match["what"]
        path = match["path"] or match["keys"] or ""
        found = raw
        for word, index in _STEP.findall(path):
            if isinstance(found, Mapping) and word in found:
                found = found[word]
            elif isinstance(found, list) and index:
                found = found[int(index)]
        shown = msgspec.json.encode(found).decode()
        if len(shown) > _SHOWN_MAX:
            shown = shown[:_SHOWN_MAX] + "..."
        refusal = Malformed if _OTHER_FORM.search(what) else InvalidArgument
        if what.startswith("Invalid enum value"):
            what = f"{what}; it must be {_choices(kind, path, keys=match['keys'] is not None)}"
        where = f"{name}{path}" if path else name.removesuffix(" $")
        raise refusal(f"{where}: {what.replace('`', '')}; it is {shown}") from None


def _choices(kind: Any, path: str, *, keys: bool) -> str:
    """Return the allowed words at a path of a type, or the allowed keys of the map there."""
    info = inspect.type_info(kind)
    for word, _ in _STEP.findall(path):
        if isinstance(info, inspect.StructType):
            info = next(field.type for field in info.fields if field.encode_name == word)
        elif isinstance(info, inspect.DictType):
            info = info.value_type
        elif isinstance(info, inspect.VarTupleType | inspect.ListType):
            info = info.item_type
    if keys and isinstance(info, inspect.DictType):
        info = info.key_type
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    return " or ".join(
        str(value)
        for each in kinds
        if isinstance(each, inspect.LiteralType)
        for value in each.values
    )
