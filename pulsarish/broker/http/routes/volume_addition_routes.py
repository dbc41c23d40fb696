"""The addition of a volume to a bookie that runs. The bookie decides."""

from __future__ import annotations

import posixpath
from typing import Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.bookie_calls import asking_bookie
from pulsarish.broker.http.bookie_names import find_instance
from pulsarish.broker.http.json_bodies import VolumeAdditionBody
from pulsarish.broker.http.route import Call, Parameter, Route, answer
from pulsarish.broker.http.routes.volume_requests import DIRECTORY
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.record_store import Records
from pulsarish.runtime.seams import HttpResponse

__all__ = ["VolumeAdditionRoutes"]

_PATTERN: Final = "/admin/v2/bookies/added-volumes/{bookie}"


class VolumeAdditionRoutes:
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
                "Show how far the addition of a volume to a bookie is.",
                parameters=(DIRECTORY,),
                answers=VolumeAdditionBody,
                statuses=(404, 503),
            ),
            Route(
                "PUT",
                _PATTERN,
                self._add,
                Permission.SUPER_USER,
                "Have a bookie that runs take one more volume, once it has checked its "
                "directories.",
                parameters=(
                    DIRECTORY,
                    Parameter("journalDirectory", "The volume's for its journal.", required=True),
                    Parameter("indexDirectory", "The volume's for its index.", required=True),
                ),
                answers=VolumeAdditionBody,
                statuses=(404, 503),
            ),
        ]

    async def _state(self, call: Call) -> HttpResponse:
        return await self._ask(call, "", "", add=False)

    async def _add(self, call: Call) -> HttpResponse:
        return await self._ask(
            call, call.text("journalDirectory"), call.text("indexDirectory"), add=True
        )

    async def _ask(self, call: Call, journal: str, index: str, *, add: bool) -> HttpResponse:
        bookie = await find_instance(self._records, call["bookie"])
        directory = posixpath.normpath(call.text("directory"))
        with asking_bookie(call):
            state = await self._ledgers.control.add_volume(
                bookie.instance_id, (journal, directory, index), add=add
            )
        return answer(
            VolumeAdditionBody(
                *bookie,
                directory,
                adding=state.adding,
                added=state.added,
                refusal=state.refusal,
            )
        )
