"""Drains of single volumes of bookies: the request is stored in the metadata, and the bookie
follows it and says how far it is.
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
from pulsarish.broker.http.json_bodies import VolumeDrainBody, WaitingLedgerBody
from pulsarish.broker.http.reason import reason_of
from pulsarish.broker.http.route import Call, Route, answer
from pulsarish.broker.http.routes.volume_requests import (
    CORDON_PARAMETERS,
    DIRECTORY,
    ask_to_cordon,
    directories_of,
    name_of_volume,
)
from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.bookie_states import VolumeState
from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, CordonedVolumes
from pulsarish.runtime.seams import HttpResponse

__all__ = ["VolumeDrainRoutes"]

_PATTERN: Final = "/admin/v2/bookies/drained-volumes/{bookie}"


class VolumeDrainRoutes:
    def __init__(
        self, records: Records, ledgers: LedgerClient, options: ManagedLedgerOptions
    ) -> None:
        self._records = records
        self._ledgers = ledgers
        self._options = options

    def routes(self) -> list[Route]:
        return [
            Route(
                "GET",
                _PATTERN,
                self._state,
                Permission.READ_CLUSTER,
                "Show how far the drain of a volume of a bookie is.",
                parameters=(DIRECTORY,),
                answers=VolumeDrainBody,
                statuses=(404,),
            ),
            Route(
                "PUT",
                _PATTERN,
                self._drain,
                Permission.SUPER_USER,
                "Cordon a volume of a bookie and have the copies there made on other bookies.",
                parameters=CORDON_PARAMETERS,
                answers=VolumeDrainBody,
                statuses=(404, 405),
            ),
        ]

    async def _state(self, call: Call) -> HttpResponse:
        bookie = await find_instance(self._records, call["bookie"])
        return await self._answer(call, bookie, await cookie_of(self._records, bookie))

    async def _drain(self, call: Call) -> HttpResponse:
        reason = reason_of(call)
        bookie = await find_instance(self._records, call["bookie"])
        cookie = await ask_to_cordon(
            self._records,
            self._options,
            bookie,
            call.text("directory"),
            reason=reason,
            force=call.flag("force"),
            drain=True,
        )
        return await self._answer(call, bookie, cookie)

    async def _answer(self, call: Call, bookie: BookieInstance, cookie: Cookie) -> HttpResponse:
        name = name_of_volume(cookie, call.text("directory"))
        directory = directories_of(cookie)[name]
        path = paths.cordoned_volumes(bookie.instance_id)
        found = await self._records.get(path, CordonedVolumes)
        is_alive = await registration_of(self._records, bookie) is not None
        call.waits_for = "the bookie"
        state = VolumeState(False, False, 0, 0, "", [])
        if is_alive:
            try:
                state = await self._ledgers.control.volume(bookie.instance_id, directory)
            except NoAnswer as error:
                state = state._replace(failure=str(error))
        return answer(
            VolumeDrainBody(
                bookie_id=bookie.bookie_id,
                instance_id=bookie.instance_id,
                directory=directory,
                asked=found is not None and name in found[0].draining,
                alive=is_alive,
                draining=state.draining,
                drained=state.draining
                and state.looked
                and not (state.closed_ledgers or state.open_ledgers or state.failure),
                closed_ledgers=state.closed_ledgers,
                open_ledgers=state.open_ledgers,
                waiting=[WaitingLedgerBody(*each) for each in state.waiting],
                failure=state.failure,
            )
        )
