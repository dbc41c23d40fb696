import pulsarish


def handle(consumer: pulsarish.Consumer[bytes]) -> None:
    print(consumer.receive().value()[0])


client = pulsarish.Client("pulsarish://localhost")
consumer = client.subscribe("words", "all", schema=pulsarish.StringSchema())
handle(consumer)  # E: expected "Consumer[bytes]"
message: pulsarish.Message[bytes] = consumer.receive()  # E: expression has type "Message[str]"
