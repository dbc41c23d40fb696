"""Volumes of bookies that an operator cordons: they take no new ledgers. The request is stored in
the metadata, and the bookie follows it.
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
from pulsarish.broker.http.json_bodies import CordonBody
from pulsarish.broker.http.reason import reason_of
from pulsarish.broker.http.route import Call, Route, answer
from pulsarish.broker.http.routes.volume_requests import (
    CORDON_PARAMETERS,
    DIRECTORY,
    ask_to_cordon,
    directories_of,
    end_cordon,
)
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, CordonedVolumes
from pulsarish.runtime.seams import HttpResponse

__all__ = ["CordonRoutes"]

_PATTERN: Final = "/admin/v2/bookies/cordoned/{bookie}"


class CordonRoutes:
    def __init__(self, records: Records, options: ManagedLedgerOptions) -> None:
        self._records = records
        self._options = options

    def routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        return [
            Route(
                "GET",
                _PATTERN,
                self._state,
                read,
                "Show which volumes of a bookie are cordoned.",
                answers=CordonBody,
                statuses=(404,),
            ),
            Route(
                "PUT",
                _PATTERN,
                self._cordon,
                admin,
                "Have a volume of a bookie take no new ledgers.",
                parameters=CORDON_PARAMETERS,
                answers=CordonBody,
                statuses=(404, 405),
            ),
            Route(
                "DELETE",
                _PATTERN,
                self._uncordon,
                admin,
                "Have a volume of a bookie take new ledgers again.",
                parameters=(DIRECTORY,),
                answers=CordonBody,
                statuses=(404,),
            ),
        ]

    async def _state(self, call: Call) -> HttpResponse:
        bookie = await find_instance(self._records, call["bookie"])
        return await self._answer(bookie, await cookie_of(self._records, bookie))

    async def _cordon(self, call: Call) -> HttpResponse:
        reason = reason_of(call)
        bookie = await find_instance(self._records, call["bookie"])
        cookie = await ask_to_cordon(
            self._records,
            self._options,
            bookie,
            call.text("directory"),
            reason=reason,
            force=call.flag("force"),
        )
        return await self._answer(bookie, cookie)

    async def _uncordon(self, call: Call) -> HttpResponse:
        bookie = await find_instance(self._records, call["bookie"])
        cookie = await end_cordon(self._records, bookie, call.text("directory"))
        return await self._answer(bookie, cookie)

    async def _answer(self, bookie: BookieInstance, cookie: Cookie) -> HttpResponse:
        found = await self._records.get(paths.cordoned_volumes(bookie.instance_id), CordonedVolumes)
        asked = {} if found is None else found[0].volumes
        there = await registration_of(self._records, bookie)
        return answer(
            CordonBody(
                bookie_id=bookie.bookie_id,
                instance_id=bookie.instance_id,
                asked={
                    directory: asked[name]
                    for name, directory in directories_of(cookie).items()
                    if name in asked
                },
                alive=there is not None,
                cordoned=[] if there is None else list(there.cordoned_directories),
                read_only=there is not None and there.read_only,
            )
        )
