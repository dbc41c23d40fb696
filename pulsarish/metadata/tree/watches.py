"""The callbacks of one client of the tree, by path: the registry of the watches that are armed at
the server.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Watch", "WatchEntry", "WatchTable"]

Watch = Callable[[str], None]


class WatchEntry:
    """The callbacks that wait on one path; armed at the server as one watch."""

    __slots__ = ("callbacks", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.callbacks: dict[Watch, None] = {}

    def fire(self) -> None:
        callbacks, self.callbacks = self.callbacks, {}
        for callback in callbacks:
            callback(self.path)


class WatchTable:
    """Entries by path, for data and existence or for children."""

    def __init__(self) -> None:
        self._entries: dict[str, WatchEntry] = {}

    def add(self, path: str, watch: Watch) -> WatchEntry:
        entry = self._entries.get(path)
        if entry is None:
            entry = self._entries[path] = WatchEntry(path)
        entry.callbacks[watch] = None
        return entry

    def remove(self, path: str, watch: Watch) -> None:
        """Remove a callback whose watch was not armed after all."""
        entry = self._entries.get(path)
        if entry is not None:
            entry.callbacks.pop(watch, None)
            if not entry.callbacks:
                del self._entries[path]

    def fire(self, path: str) -> None:
        entry = self._entries.pop(path, None)
        if entry is not None:
            entry.fire()

    def fire_entry(self, entry: WatchEntry) -> None:
        """Call the callbacks of an armed watch that fired.

        An entry that fired before has none left.
        """
        if self._entries.get(entry.path) is entry:
            del self._entries[entry.path]
        entry.fire()

    def fire_all(self) -> None:
        entries, self._entries = self._entries, {}
        for entry in entries.values():
            entry.fire()
