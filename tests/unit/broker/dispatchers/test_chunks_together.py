"""Chunks of one message on a shared subscription: a client gets all chunks of a message, in
order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from pulsarish.broker.clients.consumer import Consumer, Delivery
from pulsarish.broker.dispatchers.chunks import Chunk
from pulsarish.broker.dispatchers.multi_consumer import SharingLimits
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from tests.support.dispatching import LIMITS, Log, Outlet, ack, at, consumer, drive


def shared(log: Log, **changes: int) -> SharedDispatcher:
    settings = {
        "consumers_max": 10,
        "turn_messages": 1,
        "unacked_max_consumer": 0,
        "unacked_max_subscription": 0,
        **changes,
    }
    return SharedDispatcher(
        read_from=log.read_from,
        acknowledged=log.acknowledged,
        limits=LIMITS,
        sharing=SharingLimits(**settings),
    )


def log_of(*messages: str) -> Log:
    """Return a log with an entry for each letter: a capital letter is a chunk of its message, other
    letters are messages.
    """
    text = "".join(messages)
    last = {letter: text.rindex(letter) for letter in text if letter.isupper()}
    return Log(
        len(text),
        chunk=lambda entry: (
            Chunk(("p", text[entry]), entry == last[text[entry]]) if text[entry].isupper() else None
        ),
    )


def joined(dispatcher: SharedDispatcher, order: int, permits: int) -> tuple[Consumer, Outlet]:
    made, outlet = consumer(order, permits=permits)
    dispatcher.add(made)
    return made, outlet


def test_chunks_follow_the_first_one_and_the_others_take_turns() -> None:
    log = log_of("AaBAbBABcd")
    dispatcher = shared(log)
    (_, one), (_, two) = joined(dispatcher, 0, 100), joined(dispatcher, 1, 100)
    drive(dispatcher, log)
    assert sorted(one.entries + two.entries) == list(range(10))
    for chunks in ([0, 3, 6], [2, 5, 7]):
        assert [entry for entry in one.entries if entry in chunks] in ([], chunks)
        assert [entry for entry in two.entries if entry in chunks] in ([], chunks)


def test_while_its_consumer_has_no_permits_a_chunk_waits_and_the_others_go_on() -> None:
    log = log_of("AAAbcdefghA")
    dispatcher = shared(log)
    (first, one), (_, two) = joined(dispatcher, 0, 1), joined(dispatcher, 1, 100)
    drive(dispatcher, log)
    assert (one.entries, two.entries) == ([0], [3, 4, 5, 6, 7, 8, 9])
    first.permits += 2
    drive(dispatcher, log)
    assert one.entries == [0, 1, 2], "10 comes after what waited longer"
    first.permits += 5
    drive(dispatcher, log)
    assert one.entries == [0, 1, 2, 10]
    assert not any(delivery.redelivery_count for delivery in one.got), "waiting is no redelivery"


def test_a_consumer_that_leaves_gives_all_its_chunks_to_one_other() -> None:
    log = log_of("AAxAA")
    dispatcher = shared(log)
    (first, one), (_, two), (_, three) = (
        joined(dispatcher, 0, 2),
        joined(dispatcher, 1, 100),
        joined(dispatcher, 2, 100),
    )
    drive(dispatcher, log)
    assert one.entries == [0, 1]
    dispatcher.remove(first)
    drive(dispatcher, log)
    chunks = [[entry for entry in outlet.entries if entry != 2] for outlet in (two, three)]
    assert sorted(chunks) == [[], [0, 1, 3, 4]]
    assert [
        delivery.redelivery_count
        for outlet in (two, three)
        for delivery in outlet.got
        if delivery.position in (at(0), at(3))
    ] == [
        1,
        0,
    ]


def test_messages_that_are_never_finished_are_forgotten_at_a_limit() -> None:
    log = Log(3_000, chunk=lambda entry: Chunk(("p", str(entry)), is_last=False))
    dispatcher = shared(log)
    (_, one), (_, two) = joined(dispatcher, 0, 10_000), joined(dispatcher, 1, 10_000)
    drive(dispatcher, log)
    assert len(one.got) + len(two.got) == 3_000
    dispatcher.check()


def test_what_waits_for_a_forgotten_message_is_delivered_to_somebody() -> None:
    log = Log(
        3_002, chunk=lambda entry: Chunk(("p", "A" if entry < 2 else str(entry)), is_last=False)
    )
    dispatcher = shared(log)
    (_, one), (_, two) = joined(dispatcher, 0, 1), joined(dispatcher, 1, 10_000)
    drive(dispatcher, log)
    assert one.entries == [0]
    assert sorted(two.entries) == list(range(1, 3_002))


@dataclass
class Client:
    """Joins chunks, and notices a chunk that does not follow the one before."""

    made: Consumer
    messages: dict[str, list[int]]
    begun: dict[str, list[int]] = field(default_factory=dict)

    def heard(self, _consumer_id: int, delivery: Delivery) -> None:
        entry = delivery.position.entry_id
        name = next((name for name, chunks in self.messages.items() if entry in chunks), "")
        if name:
            have = self.begun.setdefault(name, [])
            assert self.messages[name][len(have)] == entry, f"{entry} of {name} came after {have}"
            have.append(entry)
            if have == self.messages[name]:
                del self.begun[name]


@pytest.mark.parametrize("seed", range(150))
def test_no_client_gets_a_chunk_that_does_not_follow(seed: int) -> None:
    """Random joins, leaves, permits, acknowledgements of whole messages and redeliveries, until
    everything is acknowledged.
    """
    rng = random.Random(seed)
    letters = [letter for letter in "ABCDEF" for _ in range(rng.randint(2, 6))] + [
        "x"
    ] * rng.randint(0, 20)
    rng.shuffle(letters)
    log = log_of("".join(letters))
    messages = {
        name: [entry for entry, letter in enumerate(letters) if letter == name] for name in "ABCDEF"
    }
    dispatcher = shared(
        log, turn_messages=rng.choice([1, 3]), unacked_max_consumer=rng.choice([0, 12])
    )
    here: list[Client] = []
    order = 0

    def join(permits: int) -> Client:
        made, outlet = consumer(order, permits=permits)
        client = Client(made, messages)
        outlet.heard = client.heard
        dispatcher.add(made)
        return client

    def acknowledge(client: Client) -> None:
        held = {position.entry_id for position in client.made.pending}
        whole = [chunks for chunks in messages.values() if held.issuperset(chunks)]
        alone = [[entry] for entry in held if letters[entry] == "x"]
        for entries in [*whole, *alone]:
            ack(dispatcher, log, client.made, *entries)

    for _ in range(200):
        action = rng.random()
        if action < 0.15 and len(here) < 3:
            here.append(join(rng.randint(0, 4)))
            order += 1
        elif action < 0.2 and here:
            dispatcher.remove(here.pop(rng.randrange(len(here))).made)
        elif here:
            client = rng.choice(here)
            if action < 0.6:
                client.made.permits += rng.randint(1, 5)
            elif action < 0.8:
                acknowledge(client)
            elif action < 0.9 and client.made.pending:
                held = {position.entry_id for position in client.made.pending}
                name = rng.choice("ABCDEF")
                if chunks := [at(entry) for entry in messages[name] if entry in held]:
                    client.begun.pop(name, None)
                    dispatcher.redeliver(client.made, chunks)
            else:
                client.begun.clear()
                dispatcher.redeliver(client.made, [])
        drive(dispatcher, log)
        dispatcher.check()
    for client in here:
        dispatcher.remove(client.made)
    # With a limit below the total of all unfinished messages, not all of them could be finished.
    dispatcher.limit(consumers_max=10, unacked_max_consumer=0, unacked_max_subscription=0)
    last = join(10_000)
    for _ in range(50):
        drive(dispatcher, log)
        acknowledge(last)
    assert log.acked == set(range(len(letters)))
