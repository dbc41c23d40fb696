from dataclasses import dataclass

import pulsarish


@dataclass
class Order:
    number: int


client = pulsarish.Client("pulsarish://localhost")
consumer = client.subscribe("orders", "all", schema=pulsarish.JsonSchema(Order))
print(consumer.receive().value().nmber)  # E: "Order" has no attribute "nmber"
for message in consumer:
    print(message.value().size)  # E: "Order" has no attribute "size"
