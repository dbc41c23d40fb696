"""One Spark task: fetch a split's entries, unpack them, return Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pulsarish.client.messages.message import Entry
from pulsarish.model.errors import ChecksumError
from pulsarish.security.credentials import Secret
from pulsarish.spark.access import BookieAccess, BrokerAccess
from pulsarish.spark.columns import VALUE
from pulsarish.spark.options import DirectReads
from pulsarish.spark.reading.arrow import ArrowRows
from pulsarish.spark.reading.chunk_prefixes import ChunkPrefixes
from pulsarish.spark.reading.fetch import Fetcher
from pulsarish.spark.reading.filters import Condition
from pulsarish.spark.reading.planning import Split
from pulsarish.spark.reading.schemas import TopicSchema
from pulsarish.spark.reading.unpack import Unpacker
from pulsarish.spark.reading.values import ValueDecoder

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "ReadSpec", "read_split"]

BATCH_BYTES: Final = 8 << 20
"""A batch of rows goes to Spark at this size, or at ``BATCH_ROWS``."""
BATCH_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """How a task reads.

    ``addresses``: of bookies, by instance id. ``tokens``: to show to bookies, by ledger; those
    without one take what ``bookies`` shows. ``subscription_role_prefix``: how the names of
    subscriptions for reading through brokers begin.
    """

    brokers: BrokerAccess
    bookies: BookieAccess
    direct: DirectReads
    addresses: Mapping[str, str]
    fail_on_loss: bool
    conditions: tuple[Condition, ...] = ()
    values: TopicSchema | None = None
    tokens: Mapping[int, Secret] = field(default_factory=dict)
    subscription_role_prefix: str = ""


def read_split(spec: ReadSpec, split: Split, schema: Any) -> Iterator[Any]:
    """Yield the Arrow batches of a split, in the order of the log. ``schema`` is Spark's."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if not split.pieces:
        return
    names = schema.fieldNames()
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    decoder = (
        ValueDecoder(split.topic, spec.values, arrow_schema) if spec.values is not None else None
    )
    arrow = ArrowRows(split.topic, arrow_schema, spec.conditions, decoder)
    fetcher = Fetcher(
        spec.brokers,
        spec.bookies,
        split.topic,
        spec.direct,
        spec.addresses,
        spec.tokens,
        fail_on_loss=spec.fail_on_loss,
        subscription_role_prefix=spec.subscription_role_prefix,
    )
    beginnings = ChunkPrefixes(split, fetcher)
    unpacker = Unpacker(
        with_values=VALUE in names or decoder is not None,
        with_numbers="sequence_id" in names,
        beginning=beginnings.find,
    )
    first = (split.pieces[0].ledger_id, split.pieces[0].first)
    last = (split.pieces[-1].ledger_id, split.pieces[-1].last)
    for page in fetcher.pages(split.pieces):
        for entry in page:
            here = (entry.ledger_id, entry.entry_id)
            _add(
                unpacker,
                entry,
                split.topic,
                after=split.after if here == first else -1,
                upto=split.upto if here == last else -1,
            )
            if unpacker.rows.size_bytes >= BATCH_BYTES or unpacker.rows.count >= BATCH_ROWS:
                yield arrow.batch(unpacker.take_rows())
    if unpacker.rows.count:
        yield arrow.batch(unpacker.take_rows())


def _add(unpacker: Unpacker, entry: Entry, topic: str, *, after: int, upto: int) -> None:
    try:
        unpacker.add(entry, after=after, upto=upto)
    except ChecksumError as error:
        raise ChecksumError(
            f"entry {entry.ledger_id}:{entry.entry_id} of topic {topic} cannot be read: {error}"
        ) from None
