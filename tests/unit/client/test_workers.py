"""Workers in threads, whose consumer is refused in the end."""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.client.api.worker import MakesWorkers
from pulsarish.model.errors import AuthorizationError, CryptoError, PulsarishError


class RefusedConsumer:
    def __init__(self) -> None:
        self.answers: list[PulsarishError] = [
            CryptoError("a message has no key"),
            AuthorizationError("the role may consume no more"),
        ]
        self.is_closed = False

    def receive(self, timeout_millis: int) -> Any:
        raise self.answers.pop(0)

    def close(self) -> None:
        self.is_closed = True


def test_a_worker_ends_with_the_refusal_of_its_consumer() -> None:
    consumer = RefusedConsumer()

    class Client(MakesWorkers):
        def subscribe(self, *_: Any, **_named: Any) -> Any:
            return consumer

    worker = Client().worker("t", "s")(print)
    with pytest.raises(AuthorizationError, match="may consume no more"):
        worker.run()
    assert consumer.is_closed
    assert consumer.answers == []
