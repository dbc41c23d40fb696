import pulsarish
from pulsarish.schema import BytesSchema, KeyValue, KeyValueSchema

client = pulsarish.Client("pulsarish://localhost")
schema = KeyValueSchema(pulsarish.StringSchema(), BytesSchema())
producer = client.create_producer("pairs", schema=schema)
producer.send(KeyValue(5, b""))  # E: expected "str"
size: int = client.subscribe("pairs", "all", schema=schema).receive().value().key  # E: type "str"
