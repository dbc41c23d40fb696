"""Apply changed policies to loaded topics, no matter which broker made the change.

There is one watch for each namespace in use, on its node. The node changes with the namespace's own
policies. It also counts the changes of policies of single topics, by name. There is no watch for a
topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import Effective, Values, sources_of
from pulsarish.metadata import paths
from pulsarish.metadata.records import NamespacePolicies
from pulsarish.model.errors import NotFound, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.broker.clients.interfaces import ServedTopic

__all__ = ["LivePolicies", "topics_changed"]

_log = get_logger("broker.policies")

_RETRY_SECONDS: Final = 1.0


def topics_changed(before: NamespacePolicies, now: NamespacePolicies) -> frozenset[str] | None:
    """Return the local names of the topics whose own policies changed between two versions;
    ``None``: more than the node names.
    """
    count = now.topic_changes_count - before.topic_changes_count
    if not 0 <= count <= len(now.topic_changes):
        return None
    return frozenset(now.topic_changes[len(now.topic_changes) - count :])


class LivePolicies:
    """Follows the policies of the ``topics`` of one broker.

    ``changed`` is called with a loaded topic and its new policies.
    """

    def __init__(
        self,
        world: World,
        namespaces: Namespaces,
        topics: Callable[[], Iterable[ServedTopic]],
        changed: Callable[[ServedTopic, Effective], None],
    ) -> None:
        self._world = world
        self._namespaces = namespaces
        self._topics = topics
        self._changed = changed
        # By path of a namespace's node: a version that every loaded topic of it has seen.
        self._seen: dict[str, NamespacePolicies] = {}
        self._refreshing: dict[str, None] = {}
        self._failing: dict[str, str] = {}  # by path: why it could not be read
        namespaces.changed = self._namespace_changed
        namespaces.in_use = self._seen.keys

    async def read(self, name: TopicName, *, is_new: bool = False) -> Effective:
        """Read the policies in force for a topic, its own policies from metadata.

        ``is_new``: the topic is about to be created, so it has no policies unless it is a
        partition.

        Raises ``NotFound``, ``CorruptData``, ``MetadataUnavailable``.
        """
        of_namespace = await self._namespaces.effective(name.tenant, name.namespace)
        if is_new and name.partition < 0:
            return of_namespace
        return Effective(
            of_namespace.defaults,
            of_namespace.namespace,
            await self._namespaces.store.of_topic(name),
        )

    def loaded(self, name: TopicName, seen: NamespacePolicies) -> None:
        """Note that a topic was loaded with this version of its namespace's node."""
        self._seen.setdefault(paths.namespace(name.tenant, name.namespace), seen)

    def _of(self, path: str) -> list[ServedTopic]:
        return [
            topic
            for topic in self._topics()
            if paths.namespace(topic.name.tenant, topic.name.namespace) == path
        ]

    def _namespace_changed(self, path: str) -> None:
        if path in self._seen and path not in self._refreshing:
            self._refreshing[path] = None
            _ = self._world.tasks.spawn(
                self._refresh(path), name=f"policies of {path}", scope=Scope(ScopeKind.TASK, path)
            )

    async def _refresh(self, path: str) -> None:
        """Repeat until all loaded topics have seen the newest version of the namespace's node."""
        try:
            while (topics := self._of(path)) and not await self._caught_up(path, topics):
                continue
        finally:
            del self._refreshing[path]
            self._failing.pop(path, None)
        if not topics:
            del self._seen[path]

    async def _caught_up(self, path: str, topics: list[ServedTopic]) -> bool:
        tenant, namespace = topics[0].name.tenant, topics[0].name.namespace
        try:
            now = await self._namespaces.policies(tenant, namespace)
            before = self._seen[path]
            if now is before:
                return True
            effective = await self._namespaces.effective(tenant, namespace)
            names = topics_changed(before, now)
            own = [
                topic for topic in topics if names is None or sources_of(topic.name).local in names
            ]
            values = {
                topic.name: await self._namespaces.store.of_topic(topic.name) for topic in own
            }
        except NotFound:
            return True  # the namespace is gone, and so are its topics
        except PulsarishError as error:
            if self._failing.get(path) != str(error):
                # Once for each reason: the metadata service may be away for hours.
                _log.warning("policies are read again", namespace=path, reason=error)
            self._failing[path] = str(error)
            await self._world.clock.sleep(_RETRY_SECONDS)
            return False
        self._failing.pop(path, None)
        is_for_all = now.policies != before.policies or any(
            topic.topic_limits.policies.defaults is not effective.defaults for topic in topics
        )
        self._tell(topics if is_for_all else own, effective, values)
        self._seen[path] = now
        return False

    def _tell(
        self,
        topics: Iterable[ServedTopic],
        effective: Effective,
        values: Mapping[TopicName, Values],
    ) -> None:
        for topic in topics:
            if topic.closed is None:
                own = values.get(topic.name, topic.topic_limits.policies.topic)
                try:
                    self._changed(topic, Effective(effective.defaults, effective.namespace, own))
                except Exception as error:  # noqa: BLE001
                    # An error of one topic: the others must get their policies.
                    self._world.tasks.contain(f"policies of {topic.name}", error, topic.scope)
