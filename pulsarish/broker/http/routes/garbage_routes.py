"""Garbage collection of one bookie, at once."""

from __future__ import annotations

from typing import Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.bookie_calls import asking_bookie
from pulsarish.broker.http.bookie_names import find_instance
from pulsarish.broker.http.json_bodies import GarbageBody
from pulsarish.broker.http.route import Call, Route, answer
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.record_store import Records
from pulsarish.runtime.seams import HttpResponse

__all__ = ["GarbageRoutes"]

_PATTERN: Final = "/admin/v2/bookies/garbage/{bookie}"


class GarbageRoutes:
    def __init__(self, ledgers: LedgerClient, records: Records) -> None:
        self._ledgers = ledgers
        self._records = records

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                _PATTERN,
                self._state,
                Permission.READ_CLUSTER,
                "Show what a bookie's last round of garbage collection did.",
                answers=GarbageBody,
                statuses=(404, 503),
            ),
            Route(
                "PUT",
                _PATTERN,
                self._collect,
                Permission.SUPER_USER,
                "Have a bookie collect garbage now, with major compaction.",
                answers=GarbageBody,
                statuses=(404, 503),
            ),
        ]

    async def _state(self, call: Call) -> HttpResponse:
        return await self._ask(call, begin=False)

    async def _collect(self, call: Call) -> HttpResponse:
        return await self._ask(call, begin=True)

    async def _ask(self, call: Call, *, begin: bool) -> HttpResponse:
        bookie = await find_instance(self._records, call["bookie"])
        with asking_bookie(call):
            state = await self._ledgers.control.collect_garbage(bookie.instance_id, begin=begin)
        return answer(GarbageBody(bookie.instance_id, *state))
