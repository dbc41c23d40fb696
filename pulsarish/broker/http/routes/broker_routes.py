"""Brokers: a list of them, what one serves, whether it is healthy, and how it is configured."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dynamic_options import NAMES, DynamicOptions
from pulsarish.broker.http.json_bodies import DrainBody, Json, LeaderBody, OwnedBundleBody
from pulsarish.broker.http.route import (
    AFTER,
    LIMIT,
    Call,
    Handler,
    Lane,
    Moved,
    Parameter,
    Route,
    answer,
    no_content,
)
from pulsarish.broker.listeners import broker_named, http_at, http_url_at
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics.drain import Drain
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import NotFound, ServiceNotReady
from pulsarish.runtime.config import describe, text_of
from pulsarish.runtime.seams import HttpResponse
from pulsarish.runtime.version import program_version
from pulsarish.security.config import SECRET_OPTIONS

__all__ = ["BrokerRoutes"]

_BROKERS: Final = "/admin/v2/brokers"
_CONFIGURATION: Final = _BROKERS + "/configuration"
_TEXT: Final = "text/plain"
_DESTINATION: Final = Parameter(
    "destinationBroker",
    "Id or HTTP address of the broker that gets all bundles. Without it each goes to the broker "
    "with the fewest that may have it.",
)


class BrokerRoutes:
    def __init__(
        self,
        config: BrokerConfig,
        records: Records,
        ownership: Ownership,
        unready_reason: Callable[[], str],
        drain: Drain,
        options: DynamicOptions,
    ) -> None:
        self._config = config
        self._records = records
        self._ownership = ownership
        self._unready_reason = unready_reason
        self._draining = drain
        self._options = options

    def routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        version = (
            Parameter(
                "topicVersion",
                "Nothing is published to find out.",
                choices=("V1", "V2"),
                default="V2",
            ),
            Parameter("brokerId", "Ask that broker itself."),
        )
        page = (AFTER, LIMIT)
        owned = _BROKERS + "/{cluster}/{broker}/ownedNamespaces"
        drain = _BROKERS + "/{broker}/drain"
        setting = _CONFIGURATION + "/{name}"
        return [
            Route(
                "GET",
                _BROKERS,
                self._list,
                read,
                "List the live brokers by their HTTP addresses.",
                parameters=page,
                answers=list[str],
            ),
            Route(
                "GET",
                _BROKERS + "/{cluster}",
                self._list_cluster,
                read,
                "List the live brokers of a cluster by their HTTP addresses.",
                parameters=page,
                answers=list[str],
            ),
            Route(
                "GET",
                _BROKERS + "/registrations",
                self._registrations,
                read,
                "List the registrations of the live brokers.",
                parameters=page,
                answers=list[Json],
            ),
            Route(
                "GET",
                _BROKERS + "/leaderBroker",
                self._leader,
                read,
                "Show the leader broker.",
                answers=LeaderBody,
            ),
            Route(
                "GET",
                owned,
                self._owned,
                read,
                "List the bundles that a broker serves.",
                answers=dict[str, OwnedBundleBody],
                owner=True,
            ),
            Route(
                "GET",
                drain,
                self._drain_state,
                read,
                "Show whether a broker drains, and how many bundles it still has.",
                answers=DrainBody,
                owner=True,
            ),
            Route(
                "PUT",
                drain,
                self._drain,
                admin,
                "Move all bundles of a broker to others, and give it none until the drain or its "
                "process ends.",
                parameters=(_DESTINATION,),
                answers=DrainBody,
                owner=True,
                statuses=(405,),
            ),
            Route(
                "DELETE",
                drain,
                self._undrain,
                admin,
                "End the drain of a broker: it takes bundles again.",
                answers=DrainBody,
                owner=True,
            ),
            _text(
                "/health",
                self._health,
                Permission.NONE,
                "Whether this broker can serve: ok, or why not.",
                *version,
            ),
            _text("/ready", self._health, Permission.NONE, "The same."),
            _text("/version", self._version, Permission.NONE, "The version of this broker."),
            Route(
                "GET",
                _CONFIGURATION,
                self._dynamic_names,
                read,
                "List the options that can change while a broker runs.",
                answers=list[str],
            ),
            Route(
                "GET",
                _CONFIGURATION + "/values",
                self._dynamic_values,
                read,
                "List the options that were set while brokers ran, with their values.",
                answers=dict[str, str],
            ),
            Route(
                "GET",
                _CONFIGURATION + "/runtime",
                self._runtime,
                read,
                "List all options of the broker with the values in force.",
                answers=dict[str, str],
            ),
            Route(
                "POST",
                setting + "/{value}",
                self._set,
                admin,
                "Set an option of all brokers while they run.",
                statuses=(412,),
            ),
            Route(
                "DELETE",
                setting,
                self._unset,
                admin,
                "Have all brokers use what they were started with for an option.",
                statuses=(412,),
            ),
            Route(
                "GET",
                _BROKERS + "/internal-configuration",
                self._internal,
                read,
                "Show the address of the broker's metadata.",
                answers=dict[str, str],
            ),
        ]

    async def _found(self) -> list[BrokerRegistration]:
        names = await self._records.children(paths.BROKERS)
        found = (
            await self._records.get_many(
                [f"{paths.BROKERS}/{name}" for name in names], BrokerRegistration
            )
            if names
            else []
        )
        return [record[0] for record in found if record is not None]

    async def _list(self, call: Call) -> HttpResponse:
        return answer(
            call.page([http_at(broker, call.listener) for broker in await self._found()], str)
        )

    async def _list_cluster(self, call: Call) -> HttpResponse:
        self._check_cluster(call)
        return await self._list(call)

    def _check_cluster(self, call: Call) -> None:
        if call["cluster"] != self._config.cluster_name:
            raise NotFound(
                f"cluster {call['cluster']!r} does not exist; there is one, "
                f"{self._config.cluster_name!r}"
            )

    async def _registrations(self, call: Call) -> HttpResponse:
        shown = [
            msgspec.to_builtins(msgspec.structs.replace(broker, admin_key=""))
            for broker in await self._found()
        ]
        return answer(call.page(shown, itemgetter("broker_id")))

    async def _leader(self, call: Call) -> HttpResponse:
        leader = self._ownership.leader.leader
        if leader is None:
            raise NotFound("there is no leader broker at the moment; one is being elected")
        url = http_url_at(leader, call.listener, has_tls=call.request.has_tls)
        return answer(LeaderBody(leader.broker_id, url))

    async def _owned(self, call: Call) -> HttpResponse:
        """Return the bundles of a broker, named by its id or HTTP address.

        Each broker answers for itself.
        """
        self._check_cluster(call)
        await self._require(call)
        owned = self._ownership.owned.bundles()
        return answer({str(bundle): OwnedBundleBody() for bundle in owned})

    async def _require(self, call: Call) -> None:
        """Return only if this is the broker of the path. Raises ``NotFound``, ``Moved``."""
        broker = broker_named(await self._found(), call["broker"], call.listener)
        if broker.instance_id != self._ownership.registry.instance_id:
            raise Moved(http_url_at(broker, call.listener, has_tls=call.request.has_tls))

    # -- draining

    async def _drain(self, call: Call) -> HttpResponse:
        await self._require(call)
        self._draining.start(self._destination(call))
        return self._drained()

    def _destination(self, call: Call) -> BrokerRegistration | None:
        """Return the broker that is to get the bundles, if the query names one.

        Raises ``NotFound``.
        """
        name = call.text(_DESTINATION.name)
        if not name:
            return None
        return broker_named(self._ownership.registry.alive.values(), name, call.listener)

    async def _undrain(self, call: Call) -> HttpResponse:
        await self._require(call)
        self._draining.end()
        return self._drained()

    async def _drain_state(self, call: Call) -> HttpResponse:
        await self._require(call)
        return self._drained()

    def _drained(self) -> HttpResponse:
        return answer(
            DrainBody(self._draining.is_on, self._draining.bundles_left, self._draining.to)
        )

    async def _health(self, call: Call) -> HttpResponse:
        reason = self._unready_reason()
        if reason:
            raise ServiceNotReady(reason)
        return HttpResponse(200, b"ok", _TEXT)

    async def _version(self, call: Call) -> HttpResponse:
        return HttpResponse(200, program_version().encode(), _TEXT)

    # -- configuration

    async def _dynamic_names(self, call: Call) -> HttpResponse:
        return answer(list(NAMES))

    async def _dynamic_values(self, call: Call) -> HttpResponse:
        return answer(dict(await self._options.values()))

    async def _runtime(self, call: Call) -> HttpResponse:
        found: dict[str, str] = {}
        for option in describe(BrokerConfig):
            value: object = self._config
            for part in option.name.split("."):
                value = getattr(value, part)
            if option.name in SECRET_OPTIONS and value:
                value = "(not shown)"  # it may hold the secret itself, not only where it is
            found[option.name] = text_of(value)
        return answer(found)

    async def _set(self, call: Call) -> HttpResponse:
        call.change = f"{call['name']} = {call['value']}"
        await self._options.set(call["name"], call["value"])
        return no_content()

    async def _unset(self, call: Call) -> HttpResponse:
        await self._options.remove(call["name"])
        return no_content()

    async def _internal(self, call: Call) -> HttpResponse:
        return answer(
            {"metadataStoreUrl": self._config.metadata_url, "ledgersRootPath": paths.LEDGERS}
        )


def _text(
    words: str, handler: Handler, permission: Permission, summary: str, *parameters: Parameter
) -> Route:
    return Route(
        "GET",
        _BROKERS + words,
        handler,
        permission,
        summary,
        parameters=parameters,
        answers=str,
        answer_type=_TEXT,
        lane=Lane.PROMPT,
    )
