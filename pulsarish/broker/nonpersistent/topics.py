"""The non-persistent topics of this broker.

The owner of the bundle creates one for its first client; it is lost with the owner.

Metadata has the number of partitions of partitioned ones, and the schemas of all. Which topics
exist, each broker knows of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pulsarish.broker.clients.authorization import OnCreated
from pulsarish.broker.clients.client_errors import topic_leaves
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.nonpersistent.captures import Captures
from pulsarish.broker.nonpersistent.topic import NonPersistentTopic
from pulsarish.broker.ownership.bundles import Bundle, bundle_of
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.metadata.records import BrokerRegistration, NamespacePolicies
from pulsarish.model.errors import (
    NotAllowedError,
    NotOwner,
    PulsarishError,
    TopicFenced,
    TopicNotFound,
)
from pulsarish.model.policies import INACTIVE_TOPIC
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["NonPersistentTopics"]

_log = get_logger("broker.nonpersistent")


class NonPersistentTopics:
    """The open non-persistent topics of one broker.

    ``epoch`` returns that of this broker's ownership of a bundle that it keeps; ``None``: it does
    not serve it. ``opened`` is called with each new topic and its namespace's policies.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        namespaces: Namespaces,
        *,
        epoch: Callable[[Bundle], int | None],
        opened: Callable[[TopicName, NamespacePolicies], None],
    ) -> None:
        self.open: dict[str, NonPersistentTopic] = {}
        self.captures = Captures(
            world,
            config.captures_pending_max_bytes,
            config.max_message_size_bytes,
            namespaces.effective,
        )
        self._world = world
        self._config = config
        self._namespaces = namespaces
        self._epoch = epoch
        self._opened = opened

    async def get(
        self, name: TopicName, *, create: bool, on_created: OnCreated | None = None
    ) -> NonPersistentTopic:
        """Return the topic. With ``create`` a missing topic is created if its policies allow it.

        ``on_created`` is called if this request has created it.

        Raises ``NotOwner``, ``TopicNotFound``, ``NotAllowedError``, ``NotFound``, ...
        """
        topic = self.open.get(name.full)
        if topic is not None:
            return topic
        return await self._make(name, create=create, by_use=True, on_created=on_created)

    async def create(self, name: TopicName) -> NonPersistentTopic:
        """Create a topic, even where topics are not created on first use.

        Raises the errors of ``get``.
        """
        return await self._make(name, create=True, by_use=False)

    async def _make(
        self, name: TopicName, *, create: bool, by_use: bool, on_created: OnCreated | None = None
    ) -> NonPersistentTopic:
        if not self._config.enable_non_persistent_topics:
            raise NotAllowedError(
                f"topic {name}: non-persistent topics are not served here "
                "(enable_non_persistent_topics)"
            )
        space = await self._namespaces.policies(name.tenant, name.namespace)
        self.check_served(name, space)
        if not create:
            raise TopicNotFound(f"topic {name} does not exist")
        partitions = await self._namespaces.check_creatable(name)
        if by_use and (name.partition < 0 or partitions is None):
            await self._namespaces.auto_creation(name)
        policies = await self._namespaces.effective(name.tenant, name.namespace)
        # Nothing is awaited from here on: this broker owns the bundle, and these policies are in
        # force.
        space = self._namespaces.known(name.tenant, name.namespace) or space
        epoch = self.check_served(name, space)
        topic = self.open.get(name.full)
        if topic is None:
            topic = self.open[name.full] = NonPersistentTopic(
                name,
                self._world,
                self._config,
                policies,
                failed=partial(self._failed, name),
                captures=self.captures,
                queues_of=partial(self.captures.of, name, bundle_of(name, space), epoch),
            )
            self._opened(name, space)
            _log.info("topic made", topic=name)
            if on_created is not None:
                on_created("")
        return topic

    def check_served(self, name: TopicName, space: NamespacePolicies) -> int:
        """Check that this broker serves the topic. Return the epoch of its ownership.

        Raises ``NotOwner``.
        """
        epoch = self._epoch(bundle_of(name, space))
        if epoch is None:
            raise NotOwner(f"this broker does not serve {name}; look it up again")
        return epoch

    def names(self, tenant: str, namespace: str) -> list[str]:
        """Return the names of a namespace's topics on this broker, sorted."""
        return sorted(
            full
            for full, topic in self.open.items()
            if (topic.name.tenant, topic.name.namespace) == (tenant, namespace)
        )

    # -- closing and deleting

    def close(self, name: TopicName, error: PulsarishError) -> None:
        """Close a topic and its clients with ``error``. Does nothing if it is not open."""
        topic = self.open.pop(name.full, None)
        if topic is not None:
            topic.close(error)
            _log.info("topic closed", topic=name, reason=error)

    def _failed(self, name: TopicName, error: BaseException) -> None:
        self.close(
            name,
            TopicFenced(
                f"topic {name} failed here and is made again: {type(error).__name__}: {error}"
            ),
        )

    async def unload_bundle(
        self, bundle: Bundle, reason: str, to: BrokerRegistration | None = None
    ) -> None:
        """Close the topics of a bundle, once what was captured of them is stored, or for a while.

        The bundle goes to the broker ``to``, or to any.
        """
        for topic in list(self.open.values()):
            if bundle.covers(topic.name):
                topic.stop_taking(topic_leaves(topic.name, reason, to))
        await self.captures.settle(bundle)
        self.close_bundle(bundle, reason, to)

    def close_bundle(
        self, bundle: Bundle, reason: str, to: BrokerRegistration | None = None
    ) -> None:
        """Close the topics of a bundle at once, which goes to the broker ``to`` or to any."""
        self.captures.drop_bundle(bundle)
        for topic in list(self.open.values()):
            if bundle.covers(topic.name):
                self.close(topic.name, topic_leaves(topic.name, reason, to))

    def close_all(self, reason: str) -> None:
        self.captures.drop_all()
        for topic in list(self.open.values()):
            self.close(
                topic.name,
                TopicFenced(
                    f"topic {topic.name} is not served here any more: {reason}; look it up again"
                ),
            )

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Close a topic for good, and delete its schemas.

        Raises ``TopicNotFound``, ``NotOwner``, ``SubscriptionBusy``.
        """
        topic = await self.get(name, create=False)
        topic.check_deletable(force=force)
        await self._go(topic, TopicNotFound(f"topic {name} was deleted"), for_good=True)

    async def let_go_of_unused(self) -> None:
        """Close the topics that were unused for as long as their policies say.

        Delete their schemas if inactive topics are deleted.
        """
        for topic in list(self.open.values()):
            # Check each one in turn: while another one was closed, a client may have connected to
            # it.
            if topic.closed is None and topic.is_abandoned(self._world.clock.wall_ms()):
                error = TopicFenced(
                    f"topic {topic.name} was closed, as no client used it; look it up again"
                )
                await self._go(
                    topic,
                    error,
                    for_good=topic.topic_limits.policies[INACTIVE_TOPIC].delete_while_inactive,
                )

    async def _go(
        self, topic: NonPersistentTopic, error: PulsarishError, *, for_good: bool
    ) -> None:
        """Close a topic, ``for_good`` after its schemas were deleted.

        If the schemas cannot be deleted now, the topic stays open for another try. A client that
        connects in between is disconnected with the others, and brings its schema again.
        """
        if for_good and topic.name.partition < 0:
            await self._namespaces.delete_schemas_of_not_kept(topic.name)
        if self.open.get(topic.name.full) is topic:
            self.close(topic.name, error)
