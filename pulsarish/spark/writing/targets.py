"""The target topics: that they exist, that they drop duplicates, and to how many partitions rows
are routed.

A micro-batch that is run again must be routed to the same number of partitions, or its stored rows
would be searched in the wrong log. The number is kept as a property of the topic,
``pulsarish.spark.NAME``, and follows a topic that has grown from the next micro-batch on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from pulsarish.admin import Admin
from pulsarish.model.errors import (
    AlreadyExists,
    AuthorizationError,
    InvalidArgument,
    ServiceNotReady,
    TopicNotFound,
)
from pulsarish.model.topic_name import TopicName

__all__ = ["Pin", "Target", "find_target", "follow_growth", "pinned"]

PROPERTY: Final = "pulsarish.spark."

_dropping: set[str] = set()
"""Topics known to drop duplicates.

This process need not ask again, since each task gets an answer when it opens a topic.
"""


@dataclass(frozen=True, slots=True)
class Pin:
    """From version ``since`` on rows are routed to ``partitions``, before that to ``before``."""

    partitions: int
    since: int = 0
    before: int = 0

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Parse a property.

        Raises ``ValueError``, ``KeyError``, ``TypeError`` when ``text`` did not write it.
        """
        record = json.loads(text)
        return cls(int(record["partitions"]), int(record["since"]), int(record["before"]))

    def text(self) -> str:
        return json.dumps(
            {"partitions": self.partitions, "since": self.since, "before": self.before}
        )

    def routed(self, version: int) -> int:
        return self.partitions if version >= self.since else self.before

    def grown(self, partitions: int, version: int) -> Pin:
        """Return the pin after ``version``, for a topic that now has ``partitions``."""
        return Pin(partitions, version + 1, self.routed(version + 1))


@dataclass(frozen=True, slots=True)
class Target:
    topic: str
    partitions: int
    """Partitions of the topic; 0 for a topic without."""
    pin: Pin | None = None

    def routed(self, version: int) -> int:
        """Return the number of partitions for a version.

        Raises ``InvalidArgument`` when the topic has fewer now.
        """
        if self.pin is None:
            return self.partitions
        routed = self.pin.routed(version)
        if routed > self.partitions:
            raise InvalidArgument(
                f"topic {self.topic} has {self.partitions} partitions and is written to "
                f"{routed}: it was made again; start with another"
                " exactlyOnceName"
            )
        return routed

    def logs(self) -> list[str]:
        """The full names of its logs."""
        name = TopicName.parse(self.topic)
        return [name.with_partition(index).full for index in range(self.partitions)] or [name.full]


def find_target(
    admin: Admin,
    topic: str,
    *,
    create: int | None = None,
    needs_deduplication: bool,
    enables_deduplication: bool,
) -> Target:
    """Return a topic that can be written to.

    Raises ``TopicNotFound``, ``InvalidArgument`` naming the option that helps.
    """
    if not TopicName.parse(topic).persistent:
        raise InvalidArgument(
            f"topic {topic} keeps nothing of what is published, and so no task knows what it "
            "wrote; name a persistent one"
        )
    try:
        target = Target(topic, admin.topics.partitions(topic))
    except TopicNotFound:
        if create is None:
            raise TopicNotFound(
                f"topic {topic} is not there: create it, or set option 'createTopic' to its "
                "number of partitions"
            ) from None
        target = _create(admin, topic, create)
    if enables_deduplication:
        _enable(admin, target)
    elif needs_deduplication and not _drops_duplicates(admin, target):
        raise InvalidArgument(
            f"topic {topic} does not drop duplicates, and without that a repeated task writes "
            "twice: switch it on (pulsarish topics"
            f" set-deduplication {topic} on, option 'deduplication' = 'enable'), or accept it "
            "with 'deduplication' = 'none'"
        )
    return target


def _create(admin: Admin, topic: str, partitions: int) -> Target:
    try:
        admin.topics.create(topic, partitions=partitions)
    except AlreadyExists:
        return Target(topic, admin.topics.partitions(topic))
    return Target(topic, partitions)


def _drops_duplicates(admin: Admin, target: Target) -> bool:
    """Whether the topic drops duplicates.

    Raises ``ServiceNotReady`` while a log is being opened.
    """
    if target.topic in _dropping:
        return True
    states = [admin.topics.stats(log).get("deduplicationStatus") for log in target.logs()]
    if None in states:
        raise ServiceNotReady(f"topic {target.topic} is being opened; try again")
    if all(state == "Enabled" for state in states):
        _dropping.add(target.topic)
        return True
    return False


def _enable(admin: Admin, target: Target) -> None:
    """Enable deduplication. Raises ``ServiceNotReady`` until all logs have changed over."""
    if not _drops_duplicates(admin, target):
        admin.topics.set_policy(target.topic, "deduplication", True)
        if not _drops_duplicates(admin, target):
            raise ServiceNotReady(
                f"deduplication of topic {target.topic} was asked for and is not on yet; try again"
            )


def pinned(admin: Admin, target: Target, name: str) -> Target:
    """Return the target with the pin of ``name``; creates the pin when it is missing.

    Raises ``AuthorizationError`` for a role that may not.
    """
    if not target.partitions:
        return target
    text = admin.topics.properties(target.topic).get(PROPERTY + name)
    if text is None:
        pin = Pin(target.partitions)
        try:
            admin.topics.update_properties(target.topic, {PROPERTY + name: pin.text()})
        except AuthorizationError as error:
            raise AuthorizationError(
                f"writing once to partitions needs the topic's property {PROPERTY + name!r}, which "
                f"an administrator of its tenant sets: {error}"
            ) from None
        return replace(target, pin=pin)
    try:
        return replace(target, pin=Pin.parse(text))
    except (ValueError, KeyError, TypeError):
        raise InvalidArgument(
            f"topic {target.topic} has a property {PROPERTY + name!r} = {text!r} that is not "
            "ours: remove it"
        ) from None


def follow_growth(admin: Admin, target: Target, name: str, version: int) -> None:
    """Record that ``version`` is complete: the next one goes to all partitions that the topic now
    has.
    """
    if target.pin is not None and target.partitions > target.pin.partitions:
        admin.topics.update_properties(
            target.topic, {PROPERTY + name: target.pin.grown(target.partitions, version).text()}
        )
