"""Rules of which brokers serve which bundles: isolation, failure domains, anti-affinity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.json_bodies import BrokerIsolationBody
from pulsarish.broker.http.route import AFTER, LIMIT, Call, Parameter, Route, answer, no_content
from pulsarish.broker.listeners import broker_named
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.ownership.placement import Placement
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.placement_store import PlacementStore, without_group
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration, PlacementRecord
from pulsarish.model.errors import InvalidArgument, NotFound
from pulsarish.model.placement import (
    FailureDomain,
    IsolationPolicy,
    check_domain,
    check_isolation,
    check_rule_name,
)
from pulsarish.runtime.seams import Conflict, HttpResponse, Op

__all__ = ["PlacementRoutes"]

T = TypeVar("T")

_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_DOMAINS: Final = _CLUSTER + "/failureDomains"
_POLICIES: Final = _CLUSTER + "/namespaceIsolationPolicies"
_GROUP: Final = "/admin/v2/namespaces/{tenant}/{namespace}/antiAffinity"
_BROKERS: Final = "brokers"
_POLICY: Final = "namespace isolation policy"
_DOMAIN: Final = "failure domain"
_TEXT: Final = "text/plain"
_TENANT: Final = Parameter("tenant", "Only namespaces of this tenant.")


class PlacementRoutes:
    def __init__(
        self, config: BrokerConfig, records: Records, namespaces: Namespaces, ownership: Ownership
    ) -> None:
        self._cluster = config.cluster_name
        self._namespaces = namespaces
        self._ownership = ownership
        self._store = PlacementStore(records)

    def routes(self) -> list[Route]:
        return [*self._isolation_routes(), *self._domain_routes(), *self._group_routes()]

    def _isolation_routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        return [
            Route(
                "GET",
                _POLICIES,
                self._policies,
                read,
                "List the isolation policies: which brokers serve which namespaces.",
                answers=dict[str, IsolationPolicy],
            ),
            Route(
                "GET",
                f"{_POLICIES}/{_BROKERS}",
                self._brokers,
                read,
                "List the brokers that are primary or secondary for isolation policies.",
                parameters=(AFTER, LIMIT),
                answers=list[BrokerIsolationBody],
            ),
            Route(
                "GET",
                f"{_POLICIES}/{_BROKERS}/{{broker}}",
                self._broker,
                read,
                "Show an isolation policy for which a broker is primary or secondary.",
                answers=BrokerIsolationBody,
            ),
            Route(
                "GET",
                _POLICIES + "/{policy}",
                self._policy,
                read,
                "Show an isolation policy.",
                answers=IsolationPolicy,
            ),
            Route(
                "POST",
                _POLICIES + "/{policy}",
                self._set_policy,
                admin,
                "Create or replace an isolation policy.",
                body=IsolationPolicy,
                body_required=True,
                statuses=(409,),
            ),
            Route(
                "DELETE",
                _POLICIES + "/{policy}",
                self._delete_policy,
                admin,
                "Delete an isolation policy.",
            ),
        ]

    def _domain_routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        return [
            Route(
                "GET",
                _DOMAINS,
                self._domains,
                read,
                "List the failure domains: brokers that fail together.",
                answers=dict[str, FailureDomain],
            ),
            Route(
                "GET",
                _DOMAINS + "/{domain}",
                self._domain,
                read,
                "Show the brokers of a failure domain.",
                answers=FailureDomain,
            ),
            Route(
                "POST",
                _DOMAINS + "/{domain}",
                self._set_domain,
                admin,
                "Create or replace a failure domain.",
                body=FailureDomain,
                body_required=True,
                statuses=(409,),
            ),
            Route(
                "DELETE",
                _DOMAINS + "/{domain}",
                self._delete_domain,
                admin,
                "Delete a failure domain.",
            ),
        ]

    def _group_routes(self) -> list[Route]:
        write = Permission.WRITE_POLICIES
        return [
            Route(
                "GET",
                _GROUP,
                self._group,
                Permission.READ_POLICIES,
                "Show the anti-affinity group of a namespace.",
                answers=str,
                answer_type=_TEXT,
                statuses=(204,),
            ),
            Route(
                "POST",
                _GROUP,
                self._set_group,
                write,
                "Put a namespace into an anti-affinity group.",
                body=str,
                body_required=True,
            ),
            Route(
                "DELETE",
                _GROUP,
                self._delete_group,
                write,
                "Take a namespace out of its anti-affinity group.",
            ),
            Route(
                "GET",
                "/admin/v2/namespaces/{cluster}/antiAffinity/{group}",
                self._of_group,
                Permission.READ_CLUSTER,
                "List the namespaces of an anti-affinity group.",
                parameters=(_TENANT, AFTER, LIMIT),
                answers=list[str],
            ),
        ]

    def _check(self, call: Call) -> None:
        if call["cluster"] != self._cluster:
            raise NotFound(
                f"cluster {call['cluster']!r} does not exist; there is one, {self._cluster!r}"
            )

    # -- isolation policies

    async def _policies(self, call: Call) -> HttpResponse:
        self._check(call)
        return answer((await self._store.read()).isolation)

    async def _policy(self, call: Call) -> HttpResponse:
        self._check(call)
        return answer(_named(_POLICY, (await self._store.read()).isolation, call["policy"]))

    async def _set_policy(self, call: Call) -> HttpResponse:
        self._check(call)
        name, policy = call["policy"], call.body
        if name == _BROKERS:
            raise InvalidArgument(
                f"a namespace isolation policy cannot be called {_BROKERS!r}: the path of that "
                "name lists brokers"
            )
        existing = [
            namespace
            for tenant in await self._namespaces.tenants()
            for namespace in await self._namespaces.namespaces(tenant)
        ]

        def change(record: PlacementRecord) -> PlacementRecord:
            others = {each: rule for each, rule in record.isolation.items() if each != name}
            check_isolation(name, policy, others, existing)
            return msgspec.structs.replace(record, isolation={**others, name: policy})

        await self._store.change(change)
        call.change = f"namespace isolation policy {name}"
        return no_content()

    async def _delete_policy(self, call: Call) -> HttpResponse:
        self._check(call)
        await self._store.change(
            lambda record: msgspec.structs.replace(
                record, isolation=_without(_POLICY, record.isolation, call["policy"])
            )
        )
        return no_content()

    async def _brokers(self, call: Call) -> HttpResponse:
        self._check(call)
        rules = Placement(await self._store.read())
        alive = self._ownership.registry.alive.values()
        found = [body for broker in alive for body in _isolation(rules, broker)]
        return answer(call.page(found, lambda each: f"{each.broker_name}/{each.policy_name}"))

    async def _broker(self, call: Call) -> HttpResponse:
        self._check(call)
        alive, name = self._ownership.registry.alive.values(), call["broker"]
        broker = broker_named(alive, name, call.listener)
        found = _isolation(Placement(await self._store.read()), broker)
        if not found:
            raise NotFound(f"broker {name!r} is primary or secondary for no isolation policy")
        return answer(found[0])

    # -- failure domains

    async def _domains(self, call: Call) -> HttpResponse:
        self._check(call)
        return answer((await self._store.read()).domains)

    async def _domain(self, call: Call) -> HttpResponse:
        self._check(call)
        return answer(_named(_DOMAIN, (await self._store.read()).domains, call["domain"]))

    async def _set_domain(self, call: Call) -> HttpResponse:
        self._check(call)
        name, domain = call["domain"], call.body

        def change(record: PlacementRecord) -> PlacementRecord:
            others = {each: rule for each, rule in record.domains.items() if each != name}
            check_domain(name, domain, others)
            return msgspec.structs.replace(record, domains={**others, name: domain})

        await self._store.change(change)
        return no_content()

    async def _delete_domain(self, call: Call) -> HttpResponse:
        self._check(call)
        await self._store.change(
            lambda record: msgspec.structs.replace(
                record, domains=_without(_DOMAIN, record.domains, call["domain"])
            )
        )
        return no_content()

    # -- anti-affinity

    async def _group(self, call: Call) -> HttpResponse:
        _ = await self._namespaces.policies(call["tenant"], call["namespace"])
        group = (await self._store.read()).groups.get(f"{call['tenant']}/{call['namespace']}")
        return no_content() if group is None else HttpResponse(200, group.encode(), _TEXT)

    async def _set_group(self, call: Call) -> HttpResponse:
        group: str = call.body
        check_rule_name("anti-affinity group", group)
        await self._change_group(
            call,
            lambda record, namespace: msgspec.structs.replace(
                record, groups={**record.groups, namespace: group}
            ),
        )
        call.change = f"anti-affinity group {group}"
        return no_content()

    async def _delete_group(self, call: Call) -> HttpResponse:
        await self._change_group(call, without_group)
        return no_content()

    async def _change_group(
        self, call: Call, change: Callable[[PlacementRecord, str], PlacementRecord]
    ) -> None:
        """Change the group of the namespace, if it exists when that is committed."""
        tenant, namespace = call["tenant"], call["namespace"]
        _ = await self._namespaces.policies(tenant, namespace)
        try:
            await self._store.change(
                lambda record: change(record, f"{tenant}/{namespace}"),
                with_ops=[Op("check", paths.namespace(tenant, namespace))],
            )
        except Conflict:
            raise NotFound(f"namespace {tenant}/{namespace} was deleted meanwhile") from None

    async def _of_group(self, call: Call) -> HttpResponse:
        self._check(call)
        tenant = call.text("tenant")
        groups = (await self._store.read()).groups
        found = [
            namespace
            for namespace, group in groups.items()
            if group == call["group"] and (not tenant or namespace.startswith(f"{tenant}/"))
        ]
        return answer(call.page(found, str))


def _named(kind: str, rules: dict[str, T], name: str) -> T:
    found = rules.get(name)
    if found is None:
        there = ", ".join(sorted(rules)) or "none"
        raise NotFound(f"there is no {kind} {name!r}; there are: {there}")
    return found


def _without(kind: str, rules: dict[str, T], name: str) -> dict[str, T]:
    _ = _named(kind, rules, name)
    return {each: rule for each, rule in rules.items() if each != name}


def _isolation(rules: Placement, broker: BrokerRegistration) -> list[BrokerIsolationBody]:
    return [
        BrokerIsolationBody(broker.broker_id, name, is_primary, policy.namespaces)
        for name, is_primary, policy in rules.isolation_of(broker)
    ]
