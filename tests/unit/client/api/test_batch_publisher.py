"""What a publisher of batches counts as waiting, without a broker."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pulsarish.client.api.batch_publisher import PENDING_BYTES_MAX, BatchPublisher
from pulsarish.model.errors import ProducerFenced, PulsarishError
from pulsarish.model.topic_name import TopicName

BATCH = b"x" * (PENDING_BYTES_MAX // 2)


class Background:
    def lock(self) -> Any:
        return threading.Lock()

    def add_user(self, _user: object) -> None:
        pass


def publisher_whose_producer_failed(failure: PulsarishError) -> BatchPublisher:
    core = SimpleNamespace(last_sequence_id=-1)
    topic = TopicName.parse("persistent://public/default/t")
    child = SimpleNamespace(partition=-1, core=core, lock=threading.Lock(), failure=failure)
    publishing: Any = SimpleNamespace(children=[child], options=SimpleNamespace(topic=topic))
    background: Any = Background()
    return BatchPublisher(publishing, background)


def test_what_a_failed_producer_does_not_take_waits_for_nothing() -> None:
    publisher = publisher_whose_producer_failed(ProducerFenced("a newer one"))
    refused: list[PulsarishError] = []

    def add() -> None:
        for number in range(4):
            with pytest.raises(ProducerFenced) as caught:
                publisher.add(BATCH, 1, number, number)
            refused.append(caught.value)

    thread = threading.Thread(target=add, daemon=True)
    thread.start()
    thread.join(10.0)
    assert len(refused) == 4, "a batch waits for room that nobody will make"
