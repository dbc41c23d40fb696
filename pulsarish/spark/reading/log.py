"""What the planner knows about topics: their names, their ledgers, and addresses of bookies.

Read through the brokers' admin API.

The driver imports this module for each query, so it imports nothing of gRPC, asyncio or Arrow.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pulsarish.model.errors import AuthorizationError, NotFound, PulsarishError, TopicNotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.spark.access import BrokerAccess
from pulsarish.spark.options import DirectReads, OptionError, ReadOptions
from pulsarish.spark.positions import NOWHERE, Place
from pulsarish.spark.retry import retry_while_retryable

__all__ = ["ClusterView", "Ledger", "TopicLog"]

_REQUESTS_MAX: Final = 8
"""Concurrent requests."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """One ledger of a topic, as far as it may be read.

    ``record``: its metadata in JSON when it is closed, otherwise empty.
    """

    ledger_id: int
    entries: int
    size_bytes: int
    created_ms: int
    closed_ms: int
    record: str

    @property
    def entry_bytes(self) -> float:
        """The average size of an entry."""
        return max(1.0, self.size_bytes / self.entries) if self.entries else 1.0


@dataclass(frozen=True, slots=True)
class TopicLog:
    """A topic without partitions, or a partition.

    ``lost``: entries (ledger, first, last) that an operator gave up. ``trimmed``: the last entry
    that retention has deleted.
    """

    topic: str
    created_ms: int
    ledgers: tuple[Ledger, ...]
    lost: tuple[tuple[int, int, int], ...]
    trimmed: Place = NOWHERE

    @property
    def last(self) -> Place:
        """The last entry that is confirmed and kept; the position before the first when there is
        none.
        """
        for ledger in reversed(self.ledgers):
            if ledger.entries:
                return Place(ledger.ledger_id, ledger.entries - 1)
        return self.before_first

    @property
    def before_first(self) -> Place:
        """The position before everything that is kept."""
        return Place(self.ledgers[0].ledger_id, -1) if self.ledgers else NOWHERE


class ClusterView:
    """A view of the cluster. Each call asks the brokers again."""

    def __init__(self, brokers: BrokerAccess) -> None:
        self.admin = brokers.admin()

    def topics(self, options: ReadOptions) -> list[str]:
        """Return the full names of the topics to read, one for each partition, sorted.

        Raises ``TopicNotFound`` naming the option.
        """
        if options.pattern is not None:
            return self._matching(options.pattern)
        found: set[str] = set()
        for topic in options.topics:
            name = TopicName.parse(topic)
            try:
                count = retry_while_retryable(lambda: self.admin.topics.partitions(topic))  # noqa: B023 - asked before the loop goes on
            except NotFound:
                option = "topic" if len(options.topics) == 1 else "topics"
                raise TopicNotFound(
                    f"option {option!r} names {topic}, which does not exist at "
                    f"{options.brokers.admin_url}"
                ) from None
            found.update(
                name.with_partition(index).full for index in range(count)
            ) if count else found.add(name.full)
        return sorted(found)

    def _matching(self, pattern: str) -> list[str]:
        text = pattern.removeprefix("persistent://")
        namespace, _, local = text.rpartition("/")
        wanted = re.compile(local)
        try:
            names = [
                TopicName.parse(each)
                for each in retry_while_retryable(
                    lambda: self.admin.topics.list(namespace or "public/default")
                )
            ]
        except NotFound as error:
            raise OptionError("topicsPattern", pattern, str(error)) from None
        return sorted(name.full for name in names if wanted.fullmatch(name.partitioned.local))

    def log(self, topic: str) -> TopicLog | None:
        """Return the log of one topic from its owner; ``None`` when the topic does not exist."""
        try:
            found = retry_while_retryable(
                lambda: self.admin.topics.internal_stats(topic, metadata=True)
            )
        except NotFound:
            return None
        end = _position(found["lastConfirmedEntry"])
        return TopicLog(
            topic,
            int(found["creationDate"]),
            tuple(_ledger(each, end) for each in found["ledgers"]),
            tuple(
                (each["ledgerId"], each["firstEntry"], each["lastEntry"]) for each in found["lost"]
            ),
            _position(found["trimmedPosition"]),
        )

    def logs(self, topics: Sequence[str]) -> dict[str, TopicLog | None]:
        """Return the logs of several topics, with concurrent requests."""
        if len(topics) < 2:
            return {topic: self.log(topic) for topic in topics}
        with ThreadPoolExecutor(min(len(topics), _REQUESTS_MAX)) as pool:
            return dict(zip(topics, pool.map(self.log, topics), strict=True))

    def first_published(self, topic: str, time_ms: int) -> Place | None:
        """Return the first entry published at this time or later, as the broker finds it; ``None``
        when there is none.
        """
        found = retry_while_retryable(
            lambda: self.admin.topics.message_id_by_timestamp(topic, time_ms)
        )
        place = Place(int(found["ledgerId"]), int(found["entryId"]))
        if place.entry < 0:
            return None
        try:
            # When there is none, the broker returns the last entry.
            headers = retry_while_retryable(
                lambda: self.admin.topics.get_message(topic, place.ledger, place.entry)
            ).headers
        except NotFound:
            return None
        published = datetime.fromisoformat(headers["x-pulsar-publish-time"])
        return place if published.timestamp() * 1_000 >= time_ms else None

    def messages_in(
        self, topic: str, ledger_id: int, entry_id: int, *, seconds: float | None = None
    ) -> int:
        """Return the number of messages in an entry; 1 when it is gone.

        ``seconds`` and errors: see ``retry_while_retryable``.
        """
        try:
            headers = retry_while_retryable(
                lambda: self.admin.topics.get_message(topic, ledger_id, entry_id), seconds
            ).headers
        except PulsarishError as error:
            if error.retryable:
                raise
            return 1
        return int(headers.get("x-pulsar-num-batch-message", 1))

    def bookies(self, options: ReadOptions) -> dict[str, str]:
        """Return addresses of bookies by instance id; none where they are not to be read.

        Raises ``AuthorizationError`` when the role may not list them and they have to be read.
        """
        if options.direct_reads is DirectReads.NEVER:
            return {}
        try:
            found = retry_while_retryable(self.admin.bookies.list)
        except AuthorizationError as error:
            if options.direct_reads is DirectReads.ALWAYS:
                raise AuthorizationError(
                    f"option 'directReads' = 'always' needs a role that may list the bookies, a "
                    f"super user: {error}"
                ) from None
            warnings.warn(f"reading through brokers: {error}", stacklevel=2)
            return {}
        return {each["instance_id"]: each["address"] for each in found}


def _position(text: str) -> Place:
    ledger, _, entry = text.partition(":")
    return Place(int(ledger), int(entry))


def _ledger(found: dict[str, Any], end: Place) -> Ledger:
    closed_ms, record = int(found["closedMs"]), found.get("metadata") or ""
    created = re.search(r'"created_ms":(\d+)', record)
    entries = int(found["entries"])
    if not closed_ms:
        entries = end.entry + 1 if end.ledger == found["ledgerId"] else 0
    is_closed = closed_ms > 0 and '"state":"closed"' in record
    return Ledger(
        found["ledgerId"],
        entries,
        int(found["size"]),
        int(created[1]) if created else 0,
        closed_ms,
        record if is_closed else "",
    )
