"""Filters that Spark hands down: which topics they leave out."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import EqualTo, In

from pulsarish.spark.reading.filters import condition_of, selects_topic

TOPIC = "persistent://public/default/t"


@pytest.mark.parametrize(
    ("given", "selects"),
    [
        (EqualTo(("topic",), TOPIC), True),
        (EqualTo(("topic",), "t"), False),
        (EqualTo(("partition",), 3), True),
        (In(("partition",), (1, 2)), False),
        # By .schema() a column may be of another type, and then its rows decide.
        (EqualTo(("partition",), "3"), True),
        (In(("partition",), ("3",)), True),
        (EqualTo(("topic",), TOPIC.encode()), True),
    ],
)
def test_a_partition_is_left_out_only_when_no_row_of_it_can_hold(
    given: EqualTo | In, selects: bool
) -> None:
    condition = condition_of(given)
    assert condition is not None
    assert selects_topic([condition], f"{TOPIC}-partition-3") is selects
