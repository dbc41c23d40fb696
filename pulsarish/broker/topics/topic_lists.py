"""Topics of a namespace whose names match a pattern, and watches that report changes.

All watches of a namespace share one listing. It is read again when metadata reports a change, but
not more often than an interval allows. A watch compares only the names that a listing has more or
less than the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from google_crc32c import extend

from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.model.topic_pattern import compile_pattern, plain_name
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, World

__all__ = ["TopicLists", "TopicWatch", "list_hash"]

_log = get_logger("broker.topic_lists")

_INTERVAL_SECONDS: Final = 0.5  # between two listings of a namespace
_AGAIN_SECONDS: Final = 1.0  # after a listing that failed, or that could not be watched


def list_hash(names: Iterable[str]) -> str:
    """Return the hash of names as Apache Pulsar computes it.

    This is the CRC32C of the sorted names with commas between them, its bytes from the lowest in
    hexadecimal.
    """
    return int(extend(0, ",".join(sorted(names)).encode())).to_bytes(4, "little").hex()


Tell = Callable[[Sequence[str], Sequence[str], str], None]


@dataclass(eq=False, slots=True)
class TopicWatch:
    """A watch of a client.

    ``tell`` gets the new names, the removed names, and the hash of all present names.
    """

    namespace: tuple[str, str]
    matches: Callable[[str], bool]
    """Says whether a ``plain_name`` is among those watched."""
    tell: Tell
    names: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class _Space:
    watches: dict[TopicWatch, None] = field(default_factory=dict)
    beginning_count: int = 0
    """Of watches that wait for their first listing."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    names: Mapping[str, str] = field(default_factory=dict)
    """The latest listing: full names, and by each what patterns match."""
    number: int = 0
    """Of the latest listing, in the order in which they began."""
    failure: PulsarishError | None = None
    """Why the listing could not be read again, while it cannot."""


