"""The trash of the bookies: deleted ledgers whose space is not freed yet."""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import TrashBody, TrashedLedgerBody, TrashResultBody
from pulsarish.broker.http.route import Call, Parameter, Route, answer
from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.client import LedgerClient
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.seams import HttpResponse

__all__ = ["TrashRoutes"]

_TRASH: Final = "/admin/v2/bookies/trash"
_AFTER: Final = Parameter("after", "Only ledgers above this one.", int, default=-1)
_LIMIT: Final = Parameter(
    "limit", "The most ledgers to list.", int, minimum=1, maximum=1_000, default=1_000
)
_CALL_LEDGERS: Final = 20
"""Ledgers named in one call to a bookie: each ledger may have many entries."""


class TrashRoutes:
    def __init__(self, ledgers: LedgerClient) -> None:
        self._ledgers = ledgers

    def routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        return [
            Route(
                "GET",
                _TRASH,
                self._list,
                read,
                "List the deleted ledgers whose space is not freed yet.",
                parameters=(_AFTER, _LIMIT),
                answers=list[TrashedLedgerBody],
            ),
            Route(
                "POST",
                _TRASH + "/restore",
                self._restore,
                admin,
                "Take ledgers out of the trash of every bookie.",
                body=TrashBody,
                body_required=True,
                answers=TrashResultBody,
            ),
            Route(
                "POST",
                _TRASH + "/empty",
                self._empty,
                admin,
                "Delete ledgers in the trash of every bookie for good; all of them when none is "
                "named.",
                body=TrashBody,
                body_required=True,
                answers=TrashResultBody,
            ),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        call.waits_for = "the bookies"
        found: list[TrashedLedgerBody] = []
        for member, rows in (await self._trash()).items():
            if isinstance(rows, NoAnswer):
                found.append(TrashedLedgerBody(member, error=str(rows)))
            else:
                found += rows
        after, limit = call.number("after"), call.number("limit")
        # A page has whole ledgers, each with a row for each bookie. Bookies that do not answer are
        # on each page.
        page = set(sorted({row.ledger_id for row in found if row.ledger_id > after})[:limit])
        rows = [row for row in found if row.error or row.ledger_id in page]
        return answer(sorted(rows, key=lambda row: (row.ledger_id, row.bookie)))

    async def _restore(self, call: Call) -> HttpResponse:
        if not call.body.ledgers:
            raise InvalidArgument(
                "name the ledgers to take out of the trash; GET bookies/trash lists what is there"
            )
        return await self._change(call, restore=True)

    async def _empty(self, call: Call) -> HttpResponse:
        return await self._change(call, restore=False)

    async def _trash(self) -> dict[str, list[TrashedLedgerBody] | NoAnswer]:
        """Return the trash of each registered bookie."""
        control, members = self._ledgers.control, self._ledgers.bookies.members()

        async def ask(member: str) -> list[TrashedLedgerBody] | NoAnswer:
            rows: list[TrashedLedgerBody] = []
            after, more = -1, True
            try:
                while more:
                    page, more = await control.list_trash(member, after)
                    rows += [TrashedLedgerBody(member, *each) for each in page]
                    after = page[-1].ledger_id if page else after
                    more = more and bool(page)
            except NoAnswer as error:
                return error
            return rows

        return dict(
            zip(members, await asyncio.gather(*(ask(member) for member in members)), strict=True)
        )

    async def _change(self, call: Call, *, restore: bool) -> HttpResponse:
        call.waits_for = "the bookies"
        wanted = dict.fromkeys(call.body.ledgers)
        result = TrashResultBody()

        async def change(member: str, rows: list[TrashedLedgerBody] | NoAnswer) -> None:
            if isinstance(rows, NoAnswer):
                result.errors[member] = str(rows)
                return
            mine = [row.ledger_id for row in rows if not wanted or row.ledger_id in wanted]
            done = result.ledgers.setdefault(member, [])
            try:
                for first in range(0, len(mine), _CALL_LEDGERS):
                    done += await self._ledgers.control.change_trash(
                        member, mine[first : first + _CALL_LEDGERS], restore=restore
                    )
            except NoAnswer as error:
                result.errors[member] = str(error)

        await asyncio.gather(
            *(change(member, rows) for member, rows in (await self._trash()).items())
        )
        return answer(result)
