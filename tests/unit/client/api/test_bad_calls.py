"""Every public method refuses what it cannot use, at the call, by an error that names the argument,
its value and the fix.

The table is that of both faces: here the asyncio one in the simulator, in ``tests/integration`` the
blocking one on real sockets.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import pulsarish
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.table_view import AsyncTableView
from pulsarish.client.message_id import MessageId
from tests.support.bad_calls import BAD_CALLS, Things, methods_with_arguments
from tests.support.client_world import Cast, play


def test_of_the_asyncio_face() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        things = Things(
            client,
            await client.create_producer("t"),
            await client.subscribe("t", "s"),
            await client.create_reader("t", MessageId.earliest),
            await client.create_table_view("t"),
        )
        assert isinstance(client, AsyncClient)
        assert isinstance(things.view, AsyncTableView)
        methods = methods_with_arguments(things)
        calls = [call for call in BAD_CALLS if call.method != "producer.send_async"]
        assert methods == {call.method for call in calls}
        # A message lies ready: what is wrong is refused all the same.
        await things.producer.send(b"there")
        for bad in calls:
            who, _, _ = bad.method.partition(".")
            with pytest.raises(bad.error, match=bad.words):
                answer = bad.call(getattr(things, who))
                if inspect.isawaitable(answer):
                    await answer
                pytest.fail(f"{bad} was taken")
        assert (await things.consumer.receive(1_000)).data() == b"there", "nothing of it did harm"

    play(scenario, seeds=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MessageId("a", "b"), "partition is 'a'.*int"),
        (lambda: MessageId(0, "b"), "ledger_id is 'b'"),
        (lambda: MessageId(0, 1, 1.5), "entry_id is 1.5"),
        (lambda: MessageId(0, 1, -2), "entry_id is -2.*-1 or more"),
        (lambda: MessageId(batch_index="x"), "batch_index is 'x'"),
        (lambda: MessageId(batch_size=-1), "batch_size is -1.*0 or more"),
        (lambda: MessageId(topic=5), "topic is 5"),
        (lambda: MessageId(ledger_id=1 << 63), "ledger_id.*at most"),
        (lambda: MessageId.deserialize(5), r"message_id_bytes is 5.*serialize\(\)"),
        (lambda: MessageId.deserialize("text"), "message_id_bytes is 'text'"),
        (lambda: MessageId.deserialize(b"\xff"), r"message_id_bytes b'\\xff' are no serialized"),
        (lambda: MessageId.deserialize(MessageId(0, 1, 2).serialize(), 5), "topic is 5"),
        (lambda: pulsarish.MultiplierRedeliveryBackoff("1"), "min_delay_ms is '1'"),
        (lambda: pulsarish.MultiplierRedeliveryBackoff(5, 4), "min_delay_ms <= max_delay_ms"),
        (lambda: pulsarish.MultiplierRedeliveryBackoff(multiplier="2"), "multiplier is '2'"),
        (lambda: pulsarish.ConsumerDeadLetterPolicy(1, 5), "dead_letter_topic is 5"),
        (lambda: pulsarish.ConsumerBatchReceivePolicy("1"), "max_num_message is '1'"),
        (lambda: pulsarish.JsonSchema(5), "record_cls is 5"),
        (lambda: pulsarish.StringSchema().encode("\ud800"), "content.*surrogate"),
    ],
)
def test_of_the_values(make: Any, words: str) -> None:
    with pytest.raises(pulsarish.InvalidArgument, match=words):
        make()


def test_ids_are_compared_with_ids_only() -> None:
    assert MessageId(0, 1, 2) != (0, 1, 2)
    with pytest.raises(TypeError):
        _ = MessageId(0, 1, 2) < 5


def test_a_message_of_another_topic_is_refused() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        here, there = await client.subscribe("here", "s"), await client.subscribe("there", "s")
        await (await client.create_producer("there")).send(b"x")
        message = await there.receive(1_000)
        for call in (here.acknowledge, here.acknowledge_cumulative, here.negative_acknowledge):
            with pytest.raises(
                pulsarish.InvalidArgument,
                match=r"is of topic persistent://public/default/there.*is on .*here",
            ):
                await call(message)
        with pytest.raises(pulsarish.InvalidArgument, match="of topic"):
            await here.seek(message.message_id())

    play(scenario, seeds=1)


def test_a_schema_must_make_bytes() -> None:
    class Text:
        def encode(self, value: object) -> str:
            return str(value)

        def decode(self, data: bytes) -> str:
            return data.decode()

    async def scenario(cast: Cast) -> None:
        producer = await cast.client().create_producer("t", schema=Text())
        with pytest.raises(pulsarish.InvalidArgument, match="schema made '5' of type str"):
            await producer.send(5)

    play(scenario, seeds=1)
