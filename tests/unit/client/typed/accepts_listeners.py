import re

import pulsarish

client = pulsarish.Client("pulsarish://localhost")


def on_message(consumer: pulsarish.Consumer[str], message: pulsarish.Message[str]) -> None:
    print(message.value().upper())
    consumer.acknowledge(message)


client.subscribe(
    re.compile("words-.*"),
    "all",
    schema=pulsarish.StringSchema(),
    message_listener=on_message,
    negative_ack_redelivery_delay_ms=5,
)
