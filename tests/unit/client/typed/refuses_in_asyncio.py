from dataclasses import dataclass

import pulsarish
import pulsarish.asyncio


@dataclass
class Order:
    number: int


async def main(client: pulsarish.asyncio.Client) -> None:
    producer = await client.create_producer("orders", schema=pulsarish.JsonSchema(Order))
    await producer.send(b"")  # E: expected "Order | None"
    producer.send_soon("")  # E: expected "Order | None"
    consumer = await client.subscribe("orders", "all", schema=pulsarish.JsonSchema(Order))
    consumer.receive().value()  # E: "Coroutine[
    print((await consumer.receive()).value().nmber)  # E: has no attribute "nmber"
