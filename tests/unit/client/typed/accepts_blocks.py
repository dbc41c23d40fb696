from typing import assert_type

import pulsarish
import pulsarish.asyncio

client = pulsarish.Client("pulsarish://localhost")
text = pulsarish.StringSchema()
with client.subscribe("words", "all", schema=text).receive() as message:
    assert_type(message, pulsarish.Message[str])


async def main(consumer: pulsarish.asyncio.Consumer[str]) -> None:
    async with await consumer.receive() as message:
        assert_type(message.value(), str)
