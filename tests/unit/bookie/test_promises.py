"""What a whole bookie promises over crashes, in simulation: acknowledged means there, fenced means
fenced, unknown is never "not there".
"""

from __future__ import annotations

import random
from functools import partial

import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.ledger_index import entry_key
from pulsarish.model.errors import (
    AlreadyExists,
    BookieIOError,
    BookieReadOnly,
    CorruptData,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    WrongBookie,
)
from pulsarish.runtime.seams import CallFailed, Locked, StreamBroken, World
from pulsarish.wire.bookie import ReadItem
from tests.support.bookies import BookieBench, BookieClient, make_record

OK = 0


def payload_of(ledger_id: int, entry_id: int) -> bytes:
    return f"{ledger_id}/{entry_id};".encode() * (1 + (ledger_id + entry_id) % 9)


class Oracle:
    """What one client was promised, and what it tried."""

    def __init__(self) -> None:
        self.promised: dict[tuple[int, int], bytes] = {}
        self.tried: dict[tuple[int, int], bytes] = {}
        self.fenced: dict[int, None] = {}
        self.maybe_fenced: dict[int, None] = {}
        self.explicit_lac: dict[int, int] = {}


async def disturb(  # noqa: C901  # one script of random steps
    client: BookieClient, oracle: Oracle, rng: random.Random, ledgers: range, rounds: int
) -> None:
    """Random work on ledgers that nobody else touches, until the bookie dies."""
    next_entry = {
        ledger_id: max([key[1] for key in oracle.tried if key[0] == ledger_id], default=-1) + 1
        for ledger_id in ledgers
    }
    try:
        for _ in range(rounds):
            action = rng.random()
            ledger_id = rng.choice(ledgers)
            if action < 0.8:
                batch = {}
                for ledger in rng.sample(ledgers, rng.randint(1, len(ledgers))):
                    for _ in range(rng.randint(1, 12)):
                        batch[ledger, next_entry[ledger]] = payload_of(ledger, next_entry[ledger])
                        next_entry[ledger] += 1
                if oracle.promised and rng.random() < 0.2:
                    old = rng.choice(sorted(oracle.promised))
                    if old[0] in ledgers:
                        batch[old] = oracle.promised[old]
                oracle.tried.update(batch)
                codes = await client.add(
                    [make_record(*key, payload) for key, payload in batch.items()]
                )
                assert codes.keys() == batch.keys()
                for key, code in codes.items():
                    if key[0] in oracle.maybe_fenced:
                        assert code == LedgerFenced.code or key[0] not in oracle.fenced
                    else:
                        assert code == OK, (key, code)
                    if code == OK:
                        oracle.promised[key] = batch[key]
            elif action < 0.84:
                oracle.maybe_fenced[ledger_id] = None
                code, _ = await client.fence(ledger_id)
                assert code == OK
                oracle.fenced[ledger_id] = None
            elif action < 0.9:
                lac = rng.randint(0, 50)
                code = await client.write_lac(ledger_id, lac)
                if code == OK:
                    oracle.explicit_lac[ledger_id] = max(
                        lac, oracle.explicit_lac.get(ledger_id, -1)
                    )
            else:
                keys = [key for key in oracle.promised if key[0] == ledger_id]
                if keys:
                    key = rng.choice(keys)
                    assert await client.read(*key, key[1]) == (OK, {key[1]: oracle.promised[key]})
    except (StreamBroken, CallFailed):
        return


