"""Every exhibit is dead: its check passes with our program as it is and fails with each of its
defects.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from pulsarish.sim.workloads.safeguard import replacing
from tests.museum.collection import EXHIBITS, read_deaths
from tests.museum.exhibit import Defect, Exhibit, Kind
from tests.museum.page import PAGE, page

OWED: Final = {
    "apache/pulsar": (
        26304,
        26454,
        26174,
        26236,
        6966,
        25627,
        23845,
        26485,
        25294,
        25998,
        25118,
        22709,
        20968,
        24482,
    ),
    "apache/bookkeeper": (4651, 2614, 2615, 2616, 1067, 3917, 4596),
}
"""Issues that must be in the museum."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes warn of is the defects' doing."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", EXHIBITS)
def test_the_exhibit_is_dead(name: str, record_property: Callable[[str, object], None]) -> None:
    record_property("exhibit", name)
    verdicts = EXHIBITS[name].judge()
    alive = [verdict.mutant.name for verdict in verdicts if verdict.killed_at is None]
    assert not alive, f"the check does not notice {', '.join(alive)}"
    record_property(
        "killed_by",
        "; ".join(str(verdict.error) or type(verdict.error).__name__ for verdict in verdicts),
    )


def test_what_must_be_there_is_there() -> None:
    shown = {upstream for exhibit in EXHIBITS.values() for upstream in exhibit.upstream}
    assert {
        f"{project}#{number}" for project, numbers in OWED.items() for number in numbers
    } <= shown


@pytest.mark.parametrize("name", EXHIBITS)
def test_an_exhibit_says_where_it_is_from_and_what_was_wrong_in_one_line(name: str) -> None:
    exhibit = EXHIBITS[name]
    assert all(
        re.fullmatch(r"apache/(pulsar|bookkeeper)#\d+", upstream) for upstream in exhibit.upstream
    )
    for text in (exhibit.wrong, exhibit.here):
        assert re.fullmatch(r"[A-Z][^|\n]*\.", text), text
    assert exhibit.defects, "a check that nobody has seen fail proves nothing"
    assert len({defect.name for defect in exhibit.defects}) == len(exhibit.defects)


def test_the_page_is_what_the_collection_says() -> None:
    assert PAGE.read_text() == page(), "write it again: python -m tests.museum.page"


def test_deaths_are_of_exhibits_and_name_commits() -> None:
    for name, commit in read_deaths().items():
        assert name in EXHIBITS
        assert re.fullmatch(r"[0-9a-f]{40}", commit)


class Toy:
    safeguard = True


def toy(check: Callable[[int], None]) -> Exhibit:
    defect = Defect("gone", "the safeguard", replacing(Toy, "safeguard", lambda _was: False))
    return Exhibit("toy", ("apache/pulsar#1",), "Wrong.", "Here.", Kind.MUTANT, check, (defect,))


def test_a_check_that_does_not_look_leaves_its_exhibit_alive() -> None:
    (verdict,) = toy(lambda seed: None).judge()
    assert verdict.killed_at is None


def test_a_check_that_fails_anyway_proves_nothing() -> None:
    def check(seed: int) -> None:
        raise ValueError("fails anyway")

    with pytest.raises(ValueError, match="fails anyway"):
        toy(check).judge()


def test_a_check_that_notices_kills() -> None:
    def check(seed: int) -> None:
        assert Toy.safeguard, "the safeguard is gone"

    (verdict,) = toy(check).judge()
    assert verdict.killed_at == 0
    assert "the safeguard is gone" in str(verdict.error)
