"""A durable subscription that follows a query's checkpoint, so that brokers keep what the query has
not read yet.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from pulsarish.model.errors import AlreadyExists, NotFound, PulsarishError, SubscriptionNotFound
from pulsarish.spark.positions import Place
from pulsarish.spark.reading.log import ClusterView, TopicLog
from pulsarish.spark.retry import retry_while_retryable

__all__ = ["CheckpointSubscription"]


class CheckpointSubscription:
    """Without a name it does nothing."""

    def __init__(self, view: ClusterView, subscription: str | None) -> None:
        self._view = view
        self._name = subscription
        self._at: dict[str, Place] = {}

    def begin(self, places: Mapping[str, Place], logs: Mapping[str, TopicLog]) -> None:
        """Create the subscription on new topics, before what is read next.

        An existing one is moved there, but not to a topic's end: it keeps more, and Spark asks for
        the beginning again when it runs a first batch again.
        """
        if self._name is None:
            return
        for topic, place in places.items():
            log = logs.get(topic)
            moves = log is None or place != log.last
            self._make(self._name, topic, _next(place, log), moves=moves)
            if moves:
                self._at[topic] = place

    def advice(self) -> str:
        """Return the advice to show when something was not kept."""
        if self._name is None:
            return "option 'subscription' names one that keeps what the query has not read yet"
        return (
            f"subscription {self._name!r} (option 'subscription') did not keep it: it was "
            "deleted, or moved by another program"
        )

    def _make(self, name: str, topic: str, position: str, *, moves: bool = True) -> None:
        try:
            retry_while_retryable(
                lambda: self._view.admin.subscriptions.create(topic, name, position=position)
            )
        except AlreadyExists:
            if moves:
                retry_while_retryable(
                    lambda: self._view.admin.subscriptions.reset_cursor(
                        topic, name, position=position
                    )
                )

    def follow(self, places: Mapping[str, Place], logs: Mapping[str, TopicLog]) -> None:
        """Move the subscription to the checkpoint's position.

        Steps that fail now are repeated with a later batch.
        """
        if self._name is None:
            return
        for topic, place in places.items():
            if self._at.get(topic) == place:
                continue
            position = _next(place, logs.get(topic))
            try:
                try:
                    self._view.admin.subscriptions.reset_cursor(
                        topic, self._name, position=position
                    )
                except SubscriptionNotFound:
                    warnings.warn(
                        f"subscription {self._name!r} (option 'subscription') was not there any "
                        f"more on topic {topic} and is made again at {position}: what lay before "
                        "it and was not read yet may have been deleted meanwhile",
                        stacklevel=2,
                    )
                    self._make(self._name, topic, position)
            except NotFound:
                continue  # the topic is gone; planning reports it
            except PulsarishError as error:
                warnings.warn(
                    f"subscription {self._name!r} of topic {topic} stays behind the checkpoint "
                    f"for now: {error}",
                    stacklevel=2,
                )
                continue
            self._at[topic] = place


def _next(place: Place, log: TopicLog | None) -> str:
    """Return the first entry that is not fully consumed, as a position for the admin API."""
    if place.ledger < 0:
        return "earliest"
    if place.batch_index >= 0:
        return f"{place.ledger}:{place.entry}"
    for ledger in log.ledgers if log is not None else ():
        if ledger.ledger_id > place.ledger and place.entry >= 0:
            here = (
                next((each for each in log.ledgers if each.ledger_id == place.ledger), None)
                if log is not None
                else None
            )
            if here is None or place.entry >= here.entries - 1:
                return f"{ledger.ledger_id}:0"
    return f"{place.ledger}:{place.entry + 1}"
