"""What the driver sends to the tasks of a read: to each its split, and how it may read bookies.

The driver alone has the cluster key. A task gets tokens that open the ledgers of its split for
reading and end after a while, so a machine that runs tasks needs no key.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from pulsarish.model.errors import ConfigError
from pulsarish.spark.options import DirectReads, ReadOptions
from pulsarish.spark.reading.planning import Split
from pulsarish.spark.reading.schemas import TopicSchema

if TYPE_CHECKING:
    from pulsarish.security.cluster_key import ClusterKey
    from pulsarish.security.credentials import Secret

__all__ = ["TaskValue", "options_of_tasks", "task_inputs", "tokens_of"]

TaskValue = tuple[Split, Mapping[str, str], "Mapping[int, Secret]", TopicSchema | None]
"""A split, the addresses of bookies by instance id, tokens by ledger, and the topic's schema."""


def options_of_tasks(options: ReadOptions) -> ReadOptions:
    """Return the options that executors see: without the file of the cluster key."""
    return replace(options, bookies=options.bookies.for_tasks(None))


def task_inputs(
    options: ReadOptions,
    splits: Sequence[Split],
    addresses: Mapping[str, str],
    values: TopicSchema | None,
) -> list[InputPartition]:
    """Return one input for each split; its value is a ``TaskValue``.

    Without a usable cluster key, ``directReads`` = ``auto`` reads through brokers, with a warning.
    Raises ``ConfigError`` for the key with ``always``.
    """
    access = options.bookies
    tokens: list[dict[int, Secret]] = [{} for _ in splits]
    if access.cluster_key_file and addresses and splits:
        from pulsarish.runtime.clock import SystemClock

        try:
            key = access.cluster_key(SystemClock().wall_ms)
        except ConfigError as error:
            if options.direct_reads is DirectReads.ALWAYS:
                raise ConfigError(f"option 'clusterKeyFile': {error}") from None
            warnings.warn(
                f"reading through brokers: option 'clusterKeyFile': {error}", stacklevel=2
            )
            addresses = {}
        else:
            tokens = tokens_of(splits, key, access.token_life_ms)
    return [
        InputPartition((split, addresses, each, values))
        for split, each in zip(splits, tokens, strict=True)
    ]


def tokens_of(splits: Sequence[Split], key: ClusterKey, life_ms: int) -> list[dict[int, Secret]]:
    """Return for each split a token for each of its closed ledgers.

    Ledgers share a token in the order of the splits, as many as one may name, so most splits get
    one or two.
    """
    from pulsarish.security.cluster_key import READER_LEDGERS_MAX

    of_splits = [list(dict.fromkeys(_closed_ledgers(split))) for split in splits]
    ledgers = list(dict.fromkeys(ledger for each in of_splits for ledger in each))
    tokens: dict[int, Secret] = {}
    for start in range(0, len(ledgers), READER_LEDGERS_MAX):
        group = ledgers[start : start + READER_LEDGERS_MAX]
        tokens |= dict.fromkeys(group, key.reader_token(life_ms, group))
    return [{ledger: tokens[ledger] for ledger in each} for each in of_splits]


def _closed_ledgers(split: Split) -> Iterable[int]:
    return (piece.ledger_id for piece in (*split.before, *split.pieces) if piece.record)
