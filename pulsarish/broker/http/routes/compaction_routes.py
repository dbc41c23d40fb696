"""Compaction of topics on demand, and its state.

For a partitioned topic it covers each partition.
"""

from __future__ import annotations

from typing import Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.compaction.compaction import VIEW_SUBSCRIPTION, CompactionState
from pulsarish.broker.http.json_bodies import CompactionBody
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.partitions import each_done, settled
from pulsarish.broker.http.route import Call, Route, answer, no_content
from pulsarish.broker.http.routes.topic_routes import TOPIC
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.model.errors import NotFound
from pulsarish.runtime.seams import HttpResponse

__all__ = ["CompactionRoutes"]

_PATH: Final = TOPIC + "/compaction"
_WORST_FIRST: Final = (
    CompactionState.RUNNING,
    CompactionState.ERROR,
    CompactionState.NOT_RUN,
    CompactionState.SUCCESS,
)


class CompactionRoutes:
    def __init__(self, namespaces: Namespaces, owners: OwnerCalls) -> None:
        self._namespaces = namespaces
        self._owners = owners

    def routes(self) -> list[Route]:
        purge, read = Permission.PURGE, Permission.READ_TOPIC
        return [
            Route(
                "PUT",
                _PATH,
                self._start,
                purge,
                "Start a compaction of the topic, and answer at once.",
                statuses=(409,),
                owner=True,
            ),
            Route(
                "GET",
                _PATH,
                self._status,
                read,
                "Show the result of the topic's last compaction.",
                answers=CompactionBody,
                owner=True,
            ),
            Route(
                "DELETE",
                f"{TOPIC}/subscription/{VIEW_SUBSCRIPTION}",
                self._forget,
                purge,
                "Delete the topic's compacted view.",
                owner=True,
            ),
        ]

    async def _start(self, call: Call) -> HttpResponse:
        name = call.topic()
        errand = OwnerCall("PUT", ("compaction",))
        done = await each_done(call, self._namespaces, self._owners, errand)
        if done is not None:
            return done
        (await self._owners.topic(call, name)).compaction.start()
        return no_content()

    async def _status(self, call: Call) -> HttpResponse:
        name = call.topic()
        partitions = await self._namespaces.partition_names(name)
        if partitions is not None:
            answers = settled(
                await self._owners.send_all(call, partitions, OwnerCall("GET", ("compaction",))),
                unless=(NotFound,),
            )
            return answer(
                min(
                    (CompactionBody(each["status"], each["lastError"]) for each in answers),
                    key=lambda each: _WORST_FIRST.index(CompactionState(each.status)),
                )
            )
        compaction = (await self._owners.topic(call, name)).compaction
        return answer(CompactionBody(compaction.state, compaction.last_error))

    async def _forget(self, call: Call) -> HttpResponse:
        name = call.topic()
        errand = OwnerCall("DELETE", ("subscription", VIEW_SUBSCRIPTION))
        done = await each_done(call, self._namespaces, self._owners, errand)
        if done is not None:
            return done
        await (await self._owners.topic(call, name)).compaction.forget()
        return no_content()
