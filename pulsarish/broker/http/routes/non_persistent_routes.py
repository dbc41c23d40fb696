"""Non-persistent topics: their owner creates, describes and closes them.

A list asks every broker for its own.

Operations of persistent topics that need stored messages are refused here with 405, by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from pulsarish.broker.clients.authorization import Permission, Visible, is_visible
from pulsarish.broker.http.json_bodies import Json
from pulsarish.broker.http.listing import Listing
from pulsarish.broker.http.owner_calls import OwnerCalls
from pulsarish.broker.http.partitions import explain_partitions, explained
from pulsarish.broker.http.route import AFTER, LIMIT, Call, Parameter, Route, answer, no_content
from pulsarish.broker.http.routes.topic_routes import FORCE, TOPIC
from pulsarish.broker.nonpersistent.stats import non_persistent_internal_stats
from pulsarish.broker.nonpersistent.subscription import not_kept
from pulsarish.broker.nonpersistent.topic import NonPersistentTopic
from pulsarish.broker.nonpersistent.topics import NonPersistentTopics
from pulsarish.broker.ownership.bundles import Bundle, bundle_of, bundles_of
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.progress.report import subscription_report, topic_report
from pulsarish.broker.stats.topic_stats import Statistics
from pulsarish.metadata.records import NamespacePolicies
from pulsarish.model.errors import AlreadyExists, NotFound, TopicFenced, TopicNotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse

__all__ = ["NonPersistentRoutes"]

_NAMESPACE: Final = "/admin/v2/non-persistent/{tenant}/{namespace}"
_TOPIC: Final = _NAMESPACE + "/{topic}"
_READ: Final = Permission.READ_TOPIC
_ADMIN: Final = Permission.ADMIN_TOPIC
_SYSTEM: Final = Parameter(
    "includeSystemTopic", "There are none: it makes no difference.", bool, default=False
)
_BUNDLE: Final = Parameter("bundle", "Only the topics of this bundle.")
_HERE: Final = Parameter(
    "here", "Only those that the broker which is asked has itself.", bool, default=False
)
_SCHEMA: Final = Parameter(
    "deleteSchema", "Schemas go with their topic anyway.", bool, default=True
)
_BACKLOG: Final = (
    Parameter(
        "getPreciseBacklog", "There is no backlog: it makes no difference.", bool, default=False
    ),
    Parameter(
        "subscriptionBacklogSize",
        "There is no backlog: it makes no difference.",
        bool,
        default=True,
    ),
    Parameter(
        "getEarliestTimeInBacklog",
        "There is no backlog: it makes no difference.",
        bool,
        default=False,
    ),
    Parameter("excludePublishers", "Without the list of producers.", bool, default=False),
    Parameter("excludeConsumers", "Without the lists of consumers.", bool, default=False),
)

_ALIKE: Final = {
    f"GET {TOPIC}/partitions",
    f"PUT {TOPIC}/partitions",
    f"POST {TOPIC}/partitions",
    f"DELETE {TOPIC}/partitions",
    f"GET {TOPIC}/partitioned-stats",
    f"GET {TOPIC}/partitioned-internalStats",
}
"""Routes of persistent topics whose handlers serve non-persistent topics too."""


class NonPersistentRoutes:
    def __init__(
        self,
        namespaces: Namespaces,
        topics: NonPersistentTopics,
        owners: OwnerCalls,
        statistics: Statistics,
        listing: Listing,
    ) -> None:
        self._listing = listing
        self._namespaces = namespaces
        self._topics = topics
        self._owners = owners
        self._statistics = statistics

    def routes(self, persistent: Sequence[Route]) -> list[Route]:
        """Return the routes, with a counterpart for each of the ``persistent`` ones."""
        metadata = Parameter(
            "metadata", "There are no ledgers: it makes no difference.", bool, default=False
        )
        page, listed, names = (AFTER, LIMIT), (_SYSTEM, AFTER, LIMIT), list[str]
        own = [
            Route(
                "GET",
                _NAMESPACE,
                self._list,
                Permission.READ_NAMESPACE,
                "List the non-persistent topics of a namespace that brokers have open.",
                parameters=(_BUNDLE, _HERE, *listed),
                answers=names,
            ),
            Route(
                "GET",
                _NAMESPACE + "/partitioned",
                self._partitioned,
                Permission.READ_NAMESPACE,
                "List the partitioned non-persistent topics of a namespace.",
                parameters=listed,
                answers=names,
            ),
            Route(
                "GET",
                _NAMESPACE + "/{bundle}",
                self._of_bundle,
                Permission.READ_NAMESPACE,
                "List the non-persistent topics of a bundle.",
                parameters=page,
                answers=names,
                owner=True,
            ),
            Route(
                "PUT",
                _TOPIC,
                self._create,
                _ADMIN,
                "Create a non-persistent topic.",
                body=dict[str, str],
                owner=True,
                statuses=(405, 409),
            ),
            Route(
                "DELETE",
                _TOPIC,
                self._delete,
                Permission.PURGE,
                "Delete a non-persistent topic.",
                parameters=(FORCE, _SCHEMA),
                owner=True,
            ),
            Route(
                "PUT",
                _TOPIC + "/unload",
                self._unload,
                _ADMIN,
                "Unload a non-persistent topic; clients reconnect to its next owner.",
                owner=True,
            ),
            Route(
                "GET",
                _TOPIC + "/stats",
                self._stats,
                _READ,
                "Show statistics of a non-persistent topic.",
                parameters=_BACKLOG,
                answers=Json,
                owner=True,
            ),
            Route(
                "GET",
                _TOPIC + "/internalStats",
                self._internal,
                _READ,
                "Show the counts of a non-persistent topic.",
                parameters=(metadata,),
                answers=Json,
                owner=True,
            ),
            Route(
                "GET",
                _TOPIC + "/explain",
                self._explain,
                _READ,
                "Explain what a non-persistent topic waits for.",
                answers=Json,
                owner=True,
            ),
            Route(
                "GET",
                _TOPIC + "/subscription/{subscription}/explain",
                self._explain_subscription,
                _READ,
                "Explain what a subscription of a non-persistent topic waits for.",
                answers=Json,
                owner=True,
            ),
            Route(
                "GET",
                _TOPIC + "/subscriptions",
                self._subscriptions,
                Permission.CONSUME,
                "List the subscriptions of a non-persistent topic.",
                parameters=page,
                answers=names,
                owner=True,
            ),
            Route(
                "PUT",
                _TOPIC + "/subscription/{subscription}",
                self._subscribe,
                Permission.CONSUME,
                "Create a subscription of a non-persistent topic.",
                body=Any,
                owner=True,
            ),
            Route(
                "DELETE",
                _TOPIC + "/subscription/{subscription}",
                self._unsubscribe,
                Permission.PURGE,
                "Delete a subscription of a non-persistent topic.",
                parameters=(FORCE,),
                owner=True,
                statuses=(412,),
            ),
        ]
        there = {route.name for route in own}
        for route in persistent:
            name = route.name.replace(TOPIC, _TOPIC)
            if route.pattern.startswith(TOPIC) and name not in there:
                pattern = route.pattern.replace(TOPIC, _TOPIC)
                own.append(
                    replace(route, pattern=pattern)
                    if route.name in _ALIKE
                    else _refused(route, pattern)
                )
        return own

    # -- lists

    async def _list(self, call: Call) -> HttpResponse:
        tenant, namespace = call["tenant"], call["namespace"]
        visible = await self._listing.visible_topics(call)
        policies = await self._namespaces.policies(tenant, namespace)
        if call.flag("here"):
            return answer(_visible_names(visible, self._topics.names(tenant, namespace)))
        call.waits_for = "every broker to say which topics it has"
        names = await self._owners.non_persistent_topics(tenant, namespace)
        if bundle := call.text("bundle"):
            self._check_bundle(Bundle(tenant, namespace, bundle), policies)
            names = [
                name for name in names if bundle_of(TopicName.parse(name), policies).range == bundle
            ]
        return answer(call.page(_visible_names(visible, names), str))

    def _check_bundle(self, bundle: Bundle, space: NamespacePolicies) -> None:
        if bundle not in bundles_of(bundle.tenant, bundle.namespace, space):
            raise NotFound(
                f"namespace {bundle.tenant}/{bundle.namespace} has no bundle {bundle.range}"
            )

    async def _of_bundle(self, call: Call) -> HttpResponse:
        bundle = Bundle(call["tenant"], call["namespace"], call["bundle"])
        space = await self._namespaces.policies(bundle.tenant, bundle.namespace)
        self._check_bundle(bundle, space)
        await self._owners.require_bundle(call, bundle)
        here = _visible_names(
            await self._listing.visible_topics(call),
            self._topics.names(bundle.tenant, bundle.namespace),
        )
        return answer(
            call.page(
                [name for name in here if bundle_of(TopicName.parse(name), space) == bundle], str
            )
        )

    async def _partitioned(self, call: Call) -> HttpResponse:
        tenant, namespace = call["tenant"], call["namespace"]
        visible = await self._listing.visible_topics(call)
        await self._namespaces.policies(tenant, namespace)
        names = await self._namespaces.partitioned_topics(tenant, namespace, persistent=False)
        return answer(call.page(_visible_names(visible, names), str))

    # -- one topic

    async def _topic(self, call: Call) -> NonPersistentTopic:
        name = call.topic()
        await self._owners.require(call, name)
        return await self._topics.get(name, create=False)

    async def _create(self, call: Call) -> HttpResponse:
        name = call.topic()
        await self._owners.require(call, name)
        if name.full in self._topics.open:
            raise AlreadyExists(f"topic {name} exists already")
        await self._topics.create(name)
        return no_content()

    async def _delete(self, call: Call) -> HttpResponse:
        name = call.topic()
        if await self._namespaces.partitions(name) is not None:
            raise TopicNotFound(f"{name} is a partitioned topic; delete it at its path /partitions")
        await self._owners.require(call, name)
        await self._topics.delete(name, force=call.flag("force"))
        if name.partition < 0:
            await self._namespaces.remove_grants(name)
        return no_content()

    async def _unload(self, call: Call) -> HttpResponse:
        topic = await self._topic(call)
        self._topics.close(
            topic.name, TopicFenced(f"topic {topic.name} is being unloaded; look it up again")
        )
        return no_content()

    async def _stats(self, call: Call) -> HttpResponse:
        found = self._statistics.not_kept(await self._topic(call))
        if call.flag("excludePublishers"):
            found["publishers"] = []
        if call.flag("excludeConsumers"):
            for subscription in found["subscriptions"].values():
                subscription["consumers"] = []
        return answer(found)

    async def _internal(self, call: Call) -> HttpResponse:
        return answer(non_persistent_internal_stats(await self._topic(call)))

    async def _explain_partitions(self, call: Call, *words: str) -> HttpResponse | None:
        return (
            None
            if call.topic().full in self._topics.open
            else await explain_partitions(call, self._namespaces, self._owners, words)
        )

    async def _explain(self, call: Call) -> HttpResponse:
        return await explained(call, self._report(call))

    async def _report(self, call: Call) -> HttpResponse:
        done = await self._explain_partitions(call, "explain")
        return done or answer(
            topic_report(call.topic().full, self._statistics.not_kept(await self._topic(call)))
        )

    async def _explain_subscription(self, call: Call) -> HttpResponse:
        name = call["subscription"]
        return await explained(call, self._report_subscription(call, name), name)

    async def _report_subscription(self, call: Call, name: str) -> HttpResponse:
        done = await self._explain_partitions(call, "subscription", name, "explain")
        return done or answer(
            subscription_report(
                call.topic().full, name, self._statistics.not_kept(await self._topic(call))
            )
        )

    # -- its subscriptions

    async def _subscriptions(self, call: Call) -> HttpResponse:
        return answer(call.page((await self._topic(call)).subscriptions, str))

    async def _subscribe(self, call: Call) -> HttpResponse:
        topic, name = await self._topic(call), call["subscription"]
        if name in topic.subscriptions:
            raise AlreadyExists(f"topic {topic.name} has a subscription {name!r} already")
        topic.create_subscription(name)
        return no_content()

    async def _unsubscribe(self, call: Call) -> HttpResponse:
        await (await self._topic(call)).unsubscribe(call["subscription"], force=call.flag("force"))
        return no_content()


def _visible_names(visible: Visible, names: Sequence[str]) -> list[str]:
    return [name for name in names if visible is None or is_visible(visible, TopicName.parse(name))]


def _refused(route: Route, pattern: str) -> Route:
    body = None if route.method in ("GET", "DELETE") else Any
    return replace(
        route,
        pattern=pattern,
        handler=partial(_refuse, route.name.replace(TOPIC, "")),
        summary="Refused: there are no stored messages.",
        body=body,
        body_required=False,
        statuses=(405,),
        described=False,
    )


async def _refuse(what: str, call: Call) -> HttpResponse:
    raise not_kept(call.topic(), f"{what} is not possible")
