"""Sends without a callback that fail are not lost without a word: the log has them, with their
number.
"""

from __future__ import annotations

import pytest

from pulsarish.client.connection.loop_bridge import InLoop
from pulsarish.client.connection.timers import Timers
from pulsarish.client.send_failures import SendFailures
from pulsarish.model.errors import ProducerQueueIsFull
from tests.support.client_world import Cast, play


def test_the_first_at_once_and_the_others_with_their_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def counts() -> list[str]:
        return [
            line.getMessage().partition("messages=")[2].partition(" reason")[0]
            for line in caplog.records
        ]

    async def scenario(cast: Cast) -> None:
        world = cast.world
        failures = SendFailures("t", InLoop(), Timers(world.clock, world.tasks), world.clock)
        for number in range(8_000):
            failures.add(ProducerQueueIsFull(f"full {number}"))
        assert counts() == ["1 messages_in_all=1"]
        await cast.sleep(1.5)
        assert counts()[1:] == ["7999 messages_in_all=8000"]
        failures.add(ProducerQueueIsFull("again"))
        failures.log_due()
        assert counts()[2:] == ["1 messages_in_all=8001"]
        await cast.sleep(5)
        assert len(counts()) == 3

    play(scenario, seeds=1)


def test_a_producer_reports_what_nobody_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", send_timeout_millis=500)
        for name in ("broker1", "broker2"):
            cast.sim.nodes[name].crash()
        publishing = producer._publishing
        for _ in range(3):
            assert publishing.add(publishing.children[0], b"x", None, None, None)
        await cast.sleep(3)
        assert any("messages_in_all=3" in line.getMessage() for line in caplog.records)

    play(scenario, seeds=1)
