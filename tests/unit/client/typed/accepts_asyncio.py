from dataclasses import dataclass
from typing import assert_type

import pulsarish
import pulsarish.asyncio


@dataclass
class Order:
    number: int


async def main() -> None:
    async with pulsarish.asyncio.Client("pulsarish://localhost") as client:
        schema = pulsarish.JsonSchema(Order)
        producer = await client.create_producer("orders", schema=schema)
        assert_type(producer, pulsarish.asyncio.Producer[Order])
        await producer.send(Order(1))
        await producer.send_soon(Order(2))
        consumer = await client.subscribe("orders", "billing", schema=schema)
        assert_type(consumer, pulsarish.asyncio.Consumer[Order])
        assert_type((await consumer.receive()).value(), Order)
        async for message in consumer:
            assert_type(message, pulsarish.Message[Order])
            await consumer.acknowledge(message)
        reader = await client.create_reader("orders", pulsarish.MessageId.earliest, schema=schema)
        assert_type((await reader.read_next()).value(), Order)
        view = await client.create_table_view("orders", schema=schema)
        assert_type(view, pulsarish.asyncio.TableView[Order])
        assert_type(view["a"], Order)
        plain = await client.subscribe("orders", "plain")
        assert_type(plain, pulsarish.asyncio.Consumer[bytes])
