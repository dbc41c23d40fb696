"""The removal of a drained volume of a bookie that runs. The bookie decides."""

from __future__ import annotations

import posixpath
from typing import Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.bookie_calls import asking_bookie
from pulsarish.broker.http.bookie_names import cookie_of, find_instance
from pulsarish.broker.http.json_bodies import VolumeRemovalBody
from pulsarish.broker.http.route import Call, Route, answer
from pulsarish.broker.http.routes.volume_requests import DIRECTORY, directories_of, name_of_volume
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie
from pulsarish.runtime.seams import HttpResponse

__all__ = ["VolumeRemovalRoutes"]

_PATTERN: Final = "/admin/v2/bookies/removed-volumes/{bookie}"


class VolumeRemovalRoutes:
    def __init__(self, records: Records, ledgers: LedgerClient) -> None:
        self._records = records
        self._ledgers = ledgers

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                _PATTERN,
                self._state,
                Permission.READ_CLUSTER,
                "Show how far the removal of a volume of a bookie is.",
                parameters=(DIRECTORY,),
                answers=VolumeRemovalBody,
                statuses=(404, 503),
            ),
            Route(
                "PUT",
                _PATTERN,
                self._remove,
                Permission.SUPER_USER,
                "Have a bookie go on without a drained volume, once it has proved that nothing "
                "needs it.",
                parameters=(DIRECTORY,),
                answers=VolumeRemovalBody,
                statuses=(404, 503),
            ),
        ]

    async def _state(self, call: Call) -> HttpResponse:
        return await self._ask(call, remove=False)

    async def _remove(self, call: Call) -> HttpResponse:
        return await self._ask(call, remove=True)

    async def _ask(self, call: Call, *, remove: bool) -> HttpResponse:
        bookie = await find_instance(self._records, call["bookie"])
        cookie = await cookie_of(self._records, bookie)
        wanted = posixpath.normpath(call.text("directory"))
        if _is_removed(cookie, wanted):
            return answer(
                VolumeRemovalBody(*bookie, wanted, removing=False, removed=True, refusal="")
            )
        directory = directories_of(cookie)[name_of_volume(cookie, wanted)]
        with asking_bookie(call):
            state = await self._ledgers.control.volume(bookie.instance_id, directory, remove=remove)
        return answer(
            VolumeRemovalBody(
                *bookie,
                directory,
                removing=state.removing,
                removed=state.removed,
                refusal=state.refusal,
            )
        )


def _is_removed(cookie: Cookie, directory: str) -> bool:
    """Return whether an operator has removed the volume that was last in a ledger directory."""
    found = [
        record
        for record in cookie.volumes.values()
        if posixpath.normpath(record.directories[1]) == directory
    ]
    return any(each.is_removed for each in found) and all(each.is_lost for each in found)
