"""What an operator is told of metadata that lack something, when their cluster starts."""

from __future__ import annotations

import pytest

from pulsarish.metadata.damage import what_may_be_lost
from pulsarish.metadata.records import RestoredTree
from pulsarish.metadata.tree_state import TreeState

URL = "zk://127.0.0.1:2181"


@pytest.mark.parametrize(
    ("sha256", "origin"), [("", "were cut after damage"), ("ab12", "come from a backup")]
)
def test_it_says_where_the_metadata_come_from_what_they_lack_and_what_is_next(
    sha256: str, origin: str
) -> None:
    text = what_may_be_lost(RestoredTree(sha256, 1, 2), URL)
    assert text.startswith(
        f"the metadata {origin} and do not have later changes: topics, subscriptions, "
        "acknowledgements"
    )
    assert f"pulsarish metadata audit {URL}" in text
    assert text.endswith(f"pulsarish metadata confirm {URL}")


def test_metadata_that_came_back_older_are_to_be_replaced_or_accepted() -> None:
    text = what_may_be_lost(
        RestoredTree("", 1, 2, older=True, found_by="bookie b1", seen=TreeState(0, 3, 9)), URL
    )
    assert text.startswith("the metadata came back older than they were: bookie b1 found ")
    assert text.endswith(f"pulsarish metadata accept {URL}")
