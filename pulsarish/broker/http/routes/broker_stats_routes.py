"""What this broker does: its metrics as JSON, the statistics of all its topics, and its load."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import Json, LoadReportBody
from pulsarish.broker.http.route import AFTER, LIMIT, Call, Route, answer
from pulsarish.broker.listeners import advertised_at
from pulsarish.broker.ownership.bundles import bundle_of
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.stats.topic_stats import Statistics
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.model.errors import ServiceNotReady, UnsupportedFeature
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
    ) -> None:
        self._world = world
        self._topics = topics
        self._ownership = ownership
        self._namespaces = namespaces
        self._statistics = statistics
        self._metrics = metrics

    def routes(self) -> list[Route]:
        read, page = Permission.READ_CLUSTER, (AFTER, LIMIT)
        return [
            Route(
                "GET",
                _STATS + "/metrics",
                self._as_json,
                read,
                "Show the metrics of the broker.",
                answers=list[Json],
            ),
            Route(
                "GET",
                _STATS + "/topics",
                self._all,
                read,
                "Show statistics of the topics that the broker has loaded.",
                parameters=page,
                answers=Json,
            ),
            Route(
                "GET",
                _STATS + "/load-report",
                self._load,
                read,
                "Show the load of the broker.",
                answers=LoadReportBody,
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
        after, limit = call.text("after"), call.given("limit")
        served = {topic.name.full: topic.name for topic in self._topics.served()}
        names = sorted(name for name in served if name > after)[:limit]
        found: dict[str, dict[str, dict[str, dict[str, Any]]]] = {}
        for number, full in enumerate(names, 1):
            name = served[full]
            bundle = bundle_of(
                name, (await self._namespaces.policies(name.tenant, name.namespace)).bundles
            )
            of_bundle = found.setdefault(name.namespace_name, {}).setdefault(bundle.range, {})
            if (topic := self._topics.loaded.get(full)) is not None:
                of_bundle.setdefault(name.domain, {})[full] = await self._statistics.topic(topic)
            elif (not_kept := self._topics.not_kept.open.get(full)) is not None:
                of_bundle.setdefault(name.domain, {})[full] = self._statistics.not_kept(not_kept)
            if not number % _PIECE:
                await self._world.clock.sleep(0)
        return answer(found)

    async def _load(self, call: Call) -> HttpResponse:
        me = self._ownership.registry.me
        if me is None:
            raise ServiceNotReady("this broker is not registered at the moment")
        advertised, now = advertised_at(me, call.listener), self._world.clock.monotonic()
        loaded = self._topics.served()
        came = [topic.traffic.came.rates(now) for topic in loaded]
        went = [each.out.rates(now) for topic in loaded for each in topic.subscriptions.values()]
        return answer(
            LoadReportBody(
                web_service_url=advertised.http_url,
                web_service_url_tls=advertised.http_url_tls,
                pulsar_service_url=advertised.pulsar_url,
                pulsar_service_url_tls=advertised.pulsar_url_tls,
                num_topics=len(loaded),
                num_bundles=len(self._ownership.owned),
                num_consumers=sum(
                    len(each.consumers) for topic in loaded for each in topic.subscriptions.values()
                ),
                num_producers=sum(len(topic.producers) for topic in loaded),
                msg_rate_in=round(sum(rate for rate, _ in came), 3),
                msg_throughput_in=round(sum(throughput for _, throughput in came), 3),
                msg_rate_out=round(sum(rate for rate, _ in went), 3),
                msg_throughput_out=round(sum(throughput for _, throughput in went), 3),
                bundles=[str(bundle) for bundle in self._ownership.owned.bundles()],
            )
        )

    async def _java(self, call: Call) -> HttpResponse:
        raise UnsupportedFeature(
            "there is no Java virtual machine here; what a broker tells of itself is at /metrics"
        )
