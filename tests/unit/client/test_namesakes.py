"""What a producer says of itself when it opens, and when another one had its name meanwhile."""

from __future__ import annotations

import pytest

from pulsarish.client.messages.options import ProducerOptions
from pulsarish.model.errors import ProducerFenced
from pulsarish.wire._pb import broker_pb2 as pb
from tests.support.client_world import Cast, play
from tests.support.fake_broker import PublishSession

TOPIC = "persistent://public/default/t"


def test_a_producer_has_one_instance_for_all_its_openings(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[pb.OpenProducer] = []
    open_one = PublishSession._open

    def noted(session: PublishSession, command: pb.OpenProducer) -> None:
        opened.append(command)
        open_one(session, command)

    monkeypatch.setattr(PublishSession, "_open", noted)

    async def scenario(cast: Cast) -> None:
        opened.clear()
        client = cast.client()
        producer = await client.create_producer(TOPIC)
        cast.broker.break_streams()
        await producer.send(b"1")
        first, again = opened
        assert first.instance == again.instance != 0
        assert (first.epoch, first.was_open, again.epoch, again.was_open) == (0, False, 1, True)
        await client.create_producer(TOPIC)
        await client._open_publishing(ProducerOptions(TOPIC, producer_name="w"), first_epoch=7)
        assert len({each.instance for each in opened}) == 3
        assert [each.takes_over for each in opened] == [False, False, False, True]

    play(scenario)


@pytest.mark.parametrize(("behind", "first_epoch"), [(True, 0), (False, 0), (True, 5)])
def test_a_producer_ends_when_the_log_has_more_of_its_name_than_it_sent(
    behind: bool, first_epoch: int
) -> None:
    async def scenario(cast: Cast) -> None:
        options = ProducerOptions(TOPIC, producer_name="n", batching_enabled=False)
        publishing = await cast.client()._open_publishing(options, first_epoch=first_epoch)
        producer = cast.clients[0]._make_producer(publishing)
        assert (await producer.send(b"0")).entry_id() == 0
        cast.broker.hold_receipts = True
        waits = producer.send_soon(b"1")
        await cast.sleep(0.1)
        # Another producer was there: the fake broker remembers no instances.
        cast.cluster.topic(TOPIC).marks["n"] = 2 if behind else 1
        cast.broker.hold_receipts = False
        cast.broker.break_streams()
        if behind and not first_epoch:
            with pytest.raises(ProducerFenced, match="another producer 'n' stored messages"):
                await waits
            with pytest.raises(ProducerFenced):
                producer.send_soon(b"2")
        else:
            await waits
            assert not publishing.is_closed

    play(scenario, deduplication=True)
