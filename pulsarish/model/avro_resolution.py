"""Avro's schema resolution as Apache Pulsar applies it: whether data written with one definition
can be read with another.

Apache Pulsar uses the resolver of Avro for Java, which differs from Avro's specification. The
differences are kept, so that a topic accepts the same schemas here:

* The name of a record is compared only where a union chooses a branch. Enums and fixed types are
  compared by name without namespace.
* The reader's enum may miss symbols of the writer: only the value fails, when it is read.
* A union uses the first branch that fits. A record without a branch of its full name uses a branch
  with the same structure.
* A default counts where the reader needs it. It must then be a value of the field's type (of a
  union's first branch).

Definitions come from outside, so depth and work are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pulsarish.model.avro import DEPTH_MAX, AvroField, AvroType, unqualified
from pulsarish.model.errors import InvalidSchema

__all__ = ["COMPARISONS_MAX", "mismatch"]

COMPARISONS_MAX: Final = 20_000
"""Pairs of types that one check may compare.

Two unions of a thousand records are not compared pair by pair.
"""

# The reader's type, and the other types that it can read.
_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_NUMBERS: Final = frozenset({"int", "long", "float", "double"})
_TEXTS: Final = frozenset({"string", "bytes", "fixed"})


def mismatch(reader: AvroType, writer: AvroType) -> str:
    """Return why data written as ``writer`` cannot be read as ``reader``; empty when it can be
    read.

    Raises ``InvalidSchema`` for definitions that need more than ``COMPARISONS_MAX`` comparisons, or
    are nested too deeply to be compared.
    """
    try:
        resolution = _Resolution()
        return _first_error(
            resolution.resolve(reader, _Renaming(reader).renamed(writer, resolution.count), "")
        )
    except _UnreadableError as error:
        return str(error)
    except RecursionError:
        raise InvalidSchema(
            "comparing the schemas goes too deep: types that refer to each other form a chain "
            "that is too long"
        ) from None


class _UnreadableError(Exception):
    """The resolution cannot continue: Avro for Java throws here instead of recording an error for
    one part.
    """


@dataclass(slots=True, eq=False)
class _Outcome:
    """The result of one pair. An error counts only where the result of the whole depends on it."""

    error: str = ""
    parts: list[_Outcome] = field(default_factory=list)


def _first_error(outcome: _Outcome) -> str:
    seen: set[int] = set()
    waiting = [outcome]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        if each.error:
            return each.error
        seen.add(id(each))
        waiting.extend(reversed(each.parts))
    return ""


class _Resolution:
    def __init__(self) -> None:
        self._records: dict[tuple[int, int], _Outcome] = {}
        self._left = COMPARISONS_MAX

    def count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise InvalidSchema(f"comparing the schemas takes more than {COMPARISONS_MAX} steps")

    def resolve(self, reader: AvroType, writer: AvroType, where: str) -> _Outcome:
        self.count()
        if writer.kind == "union":
            if _Likeness(self.count).alike(reader, writer):
                return _Outcome()
            return _Outcome(parts=[self.resolve(reader, branch, where) for branch in writer.parts])
        if reader.kind == "union":
            branch = self._branch(reader, writer, where)
            if branch is None:
                return _Outcome(
                    f"{where or 'the value'}: none of {reader.shown} reads {writer.shown}"
                )
            return _Outcome(parts=[self.resolve(branch, writer, where)])
        if reader.kind != writer.kind:
            if writer.kind in _PROMOTIONS.get(reader.kind, frozenset()):
                return _Outcome()
            return _Outcome(f"{where or 'the value'}: {reader.shown} does not read {writer.shown}")
        match reader.kind:
            case "record":
                return self._record(reader, writer, where)
            case "enum" | "fixed" if unqualified(reader.name) != unqualified(writer.name):
                return _Outcome(
                    f"{where or 'the value'}: {reader.shown} has another name than {writer.shown}"
                )
            case "fixed" if reader.size != writer.size:
                return _Outcome(
                    f"{where or 'the value'}: {reader.shown} has {reader.size} bytes, not "
                    f"{writer.size}"
                )
            case "array" | "map":
                return _Outcome(
                    parts=[self.resolve(reader.parts[0], writer.parts[0], f"{where}[]")]
                )
            case _:
                return _Outcome()

    def _record(self, reader: AvroType, writer: AvroType, where: str) -> _Outcome:
        """Compare two records once.

        Where the same pair recurs inside itself, the first result is used.
        """
        pair = (id(reader), id(writer))
        known = self._records.get(pair)
        if known is not None:
            return known
        made = self._records[pair] = _Outcome()
        readable = {each.name: each for each in reader.fields}
        for each in writer.fields:
            if (match := readable.get(each.name)) is not None:
                made.parts.append(
                    self.resolve(
                        match.type, each.type, f"{where}.{each.name}" if where else each.name
                    )
                )
        written = {each.name for each in writer.fields}
        for each in reader.fields:
            if each.name in written:
                continue
            place = f"{where}.{each.name}" if where else each.name
            if not each.has_default:
                failed = f"{place}: the field is missing where it was written, and has no default"
                made = self._records[pair] = _Outcome(failed)
                return made
            self._check_default(each.type, each.default, place)
        return made

    def _check_default(self, kind: AvroType, value: Any, place: str) -> None:
        self.count()
        match kind.kind:
            case "record":
                given = value if isinstance(value, dict) else {}
                for each in kind.fields:
                    if each.name not in given and not each.has_default:
                        raise _UnreadableError(
                            f"{place}: the default of {kind.shown} lacks the field {each.name}"
                        )
                    self._check_default(
                        each.type, given.get(each.name, each.default), f"{place}.{each.name}"
                    )
            case "union":
                if not kind.parts:
                    raise _UnreadableError(f"{place}: an empty union has no default")
                self._check_default(kind.parts[0], value, place)
            case "array":
                for each in (
                    value
                    if isinstance(value, list)
                    else value.values()
                    if isinstance(value, dict)
                    else ()
                ):
                    self._check_default(kind.parts[0], each, f"{place}[]")
            case "map":
                for each in value.values() if isinstance(value, dict) else ():
                    self._check_default(kind.parts[0], each, f"{place}[]")
                if isinstance(value, list) and value:
                    raise _UnreadableError(f"{place}: the default is a list, not a map")
            case _:
                if not _fits(kind, value):
                    raise _UnreadableError(
                        f"{place}: the default {value!r} is not one of {kind.shown}"
                    )

    def _branch(self, reader: AvroType, writer: AvroType, where: str) -> AvroType | None:
        """Return the branch of a reader's union that accepts a writer's type which is not a
        union.
        """
        alike: AvroType | None = None
        for branch in reader.parts:
            if branch.kind != writer.kind:
                continue
            if not branch.name or branch.name == writer.name:
                return branch
            takes_structure = branch.kind == "record" and not self._fails_at_once(
                branch, writer, where
            )
            if takes_structure and (
                alike is None or unqualified(branch.name) == unqualified(writer.name)
            ):
                alike = branch
        if alike is not None:
            return alike
        return next(
            (
                branch
                for branch in reader.parts
                if writer.kind in _PROMOTIONS.get(branch.kind, frozenset())
            ),
            None,
        )

    def _fails_at_once(self, reader: AvroType, writer: AvroType, where: str) -> bool:
        """Whether two records differ in themselves or in a field.

        Ignores differences below a field.
        """
        outcome = self._record(reader, writer, where)
        return bool(outcome.error) or any(each.error for each in outcome.parts)


class _Likeness:
    """Whether two types have the same parts in the same order.

    ``exact``: also with the same namespaces and defaults.
    """

    def __init__(self, count: Callable[[], None], *, exact: bool = False) -> None:
        self._count = count
        self._exact = exact
        self._records: dict[tuple[int, int], bool] = {}

    def alike(self, one: AvroType, other: AvroType) -> bool:
        self._count()
        if one.kind != other.kind or self._name(one) != self._name(other):
            return False
        match one.kind:
            case "fixed":
                return one.size == other.size
            case "enum":
                return one.symbols == other.symbols
            case "record":
                return self._records_alike(one, other)
            case _:
                pairs = zip(one.parts, other.parts, strict=False)
                return len(one.parts) == len(other.parts) and all(
                    self.alike(left, right) for left, right in pairs
                )

    def _records_alike(self, one: AvroType, other: AvroType) -> bool:
        pair = (id(one), id(other))
        if pair not in self._records:
            self._records[pair] = True  # where the same pair recurs inside itself
            pairs = zip(one.fields, other.fields, strict=False)
            self._records[pair] = len(one.fields) == len(other.fields) and all(
                left.name == right.name
                and (not self._exact or left.default == right.default)
                and self.alike(left.type, right.type)
                for left, right in pairs
            )
        return self._records[pair]

    def _name(self, kind: AvroType) -> str:
        return kind.name if self._exact else unqualified(kind.name)


def _fits(kind: AvroType, value: Any) -> bool:
    if kind.kind in _NUMBERS:
        if isinstance(value, str) and kind.kind in ("float", "double"):
            return _is_number(value)
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind.kind in _TEXTS:
        return isinstance(value, str)
    if kind.kind == "enum":
        return value in kind.symbols
    return isinstance(value, bool) if kind.kind == "boolean" else value is None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_valid_default(kind: AvroType, value: Any, depth: int = 0) -> bool:
    """Whether a default is valid by the strict rules.

    They apply where Avro for Java copies a field to give it the reader's name.
    """
    if depth > DEPTH_MAX:
        return False
    match kind.kind:
        case "int" | "long":
            limit = 2 ** (31 if kind.kind == "int" else 63)
            return (
                isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
            )
        case "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string" | "bytes" | "enum" | "fixed":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list) and all(
                _is_valid_default(kind.parts[0], each, depth + 1) for each in value
            )
        case "map":
            return isinstance(value, dict) and all(
                _is_valid_default(kind.parts[0], each, depth + 1) for each in value.values()
            )
        case "union":
            return bool(kind.parts) and _is_valid_default(kind.parts[0], value, depth + 1)
        case "record":
            return isinstance(value, dict) and all(
                _is_valid_default(each.type, value.get(each.name, each.default), depth + 1)
                for each in kind.fields
            )
        case _:
            return isinstance(value, bool) if kind.kind == "boolean" else value is None


class _Renaming:
    """Renames a writer's types and fields to the names in the reader whose aliases they are.

    As in Avro for Java, not where the two are equal.
    """

    def __init__(self, reader: AvroType) -> None:
        self._reader = reader
        self._types: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}
        self._made: dict[int, AvroType] = {}
        for each in _named_types(reader):
            self._types.update(dict.fromkeys(each.aliases, each.name))
            for part in each.fields:
                for alias in part.aliases:
                    self._fields.setdefault(each.name, {})[alias] = part.name

    def renamed(self, writer: AvroType, count: Callable[[], None]) -> AvroType:
        """Return the renamed type.

        Raises ``_UnreadableError`` when two names of the writer become one, or a field has a
        default that is not of its type.
        """
        if not (self._types or self._fields) or _Likeness(count, exact=True).alike(
            self._reader, writer
        ):
            return writer
        return self._renamed(writer)

    def _renamed(self, writer: AvroType) -> AvroType:
        found = self._made.get(id(writer))
        if found is not None:
            return found
        made = self._made[id(writer)] = replace(
            writer, name=self._types.get(writer.name, writer.name)
        )
        made.parts = [self._renamed(each) for each in writer.parts]
        names = self._fields.get(made.name, {})
        made.fields = [
            AvroField(
                names.get(each.name, each.name), self._renamed(each.type), default=each.default
            )
            for each in writer.fields
        ]
        seen = (
            [each.name for each in made.fields]
            if made.kind == "record"
            else [each.name or each.kind for each in made.parts]
        )
        if len(set(seen)) < len(seen):
            raise _UnreadableError(
                f"{made.shown}: the reader's aliases give two parts of what was written one name"
            )
        for each in writer.fields:
            if each.has_default and not _is_valid_default(each.type, each.default):
                raise _UnreadableError(
                    f"{each.name}: the default {each.default!r} is not one of {each.type.shown}"
                )
        return made


def _named_types(start: AvroType) -> Iterator[AvroType]:
    """Yield every record, enum and fixed type of a definition once, in the order of the
    definition.
    """
    seen: set[int] = set()
    waiting = [start]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each.name:
            yield each
        waiting.extend(reversed([*each.parts, *(part.type for part in each.fields)]))
