"""Sets of entries against lists of their runs, around the borders of bitmaps and of full ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.model.entry_set import EntrySet
from pulsarish.model.errors import CorruptData
from pulsarish.model.position import ID_MAX

CHUNK = 1 << 10
BORDERS = (0, CHUNK, 2 * CHUNK, 3 * CHUNK, CHUNK**2, CHUNK**2 + CHUNK, 2 * CHUNK**2, CHUNK**3)


class Runs:
    """The same set, as its runs."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> int:
        before = self.count()
        touching = [run for run in self.runs if run[0] <= last + 1 and first - 1 <= run[1]]
        rest = [run for run in self.runs if run not in touching]
        merged = (
            min([first, *(run[0] for run in touching)]),
            max([last, *(r[1] for r in touching)]),
        )
        self.runs = sorted([*rest, merged])
        return self.count() - before

    def count(self) -> int:
        return sum(last - first + 1 for first, last in self.runs)

    def end(self, entry: int) -> int | None:
        return next((last for first, last in self.runs if first <= entry <= last), None)

    def gaps(self, first: int, last: int) -> list[tuple[int, int]]:
        found = []
        for begin, end in [*self.runs, (last + 1, last + 1)]:
            if first <= min(begin - 1, last):
                found.append((first, min(begin - 1, last)))
            first = max(first, end + 1)
        return found

    def drop_through(self, entry: int) -> None:
        self.runs = [run for run in self.runs if run[1] > entry]


entries = st.builds(
    lambda border, offset: max(0, border + offset),
    st.sampled_from(BORDERS),
    st.one_of(st.integers(-3, 3), st.integers(-2 * CHUNK, 2 * CHUNK)),
)
steps = st.one_of(
    st.tuples(st.just("add"), entries, entries),
    st.tuples(st.just("range"), entries, entries),
    st.tuples(st.just("range"), entries, entries),
    st.tuples(st.just("drop"), entries, entries),
    st.tuples(st.just("first"), entries, entries),
    st.tuples(st.just("stored"), entries, entries),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(steps, max_size=25))
def test_any_script_agrees_with_the_runs(script: list[tuple[str, int, int]]) -> None:
    found, model = EntrySet(), Runs()
    for kind, one, other in script:
        low, high = sorted((one, other))
        match kind:
            case "add":
                assert found.add(one) == bool(model.add(one, one))
            case "range":
                assert found.add_range(low, high) == model.add(low, high)
            case "drop":
                end = model.end(one)
                found.drop_through(one if end is None else end)
                model.drop_through(one if end is None else end)
            case "first" if model.runs:
                found.drop_first_run(*model.runs.pop(0))
            case "stored":
                levels = found.levels()
                found = EntrySet()
                found.merge(levels)
                found.merge(levels)
            case _:
                pass
        found.check()
        assert list(found.ranges()) == model.runs
        assert found.last == (model.runs[-1][1] if model.runs else -1)
        assert (found.count, found.runs) == (model.count(), len(model.runs))
        for entry in (one - 1, one, one + 1, low, high, *BORDERS):
            assert (entry in found) == (model.end(entry) is not None)
            assert found.run_end(entry) == model.end(entry)
        until = min(high, low + 3 * CHUNK)
        assert list(found.gaps(low, until)) == model.gaps(low, until)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(entries, entries), max_size=6), st.lists(st.tuples(entries, entries)))
def test_a_stored_form_is_added_to_what_is_there(
    stored: list[tuple[int, int]], present: list[tuple[int, int]]
) -> None:
    one, found, model = EntrySet(), EntrySet(), Runs()
    for pair in stored:
        one.add_range(min(pair), max(pair))
        model.add(min(pair), max(pair))
    for pair in present:
        found.add_range(min(pair), max(pair))
        model.add(min(pair), max(pair))
    found.merge(one.levels())
    found.check()
    assert list(found.ranges()) == model.runs


def test_long_runs_and_alternate_entries_take_little_memory() -> None:
    run = EntrySet()
    run.add_range(1, CHUNK**3)
    assert run.bitmaps <= 6
    assert sum(len(bits) for level in run.levels() for _, bits in level) < 1_000
    alternate = EntrySet()
    for entry in range(1, 100 * CHUNK, 2):
        alternate.add(entry)
    assert alternate.bitmaps == 100


@pytest.mark.parametrize(
    "levels",
    [
        [],
        [[]] * 8,
        [[(0, b"")]],
        [[(-1, b"\1")]],
        [[(100, b"\1" * 29)]],
        [[(ID_MAX // 8 + 1, b"\1")]],
        [[], [(ID_MAX // 8, b"\1")]],
    ],
)
def test_what_is_no_stored_form_is_refused(levels: list[list[tuple[int, bytes]]]) -> None:
    with pytest.raises(CorruptData, match="a stored set of entries"):
        EntrySet().merge(levels)
