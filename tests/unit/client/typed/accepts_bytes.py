from typing import assert_type

import pulsarish

client = pulsarish.Client("pulsarish://localhost")
producer = client.create_producer("orders")
assert_type(producer, pulsarish.Producer[bytes])
producer.send(b"one")
producer.send_async(b"two", None)
producer.send(None, partition_key="a")
consumer = client.subscribe("orders", "billing")
assert_type(consumer, pulsarish.Consumer[bytes])
assert_type(consumer.receive().value(), bytes)
assert_type(client.create_producer("orders", schema=None), pulsarish.Producer[bytes])
