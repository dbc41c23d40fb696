"""Requests on their way: a turn's leave together, so many are out, each hears one outcome in the
order in which the client told them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

import pytest

from pulsarish.metadata.zookeeper.kazoo_bridge import LoopQueue
from pulsarish.metadata.zookeeper.pipeline import Request, RequestPipeline
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import OutcomeUnknown, SessionLost


class Lost(Exception):
    """Stands for a client's error that says that no answer came."""


class Refused(Exception):
    """Stands for one that the server answered."""


class HandClock(SystemClock):
    now = 1.0

    def monotonic(self) -> float:
        return self.now


class Wire:
    """A client: keeps what it was asked, a list each time."""

    def __init__(self) -> None:
        self.turns: list[list[Request]] = []

    def ask(self, requests: Iterable[tuple[Any, Request]]) -> None:
        self.turns.append([request for _, request in requests])

    @property
    def asked(self) -> list[Any]:
        return [[request.message for request in turn] for turn in self.turns]


class Setting:
    def __init__(self, in_flight_max: int) -> None:
        self.clock = HandClock()
        self.queue = LoopQueue(asyncio.get_running_loop())
        self.outside = OutsideWork()
        self.wire = Wire()
        self.pipeline = RequestPipeline(
            self.clock,
            self.queue,
            in_flight_max,
            lambda error: OutcomeUnknown("lost") if isinstance(error, Lost) else None,
            self.outside,
        )
        self.pipeline.attach(self.wire)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_turns_requests_leave_together_in_order() -> None:
    async def scenario() -> None:
        own = Setting(10)
        for message in "abc":
            own.pipeline.submit(message)
        assert own.wire.asked == []
        await turn()
        own.pipeline.submit("d")
        await turn()
        assert own.wire.asked == [["a", "b", "c"], ["d"]]
        assert own.outside.count == 4

    run(scenario())


def test_answers_are_heard_in_their_order_and_only_once_the_client_has_told_all() -> None:
    async def scenario() -> None:
        own = Setting(10)
        heard: list[str] = []
        for message in "abc":
            own.pipeline.submit(message).add_done_callback(
                lambda _, message=message: heard.append(message)
            )
        await turn()
        first, second, third = own.wire.turns[0]
        first.set(1)
        second.set(2)
        await turn()
        assert heard == []
        own.queue.post_later(lambda: heard.append("watch"))
        third.set(3)
        own.queue.wake()
        await turn()
        assert heard == ["watch", "a", "b", "c"], (
            "a watch is heard in the queue, answers by the loop's next turn"
        )
        assert own.outside.count == 0

    run(scenario())


def test_only_so_many_are_out_and_the_next_leave_together_too() -> None:
    async def scenario() -> None:
        own = Setting(3)
        asked = [own.pipeline.submit(number) for number in range(8)]
        await turn()
        assert own.wire.asked == [[0, 1, 2]]
        for request in own.wire.turns[0][:2]:
            request.set(None)
        own.queue.wake()
        await turn()
        assert own.wire.asked == [[0, 1, 2], [3, 4]]
        own.pipeline.fail_waiting(OutcomeUnknown("the connection broke"))
        outcomes = await asyncio.gather(*asked[5:], return_exceptions=True)
        assert all(isinstance(outcome, OutcomeUnknown) for outcome in outcomes)
        for request in (own.wire.turns[0][2], *own.wire.turns[1]):
            request.set_exception(Lost())
        outcomes = await asyncio.gather(*asked[2:5], return_exceptions=True)
        assert all(isinstance(outcome, OutcomeUnknown) for outcome in outcomes)
        assert own.outside.count == 0
        await turn()
        assert len(own.wire.turns) == 2

    run(scenario())


def test_the_deadline_counts_from_when_what_was_answered_was_sent() -> None:
    async def scenario() -> None:
        own = Setting(10)
        own.clock.now = 5.0
        early = own.pipeline.submit("early")
        await turn()
        own.clock.now = 7.0
        late, lost = own.pipeline.submit("late"), own.pipeline.submit("lost")
        await turn()
        own.clock.now = 9.0
        own.wire.turns[1][1].set_exception(Lost())
        with pytest.raises(OutcomeUnknown):
            await lost
        assert own.pipeline.answered_sent_at == 0.0
        own.wire.turns[1][0].set_exception(Refused())
        with pytest.raises(Refused):
            await late
        assert own.pipeline.answered_sent_at == 7.0
        own.wire.turns[0][0].set("answer")
        own.queue.wake()
        assert await early == "answer"
        assert own.pipeline.answered_sent_at == 7.0

    run(scenario())


def test_what_a_client_says_that_was_given_up_is_not_heard() -> None:
    async def scenario() -> None:
        own = Setting(1)
        own.clock.now = 5.0
        asked = [own.pipeline.submit("sent"), own.pipeline.submit("waiting")]
        await turn()
        own.pipeline.detach(SessionLost("lost"))
        asked.append(own.pipeline.submit("after"))
        for future in asked:
            with pytest.raises(SessionLost):
                await future
        assert own.outside.count == 0
        second = Wire()
        own.pipeline.attach(second)
        again = own.pipeline.submit("again")
        own.wire.turns[0][0].set("of the old session")
        own.queue.wake()
        await turn()
        assert own.pipeline.answered_sent_at == 0.0
        assert not again.done()
        # kazoo may end a request twice.
        second.turns[0][0].set("first")
        second.turns[0][0].set_exception(Lost())
        assert await again == "first"
        assert (own.outside.count, own.wire.asked, second.asked) == (0, [["sent"]], [["again"]])

    run(scenario())
