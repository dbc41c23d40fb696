"""Acknowledgements that are deferred have the effect that they would have had at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsarish.client.connection.ack_tracker import AckTracker
from pulsarish.client.consumer.unacked_messages import UnackedMessages
from pulsarish.client.messages.message import Message, open_entry
from pulsarish.client.schemas.schema import BytesSchema
from tests.unit.client.consumer.test_receiving import entry

SIZE = 4
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "ack", "ack", "ack", "refuse", "cumulative", "due", "forget"]),
        st.integers(0, 3),
        st.integers(0, SIZE - 1),
    ),
    max_size=40,
)


class Consumer:
    def __init__(self, *, batch_index: bool, deferring: bool) -> None:
        self.acks = AckTracker(group_max=100, batch_index=batch_index)
        self.core = UnackedMessages(
            self.acks,
            negative_delay_ms=lambda _count: 2_000,
            unacked_timeout_seconds=10,
            redeliveries_max=None,
        )
        self.deferring = deferring
        self.messages: dict[int, list[Message]] = {}

    def do(self, step: str, number: int, index: int, now: float) -> object:
        if step == "open":
            # An odd entry is a batch.
            delivered = entry(number, SIZE if number % 2 else 1)
            messages = open_entry(delivered, "t", -1, lambda _: BytesSchema().decode)[1]
            self.messages[number] = messages
            return self.core.opened(delivered, messages, now)
        if step == "due":
            return self.core.take_due(now)
        if step == "forget":
            return self.core.forget()
        if number not in self.messages:
            return None
        message = self.messages[number][index % len(self.messages[number])]
        if step == "cumulative":
            return self.core.acknowledge_cumulative(message.message_id())
        if step == "refuse":
            return self.core.refuse(message.message_id(), 0, now)
        if self.deferring:
            self.core.defer_acknowledgement(message)
        else:
            self.core.acknowledge([message.message_id()])
        return None


@given(STEPS, st.booleans())
def test_deferred_acknowledgements_change_nothing(
    steps: list[tuple[str, int, int]], batch_index: bool
) -> None:
    at_once = Consumer(batch_index=batch_index, deferring=False)
    later = Consumer(batch_index=batch_index, deferring=True)
    for now, (step, number, index) in enumerate(steps):
        assert at_once.do(step, number, index, now) == later.do(step, number, index, now)
        later.acks.check()
    later.core.settle()
    expected, found = at_once.acks.take(), later.acks.take()
    if expected is None or found is None:
        assert expected is found
        return
    # Twice the same acknowledgement may be sent once.
    assert set(found.ids) == set(expected.ids)
    assert found.cumulative == expected.cumulative


def test_the_number_of_deferred_ones_is_known() -> None:
    consumer = Consumer(batch_index=True, deferring=True)
    consumer.do("open", 1, 0, 0)
    messages = consumer.messages[1]
    assert [consumer.core.defer_acknowledgement(message) for message in messages] == [1, 2, 3, 4]
    assert not consumer.acks.is_waiting
    consumer.core.settle()
    assert consumer.acks.take() is not None
    assert consumer.core.defer_acknowledgement(messages[0]) == 1


def test_messages_of_several_entries_are_acknowledged_together() -> None:
    consumer = Consumer(batch_index=True, deferring=False)
    for number in (0, 1, 3):
        consumer.do("open", number, 0, 0)
    whole, part, single = consumer.messages[1], consumer.messages[3][:2], consumer.messages[0]
    consumer.core.acknowledge_messages([*whole, *part, *single])
    taken = consumer.acks.take()
    assert taken is not None
    assert taken.ids == [(1, 1, -1), (1, 0, -1), (1, 3, 0), (1, 3, 1)]
    assert consumer.core.take_due(100) == [(1, 3)], "the others are acknowledged"
