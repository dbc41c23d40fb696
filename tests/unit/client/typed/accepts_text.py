from typing import assert_type

import pulsarish

with pulsarish.Client("pulsarish://localhost") as client:
    with client.create_producer("words", schema=pulsarish.StringSchema()) as producer:
        assert_type(producer, pulsarish.Producer[str])
        producer.send("one")
    with client.subscribe(["words", "names"], "all", schema=pulsarish.StringSchema()) as consumer:
        assert_type(consumer.receive().value(), str)
