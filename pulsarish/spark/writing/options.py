"""The options of a write. Every mistake names the option, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.spark.access import BrokerAccess
from pulsarish.spark.options import BROKER_NAMES, OptionError, Taken, broker_access, check_names
from pulsarish.spark.writing.numbering import VERSION_MAX

__all__ = ["Deduplication", "RowOrder", "ValueFormat", "WriteOptions", "write_options"]

WRITE_NAMES: Final = (
    *BROKER_NAMES,
    "topic",
    "createTopic",
    "valueSchema",
    "deduplication",
    "exactlyOnceName",
    "exactlyOnceVersion",
    "rowOrder",
    "compression",
    "sendTimeoutMs",
)
_OF_SPARK: Final = ("checkpointLocation", "queryName")
_COMPRESSIONS: Final = ("none", "lz4", "zlib", "zstd", "snappy")
_PARTITIONS_MAX: Final = 1_000_000
_SEND_TIMEOUT_MS: Final = 60_000


class ValueFormat(StrEnum):
    """How a record is encoded.

    ``RAW`` is for a value of bytes or text, ``TOPIC`` for the topic's newest schema.
    """

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    TOPIC = "topic"


class Deduplication(StrEnum):
    """Requirements on a topic's deduplication.

    By default a stream requires it, a batch does not. The others: require it, enable it, or ignore
    it.
    """

    AUTO = "auto"
    REQUIRE = "require"
    ENABLE = "enable"
    NONE = "none"


class RowOrder(StrEnum):
    """How the rows of a task are numbered: in their order, or sorted by content."""

    PLAN = "plan"
    CONTENT = "content"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    brokers: BrokerAccess
    topic: str | None
    """A full name; ``None``: each row names its own in the column ``topic``."""
    create_topic: int | None
    """Number of partitions of a topic to be created; 0: none; ``None``: the topic must exist."""
    value_schema: ValueFormat | None
    deduplication: Deduplication
    exactly_once_name: str | None
    exactly_once_version: int | None
    row_order: RowOrder
    compression: str
    send_timeout_ms: int


def write_options(given: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Return the options. Raises ``OptionError``."""
    check_names(
        {
            name: value
            for name, value in given.items()
            if name.lower() not in {each.lower() for each in _OF_SPARK}
        },
        WRITE_NAMES,
        "writing",
    )
    taken = Taken(given)
    deduplication = taken.choice("deduplication", Deduplication, Deduplication.AUTO)
    version = taken.parsed("exactlyOnceVersion", _version, None)
    name = taken.parsed("exactlyOnceName", _name, None)
    if version is not None and streaming:
        raise OptionError(
            "exactlyOnceVersion",
            version,
            "a streaming query counts its batches by itself; leave it out",
        )
    if version is not None and name is None:
        raise OptionError(
            "exactlyOnceVersion",
            version,
            "it counts the runs of a write that has an exactlyOnceName; give that, too",
        )
    if deduplication is Deduplication.AUTO and (streaming or name is not None):
        deduplication = Deduplication.REQUIRE
    if deduplication is Deduplication.NONE and name is not None:
        raise OptionError(
            "deduplication", "none", "exactlyOnceName needs it; leave one of the two out"
        )
    return WriteOptions(
        brokers=broker_access(taken),
        topic=taken.parsed("topic", lambda text: TopicName.parse(text).full, None),
        create_topic=taken.parsed("createTopic", _partitions, None),
        value_schema=taken.choice("valueSchema", ValueFormat, ValueFormat.RAW)
        if taken.text("valueSchema") is not None
        else None,
        deduplication=deduplication,
        exactly_once_name=name,
        exactly_once_version=version,
        row_order=taken.choice("rowOrder", RowOrder, RowOrder.PLAN),
        compression=taken.parsed("compression", _compression, "none"),
        send_timeout_ms=taken.count("sendTimeoutMs", _SEND_TIMEOUT_MS) or _SEND_TIMEOUT_MS,
    )


def _whole(text: str, most: int) -> int:
    if not text.isdecimal() or int(text) > most:
        raise ValueError(f"it must be a whole number from 0 to {most}")
    return int(text)


def _partitions(text: str) -> int:
    try:
        return _whole(text, _PARTITIONS_MAX)
    except ValueError:
        raise ValueError(
            "it must be the number of partitions that a topic is made with, 0 for a topic without"
        ) from None


def _version(text: str) -> int:
    return _whole(text, VERSION_MAX)


def _name(text: str) -> str:
    return check_name("producer", text)


def _compression(text: str) -> str:
    if text.lower() not in _COMPRESSIONS:
        raise ValueError("allowed are " + ", ".join(_COMPRESSIONS))
    return text.lower()
