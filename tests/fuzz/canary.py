"""A normal client of a cluster under a fuzzer: it publishes all the time, and everything that was
acknowledged to it must stay readable.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pulsarish
from pulsarish.model.errors import PulsarishError

__all__ = ["Canary", "Defect"]

_PUBLISH_EVERY_SECONDS: Final = 0.05
_PATIENCE_MILLIS: Final = 90_000
"""Far beyond what anything takes: on a machine that is busy elsewhere all of it takes long."""


class Defect(Exception):
    """What a fuzzer found."""


class Canary:
    """Publish to one topic and read it.

    ``sent`` has the content of every message that was acknowledged, in order.

    Args:
        url: service URL of the broker's gRPC port.
        topic: no other client uses it.
        arguments: further ones of its client, such as its credentials.
    """

    def __init__(self, url: str, topic: str, **arguments: Any) -> None:
        self.sent: list[bytes] = []
        self.longest_seconds = 0.0
        """The longest time until a message was acknowledged."""
        self._topic = topic
        self._client = pulsarish.Client(url, **arguments)
        # The subscription keeps all messages: without one a closed ledger is trimmed.
        self._client.subscribe(
            topic, "keeps", initial_position=pulsarish.InitialPosition.Earliest
        ).close()
        self._producer = self._client.create_producer(topic, send_timeout_millis=_PATIENCE_MILLIS)
        self._read_to: pulsarish.MessageId = pulsarish.MessageId.earliest
        self._read_count = 0

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Publish in a thread while the block runs.

        Raises ``Defect`` when a message was not acknowledged.
        """
        ended, failures = threading.Event(), list[PulsarishError]()

        def publish() -> None:
            try:
                while not ended.wait(_PUBLISH_EVERY_SECONDS):
                    self._publish()
            except PulsarishError as error:
                failures.append(error)

        thread = threading.Thread(target=publish, name="canary")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if failures:
            raise Defect(
                f"a normal client cannot publish while others send hostile input: {failures[0]!r}"
            ) from failures[0]

    def check(self, *, all_messages: bool = False) -> None:
        """Publish a few messages and read from where the last check ended, or everything.

        Raises ``Defect``.
        """
        try:
            for _ in range(5):
                self._publish()
            self._read(all_messages=all_messages)
        except pulsarish.Timeout as error:
            raise Defect(
                "a normal client cannot publish, or cannot read what was acknowledged, within "
                f"{_PATIENCE_MILLIS // 1_000} s: {error}"
            ) from error
        except PulsarishError as error:
            raise Defect(f"a normal client is not served: {error!r}") from error

    def _publish(self) -> None:
        content = b"canary %d" % len(self.sent)
        began = time.monotonic()
        self._producer.send(content)
        self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
        self.sent.append(content)

    def _read(self, *, all_messages: bool) -> None:
        if all_messages:
            self._read_to, self._read_count = pulsarish.MessageId.earliest, 0
        expected = self.sent[self._read_count :]
        reader = self._client.create_reader(self._topic, self._read_to)
        try:
            messages = [reader.read_next(timeout_millis=_PATIENCE_MILLIS) for _ in expected]
        finally:
            reader.close()
        found = [message.data() for message in messages]
        for number, (read, acknowledged) in enumerate(
            zip(found, expected, strict=True), self._read_count
        ):
            if read != acknowledged:
                raise Defect(
                    f"message {number} was acknowledged as {acknowledged!r} and is read as {read!r}"
                )
        self._read_to, self._read_count = messages[-1].message_id(), len(self.sent)
