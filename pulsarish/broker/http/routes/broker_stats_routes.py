"""What this broker does: its metrics as JSON, the statistics of all its topics, and its load."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import (
    BundleStatsBody,
    Json,
    LoadReportBody,
    ResourceBody,
)
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.route import AFTER, LIMIT, Call, Parameter, Route, answer, checked
from pulsarish.broker.listeners import advertised_at
from pulsarish.broker.ownership.balance import BrokerLoad, BundleLoad
from pulsarish.broker.ownership.bundles import Bundle, bundle_of
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.stats.broker_load import BundleTraffic, LoadMeter
from pulsarish.broker.stats.topic_stats import Statistics
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import OperationNotSupported, ServiceNotReady
from pulsarish.runtime.seams import HttpResponse, World

__all__ = ["BrokerStatsRoutes"]

_STATS: Final = "/admin/v2/broker-stats"
_SERIES: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Topics that are processed before other tasks may run.
_PIECE: Final = 100


class BrokerStatsRoutes:
    def __init__(
        self,
        world: World,
        topics: LoadedTopics,
        ownership: Ownership,
        namespaces: Namespaces,
        statistics: Statistics,
        metrics: Callable[[], Awaitable[bytes]],
        meter: LoadMeter,
        owners: OwnerCalls,
    ) -> None:
        self._world = world
        self._topics = topics
        self._ownership = ownership
        self._namespaces = namespaces
        self._statistics = statistics
        self._metrics = metrics
        self._meter = meter
        self._owners = owners

    def routes(self) -> list[Route]:
        read = Permission.READ_CLUSTER
        which = Parameter(
            "brokerId", "Ask the broker with this id; otherwise the one that answers."
        )
        return [
            Route(
                "GET",
                _STATS + "/metrics",
                self._as_json,
                read,
                "Show the metrics of a broker.",
                parameters=(which,),
                answers=list[Json],
                owner=True,
            ),
            Route(
                "GET",
                _STATS + "/topics",
                self._all,
                read,
                "Show statistics of the topics that a broker has loaded.",
                parameters=(AFTER, LIMIT, which),
                answers=Json,
                owner=True,
            ),
            Route(
                "GET",
                _STATS + "/load-report",
                self._load,
                read,
                "Show the load of a broker.",
                parameters=(which,),
                answers=LoadReportBody,
                owner=True,
            ),
            Route(
                "GET",
                _STATS + "/mbeans",
                self._java,
                read,
                "Refused: there is no Java virtual machine.",
                answers=Json,
                statuses=(501,),
            ),
            Route(
                "GET",
                _STATS + "/allocator-stats/{allocator}",
                self._java,
                read,
                "Refused: there is no Java virtual machine.",
                answers=Json,
                statuses=(501,),
            ),
        ]

    async def _as_json(self, call: Call) -> HttpResponse:
        self._owners.require_broker(call)
        found: list[dict[str, Any]] = []
        for line in (await self._metrics()).decode().splitlines():
            match = None if line.startswith("#") else _SERIES.fullmatch(line)
            if match is not None and match[3] not in ("NaN", "+Inf", "-Inf"):
                found.append(
                    {
                        "metrics": {match[1]: float(match[3])},
                        "dimensions": dict(_LABEL.findall(match[2] or "")),
                    }
                )
        return answer(found)

    async def _all(self, call: Call) -> HttpResponse:
        """Return the statistics by namespace, bundle and domain, in the order of their names."""
        self._owners.require_broker(call)
        after, limit = call.text("after"), call.given("limit")
        served = {topic.name.full: topic.name for topic in self._topics.served()}
        names = sorted(name for name in served if name > after)[:limit]
        found: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
        for number, full in enumerate(names, 1):
            name = served[full]
            bundle = bundle_of(name, await self._namespaces.policies(name.tenant, name.namespace))
            of_bundle = found.setdefault(name.namespace_name, {}).setdefault(bundle.range, {})
            if (topic := self._topics.loaded.get(full)) is not None:
                of_bundle.setdefault(name.domain, {})[full] = await self._statistics.topic(topic)
            elif (not_kept := self._topics.not_kept.open.get(full)) is not None:
                of_bundle.setdefault(name.domain, {})[full] = self._statistics.not_kept(not_kept)
            if not number % _PIECE:
                await self._world.clock.sleep(0)
        return answer(found)

    async def _load(self, call: Call) -> HttpResponse:
        self._owners.require_broker(call)
        me = self._ownership.registry.me
        if me is None or not self._ownership.serving:
            raise ServiceNotReady("this broker is not registered at the moment")
        advertised = advertised_at(me, call.listener)
        process, bundles = self._meter.process(), await self._meter.bundles()
        usage, found = process.usage, bundles.values()
        return answer(
            LoadReportBody(
                web_service_url=advertised.http_url,
                web_service_url_tls=advertised.http_url_tls,
                pulsar_service_url=advertised.pulsar_url,
                pulsar_service_url_tls=advertised.pulsar_url_tls,
                num_topics=sum(each.topics for each in found),
                num_bundles=len(bundles),
                num_consumers=sum(each.consumers for each in found),
                num_producers=sum(each.producers for each in found),
                msg_rate_in=round(sum(each.message_rate_in for each in found), 3),
                msg_throughput_in=round(sum(each.byte_rate_in for each in found), 3),
                msg_rate_out=round(sum(each.message_rate_out for each in found), 3),
                msg_throughput_out=round(sum(each.byte_rate_out for each in found), 3),
                bundles=[str(bundle) for bundle in bundles],
                draining=self._ownership.draining,
                process_cpu=round(process.cpu, 4),
                cpu=ResourceBody(
                    round(process.machine_cpu * usage.machine_cores * 100, 1),
                    usage.machine_cores * 100.0,
                ),
                memory=ResourceBody(
                    round(usage.resident_bytes / 1e6, 1), round(usage.machine_memory_bytes / 1e6, 1)
                ),
                bundle_stats={str(bundle): _body(each) for bundle, each in bundles.items()},
            )
        )

    async def ask(self, broker: BrokerRegistration) -> BrokerLoad:
        """Ask a broker for its load, for the balancer. Raises its error."""
        answered = await self._owners.send_to(
            broker, ("broker-stats",), OwnerCall("GET", ("load-report",))
        )
        report = checked(LoadReportBody, answered, f"load report of {broker.broker_id}")
        return BrokerLoad(
            broker.instance_id,
            report.process_cpu,
            not report.draining,
            {Bundle.parse(name): _load(each) for name, each in report.bundle_stats.items()},
        )

    async def _java(self, call: Call) -> HttpResponse:
        raise OperationNotSupported(
            "there is no Java virtual machine here; what a broker tells of itself is at /metrics"
        )


def _body(traffic: BundleTraffic) -> BundleStatsBody:
    return BundleStatsBody(
        traffic.topics,
        traffic.producers,
        traffic.consumers,
        round(traffic.message_rate_in, 3),
        round(traffic.byte_rate_in, 3),
        round(traffic.message_rate_out, 3),
        round(traffic.byte_rate_out, 3),
    )


def _load(body: BundleStatsBody) -> BundleLoad:
    return BundleLoad(
        body.topics,
        body.producer_count + body.consumer_count,
        body.msg_rate_in + body.msg_rate_out,
        body.msg_throughput_in + body.msg_throughput_out,
    )
