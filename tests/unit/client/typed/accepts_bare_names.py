"""Programs may leave out what the messages hold."""

import pulsarish


class Shop:
    def __init__(self, client: pulsarish.Client) -> None:
        self.producer: pulsarish.Producer = client.create_producer(
            "words", schema=pulsarish.StringSchema()
        )
        self.consumers: list[pulsarish.Consumer] = [client.subscribe("words", "all")]

    def handle(self, consumer: pulsarish.Consumer, message: pulsarish.Message) -> None:
        print(message.value(), message.data())
        consumer.acknowledge(message)


def table(view: pulsarish.TableView, reader: pulsarish.Reader) -> None:
    print(view["a"], reader.read_next().value())
