from typing import Any, assert_type

import pulsarish

client = pulsarish.Client("pulsarish://localhost")
consumer = client.subscribe("orders", "all", schema=pulsarish.AutoConsumeSchema())
assert_type(consumer, pulsarish.Consumer[Any])
print(consumer.receive().value()["number"])
