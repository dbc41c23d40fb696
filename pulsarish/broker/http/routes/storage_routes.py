"""Bookies and ledgers, from metadata."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import (
    BookieNameBody,
    BookiesBody,
    Json,
    NewRackBody,
    RackBody,
    RecoverBody,
)
from pulsarish.broker.http.route import (
    AFTER,
    LIMIT,
    NOTHING,
    Call,
    Parameter,
    Route,
    answer,
    no_content,
)
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookiePlace, BookieRacks, BookieRegistration
from pulsarish.model.errors import LimitReached, NoSuchLedger, NotFound
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.values import value_of
from pulsarish.runtime.seams import HttpResponse
from pulsarish.wire.json_record import encode_record

__all__ = ["StorageRoutes"]

_LEDGERS_MAX: Final = 10_000
_RACKS: Final = "/admin/v2/bookies/racks-info"
_RACKS_BYTES_MAX: Final = 512 << 10
"""Half of what a node of the metadata service holds."""
_ANYWHERE: Final = BookiePlace()
_Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=128, pattern="^[^/,\\s]+$")]


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
            Parameter(
                "group",
                "The group of the bookie, for namespaces with bookies of their own.",
                default=_ANYWHERE.group,
            ),
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
                "Show the racks of all bookies, by group.",
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
                self._place,
                admin,
                "Set the rack and the group of a bookie; it need not run.",
                parameters=group,
                body=NewRackBody,
                answers=NOTHING,
            ),
            Route(
                "DELETE",
                _RACKS + "/{bookie}",
                self._displace,
                admin,
                "Remove what was set: the bookie is in the group default then, in the rack that it "
                "says itself.",
                answers=NOTHING,
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

    async def _placed(self) -> dict[str, BookiePlace]:
        found = await self._records.get(paths.BOOKIE_RACKS, BookieRacks)
        return {} if found is None else found[0].bookies

    async def _racks(self, call: Call) -> HttpResponse:
        """Answer with the bookies that are registered, and those that an operator has placed."""
        placed = await self._placed()
        found: dict[str, dict[str, RackBody]] = {}
        for bookie in await self._bookies():
            place = placed.pop(bookie.bookie_id, _ANYWHERE)
            group = found.setdefault(place.group, {})
            group[bookie.bookie_id] = RackBody(place.rack or bookie.rack, bookie.host)
        for name, place in placed.items():
            found.setdefault(place.group, {})[name] = RackBody(place.rack, "")
        return answer(found)

    async def _named(self, given: str) -> tuple[str, BookieRegistration | None]:
        """Return the id of the bookie that is meant, by its id or its address as Apache Pulsar
        names bookies, and its registration.
        """
        registered = await self._bookies()
        for names in (
            {each.bookie_id: each for each in registered},
            {each.address: each for each in registered},
        ):
            if given in names:
                return names[given].bookie_id, names[given]
        return given, None

    async def _rack(self, call: Call) -> HttpResponse:
        name, bookie = await self._named(call["bookie"])
        place = (await self._placed()).get(name)
        if bookie is not None:
            return answer(RackBody((place and place.rack) or bookie.rack, bookie.host))
        if place is None:
            raise NotFound(f"there is no bookie {name!r}")
        return answer(RackBody(place.rack, ""))

    async def _place(self, call: Call) -> HttpResponse:
        name, _ = await self._named(value_of(_Name, call["bookie"], "bookie"))
        group = value_of(_Name, call["group"], "group")
        rack = call.body.rack if call.body is not None else ""
        await self._change(lambda bookies: {**bookies, name: BookiePlace(group, rack)})
        return no_content()

    async def _displace(self, call: Call) -> HttpResponse:
        name, _ = await self._named(call["bookie"])

        def without(bookies: dict[str, BookiePlace]) -> dict[str, BookiePlace]:
            if name not in bookies:
                raise NotFound(f"no rack and no group of a bookie {name!r} is set")
            return {each: place for each, place in bookies.items() if each != name}

        await self._change(without)
        return no_content()

    async def _change(
        self, change: Callable[[dict[str, BookiePlace]], dict[str, BookiePlace]]
    ) -> None:
        def changed(record: BookieRacks | None) -> BookieRacks:
            after = BookieRacks(change((record or BookieRacks()).bookies))
            if len(encode_record(after)) > _RACKS_BYTES_MAX:
                raise LimitReached(
                    f"the racks of bookies would have more than {_RACKS_BYTES_MAX} bytes together: "
                    "remove those of bookies that are gone"
                )
            return after

        _ = await self._records.update(paths.BOOKIE_RACKS, BookieRacks, changed)

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
