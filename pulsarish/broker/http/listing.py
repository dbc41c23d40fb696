"""Lists of topics, read from metadata in pieces: a namespace may have hundreds of thousands, and
the event loop has other work.

Requests for the same list at the same time share one read and one answer. A page continues after
the last name of the page before, in the order of the metadata tree.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final

import msgspec

from pulsarish.broker.clients.authorization import CLUSTER, Gate, Resource, Visible, is_visible
from pulsarish.broker.http.admission import LoopShare
from pulsarish.broker.http.route import Call
from pulsarish.broker.ownership.bundles import Bundle, bundle_of, bundles_of
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import NotFound
from pulsarish.model.topic_name import TopicName, decode_segment, encode_segment
from pulsarish.runtime.seams import HttpResponse, World

__all__ = ["Listing"]

# Names that are processed before other tasks may run: about half a millisecond.
_PIECE: Final = 250
# After a read, pause for this multiple of its duration if more requests for the list wait.
_PAUSES: Final = 20
_PAUSE_MAX_SECONDS: Final = 1.0
# The broker's own topics, which a list leaves out unless they are requested.
_SYSTEM: Final = ("__",)


class Listing:
    """Lists for the handlers of one broker."""

    def __init__(
        self,
        world: World,
        records: Records,
        namespaces: Namespaces,
        share: LoopShare,
        gate: Gate,
    ) -> None:
        self._gate = gate
        self._world = world
        self._share = share
        self._records = records
        self._namespaces = namespaces
        # By key of the list: the next read, which new requests may share, and the lists that are
        # being read.
        self._next: dict[Hashable, asyncio.Future[Any]] = {}
        self._reading: set[Hashable] = set()

    async def children(self, path: str) -> list[str]:
        """Return the sorted names below a path, not older than this call.

        The list is shared: do not change it.
        """
        found: list[str] = await self._shared(path, lambda: self._records.children(path))
        return found

    async def _shared(
        self, asked_for: Hashable, read: Callable[[], Coroutine[Any, Any, object]]
    ) -> Any:
        shared = self._next.get(asked_for)
        if shared is None:
            shared = self._next[asked_for] = asyncio.get_running_loop().create_future()
            if asked_for not in self._reading:
                self._reading.add(asked_for)
                _ = self._world.tasks.spawn(self._read(asked_for, read), name=f"list {asked_for}")
        return await asyncio.shield(shared)

    async def _read(
        self, asked_for: Hashable, read: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        try:
            while asked_for in self._next:
                asked = self._next.pop(asked_for)
                began = self._world.clock.monotonic()
                try:
                    asked.set_result(await self._share.run(read()))
                except Exception as error:  # noqa: BLE001
                    # Whatever it is, all requests that wait get it.
                    asked.set_exception(error)
                if asked_for in self._next:
                    # More requests wait. All share the next read, so a long list is not read again
                    # and again without a pause.
                    await self._world.clock.sleep(
                        min(_PAUSES * (self._world.clock.monotonic() - began), _PAUSE_MAX_SECONDS)
                    )
        finally:
            self._reading.discard(asked_for)

    async def topics(self, call: Call, *, partitioned: bool = False) -> HttpResponse:
        """Answer with the names of the call's namespace that its caller may see, by its ``bundle``,
        ``includeSystemTopic``, ``after`` and ``limit``.
        """
        visible = await self.visible_topics(call)

        async def body() -> bytes:
            found = await self.names(call, partitioned=partitioned, visible=visible)
            return msgspec.json.encode([name.full for name in found])

        call.waits_for = f"the list of topics of {call['tenant']}/{call['namespace']}"
        asked_for = (
            call.request.segments,
            partitioned,
            visible,
            *sorted(call.request.query.items()),
        )
        return HttpResponse(200, await self._shared(asked_for, body))

    async def visible_topics(self, call: Call) -> Visible:
        """Return which topics of the call's namespace its caller may see.

        Raises ``AuthorizationError`` when there are none.
        """
        return await self._gate.visible(
            "lists of topics", call.identity, Resource(call["tenant"], call["namespace"])
        )

    async def visible_namespaces(self, call: Call) -> Visible:
        """Return which namespaces of the call's tenant its caller may see, by local name.

        Raises ``AuthorizationError`` when there are none.
        """
        return await self._gate.visible(
            "lists of namespaces", call.identity, Resource(call["tenant"])
        )

    async def visible_tenants(self, call: Call) -> Visible:
        """Return which tenants a caller may see."""
        return await self._gate.visible("lists of tenants", call.identity, CLUSTER)

    async def names(
        self, call: Call, *, partitioned: bool = False, visible: Visible = None
    ) -> list[TopicName]:
        """Return the topics of the call's namespace, of those that are ``visible``."""
        tenant, namespace = call["tenant"], call["namespace"]
        policies = await self._namespaces.policies(tenant, namespace)
        bundle = call.text("bundle")
        if bundle and Bundle(tenant, namespace, bundle) not in bundles_of(
            tenant, namespace, policies
        ):
            raise NotFound(f"namespace {tenant}/{namespace} has no bundle {bundle}")
        path = (
            paths.partitioned_namespace(tenant, namespace)
            if partitioned
            else paths.namespace_topics(tenant, namespace)
        )
        encoded = await self.children(path)
        after, limit = call.text("after"), call.given("limit")
        at = bisect_right(encoded, encode_segment(TopicName.parse(after).local)) if after else 0
        found: list[TopicName] = []
        while at < len(encoded) and (limit is None or len(found) < limit):
            for segment in encoded[at : at + _PIECE]:
                name = TopicName(tenant, namespace, decode_segment(segment))
                if not call.flag("includeSystemTopic") and name.local.startswith(_SYSTEM):
                    continue
                if bundle and bundle_of(name, policies).range != bundle:
                    continue
                if not is_visible(visible, name):
                    continue
                found.append(name)
            at += _PIECE
            await self._world.clock.sleep(0)
        return found if limit is None else found[:limit]

    async def page(self, call: Call, path: str, visible: Visible) -> list[str]:
        """Return the decoded names below a path, of those that are ``visible``, by the call's
        ``after`` and ``limit``.
        """
        names = [decode_segment(name) for name in await self.children(path)]
        return call.page([name for name in names if visible is None or name in visible], str)
