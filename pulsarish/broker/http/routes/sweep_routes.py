"""The request of the leader's sweeper: the owner of a bundle maintains topics of it that are not
open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Meta

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.route import Call, Route, no_content
from pulsarish.broker.ownership.bundles import Bundle, bundle_of
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse

__all__ = ["SweepRoutes"]

_BUNDLE: Final = "/admin/v2/namespaces/{tenant}/{namespace}/{bundle}"
_WORD: Final = "lookAfter"

Names = Annotated[
    list[str],
    Meta(
        min_length=1,
        max_length=1_000,
        description="Names of topics of the bundle, without the namespace.",
    ),
]


class SweepRoutes:
    def __init__(self, namespaces: Namespaces, topics: LoadedTopics, owners: OwnerCalls) -> None:
        self._namespaces = namespaces
        self._topics = topics
        self._owners = owners

    def routes(self) -> list[Route]:
        what = (
            "Open topics that no broker has open, do what their policies say is due, and "
            "close them again."
        )
        return [
            Route(
                "POST",
                f"{_BUNDLE}/{_WORD}",
                self._look_after,
                Permission.ADMIN_NAMESPACE,
                what,
                body=Names,
                body_required=True,
                owner=True,
            )
        ]

    async def ask(self, bundle: Bundle, names: Sequence[str]) -> None:
        """Ask the owner of a bundle, on whichever broker it is, to maintain topics.

        Raises its error.
        """
        await self._owners.send_bundle(bundle, OwnerCall("POST", (_WORD,), body=list(names)))

    async def _look_after(self, call: Call) -> HttpResponse:
        bundle = Bundle(call["tenant"], call["namespace"], call["bundle"])
        policies = await self._namespaces.policies(bundle.tenant, bundle.namespace)
        topics = [
            TopicName.parse(f"persistent://{bundle.tenant}/{bundle.namespace}/{name}")
            for name in call.body
        ]
        for name in topics:
            if bundle_of(name, policies) != bundle:
                raise InvalidArgument(
                    f"topic {name} is not in bundle {bundle.range}; it is in "
                    f"{bundle_of(name, policies).range}"
                )
        await self._owners.require_bundle(call, bundle)
        call.waits_for = f"{len(topics)} topics to be looked after"
        await self._topics.look_after_closed(topics)
        return no_content()