async def check(client: BookieClient, oracle: Oracle) -> None:
    """Everything promised is there; nothing is there that nobody tried; fences and LACs hold."""
    for ledger_id in sorted({key[0]: None for key in oracle.tried}):
        last = max(entry for ledger, entry in oracle.tried if ledger == ledger_id)
        entry_id = 0
        while entry_id <= last:
            code, found = await client.read(ledger_id, entry_id, last)
            for read_id, payload in found.items():
                assert payload == oracle.tried[ledger_id, read_id]
            entry_id += len(found)
            if code:
                assert (ledger_id, entry_id) not in oracle.promised, (ledger_id, entry_id, code)
                assert code in (NoSuchEntry.code, NoSuchLedger.code)
                entry_id += 1
    for ledger_id in oracle.fenced:
        assert await client.add([make_record(ledger_id, 1_000_000, b"late")]) == {
            (ledger_id, 1_000_000): LedgerFenced.code
        }
    for ledger_id, lac in oracle.explicit_lac.items():
        code, known = await client.read_lac(ledger_id)
        assert code == OK
        assert known >= lac


@pytest.mark.parametrize("seed", range(8))
def test_promises_hold_over_crashes(seed: int) -> None:
    bench = BookieBench(seed)
    rng = bench.sim.workload
    oracles = [Oracle() for _ in range(3)]

    async def scenario() -> None:
        for _ in range(4):
            clients = [await bench.client() for _ in oracles]
            tasks = []
            for number, (client, oracle) in enumerate(zip(clients, oracles, strict=True)):
                ledgers = range(10 * number, 10 * number + 4)
                work = partial(
                    disturb, client, oracle, random.Random(f"{seed}/{rng.random()}"), ledgers, 40
                )
                tasks.append(bench.client_node.world.tasks.spawn(work(), name=f"client {number}"))  # type: ignore[union-attr]
            bench.sim.at(rng.random() * 2.0, partial(bench.crash_life, bench.node.incarnation))
            for task in tasks:
                await task
            bench.node.crash()
            bench.start()
            for oracle in oracles:
                await bench.with_client(lambda client, oracle=oracle: check(client, oracle))
        assert sum(len(oracle.promised) for oracle in oracles) > 100

    bench.sim.run(scenario)


@pytest.mark.parametrize(
    "settings",
    [{}, {"checkpoint_slice_entries": 7, "checkpoint_sync_bytes": 1024}],
    ids=["whole", "sliced"],
)
@pytest.mark.parametrize("millisecond", range(0, 160, 8))
def test_a_crash_at_any_moment_of_a_checkpoint_loses_nothing(
    millisecond: int, settings: dict[str, int]
) -> None:
    bench = BookieBench(3, checkpoint_interval_seconds=1000.0, checkpoint_spread=0.0, **settings)
    keys = [(ledger, entry) for ledger in range(3) for entry in range(40)]

    async def scenario() -> None:
        async def add(client: BookieClient) -> None:
            codes = await client.add([make_record(*key, payload_of(*key)) for key in keys])
            assert set(codes.values()) == {OK}
            assert (await client.fence(7))[0] == OK
            assert await client.write_lac(2, 39) == OK

        await bench.with_client(add)
        bench.sim.at(millisecond / 1000, bench.node.crash)
        bench.bookie.store.wants_checkpoint.set()
        await bench.client_node.run(lambda world: world.clock.sleep(0.2))
        if millisecond > 140:
            assert bench.bookie.store.checkpointer.count > 0, (
                "the crash comes too early to mean anything"
            )
        for _ in range(2):
            bench.node.crash()
            bench.start()

            async def look(client: BookieClient) -> None:
                for key in keys:
                    assert await client.read(*key, key[1]) == (OK, {key[1]: payload_of(*key)})
                assert await client.add([make_record(7, 0, b"x")]) == {(7, 0): LedgerFenced.code}
                assert await client.read_lac(2) == (OK, 39)
                assert await client.ledgers() == [0, 1, 2, 7]

            await bench.with_client(look)

    bench.sim.run(scenario)


