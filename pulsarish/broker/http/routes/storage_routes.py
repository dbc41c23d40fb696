"""Bookies and ledgers, from metadata."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import (
    BookieNameBody,
    BookiesBody,
    Json,
    RackBody,
    RecoverBody,
)
from pulsarish.broker.http.route import AFTER, LIMIT, Call, Parameter, Route, answer
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration
from pulsarish.model.errors import NoSuchLedger, NotFound, UnsupportedFeature
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.seams import HttpResponse

__all__ = ["StorageRoutes"]

_LEDGERS_MAX: Final = 10_000
_RACKS: Final = "/admin/v2/bookies/racks-info"
# Apache Pulsar has groups of bookies for namespaces with bookies of their own; here all bookies are
# in one group.
_GROUP: Final = "default"


class StorageRoutes:
    def __init__(self, records: Records, ledgers: LedgerClient) -> None:
        self._records = records
        self._client = ledgers

    def routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        ledger = (Parameter("ledger", "A ledger's id.", int, minimum=0),)
        page = (
            Parameter("after", "Only ids above this one.", int, minimum=-1, default=-1),
            Parameter(
                "limit",
                "Greatest number of ids.",
                int,
                minimum=1,
                maximum=_LEDGERS_MAX,
                default=_LEDGERS_MAX,
            ),
        )
        group = (
            Parameter("group", "There is one group, default.", choices=(_GROUP,), default=_GROUP),
        )
        return [
            Route(
                "GET",
                "/admin/v2/bookies",
                self._registrations,
                read,
                "List the registrations of the bookies.",
                parameters=(AFTER, LIMIT),
                answers=list[Json],
            ),
            Route(
                "GET",
                "/admin/v2/bookies/all",
                self._names,
                read,
                "List the bookies.",
                answers=BookiesBody,
            ),
            Route(
                "GET",
                _RACKS,
                self._racks,
                read,
                "Show the racks of all bookies.",
                answers=dict[str, dict[str, RackBody]],
            ),
            Route(
                "GET",
                _RACKS + "/{bookie}",
                self._rack,
                read,
                "Show the rack of a bookie.",
                answers=RackBody,
            ),
            Route(
                "POST",
                _RACKS + "/{bookie}",
                self._move,
                admin,
                "Refused: a bookie names its rack itself, by its option.",
                parameters=group,
                body=Json,
                statuses=(501,),
            ),
            Route(
                "DELETE",
                _RACKS + "/{bookie}",
                self._move,
                admin,
                "Refused: a bookie names its rack itself, by its option.",
                statuses=(501,),
            ),
            Route(
                "GET",
                "/admin/v2/ledgers",
                self._ledgers,
                read,
                "List the ids of the ledgers, ascending.",
                parameters=page,
                answers=list[int],
            ),
            Route(
                "GET",
                "/admin/v2/ledgers/{ledger}",
                self._ledger,
                read,
                "Show the metadata of a ledger.",
                parameters=ledger,
                answers=Json,
            ),
            Route(
                "POST",
                "/admin/v2/ledgers/{ledger}/recover",
                self._recover,
                admin,
                "Close one whose bookies are gone for good; what only they had at its end is lost.",
                parameters=ledger,
                body=RecoverBody,
                body_required=True,
                answers=Json,
                statuses=(405,),
            ),
        ]

    async def _bookies(self) -> list[BookieRegistration]:
        names = await self._records.children(paths.BOOKIES)
        found = (
            await self._records.get_many(
                [f"{paths.BOOKIES}/{name}" for name in names], BookieRegistration
            )
            if names
            else []
        )
        return [record[0] for record in found if record is not None]

    async def _registrations(self, call: Call) -> HttpResponse:
        return answer(
            call.page(
                [msgspec.to_builtins(bookie) for bookie in await self._bookies()],
                itemgetter("bookie_id"),
            )
        )

    async def _names(self, call: Call) -> HttpResponse:
        return answer(
            BookiesBody([BookieNameBody(bookie.bookie_id) for bookie in await self._bookies()])
        )

    async def _racks(self, call: Call) -> HttpResponse:
        return answer(
            {
                _GROUP: {
                    bookie.bookie_id: RackBody(bookie.rack, bookie.host)
                    for bookie in await self._bookies()
                }
            }
        )

    async def _rack(self, call: Call) -> HttpResponse:
        for bookie in await self._bookies():
            if bookie.bookie_id == call["bookie"]:
                return answer(RackBody(bookie.rack, bookie.host))
        raise NotFound(f"there is no bookie {call['bookie']!r}")

    async def _move(self, call: Call) -> HttpResponse:
        raise UnsupportedFeature(
            "a bookie says itself which rack it stands in: set its option rack and restart it"
        )

    async def _ledgers(self, call: Call) -> HttpResponse:
        """Return a page of ledger ids. Reads the tree only as far as the page needs."""
        limit = call.number("limit")
        found: list[int] = []
        async for branch in ledger_ids(self._records, after=call.number("after")):
            found += branch
            if len(found) >= limit:
                break
        return answer(found[:limit])

    async def _ledger(self, call: Call) -> HttpResponse:
        ledger_id = call.number("ledger")
        record = await self._records.get(paths.ledger(ledger_id), LedgerMetadata)
        if record is None:
            raise NoSuchLedger(f"ledger {ledger_id} does not exist")
        return answer(msgspec.to_builtins(record[0]))

    async def _recover(self, call: Call) -> HttpResponse:
        ledger_id = call.number("ledger")
        call.waits_for = f"the bookies of ledger {ledger_id} that are left"
        return answer(
            msgspec.to_builtins(
                await self._client.recover_without(ledger_id, call.body.given_up_bookies)
            )
        )
