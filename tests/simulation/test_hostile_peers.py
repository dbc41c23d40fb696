"""A hostile peer in simulated clusters: it may end its own connections, and nothing else."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from pulsarish.sim.mutants.hostile import check_hostile
from pulsarish.sim.programs.hostile_peers import ATTACKS
from pulsarish.sim.programs.optional_programs import EXTRAS
from pulsarish.sim.workloads.cluster import run_seed
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame
from tests.support.binary_client import BinaryClient
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import find

TOPIC = "persistent://public/default/t"


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("seed", [1, 2])
def test_an_attack_alone_harms_no_other(attack: str, seed: int) -> None:
    check_hostile(seed, [attack])


@pytest.mark.parametrize("seed", [3, 4, 5, 6])
def test_all_attacks_while_everything_else_fails_too_harm_no_other(seed: int) -> None:
    result = run_seed(seed, extras=EXTRAS, attacks=ATTACKS)
    assert not result.anomalies, result.story()
    assert result.counts.attacks


def test_attacks_are_counted_and_move_nothing_of_a_seed_without_them() -> None:
    assert run_seed(7, extras=("brief",)).counts.attacks == 0
    assert run_seed(7, extras=("brief",), attacks=ATTACKS).counts.attacks > 0


class _Calls:
    """Counts the calls of the broker's own functions."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> _Calls:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_raised: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        self.count += event == "call" and frame.f_globals["__name__"].startswith(
            "pulsarish.broker."
        )


async def _calls_to_open(client: BinaryClient, first: int, count: int) -> int:
    """The calls of functions that it takes to open so many more producers."""
    frames = []
    for producer_id in range(first, first + count):
        opening = pb.Producer(
            topic=TOPIC,
            producer_id=producer_id,
            request_id=producer_id,
            producer_name=f"p{producer_id}",
        )
        frames.append(command_frame(pb.Command(type=5, producer=opening)))
    with _Calls() as calls:
        client.write(b"".join(frames))
        answers = [(await client.next(14, 17)).command.type for _ in range(count)]
    assert set(answers) == {17}
    return calls.count


def test_a_producer_takes_the_same_steps_to_open_however_many_there_are() -> None:
    async def scenario(brokered: Brokered) -> None:
        (name,) = brokered.cluster.brokers
        _ = await find(brokered.world, [name], TOPIC)
        client = await BinaryClient.connect(brokered.world, f"{name}:6650")
        _ = await client.open_producer(0, TOPIC, "first")
        few = await _calls_to_open(client, 1, 100)
        _ = await _calls_to_open(client, 101, 400)
        many = await _calls_to_open(client, 501, 100)
        assert many < 1.5 * few, (
            f"{few} function calls opened the first 100 producers, {many} the sixth 100"
        )

    play_with_brokers(scenario)
