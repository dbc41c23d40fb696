"""One bookie's storage under power cuts and bad disks: seeds of the workload, each judged by its
oracle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pulsarish.sim.mutants.garbage import GARBAGE_SCENARIOS
from pulsarish.sim.mutants.storage import STORAGE_SCENARIOS
from pulsarish.sim.workloads.storage import run_storage
from pulsarish.sim.workloads.storage_oracle import StorageCounts

SEEDS = range(4)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the bookie warns of is the faults' doing."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def played(scenario: str) -> StorageCounts:
    counts = StorageCounts()
    for seed in SEEDS:
        counts.add(run_storage(seed, STORAGE_SCENARIOS[scenario]))
    return counts


@pytest.mark.parametrize("scenario", ["power", "forged", "starts", "syncs", "metadata"])
def test_nothing_that_was_answered_is_lost(scenario: str) -> None:
    counts = played(scenario)
    assert counts.stored > 500
    assert counts.fenced > 10
    assert counts.verified > 1_000
    assert counts.starts > 2 * len(SEEDS)
    assert counts.unreadable == 0


def test_a_bookie_with_two_volumes_loses_nothing() -> None:
    counts = played("volumes")
    assert counts.stored > 500
    assert counts.fenced > 10
    assert counts.verified > 1_000
    assert counts.starts > 2 * len(SEEDS)
    assert counts.unreadable == 0


def test_each_volume_collects_its_garbage() -> None:
    counts = played("volumes-garbage")
    assert counts.collected > 10
    assert counts.compacted > 10
    assert counts.unreadable == 0


def test_a_volume_in_limbo_puts_the_others_in_doubt() -> None:
    counts = played("volumes-limbo")
    assert counts.limbo > 0
    assert counts.repaired > 0
    assert counts.unreadable > 0


def test_a_disk_that_dies_takes_its_volume_and_no_promise() -> None:
    counts = played("dies")
    assert counts.ends == 0
    assert counts.volumes_gone > 0
    running = played("dies-running")
    assert running.ends == 0
    assert running.volumes_failed == len(SEEDS)
    assert running.starts == len(SEEDS)
    assert running.repaired > 10


def test_a_sync_that_fails_ends_the_process() -> None:
    assert played("syncs").ends > 2 * len(SEEDS)


def test_a_journal_that_has_rotted_is_refused() -> None:
    counts = played("rot")
    assert counts.ends > 0
    assert counts.stored > 200


@pytest.mark.parametrize("scenario", ["index", "older"])
def test_an_index_that_lacks_what_was_synced_is_refused(scenario: str) -> None:
    counts = played(scenario)
    assert counts.ends > 0
    assert counts.stored > 200
    assert counts.unreadable == 0


def test_a_journal_that_was_given_up_makes_limbo_and_no_negatives() -> None:
    counts = played("limbo")
    assert counts.limbo > 0
    assert counts.repaired > 0
    assert counts.unreadable > 0


def test_an_entry_that_cannot_be_read_is_not_said_to_be_absent() -> None:
    assert played("sectors").unreadable > 0


@pytest.mark.parametrize("scenario", ["wiped", "emptied"])
def test_an_emptied_bookie_does_not_start(scenario: str) -> None:
    assert played(scenario).ends == len(SEEDS)


def test_a_full_disk_is_read_only_until_there_is_space() -> None:
    counts = played("full")
    assert counts.refused > 100
    assert counts.ends == 0


def test_garbage_is_collected_and_nothing_else() -> None:
    counts = played("garbage")
    assert counts.collected > 10
    assert counts.compacted > 10


@pytest.mark.parametrize("scenario", sorted(GARBAGE_SCENARIOS))
def test_garbage_collection_keeps_what_it_should_and_deletes_the_rest(scenario: str) -> None:
    counts = StorageCounts()
    for seed in SEEDS:
        counts.add(run_storage(seed, GARBAGE_SCENARIOS[scenario]))
    assert counts.stored > 300
    assert counts.collected > len(SEEDS)
    assert counts.unreadable == 0
