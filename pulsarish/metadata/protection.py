"""Who may use the nodes of a tree that exists."""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.seams import Conflict, ConflictReason, MetadataStore

__all__ = ["set_access_below"]

_PAGE_NODES: Final = 500
_SERVERS_OWN: Final = "/zookeeper"


async def set_access_below(store: MetadataStore, *, everyone: bool) -> int:
    """Give every node of a tree to the logins of the store's session, or to everyone.

    Return how many nodes there are. Raises ``InvalidArgument`` for a tree without servers, and what
    the store raises.
    """
    # Imported here: commands for other trees must not need kazoo.
    from pulsarish.metadata.zookeeper.store import ZooKeeperStore

    if not isinstance(store, ZooKeeperStore):
        raise InvalidArgument(
            "only metadata servers keep access lists: give zk://HOST:PORT/CHROOT or zk+ssl://"
        )
    count, waiting = 0, ["/"]
    while waiting:
        page, waiting = waiting[:_PAGE_NODES], waiting[_PAGE_NODES:]
        count += await store.set_access(page, everyone=everyone)
        listed = await asyncio.gather(*(_children(store, path) for path in page))
        for path, names in zip(page, listed, strict=True):
            below = (f"{path.rstrip('/')}/{name}" for name in names)
            # The servers' own nodes, where the root has no chroot.
            waiting += [each for each in below if each != _SERVERS_OWN]
    return count


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except Conflict as conflict:
        if conflict.reason is not ConflictReason.NO_NODE:
            raise
        return []  # deleted in the meantime
