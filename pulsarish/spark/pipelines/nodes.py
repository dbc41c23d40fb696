"""A pipeline's file as YAML nodes with their lines, with ``${parameters}`` substituted.

Accepts only what a pipeline needs of YAML: mappings, lists and scalars. Aliases and tags are
rejected: parameters do the same visibly, and with aliases a small file could expand to a huge one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from pulsarish.model.errors import ConfigError

__all__ = [
    "InvalidPipeline",
    "Mistake",
    "Node",
    "Reading",
    "compose",
    "entries",
    "near",
    "substitute",
]

Node = Any
"""A PyYAML node; its types are not checked."""

FILE_BYTES_MAX: Final = 1 << 20
_PARAMETER: Final = re.compile(r"\$(\$\{|\{([^}]*)\})")
_TAGS: Final = "tag:yaml.org,2002:"
_KNOWN_TAGS: Final = frozenset(
    _TAGS + word
    for word in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")
)
_SHOWN_MAX: Final = 80


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    line: int
    """From 1."""
    text: str


class InvalidPipeline(ConfigError):
    """The file is rejected.

    ``mistakes`` has all that were found; the text has a line for each, ``file:line: what``.
    """

    def __init__(self, text: str, mistakes: Sequence[Mistake] = ()) -> None:
        super().__init__(text)
        self.mistakes = tuple(mistakes)


@dataclass(slots=True)
class Reading:
    """Mistakes and warnings found while a file is read."""

    file: str
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[Mistake] = field(default_factory=list)

    def wrong(self, at: Node | int, text: str) -> None:
        """Record a mistake. ``at``: its node or line."""
        mistake = Mistake(at if isinstance(at, int) else line_of(at), text)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)

    def warn(self, line: int, text: str) -> None:
        self.warnings.append(Mistake(line, text))

    def finish(self) -> None:
        """Raise ``InvalidPipeline`` when there were mistakes."""
        if self.mistakes:
            found = sorted(self.mistakes)
            raise InvalidPipeline(
                "\n".join(f"{self.file}:{each.line}: {each.text}" for each in found), found
            )


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Node, index: object) -> Node:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None,
                None,
                f"alias *{event.anchor}: say it twice, or use a parameter",
                event.start_mark,
            )
        return super().compose_node(parent, index)


def line_of(node: Node) -> int:
    """Return the first line of a node's content: for a block, the line after its ``|``."""
    block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    return int(node.start_mark.line) + (2 if block else 1)


def compose(text: str, reading: Reading) -> Node | None:
    """Return the root of the file, a mapping; None, with a recorded mistake, when there is none."""
    if len(text.encode()) > FILE_BYTES_MAX:
        reading.wrong(1, f"the file has more than {FILE_BYTES_MAX:,} bytes")
        return None
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f"{error.context}, " if error.context else ""
        reading.wrong(mark.line + 1 if mark else 1, f"this is no YAML: {context}{error.problem}")
        return None
    except yaml.YAMLError as error:
        reading.wrong(1, f"this is no YAML: {' '.join(str(error).split())}")
        return None
    except RecursionError:
        reading.wrong(1, "the file nests too deeply")
        return None
    if not isinstance(root, yaml.MappingNode):
        reading.wrong(1, "a pipeline is a mapping with name, sources, steps and sinks")
        return None
    return root


def entries(node: Node, path: str, reading: Reading) -> dict[str, tuple[Node, Node]]:
    """Return key and value nodes of a mapping by key.

    Another node, and a repeated key, are mistakes.
    """
    if _is_null(node):
        return {}
    if not isinstance(node, yaml.MappingNode):
        reading.wrong(node, f"{path}: here stands {shown(node)}; it must be a mapping (key: value)")
        return {}
    found: dict[str, tuple[Node, Node]] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            reading.wrong(key, f"{path}: a key must be a word")
        elif key.value in found:
            reading.wrong(
                key,
                f"{path}: {key.value} stands here a second time; the first is on line "
                f"{line_of(found[key.value][0])}",
            )
        else:
            found[key.value] = (key, value)
    return found


def items(node: Node) -> list[Node] | None:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else None


def scalar(node: Node) -> str | None:
    """Return the text of a scalar; None for another node, and for null."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) and not _is_null(node) else None


def _is_null(node: Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAGS}null"


def shown(node: Node) -> str:
    """Describe a node in a few words, for a message."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if _is_null(node):
        return "nothing"
    text = str(node.value)
    return f'"{text[:_SHOWN_MAX]}..."' if len(text) > _SHOWN_MAX else f'"{text}"'


def near(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests a similar known word, after a space; empty when there is
    none.
    """
    found = difflib.get_close_matches(word, list(known), 3)
    return f" Did you mean {' or '.join(found)}?" if found else ""


def substitute(node: Node, values: Mapping[str, str], reading: Reading) -> None:
    """Substitute parameters for ``${name}`` everywhere below a node.

    ``$${`` means ``${`` itself.
    """
    if node.tag not in _KNOWN_TAGS:
        reading.wrong(node, f"the tag {node.tag.removeprefix(_TAGS)} is not used in pipelines")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            substitute(key, values, reading)
            substitute(value, values, reading)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            substitute(value, values, reading)
    elif "$" in node.value:
        node.value = _PARAMETER.sub(lambda match: _value(match, node, values, reading), node.value)


def _value(match: re.Match[str], node: Node, values: Mapping[str, str], reading: Reading) -> str:
    name = match[2]
    if name is None:
        return "${"
    if name not in values:
        line = line_of(node)
        if node.style in ("|", ">"):
            line += node.value.count("\n", 0, match.start())
        declared = f"declared are {', '.join(values)}." if values else "none is declared."
        reading.wrong(
            line, f"${{{name}}}: there is no parameter {name!r}; {declared}{near(name, values)}"
        )
        return match[0]
    return values[name]
