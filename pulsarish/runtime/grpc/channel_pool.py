"""The connections that a process keeps open to its peers: one for each address and lane, shared by
its users.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["ChannelKey", "ChannelPool", "PooledChannel"]

ChannelKey = tuple[str, str]
"""Address and lane."""


class PooledChannel:
    """One TCP connection to a peer, for one lane.

    ``stale``: gets no new users, and is closed when its last user leaves.
    """

    __slots__ = ("answered_count", "stale", "users_count")

    def __init__(self) -> None:
        self.users_count = 0
        self.answered_count = 0
        self.stale = False


C = TypeVar("C", bound=PooledChannel)


class ChannelPool(Generic[C]):
    """Counts the users of channels.

    ``close`` is called once for each channel that has no user and gets none.
    """

    def __init__(
        self,
        *,
        idle_max: int,
        make: Callable[[str], C],
        is_usable: Callable[[C], bool],
        close: Callable[[C], None],
    ) -> None:
        self._idle_max = idle_max
        self._make = make
        self._is_usable = is_usable
        self._close = close
        # In order of last use: the first idle one is the longest idle.
        self._channels: dict[ChannelKey, C] = {}

    def enter(self, key: ChannelKey) -> C:
        """Return a channel and count the caller as a user.

        It is new when there is none, or when the existing one cannot be used.
        """
        entry = self._channels.pop(key, None)
        if entry is not None and not self._is_usable(entry):
            self._retire(entry)
            entry = None
        if entry is None:
            entry = self._make(key[0])
        self._channels[key] = entry
        entry.users_count += 1
        return entry

    def leave(self, key: ChannelKey, entry: C, stale: bool) -> None:
        """End the caller's use of a channel. ``stale``: no other user should start on it."""
        entry.users_count -= 1
        assert entry.users_count >= 0, "a channel was left twice"
        if stale and self._channels.get(key) is entry:
            del self._channels[key]
            entry.stale = True
        if entry.users_count == 0:
            if entry.stale:
                self._close(entry)
            else:
                self._close_idle()

    def take_all(self) -> list[C]:
        """Return all channels, for the caller to close. The pool is empty afterwards."""
        channels = list(self._channels.values())
        self._channels.clear()
        for entry in channels:
            entry.stale = True
        return channels

    def _retire(self, entry: C) -> None:
        entry.stale = True
        if entry.users_count == 0:
            self._close(entry)

    def _close_idle(self) -> None:
        idle = [key for key, entry in self._channels.items() if entry.users_count == 0]
        for key in idle[: max(0, len(idle) - self._idle_max)]:
            self._close(self._channels.pop(key))
