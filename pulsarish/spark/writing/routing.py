"""Which partition of a topic a row goes to: by its ``partition``, its key, or its position in the
task.

Never by time or load, so that a repeated task sends each row to the same partition.
"""

from __future__ import annotations

import random
from typing import Final

from pulsarish.client.enums import HashingScheme, PartitionsRoutingMode
from pulsarish.client.producer.routing import make_router
from pulsarish.model.errors import InvalidArgument

__all__ = ["KEYLESS_RUN", "Routing"]

KEYLESS_RUN: Final = 1_000
"""Rows without keys that go to one partition before the next one's turn, so that batches are
full.
"""


class Routing:
    """Routing of one task to one topic.

    ``partitions``: the number of partitions; 0 for a topic without.
    """

    def __init__(self, topic: str, partitions: int, spark_partition: int) -> None:
        self.topic = topic
        self.partitions = partitions
        self._first = spark_partition
        # As every producer routes keys, so that a key is always in one partition. Only rows without
        # a key need randomness.
        mode, scheme = PartitionsRoutingMode.RoundRobinDistribution, HashingScheme.BoostHash
        self._route = (
            make_router(mode, scheme, partitions, random.Random(0)).route if partitions else None
        )

    def choose(self, key: str | None, row: int, wanted: int | None) -> int:
        """Return the partition; -1 for a topic without.

        ``wanted``: the row's ``partition``; negative or ``None`` where it has none.

        Raises ``InvalidArgument`` for a missing partition.
        """
        if wanted is not None and wanted >= 0:
            if wanted >= self.partitions:
                has = (
                    f"has {self.partitions} partitions" if self.partitions else "has no partitions"
                )
                raise InvalidArgument(
                    f"column 'partition' is {wanted}, and topic {self.topic} {has}"
                )
            return wanted
        if self._route is None:
            return -1
        if key is not None:
            return self._route(None, key)
        return (self._first + row // KEYLESS_RUN) % self.partitions
