"""Write what the nodes of a simulation log into its trace.

Each line has the name of its process. Nothing goes to the screen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from pulsarish.sim.world.loop import current_process

__all__ = ["logs_into"]

_ROOT: Final = "pulsarish"
_FIELDS: Final = "pulsarish_fields"


class _ToTrace(logging.Handler):
    def __init__(self, trace: Callable[[str], None], level: int) -> None:
        super().__init__(level)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, object] = getattr(record, _FIELDS, {})
        said = " ".join(f"{key}={value}" for key, value in fields.items())
        raised = f" ({record.exc_info[1]!r})" if record.exc_info else ""
        self._trace(
            f"log {current_process.get() or 'scenario'} {record.name.removeprefix(_ROOT + '.')}: "
            f"{record.getMessage()} {said}{raised}"
        )


@contextmanager
def logs_into(trace: Callable[[str], None], level: int = logging.INFO) -> Generator[None]:
    """Let all loggers of the program write to ``trace`` inside this block."""
    root = logging.getLogger(_ROOT)
    handler = _ToTrace(trace, level)
    was = root.handlers[:], root.level, root.propagate
    root.handlers[:], root.propagate = [handler], False
    root.setLevel(level)
    try:
        yield
    finally:
        root.handlers[:], root.propagate = was[0], was[2]
        root.setLevel(was[1])
