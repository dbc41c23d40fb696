"""What operators ask of auto-recovery: on or off, a look through all ledgers, the grace time of
absent bookies. The request is stored in the metadata, and every node follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import AutoRecoveryBody
from pulsarish.broker.http.reason import reason_of
from pulsarish.broker.http.route import Call, Parameter, Route, answer
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AutoRecoverySwitch
from pulsarish.model.topic_name import decode_segment
from pulsarish.runtime.seams import Clock, HttpResponse

__all__ = ["AutoRecoveryRoutes"]

_ROOT: Final = "/admin/v2/bookies/autorecovery"
_DELAY: Final = _ROOT + "/lost-bookie-delay"
_DELAY_MAX_SECONDS: Final = 365 * 86_400


class AutoRecoveryRoutes:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        reason = (Parameter("reason", "Why; it is shown as long as it is off.", default=""),)
        asks = (
            Parameter("askBookies", "Ask bookies for their entries, too.", bool, default=False),
        )
        seconds = (
            Parameter(
                "seconds",
                "How long a bookie may be away before it is lost.",
                int,
                minimum=1,
                maximum=_DELAY_MAX_SECONDS,
                required=True,
            ),
        )
        body = AutoRecoveryBody
        return [
            Route(
                "GET", _ROOT, self._state, read, "Show the state of auto-recovery.", answers=body
            ),
            Route(
                "PUT",
                _ROOT + "/enable",
                self._enable,
                admin,
                "Switch auto-recovery on, on all nodes.",
                answers=body,
            ),
            Route(
                "PUT",
                _ROOT + "/disable",
                self._disable,
                admin,
                "Switch auto-recovery off, on all nodes.",
                parameters=reason,
                answers=body,
            ),
            Route(
                "PUT",
                _ROOT + "/trigger",
                self._trigger,
                admin,
                "Have the auditor look through all ledgers now.",
                parameters=asks,
                answers=body,
            ),
            Route(
                "PUT",
                _DELAY,
                self._set_delay,
                admin,
                "Set how long a bookie may be away before it is lost.",
                parameters=seconds,
                answers=body,
            ),
            Route(
                "DELETE",
                _DELAY,
                self._reset_delay,
                admin,
                "Have each node use its own option for that again.",
                answers=body,
            ),
        ]

    async def _state(self, _call: Call) -> HttpResponse:
        found = await self._records.get(paths.autorecovery_switch(), AutoRecoverySwitch)
        return await self._answer(AutoRecoverySwitch() if found is None else found[0])

    async def _enable(self, _call: Call) -> HttpResponse:
        return await self._change(
            lambda now: msgspec.structs.replace(now, off_since_ms=0, reason="")
        )

    async def _disable(self, call: Call) -> HttpResponse:
        reason, now_ms = reason_of(call), self._clock.wall_ms()
        return await self._change(
            lambda now: msgspec.structs.replace(
                now, off_since_ms=now.off_since_ms or now_ms, reason=reason or now.reason
            )
        )

    async def _trigger(self, call: Call) -> HttpResponse:
        asks_bookies = call.flag("askBookies")

        def change(now: AutoRecoverySwitch) -> AutoRecoverySwitch:
            number = now.looks_asked + 1
            return msgspec.structs.replace(
                now,
                looks_asked=number,
                looks_asking_bookies=number if asks_bookies else now.looks_asking_bookies,
            )

        return await self._change(change)

    async def _set_delay(self, call: Call) -> HttpResponse:
        seconds = call.number("seconds")
        return await self._change(
            lambda now: msgspec.structs.replace(now, lost_bookie_recovery_delay_seconds=seconds)
        )

    async def _reset_delay(self, _call: Call) -> HttpResponse:
        return await self._change(
            lambda now: msgspec.structs.replace(now, lost_bookie_recovery_delay_seconds=0)
        )

    async def _change(
        self, change: Callable[[AutoRecoverySwitch], AutoRecoverySwitch]
    ) -> HttpResponse:
        path = paths.autorecovery_switch()
        await self._records.make_parents(path)
        found = await self._records.update(
            path, AutoRecoverySwitch, lambda now: change(now or AutoRecoverySwitch())
        )
        assert found is not None, "something was stored"
        return await self._answer(found[0])

    async def _answer(self, switch: AutoRecoverySwitch) -> HttpResponse:
        records = self._records
        (auditor,) = await records.nodes([paths.auditor()])
        given_up = await records.children(paths.given_up_bookies())
        waiting = paths.underreplicated_ids(await records.children(paths.UNDERREPLICATED))
        return answer(
            AutoRecoveryBody(
                enabled=not switch.off_since_ms,
                off_since_ms=switch.off_since_ms,
                reason=switch.reason,
                lost_bookie_recovery_delay_seconds=(
                    switch.lost_bookie_recovery_delay_seconds or None
                ),
                auditor="" if auditor is None else auditor.data.decode(errors="replace"),
                looks_asked=switch.looks_asked,
                looks_done=switch.looks_done,
                under_replicated_ledgers=len(waiting),
                given_up_bookies=[decode_segment(name) for name in given_up],
            )
        )
