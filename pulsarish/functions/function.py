"""The interface of a function."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pulsarish.functions.context import Context

__all__ = ["Function"]


class Function:
    """Processes messages; a program writes a subclass."""

    @abstractmethod
    def process(self, input: Any, context: Context) -> Any:  # noqa: A002  # the official name
        """Return what to publish for one message; ``None``: nothing."""
        raise NotImplementedError
