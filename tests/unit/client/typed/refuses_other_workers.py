from dataclasses import dataclass

import pulsarish


@dataclass
class Order:
    number: int


client = pulsarish.Client("pulsarish://localhost")


@client.worker("orders", "billing", schema=pulsarish.JsonSchema(Order))  # E: expected "Callable
def bill(message: pulsarish.Message[str]) -> None:
    print(message.value().upper())
