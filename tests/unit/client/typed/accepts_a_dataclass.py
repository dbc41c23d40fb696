from dataclasses import dataclass
from typing import assert_type

import pulsarish


@dataclass
class Order:
    number: int


client = pulsarish.Client("pulsarish://localhost")
producer = client.create_producer("orders", schema=pulsarish.JsonSchema(Order))
assert_type(producer, pulsarish.Producer[Order])
producer.send(Order(1), {"a": "b"}, event_timestamp=5)
consumer = client.subscribe("orders", "billing", schema=pulsarish.JsonSchema(Order))
assert_type(consumer, pulsarish.Consumer[Order])
message = consumer.receive(timeout_millis=5)
assert_type(message, pulsarish.Message[Order])
assert_type(message.value(), Order)
assert_type(message.value().number, int)
for each in consumer.batch_receive():
    assert_type(each.value(), Order)
for each in consumer:
    consumer.acknowledge(each)
consumer.acknowledge([message, message.message_id()])
