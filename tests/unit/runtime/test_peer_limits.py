"""Connection slots and held bytes: what goes over a limit ends the connection that has made no
progress for the longest.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsarish.runtime.peer_limits import ConnectionSlots, HeldBytes


class _Connection:
    def __init__(self) -> None:
        self.aborted: list[str] = []

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)


def _connections(count: int) -> list[_Connection]:
    return [_Connection() for _ in range(count)]


def test_a_new_connection_gets_the_slot_of_the_one_that_waited_longest() -> None:
    slots = ConnectionSlots(2)
    first, second, third = _connections(3)
    assert slots.take(first, "a") == slots.take(second, "b") == ""
    assert slots.take(third, "c") == ""
    assert first.aborted
    assert not second.aborted
    slots.leave(first)  # its transport reports the end later
    assert slots.used_count == 2
    assert slots.ended_count == 1


def test_an_active_connection_is_never_aborted_for_a_new_one() -> None:
    slots = ConnectionSlots(2)
    first, second, third = _connections(3)
    for connection in (first, second):
        slots.take(connection, "a")
        slots.mark_active(connection)
    assert "2 connections are open" in slots.take(third, "b")
    assert not first.aborted
    assert not second.aborted
    slots.mark_waiting(second)
    assert slots.take(third, "b") == ""
    assert second.aborted


def test_a_connection_that_waits_again_is_the_last_to_be_aborted() -> None:
    slots = ConnectionSlots(2)
    first, second, third = _connections(3)
    slots.take(first, "a")
    slots.take(second, "a")
    slots.mark_waiting(first)
    slots.take(third, "a")
    assert second.aborted
    assert not first.aborted


def test_one_address_cannot_take_more_than_its_share() -> None:
    slots = ConnectionSlots(0, per_address_max=1)
    first, second, third = _connections(3)
    assert slots.take(first, "a") == ""
    slots.mark_active(first)
    assert "a has 1 connections open" in slots.take(second, "a")
    assert slots.take(third, "b") == ""
    slots.leave(first)
    assert slots.take(second, "a") == ""
    assert slots.refused_count == 1


def test_a_connection_that_waits_makes_room_for_one_from_its_address_first() -> None:
    slots = ConnectionSlots(3, per_address_max=2)
    elsewhere, first, second, third = _connections(4)
    for connection, address in ((elsewhere, "b"), (first, "a"), (second, "a"), (third, "a")):
        assert slots.take(connection, address) == ""
    assert first.aborted
    assert not elsewhere.aborted
    assert slots.used_count == 3


@given(
    st.lists(st.tuples(st.sampled_from(["take", "active", "waiting", "leave"]), st.integers(0, 5)))
)
def test_slots_are_never_more_than_the_limits(steps: list[tuple[str, int]]) -> None:
    slots = ConnectionSlots(4, per_address_max=2)
    connections = _connections(6)
    model: dict[int, bool] = {}  # whether it is active
    for what, number in steps:
        connection = connections[number]
        if what == "take" and number not in model:
            ended = [len(other.aborted) for other in connections]
            refused = slots.take(connection, str(number % 3))
            for other, before in enumerate(ended):
                if len(connections[other].aborted) > before:
                    assert not model.pop(other), "an active connection was aborted"
            if not refused:
                model[number] = False
        elif what == "active" and number in model:
            slots.mark_active(connection)
            model[number] = True
        elif what == "waiting" and number in model:
            slots.mark_waiting(connection)
            model[number] = False
        elif what == "leave":
            slots.leave(connection)
            model.pop(number, None)
        assert slots.used_count == len(model) <= 4
        assert all(sum(other % 3 == address for other in model) <= 2 for address in range(3))


def test_connections_of_an_address_that_wait_make_room_for_its_own() -> None:
    slots = ConnectionSlots(8, waiting_per_address_max=2)
    known, first, second, third, other = _connections(5)
    assert slots.take(known, "a") == ""
    slots.mark_active(known)
    for each in (first, second, third):
        assert slots.take(each, "a") == ""
    assert slots.take(other, "b") == ""
    assert [bool(each.aborted) for each in (known, first, second, third, other)] == [
        *(False, True, False, False),
        False,
    ]
    assert slots.used_count == 4
    assert "2 connections of a wait" in first.aborted[0]


def test_the_connection_that_held_something_for_the_longest_is_aborted() -> None:
    held = HeldBytes(10, "parts of requests")
    first, second, third = _connections(3)
    held.set(first, 4)
    held.set(second, 4)
    held.set(first, 0)
    held.set(first, 4)
    held.set(third, 4)
    assert second.aborted
    assert not first.aborted
    assert not third.aborted
    assert held.used_bytes == 8


def test_a_connection_alone_cannot_hold_more_than_the_limit() -> None:
    held = HeldBytes(10, "parts of requests")
    (only,) = _connections(1)
    held.set(only, 11)
    assert "more than 10 bytes of parts of requests" in only.aborted[0]
    held.set(only, 0)
    assert held.used_bytes == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12))))
def test_the_sum_is_right_and_within_the_limit(steps: list[tuple[int, int]]) -> None:
    held = HeldBytes(20, "anything")
    connections = _connections(4)
    last = dict.fromkeys(range(4), 0)
    for number, size in steps:
        aborted = [len(connection.aborted) for connection in connections]
        last[number] = size
        held.set(connections[number], size)
        for other, before in enumerate(aborted):
            if len(connections[other].aborted) > before:
                last[other] = 0
        assert held.used_bytes == sum(last.values()) <= 20
