"""The tail cache against a plain dictionary with a limit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.managed_ledger.tail_cache import ENTRY_OVERHEAD_BYTES, TailCache

steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("insert"),
            st.integers(0, 2),
            st.lists(st.integers(0, 60), min_size=1, max_size=4),
        ),
        st.tuples(st.just("forget"), st.integers(0, 2), st.just([])),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 2_000))
def test_what_it_gives_is_what_was_put_and_it_keeps_its_limit(
    script: list[tuple[str, int, list[int]]], limit: int
) -> None:
    cache = TailCache(limit)
    written: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    base = {0: 0, 1: 100, 2: 200}  # a ledger that is forgotten comes back as another
    for what, ledger, sizes in script:
        if what == "forget":
            cache.forget(base[ledger])
            base[ledger] += 1
            written[ledger] = []
        else:
            payloads = [bytes([len(written[ledger]) % 256]) * size for size in sizes]
            cache.insert(base[ledger], len(written[ledger]), payloads)
            written[ledger] += payloads
        cache.check()
        for one, payloads in written.items():
            for first in range(len(payloads)):
                found = cache.read(base[one], first, len(payloads) - 1, 1 << 30)
                assert found in ([], payloads[first:]), "a hit reaches to the newest entry"


def test_the_oldest_go_first_whatever_topic_they_are_of() -> None:
    cache = TailCache(3 * (100 + ENTRY_OVERHEAD_BYTES))
    for entry, ledger in enumerate((1, 2, 1, 2)):
        cache.insert(ledger, entry // 2, [bytes(100)])
    assert cache.read(1, 0, 9, 1_000) == []
    assert len(cache.read(2, 0, 9, 1_000)) == 2
    assert len(cache.read(1, 1, 9, 1_000)) == 1
    assert cache.evicted == 1


def test_reads_keep_their_limit_in_bytes_but_give_one() -> None:
    cache = TailCache(10_000)
    cache.insert(1, 0, [bytes(100)] * 5)
    assert len(cache.read(1, 0, 4, 250)) == 2
    assert len(cache.read(1, 0, 4, 1)) == 1
    assert len(cache.read(1, 1, 3, 10_000)) == 3
