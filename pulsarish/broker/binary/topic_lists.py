"""Topics of a namespace whose names match a pattern, and watches that report changes.

All watches of a namespace share one listing. It is read again when metadata reports a change, but
not more often than an interval allows. Patterns come from clients. So they are matched in linear
time (RE2), and are limited in length as in Apache Pulsar.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google_crc32c import extend

from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, World

__all__ = ["PATTERN_CHARS_MAX", "TopicLists", "TopicWatch", "compile_pattern", "list_hash"]

_log = get_logger("broker.topic_lists")

PATTERN_CHARS_MAX: Final = 1_000
_INTERVAL_SECONDS: Final = 0.5  # between two listings of a namespace
# between two checks of a namespace without topics, which cannot be watched
_ABSENT_SECONDS: Final = 1.0


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether a full topic name matches. Raises ``InvalidArgument``.

    It matches the name without its domain; a partition matches by the name of its topic.
    """
    import re2  # only brokers whose clients subscribe to patterns need it

    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidArgument(
            f"a topic pattern of {len(pattern)} characters; at most {PATTERN_CHARS_MAX} are taken"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Any = re2.compile(pattern.partition("://")[2] or pattern, options)
    except re2.error as error:
        raise InvalidArgument(
            f"the topic pattern {pattern!r} is no regular expression of RE2: {error}"
        ) from None

    def matches(topic: str) -> bool:
        plain = TopicName.parse(topic).partitioned.full.partition("://")[2]
        return compiled.fullmatch(plain) is not None

    return matches


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
    tell: Tell
    names: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class _Space:
    watches: dict[TopicWatch, None] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


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
        watch.names = frozenset(
            name for name in await self.names(tenant, namespace) if watch.matches(name)
        )
        space = self._spaces.get(watch.namespace)
        if space is None:
            space = self._spaces[watch.namespace] = _Space()
            _ = self._world.tasks.spawn(
                self._follow(watch.namespace, space),
                name=f"topics of {tenant}/{namespace}",
                scope=self._scope(watch.namespace),
            )
        space.watches[watch] = None
        # A change between the listing and now is seen by a listing that begins after both.
        space.changed.set()
        return watch

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
        await self._world.clock.sleep(_ABSENT_SECONDS)
        space.changed.set()
        await self._follow(namespace, space)

    def end(self, watch: TopicWatch) -> None:
        space = self._spaces.get(watch.namespace)
        if space is not None and watch in space.watches:
            del space.watches[watch]
            space.changed.set()

    async def _follow(self, namespace: tuple[str, str], space: _Space) -> None:
        while True:
            await space.changed.wait()
            space.changed.clear()
            if not space.watches:
                del self._spaces[namespace]
                return
            try:
                watched = await self._set_watches(namespace, space)
                names = await self.names(*namespace)
            except PulsarishError as error:
                _log.warning("topics not listed", namespace="/".join(namespace), reason=error)
                watched, names = False, []
            else:
                self._compare(space, names)
            await self._world.clock.sleep(_INTERVAL_SECONDS if watched else _ABSENT_SECONDS)
            if not watched:
                space.changed.set()

    def _compare(self, space: _Space, names: Sequence[str]) -> None:
        for watch in space.watches:
            found = frozenset(name for name in names if watch.matches(name))
            if found != watch.names:
                new, gone = sorted(found - watch.names), sorted(watch.names - found)
                watch.names = found
                watch.tell(new, gone, list_hash(found))

    async def _set_watches(self, namespace: tuple[str, str], space: _Space) -> bool:
        """Watch both listings. Return whether the next change of either will be reported."""
        for path in (paths.namespace_topics(*namespace), paths.partitioned_namespace(*namespace)):
            try:
                _ = await self._records.watch_children(path, lambda _: space.changed.set())
            except Conflict:
                return False
        return True
