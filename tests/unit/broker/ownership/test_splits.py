"""Where bundles are split, and when."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from pulsarish.broker.ownership.balance import BundleLoad
from pulsarish.broker.ownership.bundles import (
    Bundle,
    boundaries_of,
    bundle_of,
    bundles_of,
    topic_hash,
)
from pulsarish.broker.ownership.splits import (
    BY_HAND,
    BY_RANGE,
    BY_TOPICS,
    SplitLimits,
    Splits,
    divided,
    inner_edges,
)
from pulsarish.metadata.records import NamespacePolicies
from pulsarish.model.errors import InvalidArgument, LimitReached, NotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.wire.json_record import decode_record, encode_record

FIRST = Bundle("t", "n", "0x00000000_0x40000000")
LAST = Bundle("t", "n", "0xc0000000_0xffffffff")


def test_a_bundle_is_split_in_its_middle() -> None:
    assert inner_edges(FIRST, BY_RANGE, (), ()) == [0x20000000]
    assert inner_edges(LAST, BY_RANGE, (), ()) == [0xDFFFFFFF]
    with pytest.raises(InvalidArgument, match="too small"):
        inner_edges(Bundle("t", "n", "0x00000005_0x00000006"), BY_RANGE, (), ())


def test_a_bundle_is_split_by_its_topics() -> None:
    assert inner_edges(FIRST, BY_TOPICS, [100, 1, 3, 2], ()) == [3]
    assert inner_edges(FIRST, BY_TOPICS, [7, 7, 7, 20], ()) == [14]
    with pytest.raises(InvalidArgument, match=r"open topics of .*: 1;"):
        inner_edges(FIRST, BY_TOPICS, [7, 7], ())


def test_a_bundle_is_split_at_given_hashes() -> None:
    assert inner_edges(FIRST, BY_HAND, (), [9, 5, 9]) == [5, 9]
    for wrong in ([], [0], [5, 0x40000000], [-1]):
        with pytest.raises(InvalidArgument, match="splitBoundaries"):
            inner_edges(FIRST, BY_HAND, (), wrong)
    with pytest.raises(InvalidArgument, match=r"0x40000000; .* above 0x00000000 and below 0x4000"):
        inner_edges(FIRST, BY_HAND, (), [5, 0x40000000])
    with pytest.raises(InvalidArgument, match="go with"):
        inner_edges(FIRST, BY_RANGE, (), [5])
    with pytest.raises(InvalidArgument, match="not one of"):
        inner_edges(FIRST, "by_luck", (), [])


def test_bundles_cover_all_hashes_after_any_splits() -> None:
    rng = random.Random(4)
    for seed in range(20):
        space = NamespacePolicies(rng.randint(1, 8))
        names = [TopicName("t", "n", f"topic-{seed}-{number}") for number in range(100)]
        for _ in range(10):
            bundle = rng.choice(bundles_of("t", "n", space))
            before = {name: bundle_of(name, space) for name in names}
            hashes = [topic_hash(name) for name, each in before.items() if each == bundle]
            algorithm = BY_TOPICS if len(hashes) > 1 else BY_RANGE
            edges = inner_edges(bundle, algorithm, hashes, ())
            space = NamespacePolicies(boundaries=divided(space, bundle, edges))
            after = {name: bundle_of(name, space) for name in names}
            for name in names:
                low, high = after[name].edges
                assert low <= topic_hash(name) < high
                assert after[name] == before[name] or before[name] == bundle
            if algorithm == BY_TOPICS:
                parts = [after[name] for name in names if before[name] == bundle]
                counts = sorted(parts.count(part) for part in set(parts))
                assert counts[1] - counts[0] <= 1
        edges_now = boundaries_of(space)
        assert (edges_now[0], edges_now[-1]) == (0, 0xFFFFFFFF)
        assert all(low < high for low, high in pairwise(edges_now))


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(NotFound, match="has no bundle"):
        divided(NamespacePolicies(2), FIRST, [5])
    many = NamespacePolicies(1_024)
    bundle = bundles_of("t", "n", many)[0]
    with pytest.raises(LimitReached, match="1025 bundles"):
        divided(many, bundle, [5])


def test_a_record_of_an_earlier_version_is_read() -> None:
    old = decode_record(b'{"bundles":3}', NamespacePolicies, "/n")
    assert [each.range for each in bundles_of("t", "n", old)] == [
        "0x00000000_0x55555555",
        "0x55555555_0xaaaaaaaa",
        "0xaaaaaaaa_0xffffffff",
    ]
    new = NamespacePolicies(2, boundaries=(0, 77, 0xFFFFFFFF))
    assert decode_record(encode_record(new), NamespacePolicies, "/n") == new


@pytest.mark.parametrize(
    "load",
    [
        BundleLoad(topics=11),
        BundleLoad(topics=2, sessions=21),
        BundleLoad(topics=2, message_rate=31.0),
        BundleLoad(topics=2, byte_rate=41.0),
    ],
)
def test_a_bundle_is_due_after_three_rounds_above_a_limit(load: BundleLoad) -> None:
    limits = SplitLimits(10, 20, 30.0, 40.0, bundles_max=5)
    calm = BundleLoad(10, 20, 30.0, 40.0)
    splits = Splits(limits)
    counts = {("t", "n"): 4}
    assert [bool(splits.due({FIRST: load}, counts)) for _ in range(4)] == [False] * 2 + [
        True,
        False,
    ]
    splits = Splits(limits)
    for each in (load, load, calm, load, load):
        assert not splits.due({FIRST: each}, counts)
    assert list(splits.due({FIRST: load}, counts)) == [FIRST]
    # One topic is not divided, and no namespace gets too many bundles.
    alone = BundleLoad(1, load.sessions, load.message_rate, load.byte_rate)
    splits = Splits(limits)
    assert not any(splits.due({FIRST: alone}, counts) for _ in range(5))
    assert not any(splits.due({FIRST: load}, {("t", "n"): 5}) for _ in range(5))
    splits = Splits(limits)
    for _ in range(2):
        splits.due({FIRST: load, LAST: load}, counts)
    assert len(splits.due({FIRST: load, LAST: load}, counts)) == 1
