"""Captured messages on their way from two owners, one after the other, to a persistent topic.

The owners' queues are the real ones, and so is the order of turns at the persistent topic. Between
them requests take any time, and answers get lost. A publisher that waits for storage sends again
what has no receipt when the bundle of its topic moves.
"""

from __future__ import annotations

import random
from typing import Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.nonpersistent.captures import CaptureQueue, CaptureReceipt, Captures
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.policies.store import Effective, broker_defaults
from pulsarish.broker.topics.capture_store import CaptureTurns
from pulsarish.model import policies as model
from pulsarish.model.captures import CaptureRule
from pulsarish.model.errors import PulsarishError, ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry, split_entry

__all__ = ["run_captured"]

_INTO: Final = "persistent://public/default/stored"
_SOURCE: Final = TopicName.parse("non-persistent://public/default/source")
_BUNDLE: Final = Bundle("public", "default", "0x00000000_0x80000000")
_MESSAGES: Final = 60
_LATE_SECONDS_MAX: Final = 8.0


class _Receipt(CaptureReceipt):
    """A receipt that only notes that it came."""

    def __init__(self, number: int, acknowledged: set[int]) -> None:
        self._number = number
        self._acknowledged = acknowledged

    def settle(self, error: PulsarishError | None = None) -> None:
        if error is None:
            self._acknowledged.add(self._number)


class _Stored:
    """The persistent topic."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.numbers: list[int] = []
        self._world = world
        self._random = rng
        self._turns = CaptureTurns()

    async def send(self, request: pb.CaptureRequest) -> pb.CaptureResponse:
        """Store entries, or some of them, or none, and answer, or not."""
        turn = request.epoch, request.attempt
        bundle = Bundle("public", "default", request.range)
        fate = self._random.random()
        if fate < 0.1:
            raise ServiceNotReady("the request was lost")
        if fate < 0.2:
            # The sender gives up before the request has come.
            _ = self._world.tasks.spawn(self._late(request, bundle, turn), name="late request")
            raise ServiceNotReady("the request is late")
        await self._world.clock.sleep(self._random.random() / 10)
        now = self._world.clock.monotonic()
        if not self._turns.take(request.into, request.rule, bundle, turn, now):
            return pb.CaptureResponse(code=ServiceNotReady.code, message="it came late")
        entries = [entry for run in request.runs for entry in run.entries]
        stored = entries[: self._random.randint(0, len(entries))] if fate < 0.4 else entries
        self._append(stored)
        if fate < 0.5 and fate >= 0.4:
            raise ServiceNotReady("the answer was lost")
        code = ServiceNotReady.code if len(stored) < len(entries) else 0
        return pb.CaptureResponse(done=len(stored), code=code, message="not all are stored")

    async def _late(
        self, request: pb.CaptureRequest, bundle: Bundle, turn: tuple[int, int]
    ) -> None:
        await self._world.clock.sleep(self._random.random() * _LATE_SECONDS_MAX)
        now = self._world.clock.monotonic()
        if self._turns.take(request.into, request.rule, bundle, turn, now):
            self._append([entry for run in request.runs for entry in run.entries])

    def _append(self, entries: list[bytes]) -> None:
        self.numbers += [int(bytes(split_entry(entry)[1])) for entry in entries]


def _entry(number: int) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
    return encode_entry(metadata, b"%d" % number)


def _queue(
    world: World, stored: _Stored, rule: CaptureRule, epoch: int
) -> tuple[Captures, CaptureQueue]:
    policies = Effective(broker_defaults(BrokerConfig()), {model.CAPTURES: {"r": rule}})

    async def read(_tenant: str, _namespace: str) -> Effective:
        return policies

    captures = Captures(world, 1 << 30, 5 << 20, read)
    captures.begin(stored.send)
    (queue,) = captures.of(_SOURCE, _BUNDLE, epoch, policies)
    return captures, queue


def run_captured(seed: int) -> None:
    """Publish through one owner and then through the next one.

    Raises ``AssertionError`` when an acknowledged message is not stored, or when one is stored
    before an earlier one.
    """
    rng = random.Random(f"{seed}:captured")
    sim = Simulation(seed)
    waits = rng.random() < 0.5
    rule = CaptureRule("*", _INTO, acknowledged="stored" if waits else "received")

    async def scenario(world: World) -> None:
        stored, acknowledged = _Stored(world, rng), set[int]()

        async def publish(queue: CaptureQueue, number: int) -> None:
            receipt = _Receipt(number, acknowledged) if waits else None
            queue.put(_SOURCE, _entry(number), receipt)
            await world.clock.sleep(rng.random() / 20)

        moved_at = rng.randint(1, _MESSAGES)
        first, queue = _queue(world, stored, rule, 1)
        for number in range(moved_at):
            await publish(queue, number)
        if rng.random() < 0.5:
            await first.settle(_BUNDLE)
        assert acknowledged <= set(stored.numbers), "acknowledged and not stored when it moves"
        first.drop_bundle(_BUNDLE)
        _, queue = _queue(world, stored, rule, 2)
        again = set(range(moved_at)) - acknowledged if waits else set[int]()
        for number in (*sorted(again), *range(moved_at, _MESSAGES)):
            await publish(queue, number)
        await world.clock.sleep(60)
        assert set(range(moved_at, _MESSAGES)) <= set(stored.numbers), "not everything is stored"
        assert not waits or acknowledged == set(range(_MESSAGES)), "not all is acknowledged"
        assert acknowledged <= set(stored.numbers), "acknowledged and not stored"
        firsts = list(dict.fromkeys(stored.numbers))  # deduplication drops the others
        assert firsts == sorted(firsts), f"not in order: {firsts}"

    async def main() -> None:
        await sim.node("broker").run(scenario)

    sim.run(main, 600.0)
