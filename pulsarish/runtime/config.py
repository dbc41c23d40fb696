"""Typed configuration: one ``msgspec.Struct`` for each process.

A TOML file sets it, then the environment, then ``key=value`` overrides.

A wrong value is rejected at start. The error names the key, the value, what is allowed and where
the value came from. An unknown key is an error that names the nearest known one: otherwise a
misspelt limit would silently keep its default, and be found in the middle of an incident.

A class describes its options itself: ``ack_quorum: Annotated[int, Meta(ge=1, description="...")] =
2``. Nested structs are tables in TOML, dots in overrides (``metadata.url=...``) and double
underscores in the environment (``PULSARISH_BROKER__METADATA__URL``). An optional method
``validate(self) -> None`` of the class checks options that must fit each other. It raises
``ConfigError``.

An option with ``extra=DYNAMIC`` can change while the process runs. Such an option is at the top
level, and whatever uses it reads it from the configuration at each use, or is told of the change.
"""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from pulsarish.model.errors import ConfigError

__all__ = [
    "DYNAMIC",
    "Option",
    "check",
    "describe",
    "dynamic_value",
    "load",
    "print_config",
    "text_of",
]

T = TypeVar("T", bound=msgspec.Struct)

# options that are host:port; empty when that listener may be left out
_LISTENING = tuple(
    f"{port}_address{tls}"
    for port in ("listen", "http", "pulsar", "connect")
    for tls in ("", "_tls")
)
_ADVERTISED = "advertised_address"  # host or host:port
_PORT_MAX = 65535
_INT_MAX = (1 << 63) - 1  # a far greater one cannot be multiplied with seconds any more
_REQUIRED = "(required)"
_UNSET = "(not set)"

DYNAMIC: Final[dict[str, object]] = {"dynamic": True}
"""What ``Meta(extra=DYNAMIC)`` of an option says: it can change while the process runs."""


class Option(msgspec.Struct, frozen=True):
    """One option of a process, as the documentation shows it."""

    name: str
    """Name; dotted for a nested struct."""
    type: str
    default: str
    """As TOML; ``(required)`` or ``(not set)`` where there is none."""
    limits: str
    """Allowed values beyond the type; empty when there is no limit."""
    meaning: str
    is_dynamic: bool = False
    """Whether it can change while the process runs."""


class _Field(msgspec.Struct, frozen=True):
    path: tuple[str, ...]
    annotation: Any
    info: inspect.Type
    default: object
    """A value, or ``msgspec.NODEFAULT``."""
    meaning: str
    is_dynamic: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)


class _Given(msgspec.Struct, frozen=True):
    """A value that an operator set.

    ``text``: still a string, to be converted to the field's type.
    """

    value: object
    source: str
    text: bool


def load(
    cls: type[T],
    *,
    defaults: Mapping[str, object] | None = None,
    toml_path: str | None = None,
    environ: Mapping[str, str],
    prefix: str,
    overrides: Sequence[str] = (),
    flag: str = "--set",
    listing: str = "--print-config",
) -> T:
    """Return the configuration of a process.

    Later sources win: the class, ``defaults``, file, environment, overrides.

    Args:
        cls: the class of the configuration.
        defaults: values that replace those of the class, by dotted name.
        toml_path: a file to read, or none.
        environ: the environment. Only names that begin with ``prefix`` matter, and all of those
            must be known.
        prefix: such as ``PULSARISH_BROKER__``.
        overrides: ``key=value`` each, from ``flag``.
        flag: the option of the command line that gave the overrides, for errors.
        listing: the option or command that lists all options, for errors.

    Raises ``ConfigError``.
    """
    fields = {field.name: field for field in _fields(cls)}
    given = {
        name: _Given(value, "the command's defaults", text=False)
        for name, value in (defaults or {}).items()
    }
    if toml_path is not None:
        given |= dict(_from_toml(toml_path, fields))
    given |= dict(_from_environ(environ, prefix))
    given |= dict(_from_overrides(overrides, flag))
    tree: dict[str, Any] = {}
    for name, value in given.items():
        field = fields.get(name)
        if field is None:
            raise ConfigError(_unknown(name, value, fields, listing))
        branch = tree
        for part in field.path[:-1]:
            branch = branch.setdefault(part, {})
        branch[field.path[-1]] = _converted(field, value)
    for field in fields.values():
        if field.default is msgspec.NODEFAULT and field.name not in given:
            raise ConfigError(
                f"{field.name} must be set ({_type_text(field.info)}{_limits_suffix(field)}): "
                f"{field.meaning}"
            )
    # Each value was checked together with its source. An error here is a defect in the class
    # itself.
    config = msgspec.convert(tree, cls)
    check(config)
    return config


