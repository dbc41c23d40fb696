"""Find the broker of a topic: the owner, a broker to ask instead, or an error when it cannot be
said now (rule 20).

The broker that is asked checks whether the owner still answers. It takes a bundle without an owner
itself, unless another broker has clearly fewer bundles. Then the client asks that one next, with
``authoritative`` set, and that one takes the bundle. A broker that drains takes one only when no
other broker does. A broker that may not have the bundle by the rules of placement names one that
may. A broker that stops sends all clients to one other broker, which knows whether a bundle has
been given up yet.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pulsarish.broker.ownership.bundles import Bundle, bundle_of
from pulsarish.broker.ownership.core import Mine, Theirs, Unowned
from pulsarish.broker.ownership.ownership import BundleSplit, Ownership
from pulsarish.broker.ownership.served_bundles import ServedBundles
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import ServiceNotReady
from pulsarish.model.topic_name import TopicName

__all__ = ["Found", "Lookup"]

# Each round follows a change made by another broker: an eviction, a takeover.
_ROUNDS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a lookup.

    ``redirect``: ask this broker instead, with ``authoritative``; otherwise it is the owner.
    """

    broker: BrokerRegistration
    bundle: Bundle
    redirect: bool = False


class Lookup:
    """Answers lookups on one broker.

    Args:
        is_open: returns whether clients can use a topic on this broker now.
    """

    def __init__(
        self,
        namespaces: Namespaces,
        ownership: Ownership,
        bundles: ServedBundles,
        random_stream: random.Random,
        *,
        is_open: Callable[[TopicName], bool],
    ) -> None:
        self._is_open = is_open
        self._namespaces = namespaces
        self._random = random_stream
        self._ownership = ownership
        self._bundles = bundles
        self.lookups_count = 0

    def brokers(self) -> list[BrokerRegistration]:
        """Return the registered brokers that are known here, this one first."""
        registry = self._ownership.registry
        return [*([] if registry.me is None else [registry.me]), *registry.others()]

    async def find(self, name: TopicName, *, authoritative: bool) -> Found:
        """Find the broker of a topic.

        Raises ``NotFound`` (the namespace), ``OwnerSilent``, ``ServiceNotReady``,
        ``MetadataUnavailable``.
        """
        if self._ownership.registry.away and (here := self.at_once(name)) is not None:
            return here
        self.lookups_count += 1
        return await self._with_bundle(
            name, lambda bundle: self.find_bundle(bundle, authoritative=authoritative)
        )

    async def _with_bundle(
        self, name: TopicName, find: Callable[[Bundle], Awaitable[Found]]
    ) -> Found:
        """Call ``find`` with the bundle of a topic: again after a split of which this broker did
        not know.
        """
        for _ in range(_ROUNDS_MAX):
            space = await self._namespaces.policies(name.tenant, name.namespace)
            try:
                return await find(bundle_of(name, space))
            except BundleSplit:
                self._namespaces.forget(name.tenant, name.namespace)
        raise ServiceNotReady(f"the bundles of topic {name} change all the time; try again")

    async def find_replica(self, name: TopicName) -> Found:
        """Find a broker for readers of a topic: any but the owner, if there is another.

        Raises ``NotFound`` (the namespace), ``ServiceNotReady``, ``MetadataUnavailable``.
        """
        return await self._with_bundle(name, self._find_replica)

    async def _find_replica(self, bundle: Bundle) -> Found:
        ownership = self._ownership
        owner = await ownership.owner(bundle)
        me = ownership.registry.me
        if me is None:
            raise ServiceNotReady("this broker is not registered at the moment; ask another one")
        others = ownership.registry.others()
        if isinstance(owner, Theirs):
            others = [each for each in others if each.instance_id != owner.registration.instance_id]
        if not isinstance(owner, Mine) or not others:
            others.append(me)
        permitted = ownership.permitted(bundle, others)
        if not permitted:  # by the rules of placement, only the owner
            return Found(owner.registration if isinstance(owner, Theirs) else me, bundle)
        return Found(self._random.choice(permitted), bundle)

    def serves_without_metadata(self, name: TopicName) -> bool:
        """Return whether clients can use the topic here while metadata cannot be read.

        Such a topic has no partitions.
        """
        return self._ownership.registry.away and self._is_open(name)

    def at_once(self, name: TopicName) -> Found | None:
        """Answer without waiting, if this broker is known to own the topic; ``None``: use
        ``find``.
        """
        ownership = self._ownership
        policies, me = self._namespaces.known(name.tenant, name.namespace), ownership.registry.me
        if me is None or not ownership.serving:
            return None
        if ownership.registry.away and not self._is_open(name):
            return None  # it cannot be opened now, and may be a partitioned topic
        bundle: Bundle | None = None
        if policies is not None:
            bundle = bundle_of(name, policies)
        elif ownership.registry.away:
            # The number of bundles cannot be read. None changes while metadata are away.
            owned = (each for each in self._bundles.owned() if each.covers(name))
            bundle = next(owned, None)
        if bundle is None or not self._bundles.serves(bundle):
            return None
        self.lookups_count += 1
        return Found(me, bundle)

    async def find_bundle(self, bundle: Bundle, *, authoritative: bool) -> Found:
        """Find the broker of a bundle. Raises the errors of ``find``, and ``BundleSplit``."""
        ownership = self._ownership
        for _ in range(_ROUNDS_MAX):
            me = ownership.registry.me
            if me is not None and (heir := ownership.heir(bundle)) is not None:
                return Found(heir, bundle, redirect=True)
            if me is None or not ownership.serving:
                raise ServiceNotReady(
                    "this broker is not registered at the moment; ask another one or try again"
                )
            # Its clients ask while it moves: they are told who has it then.
            await self._bundles.left(bundle)
            await self._bundles.arrived(bundle)
            owner = await ownership.owner(bundle)
            if isinstance(owner, Theirs):
                if await ownership.pings.reachable(owner.registration):
                    return Found(owner.registration, bundle)
                continue
            if isinstance(owner, Unowned):
                is_final = authoritative and not ownership.draining
                other = ownership.other_taker(bundle, is_final=is_final)
                if other is not None:
                    return Found(other, bundle, redirect=True)
                owner = await ownership.acquire(bundle, owner.version, owner.former)
            if isinstance(owner, Mine) and ownership.registry.me is me:
                return Found(me, bundle)
        raise ServiceNotReady(f"bundle {bundle} is changing hands; try again")