def test_nothing_is_answered_before_the_sync() -> None:
    """A disk that takes long to sync: answers of adds, fences and refused adds wait for it."""
    bench = BookieBench(1)

    async def scenario() -> None:
        client = await bench.client()
        bench.node.disk.slowness = 1000.0  # a sync takes seconds

        async def work(world: World) -> None:
            for ask in (
                client.add([make_record(1, 0, b"x")]),
                client.fence(1),
                client.fence(2),
                client.recovery_read(3, 0, 0),
                client.write_lac(4, 3),
            ):
                before, synced = (
                    world.clock.monotonic(),
                    bench.bookie.store.journal.queue.synced_sequence,
                )
                await ask
                assert world.clock.monotonic() - before > 0.5
                assert bench.bookie.store.journal.queue.synced_sequence > synced

        await bench.client_node.run(work)

    bench.sim.run(scenario)


def test_fencing() -> None:
    bench = BookieBench(2)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            records = [make_record(1, entry, b"e%d" % entry) for entry in range(5)]
            await client.add(records[:3])
            assert await client.fence(1) == (OK, 1)
            assert await client.fence(1) == (OK, 1)
            assert await client.add(records[3:]) == {
                (1, 3): LedgerFenced.code,
                (1, 4): LedgerFenced.code,
            }
            assert await client.add([records[3]], recovery=True) == {(1, 3): OK}
            assert await client.recovery_read(1, 2, 9) == (NoSuchEntry.code, [b"e2", b"e3"])
            # A bookie that never saw the ledger creates it fenced, by either call.
            assert await client.read_lac(2) == (NoSuchLedger.code, -1)
            assert await client.fence(2) == (OK, -1)
            assert await client.recovery_read(3, 0, 5) == (NoSuchEntry.code, [])
            for ledger_id in (2, 3):
                assert await client.add([make_record(ledger_id, 0, b"x")]) == {
                    (ledger_id, 0): LedgerFenced.code
                }
            assert await client.write_lac(2, 3) == LedgerFenced.code
            assert await client.ledgers() == [1, 2, 3]

        await bench.with_client(work)

    bench.sim.run(scenario)


def test_reads() -> None:
    bench = BookieBench(2, read_answer_size_bytes=1024)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            await client.add([make_record(1, entry, bytes([entry]) * 100) for entry in range(20)])
            await client.add(
                [make_record(1, entry, bytes([entry]) * 100) for entry in range(25, 30)]
            )
            await client.world.clock.sleep(1.0)  # a checkpoint: now half is in the logs
            await client.add(
                [make_record(1, entry, bytes([entry]) * 100) for entry in range(20, 23)]
            )
            code, found = await client.read(1, 15, 40)
            assert (code, list(found)) == (OK, [15, 16, 17, 18, 19, 20, 21])  # 1024 bytes end it
            assert (await client.read(1, 21, 40))[0] == NoSuchEntry.code
            assert (await client.read(1, 29, 2**63 - 1))[0] == NoSuchEntry.code
            assert (await client.read(1, 2**63 - 1, 2**63 - 1))[0] == OK  # no such entry id can be
            assert (await client.read(1, 5, 4)) == (OK, {})
            code, found = await client.read(1, 3, 9, max_bytes=1)
            assert (code, found) == (OK, {3: b"\3" * 100})  # one comes however large
            answers = await client.read_many(
                [
                    ReadItem(5, 1, [(0, 1), (27, 28), (2, 2)], 1 << 20),
                    ReadItem(6, 9, [(0, 0)], 100),
                    ReadItem(7, 1, [(29, 29), (30, 30)], 1 << 20),
                    ReadItem(8, 1, [], 1 << 20),
                ]
            )
            assert [
                (answer.request_id, answer.code, len(answer.records)) for answer in answers
            ] == [
                (5, OK, 5),
                (6, NoSuchLedger.code, 0),
                (7, NoSuchEntry.code, 1),
                (8, OK, 0),
            ]

        await bench.with_client(work)

    bench.sim.run(scenario)


