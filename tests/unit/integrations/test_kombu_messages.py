"""Addresses and messages of the transport for kombu."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from pulsarish.client.messages.message import Message
from pulsarish.integrations.kombu.addresses import (
    bound_filter,
    bound_subscription,
    parse_address,
)
from pulsarish.integrations.kombu.envelope import (
    content_of,
    due_ms,
    payload_of,
    priority_of,
    properties_of,
)
from pulsarish.integrations.kombu.queues import QueueKind
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.message_filter import parse_filter


def test_addresses() -> None:
    plain = parse_address("pulsarish://a:1,b:2", tls=False)
    assert (plain.service_url, plain.namespace) == ("pulsarish://a:1,b:2", "public/default")
    # kombu cuts off what is before a plus sign
    locked = parse_address("ssl://a:1/shop/tasks", tls=False)
    assert (locked.service_url, locked.namespace) == ("pulsarish+ssl://a:1", "shop/tasks")
    assert parse_address("pulsarish://a", tls=True).service_url == "pulsarish+ssl://a"
    assert parse_address("pulsarish+ssl://a", tls=True).service_url == "pulsarish+ssl://a"
    assert parse_address("a:1", tls=False).service_url == "pulsarish://a:1"
    assert plain.queue_topic("celery") == "persistent://public/default/celery"
    assert plain.exchange_topic("news") == "persistent://public/default/exchange:news"


def test_refused_addresses() -> None:
    with pytest.raises(InvalidArgument, match="authentication="):
        parse_address("pulsarish://me:secret@a:1", tls=False)
    with pytest.raises(InvalidArgument, match="/TENANT/NAMESPACE"):
        parse_address("pulsarish://a:1/tasks", tls=False)
    plain = parse_address("pulsarish://a", tls=False)
    for name in ("", "exchange:news"):
        with pytest.raises(InvalidArgument, match="topics of exchanges"):
            plain.queue_topic(name)


def test_bindings() -> None:
    assert bound_subscription("fanout", "q", "ignored") == "q"
    assert bound_subscription("direct", "q", "key") == "q:key"
    condition = bound_filter("direct", "it's")
    assert condition == "routing_key = 'it''s'"
    parse_filter(condition)
    assert bound_filter("topic", "news.#") is None


@pytest.mark.parametrize(
    ("durable", "exclusive", "auto_delete", "kind"),
    [
        (True, False, False, QueueKind.KEPT),
        (False, False, False, QueueKind.KEPT),
        (True, False, True, QueueKind.AUTO_DELETED),
        (False, False, True, QueueKind.TEMPORARY),
        (True, True, False, QueueKind.TEMPORARY),
    ],
)
def test_kinds_of_queues(
    durable: bool, exclusive: bool, auto_delete: bool, kind: QueueKind
) -> None:
    assert QueueKind.of(durable=durable, exclusive=exclusive, auto_delete=auto_delete) is kind


def test_bodies_and_properties() -> None:
    message: dict[str, Any] = {"body": "naïve", "headers": {"id": "1"}, "properties": {}}
    assert content_of(message) == "naïve".encode()
    assert content_of({"body": b"\x00"}) == b"\x00"
    properties = properties_of(message, "key")
    assert properties["routing_key"] == "key"
    assert "naïve" not in properties["kombu"]


class Received:
    """A message as a consumer gets it."""

    def __init__(self, **properties: str) -> None:
        self._properties = properties

    def properties(self) -> dict[str, str]:
        return self._properties

    def data(self) -> bytes:
        return b"body"


def received(**properties: str) -> dict[str, Any]:
    return payload_of(cast("Message", Received(**properties)), "tag", redelivered=True)


def test_messages_are_restored() -> None:
    sent = {"body": "x", "headers": {"id": "1"}, "properties": {"priority": 3}}
    payload = received(**properties_of(sent, "key"))
    assert payload["body"] == b"body"
    assert payload["headers"] == {"id": "1"}
    assert payload["properties"] == {
        "priority": 3,
        "delivery_tag": "tag",
        "delivery_info": {"exchange": "", "routing_key": "key", "redelivered": True},
    }


@pytest.mark.parametrize("kombu", ["{", "[]", "null", '{"properties": 1}'])
def test_what_another_program_wrote_is_no_error(kombu: str) -> None:
    payload = received(kombu=kombu, by="hand")
    assert payload["headers"]["by"] == "hand"
    assert payload["content-type"] == "application/data"


@pytest.mark.parametrize(
    ("given", "priority"), [(None, 0), (0, 0), (7, 7), ("3", 3), (255, 9), (-1, 0), ("high", 0)]
)
def test_priorities(given: object, priority: int) -> None:
    assert priority_of({"properties": {"priority": given}}) == priority


def test_times_of_tasks() -> None:
    due = datetime(2030, 1, 1, tzinfo=UTC)
    due_wall_ms = int(due.timestamp() * 1000)

    def at(eta: object, now_ms: int = 0) -> int | None:
        return due_ms({"headers": {"eta": eta}}, now_ms)

    assert at(due.isoformat()) == at(due) == at("2030-01-01T02:00:00+02:00") == due_wall_ms
    assert at(due, now_ms=due_wall_ms) is None
    assert at(None) is None
    assert at("2030-01-01T00:00:00") is None  # the worker knows its zone
    assert at("soon") is None
    assert due_ms({"headers": None}, 0) is None
