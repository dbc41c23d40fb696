"""Exhibits about dispatching: subscriptions that stop for good although messages, consumers and
permits are there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.dispatchers.chunks import Chunk, ChunkedMessages
from pulsarish.broker.dispatchers.factory import Dispatcher
from pulsarish.broker.dispatchers.multi_consumer import SharingLimits
from pulsarish.broker.dispatchers.reads import Read, Reads, Ready
from pulsarish.broker.dispatchers.shared import SharedDispatcher
from pulsarish.broker.dispatchers.single_active import SingleActiveDispatcher
from pulsarish.broker.subscriptions.dispatch_loop import DispatchLoop
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.enums import ConsumerType, InitialPosition, KeySharedMode
from pulsarish.client.messages.consumer_policies import (
    ConsumerKeySharedPolicy,
)
from pulsarish.model.position import Position
from pulsarish.sim.workloads.safeguard import Patch, all_replaced, replacing
from pulsarish.wire.entry import key_hash
from tests.museum.exhibit import Defect, Exhibit, Kind
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.dispatching import LIMITS, Log, ack, at, consumer, drive

__all__ = ["EXHIBITS"]

TOPIC: Final = "persistent://public/default/t"
STEPS: Final = 120
DELAY_MS: Final = 5_000
READS_MAX: Final = 50


# -- apache/pulsar#26454 and #26174: a flag that says "a read is out", and reads that are not there


class _Play:
    """A dispatcher without its task: each read ends when the play says so, before or after whatever
    else happens.
    """

    def __init__(self, dispatcher: Dispatcher, log: Log, draw: random.Random) -> None:
        self.dispatcher = dispatcher
        self.log = log
        self.draw = draw
        self.out: list[Read] = []
        self.orders = 0

    def add(self) -> None:
        made, _ = consumer(self.orders, permits=1_000)
        self.orders += 1
        self.dispatcher.add(made)

    def remove(self) -> None:
        if self.dispatcher.consumers:
            self.dispatcher.remove(self.draw.choice(list(self.dispatcher.consumers)))

    def redeliver(self) -> None:
        if self.dispatcher.consumers:
            self.dispatcher.redeliver(self.draw.choice(list(self.dispatcher.consumers)), [])

    def seek(self) -> None:
        self.log.acked = set(range(self.draw.randrange(self.log.count)))
        self.dispatcher.reset()

    def publish(self) -> None:
        self.log.count += self.draw.randrange(1, 8)

    def begin_read(self) -> None:
        read = self.dispatcher.plan(self.log.end, blocked=False)
        if read is not None:
            assert not self.out, "a second read was planned while one is out"
            self.out.append(read)

    def end_read(self) -> None:
        if self.out:
            read = self.out.pop()
            if self.draw.random() < 0.3:
                self.dispatcher.reads.failed(read, "the bookies do not answer", 0)
            else:
                self.dispatcher.reads.succeeded(read, self.log.read(read), self.log.end)
            self.dispatcher.deliver()

    def acknowledge(self) -> None:
        for each in self.dispatcher.consumers:
            mine = [
                position.entry_id for position in list(each.pending)[: self.draw.randrange(1, 9)]
            ]
            ack(self.dispatcher, self.log, each, *mine)

    def run(self) -> None:
        moves = (self.add, self.remove, self.redeliver, self.seek, self.publish, self.acknowledge)
        for _ in range(STEPS):
            self.draw.choice(
                (*moves, self.begin_read, self.begin_read, self.end_read, self.end_read)
            )()
        while self.out:
            self.end_read()
        while self.dispatcher.consumers:
            self.remove()
        last, outlet = consumer(self.orders, permits=10_000)
        self.dispatcher.add(last)
        drive(self.dispatcher, self.log)
        left = [
            entry
            for entry in range(self.log.count)
            if entry not in self.log.acked and entry not in outlet.entries
        ]
        assert not left, (
            f"nothing is read any more: {len(left)} entries wait, and a consumer has permits"
        )


def _shared(log: Log) -> SharedDispatcher:
    sharing = SharingLimits(
        consumers_max=0, turn_messages=20, unacked_max_consumer=0, unacked_max_subscription=0
    )
    return SharedDispatcher(
        read_from=log.read_from, acknowledged=log.acknowledged, limits=LIMITS, sharing=sharing
    )


def _failover(log: Log) -> SingleActiveDispatcher:
    return SingleActiveDispatcher(
        failover=True,
        partition=-1,
        read_from=log.read_from,
        acknowledged=log.acknowledged,
        limits=LIMITS,
        consumers_max=0,
    )


def _check_shared(seed: int) -> None:
    for number in range(20):
        log = Log(30)
        _Play(_shared(log), log, random.Random(f"shared {seed} {number}")).run()


def _check_failover(seed: int) -> None:
    for number in range(20):
        log = Log(30)
        _Play(_failover(log), log, random.Random(f"failover {seed} {number}")).run()


def _stale_answer_ignored(was: Any) -> object:
    """The answer of a read that began before the consumers left does not end the read."""

    def succeeded(reads: Reads, read: Read, entries: Sequence[Ready], end: Position) -> None:
        if read.epoch == reads._epoch:
            was(reads, read, entries, end)

    return succeeded


def _stale_failure_ignored(was: Any) -> object:
    def failed(reads: Reads, read: Read, reason: str, now_ms: int) -> float:
        if read.epoch != reads._epoch:
            return 0.0
        wait: float = was(reads, read, reason, now_ms)
        return wait

    return failed


def _disowned(was: Any) -> object:
    """Going back forgets the read that is under way, so that its end is taken for the end of the
    next one.
    """

    def rewind(reads: Reads, position: Position) -> None:
        was(reads, position)
        reads._out = None

    return rewind


# -- apache/pulsar#6966: consumers come and go


def _check_coming_and_going(seed: int) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        options = {
            "consumer_type": ConsumerType.Shared,
            "initial_position": InitialPosition.Earliest,
        }
        for number in range(6):
            consumers = [await client.subscribe(TOPIC, "s", **options) for _ in range(2)]
            await producer.send(b"%d" % number)
            for each in consumers:
                await each.close()
        last = await client.subscribe(TOPIC, "s", **options)
        got = {(await last.receive(timeout_millis=5_000)).data() for _ in range(6)}
        assert got == {b"%d" % number for number in range(6)}

    _play(scenario, seed)


def _never_again(was: Any) -> object:
    """The task ends with the last consumer, and what says that it runs stays."""

    async def run(loop: DispatchLoop) -> None:
        await was(loop)
        loop._is_running = True

    return run


# -- apache/pulsar#26236 and #23845: what is to be delivered again waits for new messages


async def _by_key(
    brokered: Brokered, name: str, first: int, last: int, *, queue: int
) -> AsyncConsumer:
    policy = ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[(first, last)])
    return await brokered.client().subscribe(
        TOPIC,
        "s",
        consumer_type=ConsumerType.KeyShared,
        consumer_name=name,
        initial_position=InitialPosition.Earliest,
        key_shared_policy=policy,
        receiver_queue_size=queue,
    )


def _keys(count: int, *, low: bool) -> list[str]:
    found = (f"key {number}" for number in range(10_000))
    wanted = [key for key in found if (key_hash(key.encode()) < 32_768) == low]
    return wanted[:count]


def _check_delayed(seed: int) -> None:
    """At the end of the topic delayed messages come due: first many for a consumer that takes
    nothing, then some for another.
    """

    async def scenario(brokered: Brokered) -> None:
        slow = await _by_key(brokered, "slow", 0, 32_767, queue=1)
        quick = await _by_key(brokered, "quick", 32_768, 65_535, queue=100)
        producer = await brokered.client().create_producer(TOPIC)
        world = brokered.node("broker0").world
        assert world is not None
        due_ms = world.clock.wall_ms() + DELAY_MS
        for key in _keys(30, low=True):
            await producer.send(b"slow", partition_key=key, deliver_at=due_ms)
        for key in _keys(10, low=False):
            await producer.send(b"quick", partition_key=key, deliver_at=due_ms)
        assert world.clock.wall_ms() < due_ms, "the messages were to be there before they come due"
        got = [(await quick.receive(timeout_millis=20_000)).data() for _ in range(10)]
        assert got == [b"quick"] * 10
        await slow.close()

    _play(scenario, seed, dispatcher_max_read_batch_size=2)


def _one_batch() -> Patch:
    """What is due is pulled in one batch; no time is set for the rest of it, which waits until
    something else happens.
    """
    pulled: dict[int, int] = {}

    def release(was: Any) -> object:
        def pull(reads: Reads, now_ms: int) -> None:
            first_ms = reads.delayed.next_due_ms
            if first_ms is None or first_ms > now_ms or pulled.get(id(reads)) == first_ms:
                return
            pulled[id(reads)] = first_ms
            was(reads, now_ms)

        return pull

    def wait_ms(was: Any) -> object:
        def wait(reads: Reads, now_ms: int) -> int | None:
            found: int | None = was(reads, now_ms)
            return None if found == 0 else found

        return wait

    return all_replaced(replacing(Reads, "release", release), replacing(Reads, "wait_ms", wait_ms))


def _check_given_back(seed: int) -> None:
    """A consumer leaves with messages that it has not acknowledged; nobody publishes any more."""

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        for number in range(20):
            await producer.send(b"%d" % number, partition_key=f"key {number}")
        options = {
            "consumer_type": ConsumerType.KeyShared,
            "initial_position": InitialPosition.Earliest,
        }
        leaves = await client.subscribe(TOPIC, "s", consumer_name="leaves", **options)
        for _ in range(20):
            await leaves.receive(timeout_millis=5_000)
        stays = await client.subscribe(TOPIC, "s", consumer_name="stays", **options)
        await leaves.close()
        got = {(await stays.receive(timeout_millis=5_000)).data() for _ in range(20)}
        assert len(got) == 20

    _play(scenario, seed)


def _only_with_new_ones(was: Any) -> object:
    def plan(reads: Reads, end: Position, *, new_allowed: bool) -> Read | None:
        if reads.at_end(end):
            return None
        read: Read | None = was(reads, end, new_allowed=new_allowed)
        return read

    return plan


def _play(scenario: Any, seed: int, **settings: object) -> None:
    play_with_brokers(scenario, seeds=1, max_virtual_seconds=120, **settings)


# -- apache/pulsar#26395: a part of a message whose first part is acknowledged


def _check_first_chunk_gone(seed: int) -> None:
    """Of three chunks the first two are acknowledged when the consumers start over: the third one
    must not hold up what follows.
    """
    log = Log(
        8,
        chunk=lambda entry: Chunk(("producer", "message"), entry == 2) if entry < 3 else None,
        acked={0, 1},
    )
    dispatcher = _shared(log)
    made, outlet = consumer(0, permits=100)
    dispatcher.add(made)
    for _ in range(READS_MAX):
        read = dispatcher.plan(log.end, blocked=False)
        if read is None:
            break
        dispatcher.reads.succeeded(read, log.read(read), log.end)
        dispatcher.deliver()
        dispatcher.check()
    assert outlet.entries == [2, 3, 4, 5, 6, 7], (
        f"of six entries {outlet.entries} were delivered, after {READS_MAX} reads at most"
    )


def _only_behind_the_first() -> Patch:
    """A chunk whose message nobody has begun is read again and again, until somebody has."""
    refused: set[Position] = set()

    def taker(was: Any) -> object:
        def take(
            chunked: ChunkedMessages, chunk: Chunk, position: Position, whose_turn: Consumer
        ) -> Consumer | None:
            if chunk.message not in chunked._unfinished and position != at(0):
                refused.add(position)
                return None
            found: Consumer | None = was(chunked, chunk, position, whose_turn)
            return found

        return take

    def bool_of(_was: Any) -> object:
        return lambda chunked: bool(chunked._unfinished or refused)

    def to_read(was: Any) -> object:
        def read(chunked: ChunkedMessages) -> list[Position]:
            found: list[Position] = was(chunked)
            return sorted([*found, *refused])

        return read

    return all_replaced(
        replacing(ChunkedMessages, "taker", taker),
        replacing(ChunkedMessages, "to_read", to_read),
        replacing(ChunkedMessages, "__bool__", bool_of),
    )


EXHIBITS: Final = (
    Exhibit(
        name="shared_read_flag_without_a_read",
        upstream=("apache/pulsar#26454",),
        wrong=(
            "A shared subscription stalls forever: its dispatcher believes that a read is "
            "pending, and the cursor has none."
        ),
        here=(
            "Plays joins, leaves, seeks and late or failed reads in many orders; then one "
            "consumer must get all that is left."
        ),
        kind=Kind.SCENARIO,
        check=_check_shared,
        defects=(
            Defect(
                "late_answer_ignored",
                "every answer ends its read",
                replacing(Reads, "succeeded", _stale_answer_ignored),
            ),
            Defect(
                "late_failure_ignored",
                "every failure ends its read",
                replacing(Reads, "failed", _stale_failure_ignored),
            ),
        ),
    ),
    Exhibit(
        name="late_read_taken_for_the_next",
        upstream=("apache/pulsar#26174",),
        wrong=(
            "A redelivery forgets the read under way; its late end is taken for that of the "
            "next read, and the subscription stalls."
        ),
        here=(
            "Impossible: there is one read at a time, held by the dispatcher itself, and "
            "going back only makes its answer void."
        ),
        kind=Kind.IMPOSSIBLE,
        check=_check_failover,
        defects=(
            Defect(
                "disowned_read",
                "a read that is out stays the only one",
                replacing(Reads, "rewind", _disowned),
            ),
        ),
    ),
    Exhibit(
        name="consumers_come_and_go",
        upstream=("apache/pulsar#6966",),
        wrong=(
            "Consumers are added and removed again and again, and delivery stops until the "
            "topic is unloaded."
        ),
        here=(
            "Pairs of consumers come and go on a whole broker while messages are published; a "
            "last one must get all of them."
        ),
        kind=Kind.SCENARIO,
        check=_check_coming_and_going,
        defects=(
            Defect(
                "task_not_restarted",
                "the next consumer starts the task again",
                replacing(DispatchLoop, "_run", _never_again),
            ),
        ),
    ),
    Exhibit(
        name="due_messages_wait_for_new_ones",
        upstream=("apache/pulsar#26236", "apache/pulsar#21554"),
        wrong=(
            "Delayed messages come due at the end of the topic; the first batch is for a full "
            "consumer, and the rest is never pulled."
        ),
        here=(
            "Sets that up on a whole broker with small reads: the other consumer must get its "
            "messages without a new one."
        ),
        kind=Kind.SCENARIO,
        check=_check_delayed,
        defects=(
            Defect(
                "one_batch_of_what_is_due",
                "what is due is taken as soon as there is room for it",
                _one_batch(),
            ),
        ),
    ),
    Exhibit(
        name="chunk_without_its_first",
        upstream=("apache/pulsar#26395", "apache/pulsar#26396"),
        wrong=(
            "A shared subscription stalls forever at a chunk of a message whose first chunk "
            "is acknowledged already."
        ),
        here=(
            "Begins with the last chunk of a message: it must be delivered to a consumer, and "
            "what follows it, too."
        ),
        kind=Kind.SCENARIO,
        check=_check_first_chunk_gone,
        defects=(
            Defect(
                "only_behind_the_first",
                "a chunk goes to anybody when nobody has its message",
                _only_behind_the_first(),
            ),
        ),
    ),
    Exhibit(
        name="replay_waits_for_new_messages",
        upstream=("apache/pulsar#23845",),
        wrong=(
            "Messages that are to be delivered again stay in the replay queue as long as "
            "nothing new is published."
        ),
        here=(
            "A key-shared consumer leaves with unacknowledged messages at the end of the "
            "topic; another must get them."
        ),
        kind=Kind.SCENARIO,
        check=_check_given_back,
        defects=(
            Defect(
                "only_with_new_ones",
                "what is to be delivered again is read at once",
                replacing(Reads, "plan", _only_with_new_ones),
            ),
        ),
    ),
)
