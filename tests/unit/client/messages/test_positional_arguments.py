"""Positional arguments, and options at their default, mean what they mean in Apache Pulsar's Python
client.
"""

from __future__ import annotations

import inspect
import random
from typing import Any

import pulsar  # type: ignore[import-untyped]
import pulsar.asyncio  # type: ignore[import-untyped]
import pytest

import pulsarish
from pulsarish.client.api.asyncio_client import AsyncProducer
from pulsarish.client.api.blocking_producer import Producer
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.arguments import (
    ClientArguments,
    ConsumerArguments,
    ProducerArguments,
    ReaderArguments,
    client_options,
    consumer_options,
    producer_options,
    reader_options,
)

URL = "pulsarish://localhost"


def official(owner: type, method: str, skip: int) -> dict[str, Any]:
    """The optional arguments of a method of the official client, in order, with their defaults."""
    parameters = list(inspect.signature(getattr(owner, method)).parameters.values())[1 + skip :]
    return {each.name: each.default for each in parameters if each.kind is not each.VAR_KEYWORD}


TABLES = [
    (pulsar.Client, "__init__", 1, ClientArguments),
    (pulsar.Client, "create_producer", 1, ProducerArguments),
    (pulsar.Client, "subscribe", 2, ConsumerArguments),
    (pulsar.Client, "create_reader", 2, ReaderArguments),
]


@pytest.mark.parametrize(("owner", "method", "skip", "table"), TABLES)
def test_the_order_is_that_of_the_official_client(
    owner: type, method: str, skip: int, table: type
) -> None:
    names = list(official(owner, method, skip))
    assert list(table.__annotations__)[: len(names)] == names


def ours(value: object) -> object:
    """Our value for a default of the official client: enumerations by name, schemas by ``None``."""
    kind = type(value).__name__
    if kind == "BytesSchema":
        return None
    return (
        getattr(pulsarish, kind)[value.name]
        if hasattr(value, "name") and hasattr(pulsarish, kind)
        else value
    )  # type: ignore[attr-defined]


def options_of(method: str, given: dict[str, Any], positional: tuple[object, ...] = ()) -> Any:
    match method:
        case "__init__":
            return client_options(URL, given, positional)  # type: ignore[arg-type]
        case "create_producer":
            return producer_options("t", given, positional)  # type: ignore[arg-type]
        case "subscribe":
            return consumer_options("t", "s", given, positional)  # type: ignore[arg-type]
    return reader_options("t", MessageId.earliest, given, random.Random(1), positional)


def seen(options: Any) -> dict[str, object]:
    """What options hold, in a form that can be compared."""
    return {
        name: value if isinstance(value, (str, int, float, bool, type(None))) else repr(type(value))
        for name, value in vars(options).items()
        if name != "subscription_name"
    }


@pytest.mark.parametrize(("owner", "method", "skip", "table"), TABLES)
def test_every_official_default_means_no_change(
    owner: type, method: str, skip: int, table: type
) -> None:
    defaults = {name: ours(value) for name, value in official(owner, method, skip).items()}
    # Host names are verified unless that is switched off.
    assert defaults.pop("tls_validate_hostname", False) is False
    # Here on unless it is switched off: brokers of this project know it, so a batch of which some
    # messages were refused is not delivered again, or dead-lettered, as a whole.
    plain = seen(
        options_of(method, {"batch_index_ack_enabled": False} if method == "subscribe" else {})
    )
    assert seen(options_of(method, defaults)) == plain
    positional = tuple(ours(value) for value in official(owner, method, skip).values())
    assert seen(options_of(method, {}, positional)) == plain


def test_official_calls_by_position() -> None:
    assert (
        consumer_options("t", "s", {}, (pulsarish.ConsumerType.Shared,)).consumer_type
        is pulsarish.ConsumerType.Shared
    )
    assert producer_options("t", {}, ("name",)).producer_name == "name"
    assert client_options(URL, {}, (None, 5)).operation_timeout_seconds == 5


def test_asyncio_order_has_no_listener() -> None:
    names = list(official(pulsar.asyncio.Client, "subscribe", 2))
    assert names[:3] == ["consumer_type", "schema", "receiver_queue_size"]
    given = (pulsarish.ConsumerType.Shared, None, 7)
    assert consumer_options("t", "s", {}, given, awaitable=True).receiver_queue_size == 7


@pytest.mark.parametrize("method", ["send", "send_async"])
def test_arguments_of_send(method: str) -> None:
    names = list(inspect.signature(getattr(pulsar.Producer, method)).parameters)
    for owner in (Producer, AsyncProducer) if method == "send" else (Producer,):
        parameters = inspect.signature(getattr(owner, method)).parameters
        own = ["expires_after", "priority"]
        assert list(parameters) == [*names, *own]
        kinds = {name: each.kind for name, each in parameters.items()}
        assert {kinds.pop(name) for name in own} == {inspect.Parameter.KEYWORD_ONLY}
        assert set(kinds.values()) == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.parametrize(
    ("given", "positional", "words"),
    [
        (
            {"producer_name": "a"},
            ("b",),
            "got 'producer_name' twice, by position and by name: give it once",
        ),
        ({}, tuple(range(60)), "at most 22 more positional arguments, and 60 are given"),
        (
            {"log_conf_file_path": None},
            (),
            r"create_producer\(\) has no argument 'log_conf_file_path'",
        ),
    ],
)
def test_what_cannot_be_meant(
    given: dict[str, Any], positional: tuple[object, ...], words: str
) -> None:
    with pytest.raises(pulsarish.InvalidArgument, match=words):
        producer_options("t", given, positional)  # type: ignore[arg-type]


def test_a_log_file_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(
        pulsarish.OperationNotSupported, match=r"log_conf_file_path='x'.*logger 'pulsarish'"
    ):
        client_options(URL, {"log_conf_file_path": "x"})


def test_choices_print_their_names() -> None:
    assert str(pulsarish.Result.ProducerQueueIsFull) == "Result.ProducerQueueIsFull"
    assert f"{pulsarish.ConsumerType.KeyShared}" == "ConsumerType.KeyShared"
    assert pulsarish.CompressionType.ZSTD == 3