def test_lac_knowledge() -> None:
    bench = BookieBench(4)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            await client.add([make_record(1, entry, b"x") for entry in range(5)])
            assert await client.read_lac(1) == (OK, 3)
            assert await client.write_lac(1, 4) == OK
            assert await client.read_lac(1) == (OK, 4)
            before = client.world.clock.monotonic()
            assert await client.read_lac(1, after=4, wait_ms=500) == (OK, 4)
            assert client.world.clock.monotonic() - before >= 0.5
            waiting = client.world.tasks.spawn(poll(client), name="poll")
            await client.world.clock.sleep(0.5)
            await client.add([make_record(1, 6, b"x")])
            await waiting

        async def poll(client: BookieClient) -> None:
            before = client.world.clock.monotonic()
            assert await client.read_lac(1, after=4, wait_ms=20_000) == (OK, 5)
            assert client.world.clock.monotonic() - before < 10

        await bench.with_client(work)
        bench.node.crash()
        bench.start()

        async def later(client: BookieClient) -> None:
            assert await client.read_lac(1) == (OK, 5)

        await bench.with_client(later)

    bench.sim.run(scenario)


def test_a_resend_is_taken_and_other_bytes_are_not() -> None:
    bench = BookieBench(5)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            await client.add([make_record(1, entry, b"x") for entry in range(3)])
            for _ in range(2):
                assert await client.add([make_record(1, 1, b"x", lac=2)]) == {(1, 1): OK}
                assert await client.add([make_record(1, 1, b"y"), make_record(1, 3, b"z")]) == {
                    (1, 1): AlreadyExists.code,
                    (1, 3): OK,
                }
                assert await client.read(1, 1, 1) == (OK, {1: b"x"})
                await client.world.clock.sleep(1.2)  # once from the cache, once from the logs
                assert bench.bookie.store.cache.get(1, 1) is None
            assert await client.add([make_record(1, 1, b"y")], recovery=True) == {(1, 1): OK}
            assert await client.read(1, 1, 1) == (OK, {1: b"y"})

        await bench.with_client(work)

    bench.sim.run(scenario)


def test_wrong_bookie_and_damaged_records() -> None:
    bench = BookieBench(6)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            stranger = BookieClient(client.world, client.address, "b1~00000000")
            assert await stranger.add([make_record(1, 0, b"x")]) == {(1, 0): WrongBookie.code}
            assert (await stranger.read(1, 0, 0))[0] == WrongBookie.code
            assert (await stranger.fence(1))[0] == WrongBookie.code
            assert await client.ledgers() == []
            damaged = bytearray(make_record(1, 1, b"damaged"))
            damaged[-1] ^= 1
            with pytest.raises(StreamBroken, match="1 of 3 entries do not match their checksums"):
                await client.add([make_record(1, 0, b"x"), bytes(damaged), make_record(1, 2, b"y")])
            again = BookieClient(client.world, client.address, client.instance_id)
            assert (await again.read(1, 0, 0))[0] != OK, "nothing of the batch was taken"
            assert await again.add([make_record(1, 0, b"x"), make_record(1, 2, b"y")]) == {
                (1, 0): OK,
                (1, 2): OK,
            }

        await bench.with_client(work)
        bench.node.crash()
        bench.start()

        async def later(client: BookieClient) -> None:
            assert await client.read(1, 0, 2) == (NoSuchEntry.code, {0: b"x"})
            assert await client.read(1, 2, 2) == (OK, {2: b"y"})

        await bench.with_client(later)

    bench.sim.run(scenario)


def test_an_index_that_points_to_damage_is_an_error_and_never_a_negative() -> None:
    bench = BookieBench(7)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            await client.add([make_record(1, entry, b"x" * 100) for entry in range(10)])
            await client.world.clock.sleep(1.5)
            location = (
                await bench.in_bookie(
                    lambda bookie: bookie.store.index.locations(
                        [b"E" + (1).to_bytes(8) + (4).to_bytes(8)]
                    )
                )
            )[0]
            assert location is not None
            path = bench.bookie.store.logs.path(location[0])
            bench.node.disk.flip_bit(path, location[1] + 50)
            code, found = await client.read(1, 0, 9)
            assert (code, list(found)) == (BookieIOError.code, [0, 1, 2, 3])
            assert (await client.recovery_read(1, 4, 4))[0] == BookieIOError.code
            # Recovery repairs it.
            assert await client.add([make_record(1, 4, b"x" * 100)], recovery=True) == {(1, 4): OK}
            assert len((await client.read(1, 0, 9))[1]) == 10

        await bench.with_client(work)

    bench.sim.run(scenario)


