"""Arguments by position and by name, and what cannot be meant."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import pulsarish
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.arguments import (
    asyncio_consumer_options,
    asyncio_reader_options,
    reader_options,
)
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.options import ClientOptions, ProducerOptions
from pulsarish.client.messages.signatures import taking

URL = "pulsarish://localhost"


class Program:
    """Has methods as clients have them."""

    @taking(ProducerOptions)
    def create_producer(self, options: ProducerOptions) -> ProducerOptions:
        """Return the options."""
        return options

    @taking(ProducerOptions, on_unless={"batching_enabled": "chunking_enabled"})
    async def create_later(self, options: ProducerOptions) -> ProducerOptions:
        return options


def test_official_calls_by_position() -> None:
    shared = pulsarish.ConsumerType.Shared
    assert ConsumerOptions("t", "s", shared).consumer_type is shared
    assert Program().create_producer("t", "name").producer_name == "name"
    assert ClientOptions(URL, None, 5).operation_timeout_seconds == 5


def test_asyncio_order_has_no_listener() -> None:
    assert (
        asyncio_consumer_options("t", "s", pulsarish.ConsumerType.Shared, None, 7)
    ).receiver_queue_size == 7

    def listener(_consumer: Any, _message: Any) -> None: ...

    options = asyncio_consumer_options("t", "s", message_listener=listener)
    assert options.message_listener is listener
    options = asyncio_reader_options("t", MessageId.latest, None, 7, reader_listener=listener)
    assert (options.receiver_queue_size, options.message_listener) == (7, listener)
    options = reader_options("t", MessageId.latest, None, listener, 7)
    assert (options.receiver_queue_size, options.message_listener) == (7, listener)


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        (("t", "a"), {"producer_name": "b"}, "multiple values for argument 'producer_name'"),
        (range(60), {}, "too many positional arguments"),
        ((), {}, "missing a required argument: 'topic'"),
        (
            ("t",),
            {"send_timeout_ms": 5},
            "has no argument 'send_timeout_ms': did you mean send_timeout_millis",
        ),
    ],
)
def test_what_cannot_be_meant(arguments: Any, named: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words) as raised:
        Program().create_producer(*arguments, **named)
    assert isinstance(raised.value, pulsarish.InvalidArgument)


def test_a_flag_is_on_unless_another_is() -> None:
    async def run() -> None:
        program = Program()
        assert (await program.create_later("t")).batching_enabled
        assert not (await program.create_later("t", batching_enabled=False)).batching_enabled
        chunking = await program.create_later("t", chunking_enabled=True)
        assert (chunking.batching_enabled, chunking.chunking_enabled) == (False, True)
        awaited = program.create_later(5)  # type: ignore[arg-type]
        with pytest.raises(pulsarish.InvalidArgument, match="topic is 5"):
            await awaited

    asyncio.run(run())


def test_a_log_file_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(
        pulsarish.OperationNotSupported, match=r"log_conf_file_path='x'.*logger 'pulsarish'"
    ):
        ClientOptions(URL, log_conf_file_path="x")


def test_choices_print_their_names() -> None:
    assert str(pulsarish.Result.ProducerQueueIsFull) == "Result.ProducerQueueIsFull"
    assert f"{pulsarish.ConsumerType.KeyShared}" == "ConsumerType.KeyShared"
    assert pulsarish.CompressionType.ZSTD == 3
