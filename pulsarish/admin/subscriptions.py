"""Subscriptions of a topic.

The topic's owner moves their cursors; brokers redirect the client to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsarish.admin.transport import Answer, Names, Record, Transport, topic_path
from pulsarish.model.errors import InvalidArgument

__all__ = ["Subscriptions"]


class Subscriptions:
    """``Admin.subscriptions``.

    Calls raise ``TopicNotFound`` or ``SubscriptionNotFound`` for what does not exist.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, topic: str, *, after: str = "", limit: int | None = None) -> Names:
        """Return names after ``after``, sorted, at most ``limit``.

        For a partitioned topic, those of all partitions.
        """
        return self._transport.pages(*topic_path(topic), "subscriptions", after=after, limit=limit)

    def create(self, topic: str, subscription: str, *, position: str = "latest") -> None:
        """Create a subscription.

        ``position``: earliest, latest, or ``LEDGER:ENTRY`` as the first to be delivered. Raises
        ``AlreadyExists``.
        """
        self._transport.request("PUT", _path(topic, subscription), body=_position(position))

    def delete(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription.

        ``force`` disconnects its consumers; otherwise consumers cause ``SubscriptionBusy``.
        """
        self._transport.request(
            "DELETE", _path(topic, subscription), query={"force": "true"} if force else None
        )

    def skip_messages(self, topic: str, subscription: str, count: int) -> None:
        """Acknowledge the next ``count`` messages of the backlog."""
        self._transport.request("POST", [*_path(topic, subscription), "skip", str(count)])

    def skip_all_messages(self, topic: str, subscription: str) -> None:
        """Acknowledge the whole backlog."""
        self._transport.request("POST", [*_path(topic, subscription), "skip_all"])

    def expire_messages(self, topic: str, subscription: str, age_seconds: int) -> None:
        """Acknowledge messages that were published more than ``age_seconds`` ago."""
        self._transport.request(
            "POST", [*_path(topic, subscription), "expireMessages", str(age_seconds)]
        )

    def expire_all_messages(self, topic: str, age_seconds: int) -> None:
        """Acknowledge messages that were published more than ``age_seconds`` ago, in every
        subscription of the topic.
        """
        self._transport.request(
            "POST", [*topic_path(topic), "all_subscription", "expireMessages", str(age_seconds)]
        )

    def analyze_backlog(self, topic: str, subscription: str) -> Record:
        """Return statistics of the backlog, read from the log: ``entries``, ``messages``, first and
        last id; ``aborted``: there is more.
        """
        return self._transport.record("POST", *_path(topic, subscription), "analyzeBacklog")

    def reset_cursor(
        self,
        topic: str,
        subscription: str,
        *,
        timestamp_ms: int | None = None,
        position: str | None = None,
    ) -> None:
        """Move a subscription to a publish time (milliseconds since the epoch) or a position:
        earliest, latest or ``LEDGER:ENTRY``.
        """
        if (timestamp_ms is None) == (position is None):
            raise InvalidArgument("give either a timestamp or a position")
        base = [*_path(topic, subscription), "resetcursor"]
        if timestamp_ms is not None:
            self._transport.request("POST", [*base, str(timestamp_ms)])
        elif position is not None:
            self._transport.request("POST", base, body=_position(position))

    def properties(self, topic: str, subscription: str) -> dict[str, str]:
        """Return the subscription's properties."""
        found: dict[str, str] = self._transport.record(
            "GET", *_path(topic, subscription), "properties"
        )
        return found

    def set_properties(self, topic: str, subscription: str, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties."""
        self._transport.request(
            "PUT", [*_path(topic, subscription), "properties"], body=dict(properties)
        )

    def filter(self, topic: str, subscription: str) -> str | None:
        """Return the condition that messages of the subscription must fulfil; ``None``: all are
        delivered.
        """
        found = self._transport.record("GET", *_path(topic, subscription), "filter")
        text: str | None = found.get("filter")
        return text

    def set_filter(self, topic: str, subscription: str, condition: str) -> None:
        """Replace the condition. Consumers subscribe again, and those that ask for another filter
        are refused.

        Raises ``InvalidArgument``, which names the column where ``condition`` is wrong.
        """
        self._transport.request(
            "PUT", [*_path(topic, subscription), "filter"], body={"filter": condition}
        )

    def remove_filter(self, topic: str, subscription: str) -> None:
        """Have all messages delivered from now on. Consumers subscribe again."""
        self._transport.request("DELETE", [*_path(topic, subscription), "filter"])

    def explain(self, topic: str, subscription: str) -> Record:
        """Explain why a subscription makes no progress: ``state`` (active, idle, waiting),
        ``reason``, ``explanation`` and ``help``, a command.

        For a partitioned topic, each of ``partitions`` has these. Raises ``TopicNotFound``,
        ``SubscriptionNotFound``.
        """
        return self._transport.record("GET", *_path(topic, subscription), "explain")

    def holes(self, topic: str, subscription: str, *, start: str = "", limit: int = 20) -> Record:
        """Return the holes of a subscription: entries below the highest acknowledged one that are
        not acknowledged. ``holes`` and ``entriesInHoles`` count all; ``oldest`` has the oldest with
        its age; ``listed`` has up to ``limit`` from the position ``start`` (``LEDGER:ENTRY``) on,
        each with its ``holders``; ``next`` is where the next page starts.

        Raises ``NotAllowedError`` for a partitioned topic: name one of its partitions.
        """
        query = {"limit": str(limit), **({"from": start} if start else {})}
        path = [*_path(topic, subscription), "holes"]
        return self._transport.record("GET", *path, query=query)

    def recover(
        self, topic: str, subscription: str, given_up_bookies: Sequence[str] = ()
    ) -> Record:
        """Recover a subscription whose cursor ledger is lost.

        Return the mark-delete position after which it delivers again.

        ``given_up_bookies`` (instance ids) count as having nothing of it, although they do not
        answer so. Raises ``NotAllowedError`` when the ledger can be read or does not exist,
        ``EntryUnknown`` naming bookies that may have something of it.
        """
        body = {"givenUpBookies": [*given_up_bookies]}
        return self._transport.record("POST", *_path(topic, subscription), "recover", body=body)

    def peek_message(self, topic: str, subscription: str, number: int = 1) -> Answer:
        """Return the ``number``-th unacknowledged message (from 1).

        Raises ``NotFound`` when there are fewer.

        The id, key, publish time and properties are in the headers ``x-pulsar-message-id``,
        ``x-pulsar-partition-key``, ``x-pulsar-publish-time`` and ``x-pulsar-property``, the last as
        JSON.
        """
        return self._transport.exchange(
            "GET", [*_path(topic, subscription), "position", str(number)]
        )


def _path(topic: str, subscription: str) -> Names:
    return [*topic_path(topic), "subscription", subscription]


def _position(text: str) -> object:
    if text in ("earliest", "latest"):
        return text
    ledger, separator, entry = text.partition(":")
    if separator and ledger.isdecimal() and entry.isdecimal():
        return {"ledgerId": int(ledger), "entryId": int(entry)}
    raise InvalidArgument(f"position {text!r} must be earliest, latest or LEDGER:ENTRY")
