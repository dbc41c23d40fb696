"""Topics next to the one that is published to: they too must take messages soon after the metadata
service has returned.
"""

from __future__ import annotations

import time
from typing import Final

import pulsarish
from pulsarish.chaos.observer import Owner
from pulsarish.chaos.stage import Stage

__all__ = ["SideTopics"]

BACK_SECONDS: Final = 10.0
_COUNT: Final = 20


class SideTopics:
    """Makes the topics, each with one message."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._names = [f"{stage.topic_name}-side-{number}" for number in range(_COUNT)]
        self._producers = [stage.client.create_producer(name) for name in self._names]
        for producer in self._producers:
            producer.send(b"before")

    def must_be_back(self, what: str, began: float, *, new_topic: str = "") -> None:
        """Each of them, and the topic that is published to, acknowledges a message within
        ``BACK_SECONDS`` of ``began``.

        ``what`` happened then, for the notes. ``new_topic``: a topic of this suffix is made as
        well, which needs the metadata service.
        """
        stage = self._stage
        results: list[str] = []
        for producer in self._producers:
            producer.send_async(
                b"after", lambda result, _id: results.append(getattr(result, "name", str(result)))
            )
        acked = len(stage.ack_seconds)
        if new_topic:
            self._names.append(f"{stage.topic_name}-side-{new_topic}")
            self._producers.append(stage.client.create_producer(self._names[-1]))
            self._producers[-1].send(b"first")
        count = len(self._producers) - bool(new_topic)
        stage.wait(
            "every topic is back", lambda: len(results) == count and len(stage.ack_seconds) > acked
        )
        took = time.monotonic() - began
        stage.notes.append(
            f"all {len(self._producers) + 1} topics were back {took:.1f} s after {what}"
        )
        if took > BACK_SECONDS or set(results) != {pulsarish.Result.Ok.name}:
            stage.wrong.append(
                f"topics were back only {took:.1f} s after {what}, with the results "
                f"{sorted(set(results))}"
            )

    def owners(self) -> dict[str, Owner | None]:
        """Who owns each of them, by name."""
        return {name: self._stage.observer.owner(name) for name in self._names}

    def close(self) -> None:
        for producer in self._producers:
            producer.close()
