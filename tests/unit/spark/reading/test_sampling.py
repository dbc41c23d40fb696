"""How many messages entries hold, by a look at some of them."""

from __future__ import annotations

from itertools import accumulate

import pytest

from pulsarish.spark.reading.sampling import Sample, looks_at_one, sample


def looked(
    sizes: list[int], messages_max: int, looks: int = 16, before: float = 0.0
) -> tuple[Sample, list[int]]:
    places: list[int] = []

    def messages_in(number: int) -> int:
        places.append(number)
        return sizes[number]

    return sample(len(sizes), messages_max, looks, before, messages_in), places


@pytest.mark.parametrize(
    "sizes",
    [
        [10, 990] * 4,
        [1, 1000, 1000, 1000, 999],
        [300, 300, 1000, 1000, 1000, 400],
        [4000],
        [7] * 16,
    ],
)
@pytest.mark.parametrize("messages_max", [1, 1_000, 1_600, 3_999, 4_000, 9_000])
def test_entries_of_which_all_are_seen_are_counted_exactly(
    sizes: list[int], messages_max: int
) -> None:
    found, places = looked(sizes, messages_max)
    assert places == list(range(len(places)))
    fits = sum(1 for total in accumulate(sizes) if total <= messages_max)
    assert min(len(sizes), int(found.entries_with(messages_max))) == fits


def test_no_more_is_looked_at_than_the_limit_may_reach() -> None:
    found, places = looked([100] * 1_000, 1_000)
    assert (len(places), found.entries, found.messages) == (10, 10, 1_000)
    _, places = looked([1] * 1_000_000, 20_000)
    assert len(places) < 50, "the steps grow"


def test_what_was_seen_before_spreads_the_looks() -> None:
    found, places = looked([2] * 50_000, 20_000, looks=4, before=2.0)
    assert places == [2_499, 4_999, 7_499, 9_999]
    assert found.entries_with(20_000) == 10_000
    assert found.entries_with(10_000) == 5_000, "a part of a step"


def test_what_was_seen_before_may_be_wrong() -> None:
    found, places = looked([1_000] * 10, 1_600, before=1.0)
    assert (len(places), found.entries_with(1_600)) == (1, 1.6)
    found, places = looked([1] * 5_000, 1_600, before=1_000.0)
    assert (found.entries_with(1_600), len(places) < 50) == (1_600, True)


def test_beyond_what_was_seen_the_rest_is_taken_to_be_alike() -> None:
    found, _ = looked([10] * 100, 50)
    assert (found.entries, found.entries_with(333)) == (5, 33.3)


def test_an_entry_that_is_not_there_counts() -> None:
    found, _ = looked([0, 0, 0], 10)
    assert (found.entries, found.messages) == (3, 3)


def test_many_topics_share_the_looks() -> None:
    assert [looks_at_one(topics) for topics in (1, 2, 8, 100)] == [16, 8, 4, 4]
