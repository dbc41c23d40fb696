from typing import assert_type

import pulsarish
from pulsarish.schema import BytesSchema, KeyValue, KeyValueEncodingType, KeyValueSchema

client = pulsarish.Client("pulsarish://localhost")
schema = KeyValueSchema(pulsarish.StringSchema(), BytesSchema(), KeyValueEncodingType.SEPARATED)
consumer = client.subscribe("pairs", "all", schema=schema)
assert_type(consumer, pulsarish.Consumer[KeyValue[str, bytes]])
key, value = consumer.receive().value()
assert_type(key, str)
assert_type(value, bytes)
client.create_producer("pairs", schema=schema).send(KeyValue("a", b"b"))
