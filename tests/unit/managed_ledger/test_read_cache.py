"""The cache of what was read from bookies: against a plain dictionary, and under scans."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.managed_ledger.read_cache import ReadCache

ENTRIES = 400
LEDGERS = 3


def payload(ledger_id: int, entry_id: int) -> bytes:
    """Entries of many sizes, each with bytes of its own."""
    return b"%d:%d." % (ledger_id, entry_id) * (1 + (entry_id * 7 + ledger_id) % 40)


def payloads(ledger_id: int, first: int, last: int) -> list[bytes]:
    return [payload(ledger_id, entry_id) for entry_id in range(first, last + 1)]


steps = st.lists(
    st.tuples(
        st.sampled_from(["insert", "insert", "read", "read", "read", "forget"]),
        st.integers(0, LEDGERS - 1),
        st.integers(0, ENTRIES - 1),
        st.integers(0, 150),
        st.sampled_from([1, 1_000, 1 << 30]),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(steps, st.sampled_from([0, 600, 3_000, 20_000, 1 << 20]))
def test_what_it_gives_is_what_was_read_and_it_keeps_its_limit(
    script: list[tuple[str, int, int, int, int]], limit: int
) -> None:
    cache = ReadCache(limit)
    inserted: set[tuple[int, int]] = set()
    for what, ledger_id, first, length, max_bytes in script:
        last = min(ENTRIES - 1, first + length)
        if what == "insert":
            cache.insert(ledger_id, first, payloads(ledger_id, first, last))
            inserted |= {(ledger_id, entry_id) for entry_id in range(first, last + 1)}
        elif what == "forget":
            cache.forget(ledger_id)
            inserted = {each for each in inserted if each[0] != ledger_id}
        else:
            hits, hit_bytes = cache.hits, cache.hit_bytes
            found = cache.read(ledger_id, first, last, max_bytes)
            assert found == payloads(ledger_id, first, first + len(found) - 1)
            assert all((ledger_id, first + offset) in inserted for offset in range(len(found)))
            assert first + len(found) - 1 <= last
            assert len(found) <= 1 or sum(map(len, found)) <= max_bytes
            assert cache.hits - hits == len(found)
            assert cache.hit_bytes - hit_bytes == sum(map(len, found))
        cache.check()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, ENTRIES - 1), st.integers(0, 150)), max_size=20))
def test_with_room_for_all_everything_is_found_whatever_overlaps(
    parts: list[tuple[int, int]],
) -> None:
    cache = ReadCache(1 << 24)
    inserted: set[int] = set()
    for first, length in parts:
        last = min(ENTRIES - 1, first + length)
        cache.insert(1, first, payloads(1, first, last))
        inserted |= set(range(first, last + 1))
        cache.check()
    for entry_id in range(ENTRIES):
        end = entry_id
        while end in inserted:
            end += 1
        assert cache.read(1, entry_id, ENTRIES - 1, 1 << 30) == payloads(1, entry_id, end - 1)
    assert cache.evicted == 0


def scan(cache: ReadCache, ledger_id: int, blocks: int, reads: int = 1) -> int:
    """Read a ledger of 64 entries of 1,000 bytes a block, as ``reads`` readers one behind the
    other. Return how many blocks had to be read from bookies.
    """
    asked = 0
    for block in range(blocks):
        for _ in range(reads):
            first = block * 64
            if not cache.read(ledger_id, first, first + 63, 1 << 30):
                asked += 1
                cache.insert(ledger_id, first, [bytes(1_000)] * 64)
    return asked


def test_one_scan_does_not_drop_what_several_readers_share() -> None:
    cache = ReadCache(40 * 70_000)
    assert scan(cache, 1, 20, reads=3) == 20
    assert scan(cache, 2, 1_000) == 1_000
    assert scan(cache, 1, 20) == 0
    cache.check()


def test_what_is_asked_for_again_soon_after_it_left_stays() -> None:
    """Readers that are further apart than the small queue is long: the second one reads it again,
    the others do not.
    """
    cache = ReadCache(40 * 70_000)
    assert scan(cache, 9, 40, reads=3) == 40
    assert scan(cache, 1, 12) == 12
    assert 0 < scan(cache, 1, 12) <= 12
    assert scan(cache, 1, 12) == 0
    cache.check()


def test_what_was_shared_long_ago_leaves_for_what_is_shared_now() -> None:
    cache = ReadCache(40 * 70_000)
    assert scan(cache, 1, 30, reads=3) == 30
    for ledger_id in range(2, 12):
        assert scan(cache, ledger_id, 30, reads=3) == 30
    assert scan(cache, 1, 30) > 0
    cache.check()


def test_ledgers_that_are_forgotten_leave_nothing() -> None:
    cache = ReadCache(40 * 70_000)
    _ = scan(cache, 1, 5, reads=2)
    before = cache.size_bytes
    _ = scan(cache, 2, 5, reads=2)
    cache.forget(2)
    assert cache.size_bytes == before
    assert cache.read(2, 0, 0, 1) == []
    assert cache.read(1, 0, 0, 1) == [bytes(1_000)]
    cache.check()


def test_an_entry_that_is_greater_than_the_cache_drops_nothing() -> None:
    cache = ReadCache(10_000)
    cache.insert(1, 0, [b"a"])
    cache.insert(1, 1, [bytes(20_000)])
    assert cache.read(1, 0, 1, 1 << 30) == [b"a"]
    cache.check()


def test_entries_that_are_most_of_their_answer_are_kept_without_a_copy() -> None:
    cache = ReadCache(1 << 20)
    answer = memoryview(bytes(10_000))
    cache.insert(1, 0, [answer[1_000:5_000], answer[5_100:10_000]])
    found = cache.read(1, 0, 1, 1 << 20)
    assert [type(each) for each in found] == [memoryview, memoryview]
    assert 10_000 < cache.size_bytes < 11_000
    cache.check()


def test_entries_that_are_little_of_their_answer_do_not_hold_it() -> None:
    """The answer brought the entries of other reads, too, or some that are here already."""
    cache = ReadCache(1 << 20)
    answer = memoryview(bytes(10_000))
    cache.insert(1, 0, [answer[:1_000]])
    cache.insert(1, 0, [answer[:1_000], answer[1_000:3_000]])
    assert [type(each) for each in cache.read(1, 0, 1, 1 << 20)] == [bytes, bytes]
    assert 3_000 < cache.size_bytes < 5_000
    cache.check()


def test_entries_of_several_answers_are_copied() -> None:
    cache = ReadCache(1 << 20)
    cache.insert(1, 0, [memoryview(bytes(1_000)), memoryview(bytes(1_000))])
    assert [type(each) for each in cache.read(1, 0, 1, 1 << 20)] == [bytes, bytes]
    cache.check()
