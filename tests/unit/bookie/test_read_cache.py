"""The bookie's read cache: against a plain dictionary, under scans, and wired into the reads."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.bookie.ledger_index import Location
from pulsarish.bookie.read_cache import ENTRY_OVERHEAD_BYTES, RUN_BYTES, ReadCache

LARGE = 10_000


def place(number: int, size: int = LARGE) -> Location:
    return (number // 50, 24 + number * 20_000, size)


def record(number: int, size: int = LARGE) -> bytes:
    return (b"%d." % number * (size // 2 + 1))[:size]


def fitting(entries: int) -> ReadCache:
    """A cache for this many entries of 10,000 bytes, each read by itself."""
    return ReadCache(entries * (LARGE + ENTRY_OVERHEAD_BYTES + RUN_BYTES))


def read(cache: ReadCache, number: int, size: int = LARGE) -> bool:
    """One read as a bookie makes it; whether the record was here."""
    found = cache.get(place(number, size))
    if found is None:
        cache.put([place(number, size)], [record(number, size)])
    else:
        assert found == record(number, size)
    return found is not None


steps = st.lists(
    st.tuples(
        st.sampled_from(["read", "read", "read", "drop"]),
        st.integers(0, 150),
        st.integers(1, 100),
        st.sampled_from([0, 1, 100, 3_000]),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(steps, st.sampled_from([0, 1_000, 5_000, 20_000, 100_000, 1 << 20]))
def test_it_gives_what_was_put_and_keeps_its_limit(
    script: list[tuple[str, int, int, int]], limit: int
) -> None:
    cache = ReadCache(limit)
    put: set[Location] = set()  # and not dropped since
    for what, first, count, size in script:
        places = [place(number, size) for number in range(first, first + count)]
        if what == "drop":
            cache.drop([*places, None])
            put.difference_update(places)
            assert not any(cache.get(each) for each in places)
        else:
            hits, missing = cache.hits, []
            for number, each in enumerate(places, first):
                found = cache.get(each)
                if found is None:
                    missing.append(number)
                else:
                    assert each in put
                    assert found == record(number, size)
            assert cache.hits - hits == count - len(missing)
            cache.put(
                [place(number, size) for number in missing],
                [record(number, size) for number in missing],
            )
            put.update(places)
        cache.check()
        assert cache.entries_count <= len(put)


def test_what_fits_is_read_from_the_log_once() -> None:
    cache = fitting(3_000)
    for round_number in range(3):
        assert [read(cache, number) for number in range(3_000)] == [round_number > 0] * 3_000
    assert cache.hits == 6_000


def test_scans_do_not_drop_what_is_read_again() -> None:
    cache = fitting(1_000)
    for number in range(300):
        read(cache, number)
    for number in range(5_000, 6_000):  # the 300 leave the first queue, and are remembered
        read(cache, number)
    assert not any(read(cache, number) for number in range(300))
    for number in range(10_000, 30_000):  # twenty times the cache, by two readers side by side
        assert not read(cache, number)
        assert read(cache, number)
    cache.check()
    assert all(read(cache, number) for number in range(300))


def test_what_is_read_again_takes_the_room_of_what_no_reader_asks_for_any_more() -> None:
    cache = fitting(1_000)
    for first in (0, 10_000, 20_000):
        for _ in range(3):
            for number in range(first, first + 500):
                read(cache, number)
        assert all(read(cache, number) for number in range(first, first + 500))
        cache.check()
    assert not read(cache, 0)


def test_a_place_is_remembered_no_longer_than_a_record_could_have_been_kept() -> None:
    cache = fitting(100)
    read(cache, 1)
    for number in range(100, 400):
        read(cache, number)
    read(cache, 1)
    for number in range(400, 500):
        read(cache, number)
    assert not read(cache, 1)


def test_a_record_that_is_larger_than_the_first_queue_is_not_kept() -> None:
    cache = fitting(10)
    read(cache, 1)
    assert not read(cache, 2, 3 * LARGE)
    assert not read(cache, 2, 3 * LARGE)
    assert read(cache, 1)


def test_a_view_is_copied_so_that_it_does_not_hold_what_was_read_with_it() -> None:
    cache = fitting(10)
    answer = bytearray(record(0) + record(1))
    cache.put([place(0), place(1)], [memoryview(answer)[:LARGE], memoryview(answer)[LARGE:]])
    answer[:] = bytes(2 * LARGE)
    assert cache.get(place(1)) == record(1)


def test_what_two_readers_read_at_the_same_time_counts_as_read_once() -> None:
    cache = fitting(20)
    for number in range(1_000):
        assert cache.get(place(number)) is None
        for _ in range(2):  # both have missed it
            cache.put([place(number)], [record(number)])
        cache.check()
        assert cache.entries_count <= number + 1
    assert cache.entries_count == 18, "and what has left is remembered"


def test_an_entry_that_two_reads_of_one_request_want_is_kept_once() -> None:
    cache = fitting(200)
    numbers = [1, 2, 1, *range(150), 2]
    cache.put([place(number) for number in numbers], [record(number) for number in numbers])
    cache.check()
    assert cache.entries_count == 150


def test_records_that_were_read_together_are_kept_and_dropped_one_by_one() -> None:
    cache = fitting(200)
    many = range(150)
    cache.put([place(number) for number in many], [record(number) for number in many])
    cache.check()
    cache.drop(place(number) for number in many if number % 2)
    cache.check()
    assert [cache.get(place(number)) is not None for number in range(4)] == [True, False] * 2
    assert cache.entries_count == 75


def test_nothing_is_kept_without_room() -> None:
    cache = ReadCache(0)
    assert not read(cache, 1)
    assert not read(cache, 1)
    assert (cache.size_bytes, cache.entries_count) == (0, 0)