class TopicLists:
    """Lists and watches of topics for one broker."""

    def __init__(
        self,
        world: World,
        records: Records,
        namespaces: Namespaces,
        open_somewhere: Callable[[str, str], Awaitable[list[str]]],
    ) -> None:
        """Create the lists.

        ``open_somewhere`` asks all brokers which non-persistent topics of a namespace they have
        open.
        """
        self._world = world
        self._records = records
        self._namespaces = namespaces
        self._open_somewhere = open_somewhere
        self._spaces: dict[tuple[str, str], _Space] = {}
        self._listings_count = 0
        self._stopped = False

    async def names(self, tenant: str, namespace: str) -> list[str]:
        """Return full names, sorted, each partition on its own, even if never used.

        Raises ``MetadataUnavailable``.

        A namespace that does not exist has no topics. After an error clients would ask again until
        their timeout.
        """
        return await self._with_partitions(
            tenant, namespace, await self._namespaces.topics(tenant, namespace), persistent=True
        )

    async def not_kept(self, tenant: str, namespace: str) -> list[str]:
        """Return the names of non-persistent topics: those in use, and all partitions.

        They cannot be watched.

        Raises the errors of ``names``, and ``ServiceNotReady``.
        """
        return await self._with_partitions(
            tenant, namespace, await self._open_somewhere(tenant, namespace), persistent=False
        )

    async def _with_partitions(
        self, tenant: str, namespace: str, there: Iterable[str], *, persistent: bool
    ) -> list[str]:
        names = set(there)
        found = await self._namespaces.partitioned_topics(tenant, namespace, persistent=persistent)
        partitioned = [TopicName.parse(each) for each in found]
        for name, count in zip(
            partitioned, await self._namespaces.partition_counts(partitioned), strict=True
        ):
            names.update(name.with_partition(index).full for index in range(count or 0))
        return sorted(names)

    async def watch(self, tenant: str, namespace: str, pattern: str, tell: Tell) -> TopicWatch:
        """Start a watch. It holds the names that match now; ``tell`` gets later changes.

        Raises the errors of ``names``, and ``InvalidArgument``.
        """
        watch = TopicWatch((tenant, namespace), compile_pattern(pattern), tell)
        space = self._spaces.get(watch.namespace)
        if space is None:
            space = self._spaces[watch.namespace] = _Space()
            _ = self._world.tasks.spawn(
                self._follow(watch.namespace, space),
                name=f"topics of {tenant}/{namespace}",
                scope=self._scope(watch.namespace),
            )
        space.beginning_count += 1
        try:
            await self._list(watch.namespace, space)
            watch.names = frozenset(
                name for name, plain in space.names.items() if watch.matches(plain)
            )
            space.watches[watch] = None
        finally:
            space.beginning_count -= 1
            # A change between the listing and now is seen by a listing that begins after both.
            space.changed.set()
        return watch

    async def refresh(self, watch: TopicWatch) -> None:
        """Read the listing now: ``watch.names`` are then at least as new as this call.

        Raises the errors of ``names``.
        """
        await self._list(watch.namespace, self._spaces[watch.namespace])

    def failure(self, watch: TopicWatch) -> PulsarishError | None:
        """Return why changes are not seen at the moment; ``None`` when they are."""
        return self._spaces[watch.namespace].failure

    async def _list(self, namespace: tuple[str, str], space: _Space) -> None:
        """Read the listing, and tell the watches what has changed.

        Of listings that overlap, the one that began last counts.
        """
        self._listings_count += 1
        number = self._listings_count
        names = await self.names(*namespace)
        if number > space.number:
            space.number = number
            space.failure = None
            self._compare(space, names)

    def _scope(self, namespace: tuple[str, str]) -> Scope:
        """Return a scope that starts the task of a namespace again after it failed: its watches
        would get no more changes.
        """

        def end(_error: BaseException) -> None:
            space = self._spaces.get(namespace)
            if space is not None:
                name = "/".join(namespace)
                _ = self._world.tasks.spawn(
                    self._follow_again(namespace, space),
                    name=f"topics of {name}",
                    scope=self._scope(namespace),
                )

        return Scope(ScopeKind.TASK, "/".join(namespace), end)

    async def _follow_again(self, namespace: tuple[str, str], space: _Space) -> None:
        await self._world.clock.sleep(_AGAIN_SECONDS)
        space.changed.set()
        await self._follow(namespace, space)

    def end(self, watch: TopicWatch) -> None:
        space = self._spaces.get(watch.namespace)
        if space is not None and watch in space.watches:
            del space.watches[watch]
            space.changed.set()

    def stop(self) -> None:
        """Follow no more changes: the broker stops, and its metadata session ends."""
        self._stopped = True

    async def _follow(self, namespace: tuple[str, str], space: _Space) -> None:
        while True:
            await space.changed.wait()
            space.changed.clear()
            if self._stopped:
                return
            if not space.watches:
                if space.beginning_count:
                    continue
                del self._spaces[namespace]
                return
            try:
                watched = await self._set_watches(namespace, space)
                await self._list(namespace, space)
            except PulsarishError as error:
                _log.warning("topics not listed", namespace="/".join(namespace), reason=error)
                space.failure = error
                watched = False
            await self._world.clock.sleep(_INTERVAL_SECONDS if watched else _AGAIN_SECONDS)
            if not watched:
                space.changed.set()

    def _compare(self, space: _Space, names: Sequence[str]) -> None:
        before = space.names
        space.names = {name: before.get(name) or plain_name(name) for name in names}
        came = space.names.keys() - before.keys()
        left = before.keys() - space.names.keys()
        for watch in list(space.watches):
            new = sorted(name for name in came if watch.matches(space.names[name]))
            gone = sorted(name for name in left if name in watch.names)
            if new or gone:
                watch.names = watch.names.difference(gone).union(new)
                watch.tell(new, gone, list_hash(watch.names))

    async def _set_watches(self, namespace: tuple[str, str], space: _Space) -> bool:
        """Watch both listings. Return whether the next change of either will be reported."""
        for path in (paths.namespace_topics(*namespace), paths.partitioned_namespace(*namespace)):
            try:
                _ = await self._records.watch_children(path, lambda _: space.changed.set())
            except Conflict:
                # The first topic makes the node of its namespace.
                (there,) = await self._records.nodes([path], watch=lambda _: space.changed.set())
                if there is not None:
                    return False
        return True
