from dataclasses import dataclass

import pulsarish


@dataclass
class Order:
    number: int


client = pulsarish.Client("pulsarish://localhost")
producer = client.create_producer("orders", schema=pulsarish.JsonSchema(Order))
producer.send({"number": 1})  # E: expected "Order | None"
producer.send_async(b"", None)  # E: expected "Order | None"
