from typing import assert_type

import pulsarish
from pulsarish.schema import AvroSchema, Long, Record


class Order(Record):
    number = Long(required=True)


client = pulsarish.Client("pulsarish://localhost")
reader = client.create_reader("orders", pulsarish.MessageId.earliest, schema=AvroSchema(Order))
assert_type(reader.read_next().value().number, int)
