"""Errors of Spark in a sentence, without plans and stacks of two languages."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["sentence"]

_LINES_MAX: Final = 6
_BEHIND_WORDS: Final = ("JVM stacktrace", "=== Streaming Query", "== SQL", "'", "+-", "\tat ")
# The last line of a traceback: our own errors have the field's names, others follow Python's
# convention.
_PYTHON: Final = re.compile(
    r"(?:pulsarish\.[\w.]+"
    r"|(?!org\.|java\.|scala\.|py4j\.|pyspark\.)[A-Za-z_][\w.]*(?:Error|Exception)): .+"
)
_CAUSE: Final = re.compile(r"Caused by: [\w.$]+: (.+)")


def sentence(error: Exception) -> str:
    """Return the innermost Python error, or the innermost cause in the JVM, or Spark's own text."""
    lines = str(error).splitlines()
    for line in reversed(lines):
        if _PYTHON.fullmatch(line.strip()):
            return line.strip()
    causes = [found[1] for line in lines if (found := _CAUSE.match(line.strip()))]
    if causes:
        return causes[-1]
    words: list[str] = []
    for line in lines:
        if line.startswith(_BEHIND_WORDS) or len(words) == _LINES_MAX:
            break
        if line.strip():
            words.append(line.strip())
    return " ".join(words).removesuffix(";") or type(error).__name__
