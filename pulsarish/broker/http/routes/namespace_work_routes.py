"""Work on a whole namespace or one of its bundles, done for each topic by the topic's owner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pulsarish.broker.clients.authorization import Permission, is_visible
from pulsarish.broker.http.json_bodies import BundlesBody, PositionsBody
from pulsarish.broker.http.listing import Listing
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.partitions import settled
from pulsarish.broker.http.route import (
    AFTER,
    AUTHORITATIVE,
    LIMIT,
    Call,
    Handler,
    Parameter,
    Route,
    answer,
    no_content,
)
from pulsarish.broker.ownership.bundles import (
    Bundle,
    boundaries_of,
    bundle_of,
    bundles_of,
    topic_hash,
)
from pulsarish.broker.ownership.splits import ALGORITHMS
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.publishing.dedup_log import DEDUP_CURSOR
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration, BundleOwner
from pulsarish.model.errors import NotEmpty, NotFound, PulsarishError
from pulsarish.model.topic_name import TopicName, decode_segment
from pulsarish.runtime.seams import HttpResponse

__all__ = ["NamespaceWorkRoutes"]

_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_ADMIN: Final = Permission.ADMIN_NAMESPACE
_PURGE: Final = Permission.PURGE
_FORCE: Final = Parameter(
    "force", "With its topics and their data, although clients are connected.", bool, default=False
)
_MODE: Final = Parameter(
    "mode",
    "Topics that are kept, that are not, or both.",
    choices=("PERSISTENT", "NON_PERSISTENT", "ALL"),
    default="PERSISTENT",
)
_SYSTEM: Final = Parameter(
    "includeSystemTopic", "The broker's own topics, too.", bool, default=False
)
_DESTINATION: Final = Parameter(
    "destinationBroker",
    "Id or HTTP address of the broker that serves the topics next; any without it.",
)
_UNLOAD: Final = Parameter(
    "unload", "Unload the parts, so that other brokers may serve them.", bool, default=False
)
_ALGORITHM: Final = Parameter(
    "splitAlgorithmName",
    "How it is split. The body has the hashes for `specified_positions_divide`.",
    choices=("", *ALGORITHMS),
    default="",
)
_TOPICS: Final = Parameter("topics", "Only these topics, with commas.")
_BUNDLE: Final = Parameter("bundle", "Only the topics of this bundle.")


class NamespaceWorkRoutes:
    def __init__(
        self,
        records: Records,
        namespaces: Namespaces,
        topics: LoadedTopics,
        owners: OwnerCalls,
        listing: Listing,
    ) -> None:
        self._records = records
        self._namespaces = namespaces
        self._topics = topics
        self._owners = owners
        self._listing = listing

    def routes(self) -> list[Route]:
        read, options = Permission.READ_NAMESPACE, (_MODE, _SYSTEM, _BUNDLE, AFTER, LIMIT)
        bundle = _NAMESPACE + "/{bundle}"
        return [
            Route(
                "DELETE",
                _NAMESPACE,
                self._delete,
                _PURGE,
                "Delete a namespace.",
                parameters=(_FORCE, AUTHORITATIVE),
                statuses=(409,),
            ),
            Route(
                "GET",
                _NAMESPACE + "/topics",
                self._list,
                read,
                "List the topics and partitions of a namespace.",
                parameters=options,
                answers=list[str],
            ),
            Route(
                "GET",
                _NAMESPACE + "/bundles",
                self._bundles,
                read,
                "Show the bundles into which a namespace is divided.",
                answers=BundlesBody,
            ),
            Route(
                "PUT",
                _NAMESPACE + "/unload",
                self._unload,
                _ADMIN,
                "Unload all bundles of a namespace; clients reconnect to the next owners.",
                parameters=(AUTHORITATIVE, _DESTINATION),
                statuses=(405,),
            ),
            Route(
                "PUT",
                bundle + "/unload",
                self._unload_bundle,
                _ADMIN,
                "Unload a bundle; clients reconnect to its next owner.",
                parameters=(_DESTINATION,),
                statuses=(405,),
                owner=True,
            ),
            Route(
                "PUT",
                bundle + "/split",
                self._split_bundle,
                _ADMIN,
                "Split a bundle. Its owner keeps the parts, or unloads them.",
                parameters=(_UNLOAD, _ALGORITHM),
                body=list[int],
                statuses=(409,),
                owner=True,
            ),
            Route(
                "GET",
                bundle + "/topicHashPositions",
                self._positions,
                read,
                "Show the hashes of the open topics of a bundle.",
                parameters=(_TOPICS,),
                answers=PositionsBody,
                owner=True,
            ),
            _post(
                _NAMESPACE + "/clearBacklog",
                self._clear,
                "Acknowledge everything for every subscription.",
            ),
            _post(
                _NAMESPACE + "/clearBacklog/{subscription}",
                self._clear,
                "Acknowledge everything for one subscription.",
            ),
            _post(bundle + "/clearBacklog", self._clear, "The same in one bundle."),
            _post(
                bundle + "/clearBacklog/{subscription}",
                self._clear,
                "The same in one bundle for one subscription.",
            ),
            _post(
                _NAMESPACE + "/unsubscribe/{subscription}",
                self._unsubscribe,
                "Delete a subscription from every topic.",
            ),
            _post(
                bundle + "/unsubscribe/{subscription}", self._unsubscribe, "The same in one bundle."
            ),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        if call.text("mode") == "PERSISTENT":
            return await self._listing.topics(call)
        visible = await self._listing.visible_topics(call)
        names = await self._not_kept(call)
        if visible is not None:
            names = [name for name in names if is_visible(visible, TopicName.parse(name))]
        if call.text("mode") == "ALL":
            names += [name.full for name in await self._listing.names(call, visible=visible)]
        return answer(call.page(names, str))

    async def _not_kept(self, call: Call) -> list[str]:
        tenant, namespace = call["tenant"], call["namespace"]
        space = await self._namespaces.policies(tenant, namespace)
        call.waits_for = "every broker to say which non-persistent topics it has"
        names, bundle = (
            await self._owners.non_persistent_topics(tenant, namespace),
            call.text("bundle"),
        )
        return [
            name
            for name in names
            if not bundle or bundle_of(TopicName.parse(name), space).range == bundle
        ]

    async def _bundles(self, call: Call) -> HttpResponse:
        await self._read_again(call)
        space = await self._namespaces.policies(call["tenant"], call["namespace"])
        edges = boundaries_of(space)
        return answer(BundlesBody(len(edges) - 1, [f"0x{edge:08x}" for edge in edges]))

    async def _read_again(self, call: Call) -> None:
        """Have the namespace read again: another broker may have split a bundle a moment ago."""
        tenant, namespace = call["tenant"], call["namespace"]
        await self._records.sync(paths.namespace(tenant, namespace))
        self._namespaces.forget(tenant, namespace)

    async def _all_bundles(self, call: Call) -> list[Bundle]:
        tenant, namespace = call["tenant"], call["namespace"]
        return bundles_of(tenant, namespace, await self._namespaces.policies(tenant, namespace))

    async def _bundle(self, call: Call) -> Bundle:
        bundle = Bundle(call["tenant"], call["namespace"], call["bundle"])
        if bundle not in await self._all_bundles(call):
            await self._read_again(call)
        if bundle not in await self._all_bundles(call):
            raise NotFound(
                f"namespace {bundle.tenant}/{bundle.namespace} has no bundle {bundle.range}"
            )
        return bundle

    # -- unloading

    async def _unload(self, call: Call) -> HttpResponse:
        """Unload all bundles. Bundles without an owner stay as they are."""
        named = call.text("destinationBroker")
        query = {"destinationBroker": self._owners.broker(call, named).instance_id} if named else {}
        bundles = await self._all_bundles(call)
        owned = await self._records.get_many([bundle.path for bundle in bundles], BundleOwner)
        for bundle, owner in zip(bundles, owned, strict=True):
            if owner is not None and owner[0].broker_id:
                call.waits_for = f"the owner of {bundle} to let it go"
                await self._owners.send_bundle(bundle, OwnerCall("PUT", ("unload",), query=query))
        return no_content()

    async def _unload_bundle(self, call: Call) -> HttpResponse:
        bundle = await self._bundle(call)
        named = call.text("destinationBroker")
        to = self._owners.broker(call, named) if named else None
        await self._owners.require_bundle(call, bundle)
        if to is None:
            await self._topics.unload_bundle(bundle)
        elif not self._owners.is_me(to):
            self._owners.check_destination(bundle, to)
            call.waits_for = f"{bundle} to move to {to.broker_id}"
            await self._topics.unload_bundle(bundle, to)
        return no_content()

    async def _split_bundle(self, call: Call) -> HttpResponse:
        """Split a bundle. The body has the boundaries, as hashes, for the algorithm that takes
        them.
        """
        bundle = await self._bundle(call)
        await self._owners.require_bundle(call, bundle)
        call.waits_for = f"{bundle} to be split"
        parts = await self._topics.split_bundle(
            bundle, call.text("splitAlgorithmName"), call.body or ()
        )
        if call.flag("unload"):
            for part in parts:
                await self._topics.unload_bundle(part)
        return no_content()

    async def _positions(self, call: Call) -> HttpResponse:
        bundle = await self._bundle(call)
        named = {TopicName.parse(each).full for each in call.text("topics").split(",") if each}
        await self._owners.require_bundle(call, bundle)
        found = {
            topic.name.full: topic_hash(topic.name)
            for topic in self._topics.served()
            if bundle.covers(topic.name) and (not named or topic.name.full in named)
        }
        space = f"{bundle.tenant}/{bundle.namespace}"
        return answer(PositionsBody(space, bundle.range, dict(sorted(found.items()))))

    async def move(
        self, bundle: Bundle, source: BrokerRegistration, destination: BrokerRegistration
    ) -> None:
        """Have ``source`` hand a bundle over, for the balancer. Raises its error."""
        await self._owners.send_to(
            source,
            ("namespaces", bundle.tenant, bundle.namespace, bundle.range),
            OwnerCall("PUT", ("unload",), query={"destinationBroker": destination.instance_id}),
        )

    # -- all topics

    async def _delete(self, call: Call) -> HttpResponse:
        tenant, namespace = call["tenant"], call["namespace"]
        if call.flag("force"):
            call.values = {**call.values, "includeSystemTopic": True}
            errand = OwnerCall("DELETE", query={"force": "true"})
            not_kept = [
                TopicName.parse(name)
                for name in await self._owners.non_persistent_topics(tenant, namespace)
            ]
            _done_where_there(
                await self._owners.send_all(
                    call, [*await self._listing.names(call), *not_kept], errand
                )
            )
            partitioned = await self._namespaces.partitioned_topics(
                tenant, namespace, persistent=False
            )
            for name in [
                *await self._listing.names(call, partitioned=True),
                *map(TopicName.parse, partitioned),
            ]:
                await self._namespaces.delete_partitioned(name)
        elif await self._owners.non_persistent_topics(tenant, namespace):
            raise NotEmpty(
                f"namespace {tenant}/{namespace} has non-persistent topics; delete them first"
            )
        await self._namespaces.check_empty(tenant, namespace)
        _ = await self._unload(call)
        await self._namespaces.delete_namespace(tenant, namespace)
        return no_content()

    async def _clear(self, call: Call) -> HttpResponse:
        await self._each_subscription(
            call, lambda subscription: OwnerCall("POST", ("subscription", subscription, "skip_all"))
        )
        return no_content()

    async def _unsubscribe(self, call: Call) -> HttpResponse:
        await self._each_subscription(
            call, lambda subscription: OwnerCall("DELETE", ("subscription", subscription))
        )
        return no_content()

    async def _each_subscription(self, call: Call, errand_of: Callable[[str], OwnerCall]) -> None:
        if "bundle" in call.values:
            await self._bundle(call)
        wanted = call.text("subscription")
        if wanted:
            # Topics without this subscription answer so, which is not an error.
            _done_where_there(
                await self._owners.send_all(
                    call, await self._listing.names(call), errand_of(wanted)
                )
            )
            return
        errands: list[tuple[TopicName, OwnerCall]] = []
        for name in await self._listing.names(call):
            call.waits_for = f"the subscriptions of {name}"
            there = map(decode_segment, await self._records.children(paths.cursors(name)))
            errands += [
                (name, errand_of(subscription))
                for subscription in there
                if subscription != DEDUP_CURSOR
            ]
        _done_where_there(await self._owners.send_each(call, errands))


def _done_where_there(answers: Sequence[Any | PulsarishError]) -> None:
    """Ignore topics and subscriptions that are gone by now. Raises the first other error."""
    settled([each for each in answers if not isinstance(each, NotFound)])


def _post(pattern: str, handler: Handler, summary: str) -> Route:
    return Route("POST", pattern, handler, _PURGE, summary, parameters=(AUTHORITATIVE,))