def test_a_failed_sync_ends_the_bookie() -> None:
    bench = BookieBench(8)
    bench.node.expect(OSError)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            await client.add([make_record(1, 0, b"x")])
            bench.node.disk.fail_next_sync("0000000001.journal")
            with pytest.raises(StreamBroken):
                await client.add([make_record(1, 1, b"y")])

        await bench.with_client(work)
        assert not bench.node.alive
        bench.start()

        async def later(client: BookieClient) -> None:
            assert await client.read(1, 0, 1) == (NoSuchEntry.code, {0: b"x"})

        await bench.with_client(later)

    bench.sim.run(scenario)


def test_damage_in_the_middle_of_the_journal_refuses_the_start() -> None:
    bench = BookieBench(9, checkpoint_interval_seconds=1000.0)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            for entry in range(5):
                await client.add([make_record(1, entry, b"x" * 50)])

        await bench.with_client(work)
        bench.node.crash()
        (path,) = [name for name in bench.node.disk.names if name.endswith("0000000001.journal")]
        bench.node.disk.flip_bit(path, 48 + 120 + 60)
        bench.node.expect(CorruptData)
        bench.start()
        await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        assert not bench.node.alive
        assert "0000000001.journal is damaged at offset" in str(bench.node.ends[-1])

    bench.sim.run(scenario)


def test_full_disk() -> None:
    bench = BookieBench(10)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            await client.add([make_record(1, 0, b"x")])
            disk = bench.node.disk
            disk.capacity_bytes = disk.used_bytes() + (1 << 20) - 10_000
            await client.world.clock.sleep(1.0)
            assert await client.add([make_record(1, 1, b"x")]) == {(1, 1): BookieReadOnly.code}
            assert await client.add([make_record(1, 1, b"x")], recovery=True) == {(1, 1): OK}
            assert (await client.fence(2))[0] == OK
            assert bench.bookie._registration is not None
            assert bench.bookie._registration.read_only
            disk.capacity_bytes = disk.used_bytes() + (1 << 19) - 10_000
            await client.world.clock.sleep(1.0)
            assert await client.add([make_record(1, 2, b"x")], recovery=True) == {
                (1, 2): BookieReadOnly.code
            }
            assert (await client.fence(3))[0] == OK
            disk.capacity_bytes = 1 << 40
            await client.world.clock.sleep(1.0)
            assert await client.add([make_record(1, 2, b"x")]) == {(1, 2): OK}

        await bench.with_client(work)

    bench.sim.run(scenario)


def test_a_second_bookie_on_the_same_directories_is_refused() -> None:
    bench = BookieBench(11)

    async def scenario() -> None:
        await bench.client()
        world = bench.sim._build_world(bench.node, bench.node.process)  # type: ignore[arg-type]

        async def second(_bookie: Bookie) -> None:
            with pytest.raises(Locked):
                await Bookie(world, bench.config).start()

        await bench.in_bookie(second)

    bench.sim.run(scenario)


def test_a_graceful_stop_leaves_nothing_to_replay() -> None:
    bench = BookieBench(12)

    async def scenario() -> None:
        async def work(client: BookieClient) -> None:
            await client.add([make_record(1, entry, b"x") for entry in range(10)])

        await bench.with_client(work)
        await bench.in_bookie(lambda bookie: bookie.stop())
        assert (
            bench.bookie.store.checkpointer.mark.sequence
            == bench.bookie.store.journal.queue.next_sequence
        )
        bench.node.crash()
        bench.start()

        async def later(client: BookieClient) -> None:
            assert len((await client.read(1, 0, 9))[1]) == 10

        await bench.with_client(later)

    bench.sim.run(scenario)


