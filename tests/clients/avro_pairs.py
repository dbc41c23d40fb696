"""Definitions of Avro drawn from a seed: a schema, and others that a few changes made of it."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any, Final

__all__ = ["drawn_versions"]

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_DEFAULTS: Final[dict[str, Any]] = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 8,
    "float": 1.5,
    "double": 2.5,
    "bytes": "b",
    "string": "s",
    "array": [],
    "map": {},
    "fixed": "1234",
}
_FIELDS: Final = ("a", "b", "c", "d")
_NAMES: Final = ("R", "S", "T", "U")
_NAMESPACES: Final = ("", "", "", "x", "y.z")
_SYMBOLS: Final = ("A", "B", "C", "D")
_DEPTH_MAX: Final = 3


class _Drawing:
    """Definitions of one drawing have few names, so that they meet each other."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._named: dict[str, dict[str, Any]] = {}
        self._open: set[str] = set()

    def type(self, depth: int) -> Any:
        kind = self._chance.choice(
            ["primitive"] * 4
            + ["record"] * 3
            + ["union"] * 3
            + ["enum", "fixed", "array", "map", "named"]
        )
        if kind == "named" and self._named:
            return self._chance.choice(sorted(self._named))
        if depth >= _DEPTH_MAX and kind in ("record", "union", "array", "map"):
            kind = "primitive"
        match kind:
            case "record" | "enum" | "fixed":
                return self._definition(kind, depth)
            case "array":
                return {"type": "array", "items": self.type(depth + 1)}
            case "map":
                return {"type": "map", "values": self.type(depth + 1)}
            case "union":
                return self._union(depth)
            case _:
                return self._chance.choice(_PRIMITIVES)

    def _definition(self, kind: str, depth: int) -> Any:
        name, namespace = self._chance.choice(_NAMES), self._chance.choice(_NAMESPACES)
        full = f"{namespace}.{name}" if namespace else name
        if full in self._named or full in self._open:
            return full if full in self._named else self._chance.choice(_PRIMITIVES)
        # An empty namespace is written, so that a type has the same full name wherever it stands.
        made: dict[str, Any] = {"type": kind, "name": name, "namespace": namespace}
        if self._chance.random() < 0.15:
            made["aliases"] = [self._chance.choice([*_NAMES, "x.R", "y.z.S"])]
        self._open.add(full)
        if kind == "record":
            if self._chance.random() < 0.3:
                self._named[full] = made  # its fields may name it
            made["fields"] = [
                self._field(name, depth)
                for name in self._chance.sample(_FIELDS, self._chance.randint(0, 3))
            ]
        elif kind == "enum":
            made["symbols"] = self._chance.sample(_SYMBOLS, self._chance.randint(1, 3))
        else:
            made["size"] = self._chance.choice([4, 4, 8])
        self._open.discard(full)
        self._named[full] = made
        return made

    def _field(self, name: str, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "type": self.type(depth + 1)}
        if self._chance.random() < 0.1:
            made["aliases"] = [self._chance.choice(_FIELDS)]
        if self._chance.random() < 0.5:
            found, value = self.default(made["type"])
            if found:
                made["default"] = value
        return made

    def default(self, kind: Any) -> tuple[bool, Any]:
        """A default of a type's own, as Avro for Java asks for it where it copies a writer's
        fields.
        """
        if isinstance(kind, list):
            return self.default(kind[0]) if kind else (False, None)
        name = kind if isinstance(kind, str) else kind["type"]
        if name in _DEFAULTS:
            return True, _DEFAULTS[name]
        named = self._named.get(name) if isinstance(kind, str) else kind
        if named is not None and named["type"] == "enum":
            return True, named["symbols"][0]
        return False, None

    def _union(self, depth: int) -> list[Any]:
        branches: list[Any] = []
        seen: set[str] = set()
        for _ in range(self._chance.randint(1, 4)):
            branch = self.type(depth + 1)
            if isinstance(branch, list):
                continue
            key = branch if isinstance(branch, str) else branch["type"]
            if key in ("record", "enum", "fixed"):
                key = (
                    f"{branch['namespace']}.{branch['name']}"
                    if branch["namespace"]
                    else branch["name"]
                )
            if key not in seen:
                seen.add(key)
                branches.append(branch)
        return branches


def _nodes(definition: Any) -> list[Any]:
    found = [definition]
    below = (
        definition
        if isinstance(definition, list)
        else list(definition.values())
        if isinstance(definition, dict)
        else []
    )
    for each in below:
        if isinstance(each, dict | list):
            found.extend(_nodes(each))
    return found


def _changed(chance: random.Random, definition: Any) -> Any:
    """The same with one change that people make: a name, a type, a field, a symbol, a default, an
    alias, an order.
    """
    made = deepcopy(definition)
    nodes = [each for each in _nodes(made) if isinstance(each, list) or "type" in each]
    if not nodes:
        return chance.choice(_PRIMITIVES)
    node = chance.choice(nodes)
    if isinstance(node, list):
        chance.shuffle(node)
        return made
    match chance.choice(
        ["name", "namespace", "type", "drop", "add", "default", "alias", "symbols", "size", "order"]
    ):
        case "name" if "name" in node:
            node["name"] = chance.choice(
                _NAMES if "fields" in node or "symbols" in node or "size" in node else _FIELDS
            )
        case "namespace" if "namespace" in node:
            node["namespace"] = chance.choice(_NAMESPACES)
        case "type" if isinstance(node["type"], str) and node["type"] in _PRIMITIVES:
            node["type"] = chance.choice(
                [*_PRIMITIVES, ["null", node["type"]], [node["type"], "null"], [*_PRIMITIVES]]
            )
            node.pop("default", None)
        case "drop" if node.get("fields"):
            node["fields"].pop(chance.randrange(len(node["fields"])))
        case "add" if "fields" in node:
            kind = chance.choice(_PRIMITIVES)
            given = {} if chance.random() < 0.4 else {"default": _DEFAULTS[kind]}
            node["fields"].append({"name": chance.choice([*_FIELDS, "e"]), "type": kind, **given})
        case "default" if "name" in node and "namespace" not in node:
            node.pop("default", None)
        case "alias" if "name" in node:
            node["aliases"] = [chance.choice(_NAMES if "namespace" in node else _FIELDS)]
        case "symbols" if "symbols" in node:
            node["symbols"] = chance.sample(_SYMBOLS, chance.randint(1, 4))
        case "size" if "size" in node:
            node["size"] = chance.choice([4, 8])
        case "order" if node.get("fields"):
            chance.shuffle(node["fields"])
        case _:
            pass
    return made


def drawn_versions(seed: int) -> list[str]:
    """Two to four definitions in JSON. What is no definition of Avro may be among them."""
    chance = random.Random(seed)
    made = [_Drawing(chance).type(0 if chance.random() < 0.7 else 1)]
    for _ in range(chance.randint(1, 3)):
        if chance.random() < 0.15:
            made.append(_Drawing(chance).type(0))
            continue
        following = made[-1]
        for _ in range(chance.randint(1, 3)):
            following = _changed(chance, following)
        made.append(following)
    return [json.dumps(each) for each in made]
