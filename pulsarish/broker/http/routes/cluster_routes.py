"""Clusters: only this one exists. Features that connect several clusters are refused by name."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.json_bodies import ClusterBody
from pulsarish.broker.http.route import Call, Handler, Route, answer
from pulsarish.broker.listeners import advertised_at
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.model.errors import AlreadyExists, NotFound, OperationNotSupported
from pulsarish.runtime.seams import HttpResponse

__all__ = ["ClusterRoutes"]

_CLUSTER: Final = "/admin/v2/clusters/{cluster}"


class ClusterRoutes:
    def __init__(self, config: BrokerConfig, ownership: Ownership) -> None:
        self._cluster = config.cluster_name
        self._ownership = ownership

    def routes(self) -> list[Route]:
        read = Permission.READ_CLUSTER
        return [
            Route(
                "GET",
                "/admin/v2/clusters",
                self._list,
                Permission.ANY_ROLE,
                "List the clusters: there is one.",
                answers=list[str],
            ),
            Route(
                "GET",
                _CLUSTER,
                self._get,
                read,
                "Show the addresses of a cluster.",
                answers=ClusterBody,
            ),
            _refused("PUT", _CLUSTER, self._create, body=Any, statuses=(409, 501)),
            _refused("POST", _CLUSTER, self._change, body=Any),
            _refused("DELETE", _CLUSTER, self._change),
            Route(
                "GET",
                _CLUSTER + "/peers",
                self._none,
                read,
                "List the clusters that take over for a cluster: none.",
                answers=list[str],
            ),
            _refused("POST", _CLUSTER + "/peers", self._change, body=Any),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        return answer([self._cluster])

    def _check(self, call: Call) -> None:
        if call["cluster"] != self._cluster:
            raise NotFound(
                f"cluster {call['cluster']!r} does not exist; there is one, {self._cluster!r}"
            )

    async def _get(self, call: Call) -> HttpResponse:
        """Return the cluster with this broker's addresses: any broker of the cluster will do."""
        self._check(call)
        me = self._ownership.registry.me
        if me is None:
            return answer(ClusterBody())
        advertised = advertised_at(me, call.listener)
        return answer(
            ClusterBody(
                advertised.http_url,
                advertised.http_url_tls,
                advertised.pulsar_url,
                advertised.pulsar_url_tls,
            )
        )

    async def _create(self, call: Call) -> HttpResponse:
        if call["cluster"] == self._cluster:
            raise AlreadyExists(f"cluster {self._cluster!r} exists already")
        raise OperationNotSupported(
            f"other clusters are not known yet: topics are not replicated beyond {self._cluster!r}"
        )

    async def _change(self, call: Call) -> HttpResponse:
        self._check(call)
        raise OperationNotSupported(
            "a cluster's addresses are those of its brokers; set a broker's advertised_listeners "
            "and restart it"
        )

    async def _none(self, call: Call) -> HttpResponse:
        self._check(call)
        return answer([])


def _refused(
    method: str,
    pattern: str,
    handler: Handler,
    *,
    body: Any = None,
    statuses: tuple[int, ...] = (501,),
) -> Route:
    return Route(
        method,
        pattern,
        handler,
        Permission.SUPER_USER,
        "Refused: there is one cluster.",
        body=body,
        statuses=statuses,
    )
