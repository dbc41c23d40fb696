"""Requests of the binary protocol that concern no producer and no consumer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pulsarish.broker.binary.questions import BrokerQuestions
from pulsarish.broker.topics.topic_lists import TopicWatch
from pulsarish.model.errors import AuthorizationError
from pulsarish.security.identity import Identity
from pulsarish.wire._pb import pulsar_pb2 as pb

ERROR, WATCHING = 14, 65


class Rights:
    """A gate with one namespace, whose grant can be revoked."""

    def __init__(self) -> None:
        self.is_granted = True

    async def visible(self, name: str, identity: Identity, resource: object) -> None:
        if not self.is_granted:
            raise AuthorizationError("not permitted")


class Lists:
    """Topics of a namespace. The grant is revoked while they are read, if ``rights`` is given."""

    def __init__(self, rights: Rights | None = None) -> None:
        self.open: list[TopicWatch] = []
        self._rights = rights

    async def watch(self, tenant: str, namespace: str, pattern: str, tell: Any) -> TopicWatch:
        watch = TopicWatch((tenant, namespace), lambda name: True, tell, frozenset({"secret"}))
        self.open.append(watch)
        if self._rights is not None:
            self._rights.is_granted = False
        return watch

    def end(self, watch: TopicWatch) -> None:
        self.open.remove(watch)


@pytest.mark.parametrize("is_revoked", [False, True])
def test_a_watch_is_refused_whose_grant_is_revoked_while_it_begins(is_revoked: bool) -> None:
    gate: Any = Rights()
    lists: Any = Lists(gate if is_revoked else None)
    other: Any = None
    questions = BrokerQuestions(
        gate=gate, listeners=other, namespaces=other, lookup=other, lists=lists
    )
    asked = pb.WatchTopicList(
        request_id=1, watcher_id=2, namespace="public/default", topics_pattern=".*"
    )
    watch, answer = asyncio.run(questions.watch(asked, lambda command: None, Identity("role")))
    assert answer.type == (ERROR if is_revoked else WATCHING)
    assert ("secret" in str(answer)) != is_revoked
    assert lists.open == ([] if is_revoked else [watch])
