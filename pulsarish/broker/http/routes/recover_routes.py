"""The ledgers that name a bookie, and the request to have its copies on other bookies."""

from __future__ import annotations

import re
from typing import Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.bookie_names import find_instance
from pulsarish.broker.http.json_bodies import BookieLedgerBody, BookieLedgersBody, LedgersBody
from pulsarish.broker.http.route import Call, Parameter, Route, answer
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.repair.repair_core import held_count
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import UnderReplicated
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.seams import HttpResponse

__all__ = ["RecoverRoutes"]

_LOOKED_AT_MAX: Final = 5_000
"""Ledgers that one request looks at."""
_READ_AT_ONCE: Final = 500
_ASKED_MAX: Final = 200
_SHOWN_MAX: Final = 40
_ID: Final = re.compile("[0-9]{1,19}")


class RecoverRoutes:
    def __init__(self, records: Records, ledgers: LedgerClient) -> None:
        self._records = records
        self._ledgers = ledgers

    def routes(self) -> list[Route]:
        after = Parameter("after", "Only ledgers above this one.", int, minimum=-1, default=-1)
        only = Parameter(
            "ledgers", "Look at these only: at most 200 ids, separated by commas.", default=""
        )
        return [
            Route(
                "GET",
                "/admin/v2/bookies/ledgers/{bookie}",
                self._list,
                Permission.READ_CLUSTER,
                "List the ledgers that name a bookie, a page at a time.",
                parameters=(after, only),
                answers=BookieLedgersBody,
                statuses=(404,),
            ),
            Route(
                "PUT",
                "/admin/v2/bookies/recover/{bookie}",
                self._recover,
                Permission.SUPER_USER,
                "Have the copies that a bookie holds of ledgers made on other bookies.",
                body=LedgersBody,
                body_required=True,
                answers=LedgersBody,
                statuses=(404,),
            ),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        """Return what the next 5,000 ledgers say, and where the next page begins; or what those
        that are named say.
        """
        member = (await find_instance(self._records, call["bookie"])).instance_id
        if call.text("ledgers"):
            wanted = _ids_of(call.text("ledgers"))
            return answer(BookieLedgersBody(member, await self._naming(member, wanted), None))
        found: list[BookieLedgerBody] = []
        looked_at, last = 0, call.number("after")
        async for branch in ledger_ids(self._records, after=last):
            for start in range(0, len(branch), _READ_AT_ONCE):
                page = branch[start : start + _READ_AT_ONCE]
                found += await self._naming(member, page)
                looked_at, last = looked_at + len(page), page[-1]
                if looked_at >= _LOOKED_AT_MAX:
                    return answer(BookieLedgersBody(member, found, last))
        return answer(BookieLedgersBody(member, found, None))

    async def _recover(self, call: Call) -> HttpResponse:
        """Ask for those of the given ledgers that name the bookie, and return them."""
        member = (await find_instance(self._records, call["bookie"])).instance_id
        wanted = _checked(call.body.ledgers)
        asked = [row.ledger_id for row in await self._naming(member, wanted)]
        for ledger_id in asked:
            await self._ledgers.publish_leaving(ledger_id, member)
        return answer(LedgersBody(asked))

    async def _naming(self, member: str, page: list[int]) -> list[BookieLedgerBody]:
        """Return those of these ledgers that name the member."""
        records = self._records
        found = await records.get_many(
            [paths.ledger(ledger_id) for ledger_id in page], LedgerMetadata
        )
        naming = [
            row[0]
            for row in found
            if row is not None and any(member in each.members for each in row[0].segments)
        ]
        repairs = await records.get_many(
            [paths.underreplicated(ledger.ledger_id) for ledger in naming], UnderReplicated
        )
        return [
            BookieLedgerBody(
                ledger.ledger_id,
                ledger.state.value,
                held_count(ledger, member),
                is_leaving=repair is not None and member in repair[0].leaving_members,
                reason="" if repair is None else repair[0].reason,
            )
            for ledger, repair in zip(naming, repairs, strict=True)
        ]


def _checked(wanted: list[int]) -> list[int]:
    """Return the ids. Raises ``InvalidArgument``."""
    if len(wanted) > _ASKED_MAX or any(not 0 <= ledger_id <= ID_MAX for ledger_id in wanted):
        raise InvalidArgument(
            f"ledgers are {len(wanted)} ids; give at most {_ASKED_MAX}, none below 0 or above "
            f"{ID_MAX}"
        )
    return wanted


def _ids_of(text: str) -> list[int]:
    """Return the ids of a list with commas. Raises ``InvalidArgument``."""
    words = text.split(",")
    strange = [word for word in words if not _ID.fullmatch(word)]
    if strange:
        raise InvalidArgument(
            f"ledgers: {strange[0][:_SHOWN_MAX]!r} is not the id of a ledger; write ids with commas"
            " between them, such as 3,4711"
        )
    return _checked([int(word) for word in words])
