"""Checks of an entry before a topic accepts it, and reads of a stored entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsarish.model.errors import InvalidArgument, MessageTooBig, NotAllowedError
from pulsarish.wire.entry import (
    EXPIRES_PROPERTY,
    MESSAGES_IN_BATCH_MAX,
    PRIORITIES,
    PRIORITY_PROPERTY,
    as_text,
    expiry_time,
    parse_metadata,
    priority_of,
    verify_entry,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsarish.broker.policies.topic_limits import TopicLimits
    from pulsarish.managed_ledger.log_reader import LogEntry
    from pulsarish.wire._pb.message_pb2 import MessageMetadata

    Check = Callable[[MessageMetadata, TopicLimits], int]
    """Raises why an entry is refused; otherwise as ``check_metadata``."""

__all__ = [
    "check_metadata",
    "check_prioritised",
    "message_count",
    "publish_time",
    "read_entry",
    "with_encryption",
]


def read_entry(view: memoryview, topic_limits: TopicLimits) -> tuple[bytes, MessageMetadata]:
    """Return the entry as it is stored, and its metadata.

    Raises ``MessageTooBig``, ``ChecksumError``.
    """
    size_bytes = len(view)
    if size_bytes > topic_limits.entry_bytes_max:
        raise MessageTooBig(
            f"an entry of {size_bytes} bytes is above max_message_size_bytes "
            f"{topic_limits.message_bytes_max};"
            " send smaller messages or batches, or compress them"
        )
    entry = bytes(view)
    verify_entry(entry)
    return entry, parse_metadata(entry)


def check_metadata(metadata: MessageMetadata, topic_limits: TopicLimits) -> int:
    """Check an entry's metadata.

    Return the later one of its delivery and its expiry time (wall clock, ms); 0: it has neither.

    Raises ``InvalidArgument`` that names the fault; ``NotAllowedError`` by policy, and for an
    expiry time that is none, since Apache Pulsar's clients would send again after other errors.
    """
    messages = metadata.num_messages_in_batch
    if not 1 <= messages <= MESSAGES_IN_BATCH_MAX:
        raise InvalidArgument(
            f"an entry says that it holds {messages} messages; 1 to {MESSAGES_IN_BATCH_MAX} are "
            "possible"
        )
    if type(metadata.producer_name) is not str:
        raise InvalidArgument(
            f"an entry is signed {metadata.producer_name!r}, which is no UTF-8; name its producer "
            "in text"
        )
    own_time_ms = metadata.deliver_at_time
    if own_time_ms:
        topic_limits.check_delay(own_time_ms)
    if messages == 1 and metadata.properties and (expires_ms := expiry_time(metadata)):
        if expires_ms < 0:
            value = {each.key: each.value for each in metadata.properties}[EXPIRES_PROPERTY]
            raise NotAllowedError(
                f"the property {EXPIRES_PROPERTY} of a message is {value[:40]!r}; give the time as "
                "milliseconds since the epoch in digits, such as 1767225600000, or leave it out"
            )
        own_time_ms = max(own_time_ms, expires_ms)
    return int(own_time_ms)


def with_encryption(check: Check, topic_limits: TopicLimits, *, is_of_broker: bool) -> Check:
    """Return ``check``, or one that also raises ``NotAllowedError`` for an entry that is not
    encrypted, where messages must be. What the broker itself writes need not be.
    """
    if not topic_limits.needs_encryption or is_of_broker:
        return check

    def check_encrypted(metadata: MessageMetadata, topic_limits: TopicLimits) -> int:
        if not metadata.encryption_keys:
            topic_limits.check_encryption(encrypts=False)
        return check(metadata, topic_limits)

    return check_encrypted


def check_prioritised(metadata: MessageMetadata, topic_limits: TopicLimits) -> int:
    """Check an entry's metadata for a topic whose messages have priorities.

    Returns and raises as ``check_metadata``. Raises ``NotAllowedError`` for a priority that is
    none, too.
    """
    if metadata.properties and priority_of(metadata) < 0:
        value = as_text({each.key: each.value for each in metadata.properties}[PRIORITY_PROPERTY])
        raise NotAllowedError(
            f"the property {PRIORITY_PROPERTY} of a message is {value[:40]!r}; give a priority "
            f"from 0 (delivered last) to {PRIORITIES - 1} (delivered first) as one digit, or leave "
            "it out"
        )
    return check_metadata(metadata, topic_limits)


def message_count(entry: LogEntry) -> int:
    """Return how many messages an entry holds. Each chunk of a message counts."""
    return int(parse_metadata(entry.payload).num_messages_in_batch)


def publish_time(entry: LogEntry) -> int:
    """Return the publish time that the producer gave, in milliseconds since the epoch."""
    return int(parse_metadata(entry.payload).publish_time)
