"""The move of old copies, to emptier bookies or to better placed ones: what is asked and how far it
is. The process of the elected auditor does it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import RebalanceBody, RebalancedBookieBody
from pulsarish.broker.http.route import Call, Parameter, Route, answer
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import RebalanceRecord
from pulsarish.model.errors import NotAllowedError
from pulsarish.runtime.seams import Clock, HttpResponse

__all__ = ["RebalanceRoutes"]

_PATH: Final = "/admin/v2/bookies/rebalance"
_AUDIT: Final = "/admin/v2/bookies/placement-audit"
_RATE_BYTES: Final = 16 << 20
_RATE_BYTES_MIN: Final = 1_024
_TOLERANCE_PERCENT: Final = 10
_STOPPED: Final = "an operator has stopped it"


class RebalanceRoutes:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def routes(self) -> list[Route]:
        admin = Permission.SUPER_USER
        limits = (
            Parameter(
                "rateBytes",
                "Bytes that are copied in a second.",
                int,
                minimum=_RATE_BYTES_MIN,
                default=_RATE_BYTES,
            ),
            Parameter(
                "maxLedgers",
                "End once copies of this many ledgers have moved; 0: no limit.",
                int,
                minimum=0,
                default=0,
            ),
        )
        repair = Parameter(
            "repair", "Move the copies that it finds; else count them.", bool, default=False
        )
        request = (
            Parameter("dryRun", "Only plan it.", bool, default=False),
            *limits,
            Parameter(
                "tolerancePercent",
                "End once bookies differ by at most this, in percent of their average.",
                int,
                minimum=1,
                maximum=100,
                default=_TOLERANCE_PERCENT,
            ),
        )
        return [
            Route(
                "GET",
                _PATH,
                self._state,
                Permission.READ_CLUSTER,
                "Show how far the move of copies to other bookies is.",
                answers=RebalanceBody,
            ),
            Route(
                "PUT",
                _PATH,
                self._start,
                admin,
                "Move copies of closed ledgers from fuller bookies to emptier ones.",
                parameters=request,
                answers=RebalanceBody,
                statuses=(405,),
            ),
            Route(
                "DELETE",
                _PATH,
                self._stop,
                admin,
                "Stop the move of copies to other bookies.",
                answers=RebalanceBody,
            ),
            Route(
                "PUT",
                _AUDIT,
                self._audit,
                admin,
                "Look for copies that share a domain although a better bookie is there.",
                parameters=(repair, *limits),
                answers=RebalanceBody,
                statuses=(405,),
            ),
        ]

    async def _state(self, _call: Call) -> HttpResponse:
        found = await self._records.get(paths.rebalance(), RebalanceRecord)
        return await self._answer(RebalanceRecord() if found is None else found[0])

    async def _start(self, call: Call) -> HttpResponse:
        return await self._ask(
            RebalanceRecord(
                dry_run=call.flag("dryRun"),
                rate_bytes=call.number("rateBytes"),
                ledgers_max=call.number("maxLedgers"),
                tolerance_percent=call.number("tolerancePercent"),
            )
        )

    async def _audit(self, call: Call) -> HttpResponse:
        return await self._ask(
            RebalanceRecord(
                placement=True,
                dry_run=not call.flag("repair"),
                rate_bytes=call.number("rateBytes"),
                ledgers_max=call.number("maxLedgers"),
            )
        )

    async def _ask(self, request: RebalanceRecord) -> HttpResponse:
        """Ask for it. One that runs must be stopped first."""
        now_ms = self._clock.wall_ms()

        def change(found: RebalanceRecord | None) -> RebalanceRecord:
            if found is not None and found.number and not found.ended_ms:
                raise NotAllowedError(
                    "copies are moved already: wait for the end, or stop it first: pulsarish "
                    "bookies rebalance stop"
                )
            number = 0 if found is None else found.number
            return msgspec.structs.replace(request, number=number + 1, asked_ms=now_ms)

        path = paths.rebalance()
        await self._records.make_parents(path)
        stored = await self._records.update(path, RebalanceRecord, change)
        assert stored is not None, "something was stored"
        return await self._answer(stored[0])

    async def _stop(self, _call: Call) -> HttpResponse:
        """End what runs. What is being copied now comes to its end."""
        now_ms = self._clock.wall_ms()

        def change(found: RebalanceRecord | None) -> RebalanceRecord | None:
            if found is None or not found.number or found.ended_ms:
                return None
            return msgspec.structs.replace(found, ended_ms=now_ms, reason=_STOPPED)

        stored = await self._records.update(paths.rebalance(), RebalanceRecord, change)
        return await self._answer(RebalanceRecord() if stored is None else stored[0])

    async def _answer(self, record: RebalanceRecord) -> HttpResponse:
        (auditor,) = await self._records.nodes([paths.auditor()])
        return answer(
            RebalanceBody(
                running=bool(record.number) and not record.ended_ms,
                placement=record.placement,
                dry_run=record.dry_run,
                rate_bytes=record.rate_bytes,
                max_ledgers=record.ledgers_max,
                tolerance_percent=record.tolerance_percent,
                asked_ms=record.asked_ms,
                ended_ms=record.ended_ms,
                reason=record.reason,
                ledgers_moved=record.ledgers_moved,
                bytes_moved=record.bytes_moved,
                ledgers_planned=record.ledgers_planned,
                bytes_planned=record.bytes_planned,
                first_ledgers=list(record.first_ledgers),
                auditor="" if auditor is None else auditor.data.decode(errors="replace"),
                bookies=[
                    RebalancedBookieBody(
                        member.partition("~")[0],
                        member,
                        size_bytes,
                        record.held_then.get(member, size_bytes),
                    )
                    for member, size_bytes in sorted(record.held.items())
                ],
            )
        )
