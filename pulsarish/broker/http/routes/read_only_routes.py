"""Bookies that an operator sets read-only. The request is stored in the metadata, and the bookie
follows it.
"""

from __future__ import annotations

from typing import Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.bookie_names import (
    BookieInstance,
    cookie_of,
    find_instance,
    registration_of,
)
from pulsarish.broker.http.json_bodies import ReadOnlyBody
from pulsarish.broker.http.reason import reason_of
from pulsarish.broker.http.route import Call, Parameter, Route, answer
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration, ReadOnlyBookie
from pulsarish.model.errors import NotAllowedError
from pulsarish.runtime.seams import Clock, HttpResponse

__all__ = ["ReadOnlyRoutes", "check_enough_without"]

_PATTERN: Final = "/admin/v2/bookies/read-only/{bookie}"


class ReadOnlyRoutes:
    def __init__(self, records: Records, clock: Clock, options: ManagedLedgerOptions) -> None:
        self._records = records
        self._clock = clock
        self._options = options

    def routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        parameters = (
            Parameter("reason", "Why; bookies and their list show it."),
            Parameter("force", "Also if too few writable ones are left.", bool, default=False),
        )
        return [
            Route(
                "GET",
                _PATTERN,
                self._state,
                read,
                "Show whether a bookie is read-only.",
                answers=ReadOnlyBody,
                statuses=(404,),
            ),
            Route(
                "PUT",
                _PATTERN,
                self._set,
                admin,
                "Set a bookie read-only.",
                parameters=parameters,
                answers=ReadOnlyBody,
                statuses=(404, 405),
            ),
            Route(
                "DELETE",
                _PATTERN,
                self._unset,
                admin,
                "Set a bookie writable.",
                answers=ReadOnlyBody,
                statuses=(404,),
            ),
        ]

    async def _state(self, call: Call) -> HttpResponse:
        return await self._answer(await find_instance(self._records, call["bookie"]))

    async def _set(self, call: Call) -> HttpResponse:
        reason, now_ms = reason_of(call), self._clock.wall_ms()
        bookie = await find_instance(self._records, call["bookie"])
        _ = await cookie_of(self._records, bookie)
        if not call.flag("force"):
            await check_enough_without(self._records, bookie, self._options)
        path = paths.read_only_bookie(bookie.instance_id)
        await self._records.make_parents(path)
        _ = await self._records.update(
            path,
            ReadOnlyBookie,
            lambda found: ReadOnlyBookie(
                bookie.bookie_id,
                bookie.instance_id,
                found.asked_ms if found is not None else now_ms,
                reason or (found.reason if found is not None else ""),
            ),
        )
        return await self._answer(bookie)

    async def _unset(self, call: Call) -> HttpResponse:
        bookie = await find_instance(self._records, call["bookie"])
        await self._records.delete(paths.read_only_bookie(bookie.instance_id))
        return await self._answer(bookie)

    async def _answer(self, bookie: BookieInstance) -> HttpResponse:
        path = paths.read_only_bookie(bookie.instance_id)
        asked = await self._records.get(path, ReadOnlyBookie)
        there = await registration_of(self._records, bookie)
        return answer(
            ReadOnlyBody(
                bookie_id=bookie.bookie_id,
                instance_id=bookie.instance_id,
                asked=asked is not None,
                alive=there is not None,
                read_only=there is not None and there.read_only,
                reason=there.read_only_reason if there is not None else "",
            )
        )


async def check_enough_without(
    records: Records, bookie: BookieInstance, options: ManagedLedgerOptions
) -> None:
    """Raise ``NotAllowedError`` where this broker's ledgers would have too few bookies without this
    one.
    """
    names = [f"{paths.BOOKIES}/{name}" for name in await records.children(paths.BOOKIES)]
    found = await records.get_many(names, BookieRegistration) if names else []
    left = sum(
        row is not None and not row[0].read_only and row[0].instance_id != bookie.instance_id
        for row in found
    )
    needed = options.write_quorum
    if left < needed:
        raise NotAllowedError(
            f"without {bookie.bookie_id} {left} bookies are writable, and {needed} hold each "
            "entry (managed_ledger.write_quorum): start another bookie first, or force it"
        )
