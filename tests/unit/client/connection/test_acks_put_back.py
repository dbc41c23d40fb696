"""Acknowledgements whose consumer is closed by the broker while their answer is under way (found by
a simulated cluster).
"""

from __future__ import annotations

from pulsarish.client.connection.ack_tracker import AckTracker
from pulsarish.client.message_id import MessageId


def test_a_late_answer_speaks_for_nothing_that_was_put_back() -> None:
    acks = AckTracker(group_max=100, batch_index=False)
    heard: list[str] = []
    acks.acknowledge(MessageId(-1, 1, 0))
    assert acks.wait(lambda _error: heard.append("first"))
    before = acks.take()
    assert before is not None
    acks.disconnected()
    acks.acknowledge(MessageId(-1, 1, 1))
    assert acks.wait(lambda _error: heard.append("second"))
    again = acks.take()
    assert again is not None
    assert again.ids == [(1, 0, -1), (1, 1, -1)]
    assert acks.answered(before) == []
    for done in acks.answered(again):
        done(None)
    assert heard == ["first", "second"]
    acks.check()
