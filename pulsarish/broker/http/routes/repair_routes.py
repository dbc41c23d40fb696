"""Under-replicated ledgers, and bookies that an operator gives up: reads the state of
auto-recovery, and requests its work.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.bookie_names import BookieInstance, find_instance, registration_of
from pulsarish.broker.http.json_bodies import Json
from pulsarish.broker.http.route import Call, Parameter, Route, answer
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import GivenUpBookie, UnderReplicated
from pulsarish.model.errors import NotAllowedError
from pulsarish.runtime.seams import Clock, HttpResponse

__all__ = ["RepairRoutes"]

_PAGE_MAX: Final = 1_000
_DECOMMISSION: Final = "/admin/v2/bookies/decommission/{bookie}"


class RepairRoutes:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        page = (
            Parameter("after", "Only ledgers above this one.", int, minimum=-1, default=-1),
            Parameter(
                "limit",
                "Greatest number of items.",
                int,
                minimum=1,
                maximum=_PAGE_MAX,
                default=_PAGE_MAX,
            ),
        )
        return [
            Route(
                "GET",
                "/admin/v2/bookies/underreplicated",
                self._lacking,
                read,
                "List the under-replicated ledgers.",
                page,
                answers=list[Json],
            ),
            Route(
                "GET",
                _DECOMMISSION,
                self._progress,
                read,
                "Show the progress of a bookie's decommission.",
                answers=Json,
                statuses=(404,),
            ),
            Route(
                "PUT",
                _DECOMMISSION,
                self._give_up,
                admin,
                "Decommission a stopped bookie.",
                answers=Json,
                statuses=(404, 405),
            ),
        ]

    async def _lacking(self, call: Call) -> HttpResponse:
        after, limit = call.number("after"), call.number("limit")
        ledger_ids = sorted(
            paths.underreplicated_ids(await self._records.children(paths.UNDERREPLICATED))
        )
        wanted = [
            paths.underreplicated(ledger_id) for ledger_id in ledger_ids if ledger_id > after
        ][:limit]
        found = await self._records.get_many(wanted, UnderReplicated) if wanted else []
        return answer([msgspec.to_builtins(record[0]) for record in found if record is not None])

    async def _progress(self, call: Call) -> HttpResponse:
        return answer(await self._state_of(await find_instance(self._records, call["bookie"])))

    async def _give_up(self, call: Call) -> HttpResponse:
        """Give up a bookie. It must not be registered.

        A live bookie must be stopped first, or it would accept the replicas that are being moved
        away from it.
        """
        bookie = await find_instance(self._records, call["bookie"])
        there = await registration_of(self._records, bookie)
        if there is not None:
            raise NotAllowedError(
                f"bookie {bookie.bookie_id} is alive at {there.address}: stop it first, then "
                "give it up"
            )
        asked_ms = self._clock.wall_ms()
        _ = await self._records.update(
            paths.given_up(bookie.instance_id),
            GivenUpBookie,
            lambda found: (
                GivenUpBookie(bookie.bookie_id, bookie.instance_id, asked_ms)
                if found is None
                else None
            ),
        )
        return answer(await self._state_of(bookie))

    async def _state_of(self, bookie: BookieInstance) -> Json:
        found = await self._records.get(paths.given_up(bookie.instance_id), GivenUpBookie)
        return {
            "bookieId": bookie.bookie_id,
            "instanceId": bookie.instance_id,
            "givenUp": found is not None,
            "lookedThroughLedgers": found is not None and found[0].walked_ms > 0,
            "underReplicatedLedgers": len(await self._records.children(paths.UNDERREPLICATED)),
        }
