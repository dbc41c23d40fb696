"""Volumes of bookies that an operator cordons: they take no new ledgers. The request is stored in
the metadata, and the bookie follows it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.bookie_names import (
    BookieInstance,
    cookie_of,
    find_instance,
    registration_of,
)
from pulsarish.broker.http.json_bodies import CordonBody
from pulsarish.broker.http.reason import reason_of
from pulsarish.broker.http.route import Call, Parameter, Route, answer
from pulsarish.broker.http.routes.read_only_routes import check_enough_without
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, CordonedVolumes
from pulsarish.model.errors import CorruptData, NotAllowed, NotFound
from pulsarish.runtime.seams import HttpResponse

__all__ = ["CordonRoutes"]

_PATTERN: Final = "/admin/v2/bookies/cordoned/{bookie}"


class CordonRoutes:
    def __init__(self, records: Records, options: ManagedLedgerOptions) -> None:
        self._records = records
        self._options = options

    def routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        directory = Parameter("directory", "The ledger directory of the volume.", required=True)
        parameters = (
            directory,
            Parameter("reason", "Why; the bookie shows it."),
            Parameter(
                "force",
                "Also if no volume is left, and too few bookies are writable then.",
                bool,
                default=False,
            ),
        )
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
                parameters=parameters,
                answers=CordonBody,
                statuses=(404, 405),
            ),
            Route(
                "DELETE",
                _PATTERN,
                self._uncordon,
                admin,
                "Have a volume of a bookie take new ledgers again.",
                parameters=(directory,),
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
        cookie = await cookie_of(self._records, bookie)
        volumes = _directories(cookie)
        if len(volumes) < 2:
            raise NotAllowed(
                f"bookie {bookie.bookie_id} has one volume: set the whole bookie read-only "
                f"instead: pulsarish bookies set-read-only {bookie.bookie_id}"
            )
        name = _name_of(cookie, call.text("directory"))
        path = paths.cordoned_volumes(bookie.instance_id)
        found = await self._records.get(path, CordonedVolumes)
        cordoned = {} if found is None else found[0].volumes
        if not call.flag("force") and not volumes.keys() - cordoned.keys() - {name}:
            # It is the last one: the bookie becomes read-only.
            await check_enough_without(self._records, bookie, self._options)
        await self._records.make_parents(path)
        lost = {each for each, volume in cookie.volumes.items() if volume.is_lost}

        def changed(found: CordonedVolumes | None) -> CordonedVolumes:
            found = found or CordonedVolumes(bookie.bookie_id, bookie.instance_id)
            asked = {each: why for each, why in found.volumes.items() if each not in lost}
            asked[name] = reason or asked.get(name, "")
            return msgspec.structs.replace(found, volumes=asked)

        _ = await self._records.update(path, CordonedVolumes, changed)
        return await self._answer(bookie, cookie)

    async def _uncordon(self, call: Call) -> HttpResponse:
        bookie = await find_instance(self._records, call["bookie"])
        cookie = await cookie_of(self._records, bookie)
        name = _name_of(cookie, call.text("directory"))

        def changed(found: CordonedVolumes | None) -> CordonedVolumes | None:
            if found is None or name not in found.volumes:
                return None
            left = {each: why for each, why in found.volumes.items() if each != name}
            return msgspec.structs.replace(found, volumes=left)

        path = paths.cordoned_volumes(bookie.instance_id)
        try:
            _ = await self._records.update(path, CordonedVolumes, changed)
        except CorruptData:
            # As ``set-writable`` does: otherwise nothing could end a request that is damaged.
            await self._records.delete(path)
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
                    for name, directory in _directories(cookie).items()
                    if name in asked
                },
                alive=there is not None,
                cordoned=[] if there is None else list(there.cordoned_directories),
                read_only=there is not None and there.read_only,
            )
        )


def _directories(cookie: Cookie) -> dict[str, str]:
    """Return the ledger directories of a bookie's volumes that are not lost, by volume name."""
    volumes = cookie.volumes.items()
    found = {name: each.directories[1] for name, each in volumes if not each.is_lost}
    return found or {"": cookie.ledger_directory}


def _name_of(cookie: Cookie, directory: str) -> str:
    """Return the name of the volume with a ledger directory. Raises ``NotFound``."""
    names = {path: name for name, path in _directories(cookie).items()}
    if directory not in names:
        raise NotFound(
            f"bookie {cookie.bookie_id} has no ledger directory {directory!r}; it has "
            f"{', '.join(names)}"
        )
    return names[directory]
