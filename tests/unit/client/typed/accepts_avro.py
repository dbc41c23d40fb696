from dataclasses import dataclass
from typing import Any, assert_type

import pulsarish


@dataclass
class Order:
    number: int


client = pulsarish.Client("pulsarish://localhost")
schema = pulsarish.AvroSchema(Order)
assert_type(schema, pulsarish.AvroSchema[Order])
assert_type(client.subscribe("orders", "all", schema=schema).receive().value(), Order)
plain = pulsarish.AvroSchema(None, {"type": "record", "name": "Order", "fields": []})
assert_type(client.create_producer("orders", schema=plain), pulsarish.Producer[dict[str, Any]])
named = pulsarish.AvroSchema(schema_definition={"type": "record", "name": "O", "fields": []})
assert_type(named.decode(b""), dict[str, Any])
