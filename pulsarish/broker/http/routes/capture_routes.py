"""Rules of a namespace that capture its non-persistent topics into persistent ones.

Any broker answers from metadata, and all brokers follow a change at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pulsarish.broker.clients.authorization import Gate, Permission, Resource
from pulsarish.broker.http.route import Call, Route, answer, no_content
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import captures_of
from pulsarish.model.captures import CAPTURES_MAX, CaptureRule
from pulsarish.model.errors import InvalidArgument, LimitReached, NotFound
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.seams import HttpResponse

__all__ = ["CaptureRoutes"]

_CAPTURES: Final = "/admin/v2/namespaces/{tenant}/{namespace}/captures"


class CaptureRoutes:
    def __init__(self, namespaces: Namespaces, gate: Gate) -> None:
        self._namespaces = namespaces
        self._gate = gate

    def routes(self) -> list[Route]:
        read, may = Permission.READ_POLICIES, Permission.ADMIN_NAMESPACE
        return [
            Route(
                "GET",
                _CAPTURES,
                self._list,
                read,
                "Show which non-persistent topics are captured into persistent ones, by rule.",
                answers=dict[str, CaptureRule],
            ),
            Route(
                "GET",
                _CAPTURES + "/{rule}",
                self._show,
                read,
                "Show a rule of capture.",
                answers=CaptureRule,
            ),
            Route(
                "POST",
                _CAPTURES + "/{rule}",
                self._set,
                may,
                "Capture non-persistent topics into a persistent topic: create or replace a rule.",
                body=CaptureRule,
                body_required=True,
                statuses=(409,),
            ),
            Route("DELETE", _CAPTURES + "/{rule}", self._remove, may, "Remove a rule of capture."),
        ]

    async def _rules(self, call: Call) -> Mapping[str, CaptureRule]:
        found = await self._namespaces.effective(call["tenant"], call["namespace"])
        return captures_of(found.namespace)

    async def _list(self, call: Call) -> HttpResponse:
        return answer(await self._rules(call))

    async def _show(self, call: Call) -> HttpResponse:
        rules = await self._rules(call)
        if call["rule"] not in rules:
            raise _missing(call)
        return answer(rules[call["rule"]])

    async def _set(self, call: Call) -> HttpResponse:
        name, rule = check_name("rule", call["rule"]), call.body
        if "/" in name:
            raise InvalidArgument(f"a rule cannot be called {name!r}: its name has a slash")
        rule.check()
        into = rule.target
        if self._gate.checks(call.identity):
            resource = Resource.of_topic(into)
            await self._gate.permit(Permission.PRODUCE, "capture", call.identity, resource)
        await self._check_into(into)

        def change(found: Mapping[str, CaptureRule]) -> Mapping[str, CaptureRule]:
            if name not in found and len(found) >= CAPTURES_MAX:
                raise LimitReached(
                    f"namespace {call['tenant']}/{call['namespace']} has {len(found)} rules of "
                    "capture, the most that are allowed; remove one, or capture more with a wider "
                    "pattern"
                )
            return {**found, name: rule}

        await self._namespaces.store.set_captures(call["tenant"], call["namespace"], change)
        call.change = (
            f"capture rule {name}: {rule.syntax} {rule.pattern!r} into {into}, acknowledged "
            f"{rule.acknowledged}, when full {rule.when_full}"
        )
        return no_content()

    async def _check_into(self, into: TopicName) -> None:
        """Check that a topic can take captured messages.

        Raises ``NotFound`` (its namespace), ``InvalidArgument``.
        """
        _ = await self._namespaces.policies(into.tenant, into.namespace)
        if into.partition < 0 and (count := await self._namespaces.partitions(into)) is not None:
            raise InvalidArgument(
                f"into is {into}, which has {count} partitions; name a topic without partitions, "
                f"or one partition such as {into.with_partition(0)}"
            )

    async def _remove(self, call: Call) -> HttpResponse:
        name = call["rule"]

        def change(found: Mapping[str, CaptureRule]) -> Mapping[str, CaptureRule]:
            if name not in found:
                raise _missing(call)
            return {each: rule for each, rule in found.items() if each != name}

        call.change = f"remove capture rule {name}"
        await self._namespaces.store.set_captures(call["tenant"], call["namespace"], change)
        return no_content()


def _missing(call: Call) -> NotFound:
    return NotFound(
        f"namespace {call['tenant']}/{call['namespace']} has no capture rule {call['rule']!r}; "
        "list them with: pulsarish namespaces captures"
    )
