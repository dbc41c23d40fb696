"""A short run of each fuzzer, always with the same inputs.

``make fuzz`` runs them for longer, with others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsarish.local_cluster.processes import Cluster
from tests.fuzz.canary import Defect
from tests.fuzz.files import fuzz_files
from tests.fuzz.fuzzer import LOCKED_TARGETS, TARGETS, Fuzzer, fuzzed_cluster, load_inputs

pytestmark = pytest.mark.xdist_group("fuzz")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with fuzzed_cluster(tmp_path_factory.mktemp("fuzz")) as running:
        yield running


@pytest.fixture(scope="module")
def locked_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with fuzzed_cluster(tmp_path_factory.mktemp("locked"), locked=True) as running:
        yield running


def fuzz(cluster: Cluster, target: str, kept: Path) -> Fuzzer:
    """Run one fuzzer; keep its inputs when it finds something.

    How long loops stood is not judged: other tests run at the same time.
    """
    fuzzer = Fuzzer(cluster, target, seed=1, checks_lag=False)
    try:
        fuzzer.run(seconds=3.0)
    except Defect as defect:
        fuzzer.save(kept)
        raise AssertionError(
            f"{defect}\nagain: python -m tests.fuzz {target} --replay {kept}"
        ) from defect
    finally:
        fuzzer.close()
    return fuzzer


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_found_in_a_short_run(cluster: Cluster, target: str, tmp_path: Path) -> None:
    assert fuzz(cluster, target, tmp_path / "inputs.json").count > 0


@pytest.mark.parametrize("target", LOCKED_TARGETS)
def test_a_locked_cluster_bears_peers_without_credentials(
    locked_cluster: Cluster, target: str, tmp_path: Path
) -> None:
    assert fuzz(locked_cluster, target, tmp_path / "inputs.json").count > 0


def test_what_was_sent_can_be_sent_again(cluster: Cluster, tmp_path: Path) -> None:
    fuzzer = Fuzzer(cluster, "binary", seed=2, checks_lag=False)
    try:
        fuzzer.run(seconds=0.2)
        fuzzer.save(tmp_path / "inputs.json")
        target, inputs = load_inputs(tmp_path / "inputs.json")
        assert (target, inputs) == ("binary", fuzzer.inputs)
        fuzzer.replay(inputs[:2])
        fuzzer.restart()
    finally:
        fuzzer.close()


def test_damaged_files_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    assert "damaged files" in fuzz_files(tmp_path, seed=1, seconds=5.0)
