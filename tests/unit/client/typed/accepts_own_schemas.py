from decimal import Decimal
from typing import assert_type

import pulsarish


class DecimalSchema:
    def encode(self, obj: Decimal) -> bytes:
        return str(obj).encode()

    def decode(self, data: bytes) -> Decimal:
        return Decimal(data.decode())


client = pulsarish.Client("pulsarish://localhost")
producer = client.create_producer("prices", schema=DecimalSchema())
assert_type(producer, pulsarish.Producer[Decimal])
producer.send(Decimal("1.5"))
chosen: pulsarish.Schema[Decimal] = DecimalSchema()
assert_type(client.subscribe("prices", "all", schema=chosen).receive().value(), Decimal)
