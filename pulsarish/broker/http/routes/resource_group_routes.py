"""Resource groups: their limits, and the question of brokers for shares of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.route import AFTER, LIMIT, Call, Route, answer, checked, no_content
from pulsarish.broker.ownership.group_sharing import GroupSharing, Shares
from pulsarish.broker.policies.group_rates import Wish
from pulsarish.broker.policies.group_store import GroupStore
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import NotFound
from pulsarish.model.placement import check_rule_name
from pulsarish.model.policies import ByteRate, Rate, ResourceGroup
from pulsarish.runtime.seams import HttpResponse

__all__ = ["ResourceGroupRoutes"]

_GROUPS: Final = "resourcegroups"
_PATH: Final = f"/admin/v2/{_GROUPS}"
_GROUP: Final = f"{_PATH}/{{group}}"
_SHARES: Final = "resource-group-shares"


class ResourceGroupBody(msgspec.Struct, forbid_unknown_fields=True):
    """The limits to set, all in a second; -1 or 0: none. What is left out stays as it is."""

    publishRateInMsgs: Rate | None = None  # noqa: N815
    publishRateInBytes: ByteRate | None = None  # noqa: N815
    dispatchRateInMsgs: Rate | None = None  # noqa: N815
    dispatchRateInBytes: ByteRate | None = None  # noqa: N815


class _Question(msgspec.Struct, forbid_unknown_fields=True):
    broker: str
    wishes: dict[str, list[Wish]]


class ResourceGroupRoutes:
    def __init__(self, store: GroupStore, sharing: GroupSharing, owners: OwnerCalls) -> None:
        self._store = store
        self._sharing = sharing
        self._owners = owners

    def routes(self) -> list[Route]:
        read, admin = Permission.READ_CLUSTER, Permission.SUPER_USER
        return [
            Route(
                "GET",
                _PATH,
                self._list,
                read,
                "List the resource groups.",
                parameters=(AFTER, LIMIT),
                answers=list[str],
            ),
            Route(
                "GET",
                _GROUP,
                self._get,
                read,
                "Show the limits of a resource group.",
                answers=ResourceGroup,
            ),
            Route(
                "PUT",
                _GROUP,
                self._set,
                admin,
                "Create a resource group, or change limits of it.",
                body=ResourceGroupBody,
            ),
            Route(
                "DELETE",
                _GROUP,
                self._delete,
                admin,
                "Delete a resource group that no namespace and no topic is in.",
                statuses=(409,),
            ),
            Route(
                "POST",
                f"/admin/v2/{_SHARES}",
                self._divide,
                admin,
                "Divide limits of resource groups; brokers ask their leader for it.",
                body=_Question,
                body_required=True,
                answers=dict[str, list[float]],
                described=False,
            ),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        return answer(call.page(await self._store.names(), str))

    async def _get(self, call: Call) -> HttpResponse:
        found = await self._store.find(call["group"])
        if found is None:
            there = ", ".join(await self._store.names()) or "none"
            raise NotFound(f"there is no resource group {call['group']!r}; there are: {there}")
        return answer(found)

    async def _set(self, call: Call) -> HttpResponse:
        name, body = call["group"], call.body or ResourceGroupBody()
        check_rule_name("resource group", name)
        given = {
            key: value for key, value in msgspec.to_builtins(body).items() if value is not None
        }

        def change(found: ResourceGroup | None) -> ResourceGroup:
            before = msgspec.to_builtins(found or ResourceGroup())
            return msgspec.convert({**before, **given}, ResourceGroup)

        await self._store.set(name, change)
        shown = ", ".join(f"{key} {value}" for key, value in given.items())
        call.change = f"resource group {name}: {shown or 'no limit given'}"
        return no_content()

    async def _delete(self, call: Call) -> HttpResponse:
        await self._store.delete(call["group"])
        return no_content()

    # -- between brokers

    async def ask(
        self, leader: BrokerRegistration, broker: str, wishes: Mapping[str, Sequence[Wish]]
    ) -> Shares:
        """Ask the leader for shares. Raises its error."""
        question = _Question(broker, {name: list(each) for name, each in wishes.items()})
        answered = await self._owners.send_to(leader, (_SHARES,), OwnerCall("POST", body=question))
        return checked(dict[str, list[float]], answered, f"shares of {leader.broker_id}")

    async def _divide(self, call: Call) -> HttpResponse:
        return answer(self._sharing.divide(call.body.broker, call.body.wishes))
