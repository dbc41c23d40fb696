"""Mutants of consumers of patterns: topics that come and go would be missed, or come back."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.broker.clients.authorization import Resource
from pulsarish.broker.sessions.topic_calls import TopicCalls
from pulsarish.client.consumer import subscription_session
from pulsarish.client.consumer.pattern_topics import PatternTopics
from pulsarish.sim.workloads.found_topics import run_found
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["PATTERN_MUTANTS"]


def _changes_while_it_waits(was: Any) -> object:
    """Answer a call once the list changes, whatever the caller has."""

    async def watched(
        calls: TopicCalls, request: pb.TopicsRequest, resource: Resource, *others: object
    ) -> object:
        known = request.known_hash
        if known:
            kept, _ = await calls._keep(resource, request.pattern)
            request.known_hash = kept.hash
            calls._leave(kept)
        answer = await was(calls, request, resource, *others)
        if answer.hash == request.known_hash:
            answer.hash = known
        return answer

    return watched


def _as_the_first(_was: object) -> object:
    def is_new(_topics: PatternTopics, _name: str) -> bool:
        return False

    return is_new


def _creates(was: Any) -> object:
    def command(*arguments: Any) -> pb.Subscribe:
        found: pb.Subscribe = was(*arguments)
        found.only_existing = False
        return found

    return command


def _check(seed: int) -> None:
    _ = run_found(seed)


def _mutant(name: str, removes: str, patch: Patch, seeds: int, first: int = 0) -> Mutant:
    return Mutant(name, removes, (), patch, _check, seeds, first)


PATTERN_MUTANTS: Final = (
    _mutant(
        "lists_not_compared",
        "a caller that waits for changes of a list hears of those before its call",
        replacing(TopicCalls, "_watched", _changes_while_it_waits),
        30,
        first=15,
    ),
    _mutant(
        "found_topic_read_from_its_end",
        "a topic that comes after the consumer of its pattern is read from its first message",
        replacing(PatternTopics, "is_new", _as_the_first),
        5,
    ),
    _mutant(
        "deleted_topic_comes_back",
        "a consumer of a pattern does not create a topic that was deleted",
        replacing(subscription_session, "subscribe_command", _creates),
        10,
    ),
)