def test_a_block_of_the_index_that_cannot_be_read_is_unknown_and_never_an_absence() -> None:
    bench = BookieBench(5)

    async def fill(client: BookieClient) -> None:
        for first in range(0, 60, 20):
            codes = await client.add(
                [make_record(7, entry, b"x" * 50) for entry in range(first, first + 20)]
            )
            assert set(codes.values()) == {OK}
            await client.world.clock.sleep(1.0)

    async def read(client: BookieClient) -> None:
        codes = [(await client.read(7, entry, entry))[0] for entry in range(60)]
        assert codes.count(BookieIOError.code) > 0
        assert set(codes) <= {OK, BookieIOError.code}
        assert (await client.read(7, 0, 59))[0] == BookieIOError.code
        assert set((await client.add([make_record(8, 0, b"y")])).values()) == {OK}, (
            "it goes on with what is not concerned"
        )

    async def scenario() -> None:
        await bench.with_client(fill)
        # A graceful stop puts all rows into tables.
        await bench.in_bookie(lambda bookie: bookie.stop())
        bench.node.crash()
        (index,) = bench.node.disk.indexes.values()
        rows = sorted(key for key in index._tables if key.startswith(b"E"))
        index._bad = (rows[10], rows[25])
        bench.start()
        await bench.with_client(read)

    bench.sim.run(scenario, 120)


def test_the_scrubber_finds_what_the_logs_have_and_the_index_lacks() -> None:
    bench = BookieBench(6, local_scrub_interval_seconds=0.0)

    async def fill(client: BookieClient) -> None:
        for first in range(0, 60, 20):
            codes = await client.add(
                [make_record(7, entry, b"x" * 50) for entry in range(first, first + 20)]
            )
            assert set(codes.values()) == {OK}
            await client.world.clock.sleep(1.0)

    async def lose(bookie: Bookie) -> None:
        assert bookie.scrubber.damaged == 0
        await bookie.store.index.rows.write([], [entry_key(7, 3), entry_key(7, 59)], sync=True)

    async def scrub(bookie: Bookie) -> int:
        await bookie.store.logs.finish()  # the log that is being written is not looked at
        await bookie.scrubber.scrub()
        return bookie.scrubber.damaged

    async def scenario() -> None:
        await bench.with_client(fill)
        assert await bench.in_bookie(scrub) == 0
        await bench.in_bookie(lose)
        # The last entry is above the LAC that came with it: nobody was promised that one.
        assert await bench.in_bookie(scrub) == 1

    bench.sim.run(scenario, 120)


def test_the_scrubber_does_not_believe_the_ids_of_a_damaged_record() -> None:
    bench = BookieBench(6, local_scrub_interval_seconds=0.0)

    async def fill(client: BookieClient) -> None:
        # A place of a striped ledger: the odd entries are elsewhere.
        for first in range(0, 60, 20):
            codes = await client.add(
                [make_record(7, entry, b"x" * 50) for entry in range(first, first + 20, 2)]
            )
            assert set(codes.values()) == {OK}
            await client.world.clock.sleep(1.0)

    async def turn_4_into_5(bookie: Bookie) -> None:
        ((_, (log_id, offset, _)),) = await bookie.store.index.entry_locations(7, 4, 1)
        last_byte_of_the_entry_id = offset + 4 + 8 + 7
        bench.node.disk.flip_bit(bookie.store.logs.path(log_id), last_byte_of_the_entry_id)

    async def scrub(bookie: Bookie) -> int:
        await bookie.store.logs.finish()
        await bookie.scrubber.scrub()
        return bookie.scrubber.damaged

    async def scenario() -> None:
        await bench.with_client(fill)
        await bench.in_bookie(turn_4_into_5)
        assert await bench.in_bookie(scrub) == 1  # entry 4 is damaged; entry 5 was never here

    bench.sim.run(scenario, 120)
