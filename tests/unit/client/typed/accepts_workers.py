from dataclasses import dataclass
from datetime import timedelta

import pulsarish
import pulsarish.asyncio


@dataclass
class Order:
    number: int


client = pulsarish.Client("pulsarish://localhost")


@client.worker("orders", "billing", concurrency=8, schema=pulsarish.JsonSchema(Order))
def bill(message: pulsarish.Message[Order]) -> None:
    print(message.value().number)


@client.worker("words", "all", retry_delay=timedelta(seconds=5))
def handle(message: pulsarish.Message[bytes]) -> None:
    print(message.value())


bill.run()


async def main(aclient: pulsarish.asyncio.Client) -> None:
    @aclient.worker("orders", "billing", schema=pulsarish.JsonSchema(Order))
    async def bill(message: pulsarish.Message[Order]) -> None:
        print(message.value().number)

    await bill.run()
