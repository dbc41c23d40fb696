"""Brokers, bookies, ledgers and lookup, from metadata."""

from __future__ import annotations

import msgspec

from pulsarish.broker.http.face import Call, Moved, Route, answer
from pulsarish.broker.http.owners import Owners
from pulsarish.broker.lookup import Lookup
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.records import BookieRegistration, BrokerRegistration
from pulsarish.metadata.update import Records
from pulsarish.model.errors import InvalidArgument, NoSuchLedger, NotFound
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.seams import HttpResponse

__all__ = ["ClusterRoutes"]

_LEDGERS_MAX = 10_000


class ClusterRoutes:
    def __init__(self, records: Records, ownership: Ownership, owners: Owners, lookup: Lookup) -> None:
        self._records = records
        self._ownership = ownership
        self._owners = owners
        self._lookup = lookup

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/admin/v2/brokers", self._brokers),
            Route("GET", "/admin/v2/brokers/leaderBroker", self._leader),
            Route("GET", "/admin/v2/bookies", self._bookies),
            Route("GET", "/admin/v2/ledgers", self._ledgers),
            Route("GET", "/admin/v2/ledgers/{ledger}", self._ledger),
            Route("GET", "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}", self._find),
        ]

    async def _brokers(self, call: Call) -> HttpResponse:
        names = await self._records.children(paths.BROKERS)
        found = await self._records.get_many([f"{paths.BROKERS}/{name}" for name in names], BrokerRegistration)
        return answer([msgspec.to_builtins(record[0]) for record in found if record is not None])

    async def _leader(self, call: Call) -> HttpResponse:
        leader = self._ownership.leader.leader
        if leader is None:
            raise NotFound("there is no leader broker at the moment; one is being elected")
        return answer({"brokerId": leader.broker_id, "serviceUrl": f"http://{leader.http_address}"})

    async def _bookies(self, call: Call) -> HttpResponse:
        names = await self._records.children(paths.BOOKIES)
        found = await self._records.get_many([f"{paths.BOOKIES}/{name}" for name in names], BookieRegistration)
        return answer([msgspec.to_builtins(record[0]) for record in found if record is not None])

    async def _ledgers(self, call: Call) -> HttpResponse:
        """Ids above ``after``, ascending, at most ``limit``: the tree is walked only as far as that needs."""
        after = call.number("after") if "after" in call.request.query else -1
        if "limit" in call.request.query and call.number("limit") < 1:
            raise InvalidArgument(f"limit must be 1 or more, not {call.number('limit')}")
        limit = min(call.number("limit") if "limit" in call.request.query else _LEDGERS_MAX, _LEDGERS_MAX)
        found: list[int] = []
        async for branch in ledger_ids(self._records, after=after):
            found += branch
            if len(found) >= limit:
                break
        return answer(found[:limit])

    async def _ledger(self, call: Call) -> HttpResponse:
        ledger_id = call.number("ledger")
        record = await self._records.get(paths.ledger(ledger_id), LedgerMetadata) if ledger_id >= 0 else None
        if record is None:
            raise NoSuchLedger(f"ledger {ledger_id} does not exist")
        return answer(msgspec.to_builtins(record[0]))

    async def _find(self, call: Call) -> HttpResponse:
        found = await self._lookup.find(call.topic(), authoritative=call.flag("authoritative"))
        if found.redirect:
            raise Moved(found.broker.http_address)
        broker = found.broker
        return answer(
            {
                "brokerUrl": f"pulsar://{broker.pulsar_address}" if broker.pulsar_address else "",
                "brokerUrlTls": "",
                "brokerUrlSsl": "",
                "httpUrl": f"http://{broker.http_address}",
                "httpUrlTls": "",
                "nativeUrl": f"pulsarish://{broker.address}",
                "brokerId": broker.broker_id,
                "bundle": found.bundle.range,
            }
        )
