"""The queue of a rule: what it sends, keeps and drops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.nonpersistent.captures import CaptureQueue, CaptureReceipt, Captures
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.policies.store import Effective, broker_defaults
from pulsarish.model import policies as model
from pulsarish.model.captures import CaptureRule
from pulsarish.model.errors import InvalidArgument, NotFound, PulsarishError, ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry

INTO = "persistent://acme/live/stored"
RULE = CaptureRule(">", INTO, pending_bytes_max=64 << 10)
NAME = TopicName.parse("non-persistent://acme/live/a")
BUNDLE = Bundle("acme", "live", "0x00000000_0xffffffff")
ENTRY = encode_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"m")
LARGE = encode_entry(
    MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), bytes(40 << 10)
)


class Receipt(CaptureReceipt):
    def __init__(self) -> None:
        self.outcomes: list[PulsarishError | None] = []

    def settle(self, error: PulsarishError | None = None) -> None:
        self.outcomes.append(error)


class Tried:
    """Captures whose requests ``answer`` answers."""

    def __init__(self, world: World, bytes_max: int = 1 << 30) -> None:
        self.world = world
        self.rules: Mapping[str, CaptureRule] | None = {"r": RULE}
        self.requests: list[pb.CaptureRequest] = []
        self.answer: Callable[[pb.CaptureRequest], pb.CaptureResponse] = all_stored
        self.captures = Captures(world, bytes_max, 5 << 20, self._policies)
        self.captures.begin(self._send)

    async def _policies(self, _tenant: str, _namespace: str) -> Effective:
        if self.rules is None:
            raise NotFound("namespace acme/live does not exist")
        return self.effective()

    def effective(self) -> Effective:
        return Effective(broker_defaults(BrokerConfig()), {model.CAPTURES: self.rules or {}})

    async def _send(self, request: pb.CaptureRequest) -> pb.CaptureResponse:
        kept = pb.CaptureRequest()
        kept.CopyFrom(request)
        self.requests.append(kept)
        await self.world.clock.sleep(0.01)
        return self.answer(request)

    def queue(self, name: TopicName = NAME, epoch: int = 1) -> CaptureQueue:
        (found,) = self.captures.of(name, BUNDLE, epoch, self.effective())
        return found


def entries(request: pb.CaptureRequest) -> int:
    return sum(len(run.entries) for run in request.runs)


def all_stored(request: pb.CaptureRequest) -> pb.CaptureResponse:
    return pb.CaptureResponse(done=entries(request))


def away(_request: pb.CaptureRequest) -> pb.CaptureResponse:
    return pb.CaptureResponse(code=ServiceNotReady.code, message="away")


def try_it(scenario: Callable[[Tried], Awaitable[None]], **options: Any) -> None:
    sim = Simulation(1)

    async def main() -> None:
        await sim.node("broker").run(lambda world: _await(scenario(Tried(world, **options))))

    sim.run(main, 600.0)


async def _await(work: Awaitable[None]) -> None:
    await work


def test_a_topic_that_no_rule_matches_has_no_queue() -> None:
    async def scenario(tried: Tried) -> None:
        tried.rules = {"r": CaptureRule("b", INTO)}
        assert tried.captures.of(NAME, BUNDLE, 1, tried.effective()) == []
        tried.rules = {}
        assert not tried.captures.of(NAME, BUNDLE, 1, tried.effective())

    try_it(scenario)


def test_one_request_at_a_time_with_what_came_meanwhile() -> None:
    async def scenario(tried: Tried) -> None:
        queue = tried.queue()
        for _ in range(5):
            queue.put(NAME, ENTRY)
        await queue.settled()
        assert [entries(each) for each in tried.requests] == [5]
        assert [len(each.runs) for each in tried.requests] == [1]  # one producer
        queue.put(NAME, ENTRY)
        await queue.settled()
        attempts = [each.attempt for each in tried.requests]
        assert attempts == sorted(set(attempts))
        assert {each.epoch for each in tried.requests} == {1}
        assert tried.captures.pending_bytes == 0
        assert tried.captures.stored_count == 6

    try_it(scenario)


def test_only_what_has_an_outcome_is_settled() -> None:
    async def scenario(tried: Tried) -> None:
        def partly(_request: pb.CaptureRequest) -> pb.CaptureResponse:
            tried.answer = all_stored
            refusal = pb.CaptureRefusal(index=1, code=InvalidArgument.code, message="too large")
            return pb.CaptureResponse(
                done=2, refused=[refusal], code=ServiceNotReady.code, message="away"
            )

        tried.answer = partly
        queue, receipts = tried.queue(), [Receipt() for _ in range(4)]
        for receipt in receipts:
            queue.put(NAME, ENTRY, receipt)
        await tried.world.clock.sleep(0.05)
        assert [len(each.outcomes) for each in receipts] == [1, 1, 0, 0]
        await tried.world.clock.sleep(5)
        assert [len(each.outcomes) for each in receipts] == [1, 1, 1, 1]
        assert [isinstance(each.outcomes[0], InvalidArgument) for each in receipts] == [
            False,
            True,
            False,
            False,
        ]
        assert [entries(each) for each in tried.requests] == [4, 2]
        assert (tried.captures.stored_count, tried.captures.refused_count) == (3, 1)

    try_it(scenario)


@pytest.mark.parametrize("options", [{}, {"bytes_max": 32 << 10}], ids=["rule", "broker"])
def test_a_full_queue_has_no_room_until_it_is_stored(options: dict[str, int]) -> None:
    async def scenario(tried: Tried) -> None:
        tried.answer = away
        queue = tried.queue()
        while queue.has_room:
            queue.put(NAME, LARGE)
        assert tried.captures.pending_bytes <= 2 * len(LARGE)
        tried.answer = all_stored
        await tried.captures.wait_for_change()
        await queue.settled()
        assert queue.has_room
        assert tried.captures.dropped_count == 0

    try_it(scenario, **options)


def test_a_rule_that_drops_always_has_room() -> None:
    async def scenario(tried: Tried) -> None:
        tried.answer = away
        tried.rules = {"r": CaptureRule(">", INTO, when_full="drop", pending_bytes_max=64 << 10)}
        queue = tried.queue()
        for _ in range(10):
            assert queue.has_room
            queue.put(NAME, LARGE)
        assert tried.captures.dropped_count == 8
        tried.answer = all_stored
        await tried.world.clock.sleep(5)
        assert tried.captures.stored_count == 2

    try_it(scenario)


@pytest.mark.parametrize("is_gone", [False, True], ids=["rule", "namespace"])
def test_what_waits_for_a_rule_that_is_removed_is_let_go(is_gone: bool) -> None:
    """Also when no topic is open any more: the next failure tells."""

    async def scenario(tried: Tried) -> None:
        tried.answer = away
        queue, receipt = tried.queue(), Receipt()
        queue.put(NAME, ENTRY)
        queue.put(NAME, ENTRY, receipt)
        tried.rules = None if is_gone else {}
        await tried.world.clock.sleep(5)
        assert receipt.outcomes == [None]
        assert tried.captures.pending_bytes == 0
        assert tried.captures.dropped_count == 2
        later = Receipt()
        queue.put(NAME, ENTRY, later)  # the topic has not heard of it yet
        assert later.outcomes == [None]

    try_it(scenario)


def test_a_bundle_that_left_sends_nothing_more_and_acknowledges_nothing() -> None:
    async def scenario(tried: Tried) -> None:
        tried.answer = away
        queue, receipt = tried.queue(), Receipt()
        queue.put(NAME, ENTRY, receipt)
        queue.put(NAME, ENTRY)
        await tried.captures.settle(BUNDLE)
        tried.captures.drop_bundle(BUNDLE)
        tried.answer, count = all_stored, len(tried.requests)
        late = Receipt()
        queue.put(NAME, ENTRY, late)
        await tried.world.clock.sleep(10)
        assert len(tried.requests) == count
        assert receipt.outcomes == late.outcomes == []
        assert tried.captures.dropped_count == 2  # the other one is sent again by its producer
        assert tried.queue(epoch=2) is not queue

    try_it(scenario)


def test_what_waits_goes_where_the_rule_says_now() -> None:
    async def scenario(tried: Tried) -> None:
        tried.answer = away
        queue = tried.queue()
        queue.put(NAME, ENTRY)
        await tried.world.clock.sleep(0.05)
        other = "persistent://acme/live/other"
        tried.rules = {"r": CaptureRule(">", other)}
        await tried.world.clock.sleep(1)
        tried.answer = all_stored
        await queue.settled()
        assert [tried.requests[0].into, tried.requests[-1].into] == [INTO, other]

    try_it(scenario)


def test_the_last_sequence_id_is_asked_for_after_what_waits() -> None:
    async def scenario(tried: Tried) -> None:
        def answer(request: pb.CaptureRequest) -> pb.CaptureResponse:
            if request.ask:
                assert request.ask.endswith(" p")
                return pb.CaptureResponse(next_sequence_id=8)
            return all_stored(request)

        tried.answer = answer
        queue = tried.queue()
        queue.put(NAME, ENTRY)
        assert await queue.last_sequence_id(NAME, "p") == 7
        assert [bool(each.ask) for each in tried.requests] == [False, True]
        tried.answer = away
        queue.put(NAME, ENTRY)
        with pytest.raises(ServiceNotReady, match="open the producer again"):
            _ = await queue.last_sequence_id(NAME, "p")

    try_it(scenario)
