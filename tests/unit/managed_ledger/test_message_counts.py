"""Counts of messages against a list of the messages that each entry has."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.managed_ledger import ledger_counts, message_counter, message_counts
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.ledger_counts import UNKNOWN
from pulsarish.managed_ledger.log_reader import LogEntry
from pulsarish.managed_ledger.message_counts import BlockCounts, MessageBacklog, MessageCounts
from pulsarish.metadata.records import LostRange, TopicLedger
from pulsarish.model.ack_ranges import AckedRange, AckRanges
from pulsarish.model.position import Position
from tests.support.logs import Heard, Shelf, simulate

BLOCK = 4


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (ledger_counts, message_counts, message_counter):
            patch.setattr(module, "BLOCK_ENTRIES", BLOCK)
        yield


SIZES = st.one_of(
    st.lists(st.just(1), min_size=1, max_size=13), st.lists(st.integers(1, 5), max_size=13)
)
LEDGERS = st.lists(
    st.tuples(SIZES, st.sampled_from(["stored", "noted", "noted in part", "not known", "lossy"])),
    min_size=1,
    max_size=5,
)


@dataclass
class Log:
    """A log, what its owner knows of it, and the truth."""

    chain: Chain
    counts: MessageCounts
    own: int  # the first ledger that its owner made
    truth: dict[Position, int] = field(default_factory=dict)  # lost entries have no messages

    @classmethod
    def made(cls, ledgers: list[tuple[list[int], str]], blocks: BlockCounts) -> Log:
        """Make it. Of the ledgers after the last one that was not noted, the owner appended all."""
        opened = [10 * number for number in range(len(ledgers))]
        own = len(ledgers)
        while own and ledgers[own - 1][1].startswith("noted"):
            own -= 1
        stored, lost = [], []
        for ledger_id, (sizes, known) in zip(opened[:own], ledgers[:own], strict=True):
            is_lossy = known == "lossy" and len(sizes) > 1
            if is_lossy:
                lost.append(LostRange(ledger_id, 1, max(1, len(sizes) // 2)))
            messages = sum(sizes) if known == "stored" or is_lossy else UNKNOWN
            stored.append(TopicLedger(ledger_id, len(sizes), 1, 1, messages=messages))
        chain = Chain([each for each in stored if each.entries], lost)
        log = cls(chain, MessageCounts(chain, blocks), 10 * own)
        for ledger_id, (sizes, known) in zip(opened[own:], ledgers[own:], strict=True):
            if chain.current is not None:
                chain.close_current(1)
            chain.open_ledger(ledger_id)
            first = 0
            while first < len(sizes):
                run = sizes[first : first + 3]
                chain.grow(len(run), 1)
                if known == "noted" or first != 3:
                    log.counts.add(first, run)
                first += len(run)
        for ledger_id, (sizes, _) in zip(opened, ledgers, strict=True):
            for entry_id, size in enumerate(sizes):
                position = Position(ledger_id, entry_id)
                log.truth[position] = 0 if chain.lost_at(position) else size
        return log

    def backlog(self, acks: AckRanges) -> MessageBacklog:
        return self.counts.unacknowledged(acks.mark, acks.ranges(), acks.batches())

    def read(self, found: MessageBacklog) -> None:
        block = found.missing[0]
        start = block.number * BLOCK
        entries = [Position(block.ledger_id, start + entry_id) for entry_id in range(BLOCK)]
        self.counts.put(
            block, array("I", [self.truth[each] for each in entries if each in self.truth])
        )


@given(LEDGERS, st.data())
def test_an_exact_count_is_right_and_reading_makes_every_count_exact(
    ledgers: list[tuple[list[int], str]], data: st.DataObject
) -> None:
    log = Log.made(ledgers, BlockCounts(data.draw(st.sampled_from([64, 1_000]))))
    places = sorted(log.truth) or [Position(0, 0)]
    acks = AckRanges(
        data.draw(st.sampled_from([Position(0, -1), *places])), log.chain.next_position
    )
    left = {place: size for place, size in log.truth.items() if place > acks.mark}
    for place in data.draw(st.lists(st.sampled_from(places), max_size=20)):
        size = log.truth.get(place, 0)
        indexes = data.draw(st.sets(st.integers(0, size - 1))) if size > 1 else {0}
        if size and acks.add_indexes(place, size, indexes):
            remaining = acks.remaining(place)
            left[place] = 0 if remaining is None else remaining.bit_count()
    left = {place: 0 if acks.contains(place) else size for place, size in left.items()}
    reads = 0
    while (found := log.backlog(acks)).missing:
        assert found.is_estimate
        log.read(found)
        reads += 1
        assert reads <= len(places)
    assert not found.is_estimate
    assert found.messages == sum(left.values())
    if all(
        set(sizes) <= {1} and known == ("stored" if 10 * number < log.own else "noted")
        for number, (sizes, known) in enumerate(ledgers)
    ):
        assert not reads, "single messages need no reading"


@given(LEDGERS)
def test_what_is_stored_of_a_ledger_is_its_total_or_that_it_is_not_known(
    ledgers: list[tuple[list[int], str]],
) -> None:
    log = Log.made(ledgers, BlockCounts())
    for ledger in filter(lambda each: each.entries, log.chain.record()):
        sizes, how = ledgers[ledger.ledger_id // 10]
        if how == "stored" or (how == "noted" and ledger.ledger_id >= log.own and ledger.closed_ms):
            assert ledger.messages == sum(sizes)
        elif how == "noted in part" and ledger.ledger_id >= log.own and ledger.closed_ms:
            assert ledger.messages == (sum(sizes) if len(sizes) <= 3 else UNKNOWN)
        elif how != "lossy" or len(sizes) > 1:
            assert ledger.messages == UNKNOWN


def test_the_blocks_that_are_not_used_are_given_up() -> None:
    blocks = BlockCounts(2)
    log = Log.made([([1, 2, 3, 4] * 3 + [1], "noted")], blocks)
    acks = AckRanges(Position(0, 1), log.chain.next_position)
    found = log.backlog(acks)
    assert found.is_estimate
    assert [tuple(block) for block in found.missing] == [(0, 0)]
    assert found.messages == 31 - 5, "about: the half of the first block"
    log.read(found)
    assert log.backlog(acks) == (31 - 3, False, ())


def messages_of(entry: LogEntry) -> int:
    return int(bytes(entry.payload).partition(b" ")[0])


class Counted(Heard):
    """A listener that notes how many messages its entries have, as a topic does."""

    log: object = None

    def appended(self, ledger_id: int, first_entry: int, contexts) -> None:  # type: ignore[no-untyped-def]
        super().appended(ledger_id, first_entry, contexts)
        counts = [int(context.partition(b" ")[0]) for context in contexts]
        self.log.messages.add(first_entry, counts)  # type: ignore[attr-defined]


def test_the_count_stays_exact_when_another_owner_takes_the_topic() -> None:
    sizes = [1 + number * 7 % 5 for number in range(40)]
    payloads = [b"%d messages" % size for size in sizes]

    async def scenario(shelf: Shelf) -> None:
        shelf.set(max_entries_per_ledger=11)
        heard = Counted()
        log, _ = await shelf.open(heard=heard)
        heard.log = log
        cursor = await log.open_cursor("s")
        await shelf.append(log, payloads)
        at = [position for position, _ in heard.appended_at]
        cursor.acknowledge_cumulative(at[5])
        cursor.acknowledge([*at[9:12], at[25]])
        cursor.acknowledge_batch(at[16], sizes[16], [0, 1])
        await cursor.flush()
        done = sum(sizes[:6]) + sum(sizes[9:12]) + sizes[25] + 2
        expected = (sum(sizes) - done, False, ())
        assert log.messages.backlog(cursor) == expected, "the owner counted as it appended"
        # A crash: nothing but what is stored is known, and of the last ledger nothing at all.
        again, _ = await shelf.open("b2", Counted())
        cursor = await again.open_cursor("s")
        found = again.messages.backlog(cursor)
        assert found.is_estimate
        await shelf.on(
            "b2", lambda _: again.messages.complete([cursor], messages_of, entries_max=4)
        )
        assert again.messages.backlog(cursor).is_estimate, "the limit was kept"
        await shelf.on(
            "b2", lambda _: again.messages.complete([cursor], messages_of, entries_max=1_000)
        )
        assert again.messages.backlog(cursor) == expected
        await shelf.on("b2", lambda _: again.close())
        record = await shelf.record("b2")
        assert sum(ledger.messages for ledger in record.ledgers) == sum(sizes)
        # Closed in order: the totals are stored, and only the blocks with holes are read.
        third, _ = await shelf.open("b3", Counted())
        cursor = await third.open_cursor("s")
        assert 0 < len(third.messages.backlog(cursor).missing) <= 6
        await shelf.on(
            "b3", lambda _: third.messages.complete([cursor], messages_of, entries_max=1_000)
        )
        assert third.messages.backlog(cursor) == expected

    simulate(scenario)


def test_what_is_left_of_a_batch_is_known_though_its_size_is_not() -> None:
    chain = Chain([TopicLedger(3, 20, 20, 1)], [LostRange(3, 19, 19)])
    counts = MessageCounts(chain, BlockCounts())
    left = [(Position(3, entry), 0b1011000) for entry in (2, 3, 9, 11, 17, 19)]
    found = counts.unacknowledged(Position(3, 1), [AckedRange(3, 12, 16)], left)
    one_each = 18 - 5 - 5  # an entry that is not known counts as one message, a lost one, too
    assert (found.messages, found.is_estimate) == (one_each + 5 * 3, True)


def test_holes_beyond_a_limit_are_estimated_and_that_is_said() -> None:
    async def scenario(shelf: Shelf) -> None:
        heard = Counted()
        log, _ = await shelf.open(heard=heard)
        heard.log = log
        cursor = await log.open_cursor("s")
        await shelf.append(log, [b"3 messages"] * 12)
        cursor.acknowledge([position for position, _ in heard.appended_at[1::2]])
        assert log.messages.backlog(cursor) == (18, False, ())
        assert log.messages.backlog(cursor, holes_max=3) == (18, True, ())
        assert log.messages.backlog(cursor, holes_max=6) == (18, False, ())
        for entry, index in ((0, 0), (2, 1), (2, 2), (4, 0)):
            cursor.acknowledge_batch(heard.appended_at[entry][0], 3, [index])
        assert log.messages.backlog(cursor, holes_max=3) == (14, True, ()), "parts are known"

    simulate(scenario)