def dynamic_value(cls: type[msgspec.Struct], name: str, text: str, source: str) -> object:
    """Return the value of an option that can change while the process runs.

    It is checked as at start, but for its fit with other options: see ``check``.

    Args:
        text: the value as it would stand in the environment.
        source: where the value came from, for errors.

    Raises ``ConfigError`` for an unknown option, one that cannot change while the process runs, and
    a value that is refused.
    """
    fields = {field.name: field for field in _fields(cls)}
    field = fields.get(name)
    given = _Given(text, source, text=True)
    if field is None:
        raise ConfigError(_unknown(name, given, fields, "docs/configuration.md"))
    if not field.is_dynamic:
        raise ConfigError(
            f"{name} cannot change while a process runs: set it where the process is started, and "
            "restart it; the options marked dynamic in docs/configuration.md can"
        )
    return _converted(field, given)


def text_of(value: object) -> str:
    """Return the value of an option as the environment would have it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def describe(cls: type[msgspec.Struct]) -> list[Option]:
    """Return every option of ``cls``, in the order of the class."""
    return [
        Option(
            field.name,
            _type_text(field.info),
            _default_text(field.default),
            _limits_text(field.info),
            field.meaning,
            field.is_dynamic,
        )
        for field in _fields(cls)
    ]


def print_config(cls: type[msgspec.Struct]) -> str:
    """Return a TOML file with every option at its default, below its meaning and limits.

    Options without a default are commented out.
    """
    tables: dict[str, list[str]] = {"": []}
    for option in describe(cls):
        table, _, key = option.name.rpartition(".")
        lines = tables.setdefault(table, [])
        lines += [f"# {line}" for line in option.meaning.splitlines()]
        kind = (option.type, option.limits, "dynamic" if option.is_dynamic else "")
        lines.append("# " + ", ".join(part for part in kind if part))
        absent = option.default in (_REQUIRED, _UNSET)
        lines += [f"# {key} =  # {option.default}" if absent else f"{key} = {option.default}", ""]
    text = "\n".join(tables.pop(""))
    for table, lines in tables.items():
        text += f"\n[{table}]\n" + "\n".join(lines)
    return text


# Read the sources.


def _from_toml(path: str, fields: Mapping[str, _Field]) -> Iterator[tuple[str, _Given]]:
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise ConfigError(
            f"the configuration file {path} cannot be read: {error.strerror}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} is not valid TOML: {error}") from None

    def leaves(table: Mapping[str, object], above: str) -> Iterator[tuple[str, _Given]]:
        for key, value in table.items():
            name = f"{above}{key}"
            # A table is a nested struct, unless the option itself is a mapping.
            if isinstance(value, dict) and name not in fields:
                yield from leaves(value, f"{name}.")
            else:
                yield name, _Given(value, f"file {path}", text=False)

    return leaves(content, "")


def _from_environ(environ: Mapping[str, str], prefix: str) -> Iterator[tuple[str, _Given]]:
    for variable, value in sorted(environ.items()):
        if variable.startswith(prefix):
            name = variable.removeprefix(prefix).lower().replace("__", ".")
            yield name, _Given(value, f"environment {variable}", text=True)


def _from_overrides(overrides: Sequence[str], flag: str) -> Iterator[tuple[str, _Given]]:
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"{flag} {override!r} is not of the form key=value")
        yield name.strip(), _Given(value, f"{flag} {name.strip()}=", text=True)


# Check values.


def _converted(field: _Field, given: _Given) -> object:
    value = given.value
    try:
        if isinstance(value, str) and given.text:
            converted = msgspec.convert(
                _unquoted(value, field.info), field.annotation, strict=False
            )
        else:
            converted = msgspec.convert(value, field.annotation)
        if isinstance(converted, float) and not math.isfinite(converted):
            raise msgspec.ValidationError("Expected a finite number")
        if isinstance(converted, int) and converted > _INT_MAX:
            raise msgspec.ValidationError(f"Expected at most {_INT_MAX}")
        if field.path[-1] in _LISTENING and converted:
            _check_address(str(converted))
        elif field.path[-1] == _ADVERTISED and converted:
            _check_advertised(str(converted))
        return converted
    except (msgspec.ValidationError, json.JSONDecodeError) as error:
        allowed = f"allowed: {_type_text(field.info)}{_limits_suffix(field)}"
        raise ConfigError(
            f"{field.name} = {value!r} from {given.source} is refused: {error}; {allowed}"
        ) from None


def _unquoted(text: str, info: inspect.Type) -> object:
    """Convert a string from the environment or the command line where msgspec does not."""
    for kind in _alternatives(info):
        if isinstance(kind, inspect.CollectionType | inspect.VarTupleType | inspect.TupleType):
            return [part.strip() for part in text.split(",")] if text.strip() else []
        if isinstance(kind, inspect.DictType):
            return json.loads(text)
    return text


def _check_address(text: str) -> None:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise msgspec.ValidationError(f"Expected host:port with a port of 0 to {_PORT_MAX}")


def _check_advertised(text: str) -> None:
    host, colon, _ = text.rpartition(":")
    if colon and not text.endswith("]"):
        _check_address(text)
        if ":" in host and not host.startswith("["):
            raise msgspec.ValidationError("Expected an IPv6 address in brackets")


def _unknown(name: str, given: _Given, fields: Mapping[str, _Field], listing: str) -> str:
    # Operators remember the last part of a nested name.
    near = [field for field in fields if field.endswith(f".{name}")] or difflib.get_close_matches(
        name, fields, n=1, cutoff=0.6
    )
    hint = f"did you mean {near[0]}?" if near else f"{listing} lists all options"
    # Without the value: it may be a secret of a misspelt option.
    return f"unknown option {name} from {given.source}: {hint}"


def check(config: msgspec.Struct) -> None:
    """Check that the options fit each other. Raises ``ConfigError``."""
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, msgspec.Struct):
            check(value)
    validate = getattr(config, "validate", None)
    if validate is not None:
        validate()


# Inspect the class.


@cache
def _fields(cls: type[msgspec.Struct]) -> tuple[_Field, ...]:
    """Return the options of a class. A start reads them several times."""
    return tuple(_inspect(cls, ()))


def _inspect(cls: type[msgspec.Struct], above: tuple[str, ...]) -> Iterator[_Field]:
    for field in msgspec.structs.fields(cls):
        info = inspect.type_info(field.type)
        meaning, is_dynamic = "", False
        if isinstance(info, inspect.Metadata):
            meaning = str((info.extra_json_schema or {}).get("description", ""))
            is_dynamic = bool((info.extra or {}).get("dynamic"))
            info = info.type
        path = (*above, field.encode_name)
        if isinstance(info, inspect.StructType):
            yield from _inspect(info.cls, path)
            continue
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield _Field(path, field.type, info, default, meaning, is_dynamic)


def _alternatives(info: inspect.Type) -> Sequence[inspect.Type]:
    if isinstance(info, inspect.Metadata):
        return _alternatives(info.type)
    if isinstance(info, inspect.UnionType):
        return [kind for alternative in info.types for kind in _alternatives(alternative)]
    return (info,)


_TYPE_NAMES: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "text",
    inspect.NoneType: "null",
    inspect.DictType: "mapping",
}


def _type_text(info: inspect.Type) -> str:
    words = []
    for kind in _alternatives(info):
        match kind:
            case inspect.LiteralType(values=values):
                words.append(" | ".join(str(value) for value in values))
            case inspect.EnumType(cls=cls):
                words.append(" | ".join(str(member.value) for member in cls))
            case inspect.CollectionType(item_type=item) | inspect.VarTupleType(item_type=item):
                words.append(f"list of {_type_text(item)}")
            case _:
                words.append(
                    _TYPE_NAMES.get(type(kind), type(kind).__name__.removesuffix("Type").lower())
                )
    return " or ".join(words)


_LIMITS = (
    ("gt", "> {}"),
    ("ge", ">= {}"),
    ("lt", "< {}"),
    ("le", "<= {}"),
    ("multiple_of", "a multiple of {}"),
)
_LENGTHS = (
    ("min_length", "length >= {}"),
    ("max_length", "length <= {}"),
    ("pattern", "matching {}"),
)


def _limits_text(info: inspect.Type) -> str:
    return ", ".join(
        words.format(limit)
        for kind in _alternatives(info)
        for name, words in _LIMITS + _LENGTHS
        if (limit := getattr(kind, name, None)) is not None
    )


def _limits_suffix(field: _Field) -> str:
    limits = _limits_text(field.info)
    return f", {limits}" if limits else ""


def _default_text(value: object) -> str:
    match value:
        case msgspec.NODEFAULT:
            return _REQUIRED
        case None:
            return _UNSET
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return "[" + ", ".join(_default_text(item) for item in value) + "]"
        case dict():
            return (
                "{"
                + ", ".join(
                    f"{json.dumps(str(key))} = {_default_text(item)}" for key, item in value.items()
                )
                + "}"
            )
        case _:
            # Numbers as they are, enumerations by their value.
            return str(getattr(value, "value", value))
