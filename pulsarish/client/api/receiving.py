"""What consumers and readers of the blocking and the asyncio client share."""

from __future__ import annotations

from pulsarish.client.api.reader_checkpoint import ReaderCheckpoint
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.stats import ConsumerStats
from pulsarish.model.errors import InvalidArgument, InvalidConfiguration

__all__ = ["Receiving", "attributes_of", "checkpoint_of", "state_of"]


class Receiving:
    """Receives for a program, by a call or by its listener. The faces add how it waits."""

    def __init__(self, consuming: MultiConsumer) -> None:
        self._consuming = consuming
        self._inbox = consuming.inbox
        self._listener = consuming.options.message_listener
        self._may_receive: Exception | None = None
        """Why a call may not receive messages, if it may not."""
        if self._listener is not None:
            self._may_receive = InvalidConfiguration(
                "messages go to the listener: leave message_listener out to receive them by a call"
            )

    def topic(self) -> str:
        return self._consuming.topic

    def stats(self) -> ConsumerStats:
        """Return what was counted since the consumer or reader was made."""
        return self._consuming.stats()

    def is_connected(self) -> bool:
        return self._consuming.is_connected

    def subscribed_count(self) -> int:
        """Return how often brokers have accepted the consumer: once for each topic, and once more
        after each loss of its connection or owner. What it held before may be delivered again.
        """
        return self._consuming.subscribed_count

    def __repr__(self) -> str:
        options = self._consuming.options
        what = "Reader" if options.start is not None else "Consumer"
        named = (self.topic(), options.subscription_name, options.consumer_name)
        shown = ", ".join(filter(None, named))
        return f"{what}({shown}, {state_of(self._consuming)})"


def checkpoint_of(checkpoint: ReaderCheckpoint | None) -> ReaderCheckpoint:
    """Return where a reader stores its position. Raises ``InvalidArgument`` when nowhere."""
    if checkpoint is None:
        raise InvalidArgument(
            "the reader stores no positions: pass checkpoint_topic and reader_name to create_reader"
        )
    return checkpoint


def state_of(opened: PartitionedProducer | MultiConsumer) -> str:
    """Return the state for people: connected, connecting or closed."""
    if opened.is_closed:
        return "closed"
    return "connected" if opened.is_connected else "connecting"


def attributes_of(consuming: MultiConsumer) -> dict[str, str]:
    """Return what the spans of a consumer or reader say of it, with OpenTelemetry's names."""
    options = consuming.options
    found = {
        "messaging.destination.name": consuming.topic,
        "messaging.client.id": options.consumer_name,
    }
    if options.start is None:
        found["messaging.destination.subscription.name"] = options.subscription_name
    return {name: value for name, value in found.items() if value}
