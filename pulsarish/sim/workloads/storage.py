"""One bookie's storage under power cuts and bad disks: adds, fences and LACs on the real bookie,
and the oracle of what it answered.

What must hold, whatever fails (rules 5 and 7 to 13):

* an entry that was answered as stored is there with its bytes after every restart; where the disk
  itself is damaged it may be unknown or unreadable, but it is never "not there";
* what was never sent is never there;
* a ledger whose fence was answered takes nothing more from a writer, and no LAC that was answered
  or came with an entry is forgotten;
* a ledger that is in the metadata is never collected as garbage;
* the bookie starts again after every crash, unless its disk is damaged or was emptied: then it may
  refuse to start, and it never serves as if nothing had been lost;
* once there is space again it takes entries again, without a restart.

This is by far the cheapest way to test the rules of storage: one node, no quorums, no retries of
clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.entry_logs.entry_log_format import LOG_SUFFIX
from pulsarish.bookie.store import EntryStore
from pulsarish.bookie.tree_memory import MEMORY_NAME
from pulsarish.bookie.volumes import Volumes
from pulsarish.ledger.id_allocator import LedgerIdAllocator
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import BookieIOError, ConfigError, CorruptData
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.model.position import NO_ENTRY
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.storage_checks import check_logs
from pulsarish.sim.workloads.storage_faults import forge_records, forget_ledgers, lag, squeeze
from pulsarish.sim.workloads.storage_oracle import NEGATIVE, StorageCounts, StoredLedger
from pulsarish.sim.workloads.storage_settings import StorageSettings, bookie_config
from pulsarish.sim.world.index import IndexState
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.bookie import AddResult, ReadItem, decode_add, encode_add
from pulsarish.wire.record import encode_record_head

__all__ = ["run_storage"]

T = TypeVar("T")

_START_SECONDS: Final = 15.0
"""A bookie without faults serves within this time of its start."""
_ANSWER_SECONDS: Final = 10.0
_OPEN_LEDGERS: Final = 4
_SOON_SECONDS: Final = 0.02
_SPACE_SECONDS: Final = 0.05
_FORGET_PAUSE_SECONDS: Final = 0.3
_PURPOSE: Final = LedgerPurpose(PurposeKind.DIAGNOSTIC, "simulation")


class _Workload:
    """One run. What is done on the bookie runs in its node and dies with it."""

    def __init__(self, sim: Simulation, settings: StorageSettings) -> None:
        self.sim = sim
        self.counts = StorageCounts()
        self._settings = settings
        self._rng = sim.workload
        self._node = sim.node("bookie")
        self._client = sim.node("client")
        self._lives: dict[int, Bookie] = {}  # by the life of the node
        self._config = bookie_config(settings)
        self._ledgers: list[StoredLedger] = []
        self._problems: list[str] = []
        self._over = False
        self._damaged = False  # stored entries may be unreadable
        self._may_refuse = False  # it may refuse to start: it cannot vouch for its data
        self._rotten = False  # since the last power cut
        # a journal record that was not written yet, and how many of these were synced since a bit
        # flipped
        self._proof = (0, 0)
        self._older_index: IndexState | None = None
        self._running: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        settings, sim, node = self._settings, self.sim, self._node
        node.crash()  # it was made without a program
        node.start(self._main)
        if settings.bad_sync_seconds:
            node.expect(OSError)
            node.restart_after_seconds = 0.1
            node.disk.sync_failed = self._sync_failed
        if settings.slow_metadata:
            sim.metadata.slow_write_chance, sim.metadata.slow_write_seconds = 0.3, 0.3
            self._after(0.4, lambda: lag(sim, node))
        await self._started()
        if settings.full:
            self._look_at_space()
            node.disk.capacity_bytes = (
                node.disk.used_bytes()
                + self._config.read_only_free_bytes
                + settings.full_after_bytes
            )
        sim.at(settings.seconds, self._end_load)
        self._after(settings.crash_seconds, self._power_cut)
        self._after(settings.bad_sync_seconds, self._bad_sync)
        self._after(settings.bad_sector_seconds, self._bad_sector)
        if settings.dies:
            sim.at(sim.faults.uniform(0.1, 0.8) * settings.seconds, self._disk_dies)
        if settings.forgets:
            sim.at(_FORGET_PAUSE_SECONDS, self._forget)
        self._after(settings.squeeze_seconds, lambda: squeeze(sim, node.disk))
        if settings.squeeze_seconds:
            # A disk that is filled between two writes ends the bookie where it cannot continue. The
            # machine starts it again.
            node.full_disk_ends = True
            node.restart_after_seconds = 0.1
        await self._load()
        await asyncio.gather(*self._running)
        await self._conclude()

    async def _main(self, world: World) -> None:
        self._lives[self._node.incarnation] = bookie = Bookie(world, self._config)
        await bookie.run()

    @property
    def _serving(self) -> Bookie | None:
        bookie = self._lives.get(self._node.incarnation)
        return bookie if bookie is not None and self._node.alive and bookie.is_ready else None

    async def _started(self) -> bool:
        """Wait until it serves.

        Return whether it does: a bookie that may refuse to start may be down for good.
        """
        deadline = self.sim.loop.time() + _START_SECONDS
        while self._serving is None:
            if not self._node.alive and self._may_refuse:
                return False
            assert self.sim.loop.time() < deadline, "the bookie does not start"
            await asyncio.sleep(0.01)
        return True

    # -- faults

    def _end_load(self) -> None:
        self._over = True

    def _after(self, mean_seconds: float, action: Callable[[], None]) -> None:
        """Do something again and again during the load."""
        if not mean_seconds:
            return

        def act() -> None:
            if not self._over:
                action()
                self._after(mean_seconds, action)

        self.sim.at(self.sim.faults.expovariate(1 / mean_seconds), act)

    def _power_cut(self) -> None:
        faults = self.sim.faults
        if self._serving is None:
            return
        if self._settings.rot:
            # In turn: a bit flips, and then, once it is proved that it mattered, the power fails.
            if not self._rotten:
                self._rot()
            if not self._is_proved(self._serving):
                self.sim.at(_SOON_SECONDS, self._power_cut)
                return
            self._rotten = False
        self._node.crash()
        if self._settings.index_damage:
            self._damage_index()
        again = faults.random() < self._settings.early_crash_chance
        self.sim.at(faults.uniform(0.0, 0.2), lambda: self._revive(again=again))

    def _damage_index(self) -> None:
        """Damage what was synced: the bookie starts with all of it, or not at all."""
        disk, faults = self._node.disk, self.sim.faults
        ((path, index),) = disk.indexes.items()
        if faults.random() < 0.5:
            self._older_index = index.snapshot()
            return
        if self._settings.index_damage == "log":
            rotten = disk.rot_index(path, log=True)
        else:
            rotten = self._older_index is not None
            if self._older_index is not None:
                disk.indexes[path] = self._older_index.snapshot()
        if rotten:
            self._may_refuse = True
            self._node.expect(CorruptData)

    def _is_proved(self, bookie: Bookie) -> bool:
        """Return whether the journal proves the damaged records synced: a record begun after a
        later one was durable proves it.
        """
        if not self._rotten:
            return True
        queue = bookie.store.journal.queue
        sequence, synced_count = self._proof
        if queue.synced_sequence > sequence:
            self._proof = (queue.next_sequence, synced_count + 1)
        return self._proof[1] == 2

    def _revive(self, *, again: bool) -> None:
        self._node.revive()
        if again:
            self.sim.at(self.sim.faults.uniform(0.0, 0.12), self._early_cut)

    def _early_cut(self) -> None:
        self._node.crash()
        self.sim.at(0.05, self._node.revive)

    def _sync_failed(self, path: str) -> None:
        """Expect the process to end: what a failed sync should have made durable is lost, and the
        next sync does not report it.

        Except for the age of the metadata: its small file is written again as a whole, under
        another name first, until that succeeds.
        """
        if path.endswith(f"/{MEMORY_NAME}"):
            return
        process = self._node.process

        def look() -> None:
            if self._node.alive and self._node.process is process:
                self._problems.append(f"a sync of {path} failed, and the bookie goes on")

        self.sim.at(_SOON_SECONDS, look)

    def _bad_sync(self) -> None:
        if self._serving is not None:
            self._node.disk.fail_next_sync(
                self.sim.faults.choice(("journal", "ledgers", "index", ""))
            )

    def _disk_dies(self) -> None:
        """Kill the disks of some volumes, but not of all, within a short time."""
        faults, count = self.sim.faults, self._settings.volumes
        for number in faults.sample(range(count), faults.randrange(1, count)):
            delay = faults.uniform(0.0, 0.05)
            self.sim.at(delay, partial(self._kill, f"/data/{number}/"))

    def _kill(self, place: str) -> None:
        faults, disk = self.sim.faults, self._node.disk
        disk.kill(place)
        self._damaged = True
        if faults.random() < 0.5:
            self.sim.at(faults.uniform(0.0, 1.5), lambda: disk.dead_paths.pop(place, None))

    def _bad_sector(self) -> None:
        place = self._node.disk.draw_place(LOG_SUFFIX)
        if place is not None:
            self._node.disk.spoil_sector(*place)
            self._damaged = True

    def _look_at_space(self) -> None:
        """Check that only checkpoints use the reserve, for the write cache and two journal
        files.
        """
        config, free_bytes = self._config, self._node.disk.free_bytes()
        least_bytes = (
            config.reserved_bytes
            - config.write_cache_size_bytes
            - 2 * config.journal_file_size_bytes
        )
        if free_bytes < least_bytes:
            self._problems.append(
                f"{free_bytes} bytes are free: something but checkpoints has used the reserve of "
                f"{config.reserved_bytes}"
            )
        elif not self._over:
            self.sim.at(_SPACE_SECONDS, self._look_at_space)

    def _forget(self) -> None:
        if not self._over:
            lasts = self.sim.faults.uniform(0.3, 0.8) * max(
                self._settings.second_look_seconds, self._settings.trash_seconds
            )
            forget_ledgers(self.sim, self._ledgers, lasts)
            self.sim.at(lasts + _FORGET_PAUSE_SECONDS, self._forget)

    def _rot(self) -> None:
        bookie = self._serving
        assert bookie is not None
        store, faults = bookie.store, self.sim.faults
        journal = store.journal
        if journal._offset <= journal._header_size:
            return
        path = journal._path(journal._file_id)
        self._node.disk.flip_bit(path, faults.randrange(journal._offset), faults.randrange(8))
        self._damaged = self._may_refuse = self._rotten = True
        self._proof = (journal.queue.next_sequence, 0)
        self._node.expect(CorruptData)

    # -- work on the bookie

    async def _on(self, work: Callable[[EntryStore | Volumes], Coroutine[Any, Any, T]]) -> T | None:
        """Run ``work`` on the bookie. Return ``None`` when it is not there or dies, or its disk
        does.
        """
        bookie = self._serving
        if bookie is None:
            return None
        store = bookie.entries
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._node.run(lambda _world: work(store))
        except NodeDied:
            return None
        except (OSError, BookieIOError):
            # As for a client: the outcome is unknown.
            if not self._settings.dies:
                raise
            return None
        except TimeoutError:
            raise AssertionError(f"the bookie does not answer {work}") from None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._running.append(asyncio.get_running_loop().create_task(work))

    async def _load(self) -> None:
        rng = self._rng
        while not self._over:
            self._raise_problems()
            if self._serving is None:
                await asyncio.sleep(0.01)
                if self._node.ends and self._may_refuse:
                    return  # it has refused to start: only an operator can continue
                continue
            open_ones = [ledger for ledger in self._ledgers if not ledger.left]
            if len(open_ones) < _OPEN_LEDGERS:
                await self._create()
                continue
            ledger = rng.choice(open_ones)
            await self._step(ledger, rng.random())
            await asyncio.sleep(rng.choice((0.0, 0.002, 0.01, 0.03)) * rng.random())

    async def _step(self, ledger: StoredLedger, chance: float) -> None:
        if chance < 0.66:
            self._begin(self._add(ledger, self._rng.randrange(1, 6)))
        elif chance < 0.74:
            self._begin(self._write_lac(ledger))
        elif chance < 0.82:
            self._begin(self._rewrite(ledger))
        elif chance < 0.86:
            self._begin(self._fence(ledger))
        elif chance < 0.92:
            await self._verify(self._rng.choice(self._ledgers))
        elif chance < 0.94 or (ledger.fenced and chance < 0.98):
            await self._leave(ledger)
        else:
            self._begin(self._mend(self._rng.choice(self._ledgers)))

    async def _create(self) -> None:
        instance_id = self._serving.instance_id if self._serving is not None else ""

        async def create(world: World) -> int:
            records = Records(world.metadata, world.clock, world.random)
            ledger_id = await LedgerIdAllocator(records, 1).next_id()
            made = LedgerMetadata(ledger_id, 1, 1, 1, _PURPOSE, (Segment(0, (instance_id,)),))
            await LedgerStore(records, world.clock).store(made, None)
            return ledger_id

        self._ledgers.append(StoredLedger(await self._client.run(create)))

    async def _leave(self, ledger: StoredLedger) -> None:
        ledger.left = True
        if self._rng.random() >= self._settings.deleted_share:
            return
        ledger.deleted = True

        async def delete(world: World) -> None:
            await LedgerStore(
                Records(world.metadata, world.clock, world.random), world.clock
            ).delete(ledger.ledger_id, -1)

        await self._client.run(delete)
        self.counts.deleted += 1

    async def _add(self, ledger: StoredLedger, count: int) -> None:
        first = len(ledger.sent)
        for entry_id in range(first, first + count):
            ledger.sent.append(
                b"%d:%d" % (ledger.ledger_id, entry_id) + b"." * self._rng.choice((0, 20, 400))
            )
        bookie = self._serving
        if self._settings.forged and bookie is not None and self._rng.random() < 0.2:
            ledger.sent[-1] += forge_records(bookie.store.journal)
        await self._send(ledger, list(range(first, first + count)), recovery=False)

    async def _rewrite(self, ledger: StoredLedger) -> None:
        """Write existing entries once more, as recovery does.

        Recovery may write where a writer may not.
        """
        if ledger.sent:
            await self._send(
                ledger,
                sorted({self._rng.randrange(len(ledger.sent)) for _ in range(3)}),
                recovery=True,
            )

    async def _mend(self, ledger: StoredLedger) -> None:
        """Repair a closed ledger in limbo as auto-recovery does: write every entry once more, then
        end the limbo.
        """
        bookie = self._serving
        if bookie is None or ledger.ledger_id >= bookie.entries.limbo_below:
            return

        times = bookie.entries.limbo_times
        written = await self._send(ledger, sorted(ledger.stored), recovery=True)
        # The worker that verified it may report late, when the bookie has lost something else
        # since.
        await asyncio.sleep(self._rng.choice((0.0, 0.5)))
        if (
            written
            and await self._on(lambda store: store.clear_limbo(ledger.ledger_id, times)) == 0
        ):
            # An explicit LAC may be lost for good: no client asks for it when the ledger is closed.
            ledger.lac = max(ledger.stored, default=0) - 1
            ledger.fenced = True  # set with the end of its limbo
            self.counts.repaired += 1

    async def _send(self, ledger: StoredLedger, entry_ids: list[int], *, recovery: bool) -> bool:
        """Send entries. Return whether all of them were answered as stored."""
        fenced = ledger.fenced
        records = []
        for entry_id in entry_ids:
            payload = ledger.sent[entry_id]
            records.append(
                encode_record_head(ledger.ledger_id, entry_id, entry_id - 1, 0, payload) + payload
            )

        def answered(results: list[AddResult]) -> None:
            for result in results:
                number = result.last - result.first + 1
                if result.code:
                    self.counts.refused += number
                    continue
                if fenced and not recovery:
                    self._problems.append(
                        f"ledger {ledger.ledger_id} was fenced, and took entry {result.first} "
                        "from a writer"
                    )
                self.counts.stored += number
                ledger.stored.update(dict.fromkeys(range(result.first, result.last + 1)))
                ledger.lac = max(ledger.lac, result.last - 1)

        async def add(store: EntryStore | Volumes) -> bool:
            done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

            def answer(results: list[AddResult]) -> None:
                answered(results)
                done.set_result(not any(result.code for result in results))

            message = b"".join(
                encode_add(
                    store.instance_id,
                    recovery=recovery,
                    sizes=[len(each) for each in records],
                    parts=records,
                )
            )
            waiting = store.add(message, decode_add(message), answer)
            if waiting is not None:
                await waiting
            return await done

        return await self._on(add) or False

    async def _write_lac(self, ledger: StoredLedger) -> None:
        if ledger.stored:
            lac = max(ledger.stored)
            codes = await self._on(lambda store: store.write_lacs([(ledger.ledger_id, lac)]))
            if codes == [0]:
                ledger.lac = max(ledger.lac, lac)

    async def _fence(self, ledger: StoredLedger) -> None:
        known = ledger.lac
        answer = await self._on(lambda store: store.fence(ledger.ledger_id))
        if answer is not None and answer[0] == 0 and not ledger.deleted:
            assert self._may_be_in_trash(ledger) or answer[1] >= min(known, ledger.lac), (
                f"ledger {ledger.ledger_id} was fenced at LAC {answer[1]}, {known} was kept"
            )
            ledger.fenced = True
            self.counts.fenced += 1

    # -- checks

    def _may_be_in_trash(self, ledger: StoredLedger) -> bool:
        """Return whether the ledger may be in the trash.

        Then its entries are known but its LAC is not, until the end of the run.
        """
        return ledger.forgotten and self._settings.trash_seconds > 0 and not self._over

    def _raise_problems(self) -> None:
        assert not self._problems, "; ".join(self._problems[:3])

    async def _verify(self, ledger: StoredLedger) -> None:
        stored, known = dict(ledger.stored), ledger.lac
        entry_ids = range(len(ledger.sent) + 2)
        items = [
            ReadItem(entry_id, ledger.ledger_id, [(entry_id, entry_id)], 1 << 20)
            for entry_id in entry_ids
        ]
        answers = await self._on(lambda store: store.read(items))
        found = await self._on(lambda store: store.read_lac(ledger.ledger_id, NO_ENTRY, 0))
        if answers is None or found is None or ledger.deleted:
            return
        for entry_id, answer in zip(entry_ids, answers, strict=True):
            was_read = ledger.judge(entry_id, answer, entry_id in stored, damaged=self._damaged)
            self.counts.verified += was_read
            self.counts.unreadable += entry_id in stored and not was_read
        known = NO_ENTRY if self._may_be_in_trash(ledger) else min(known, ledger.lac)
        assert found[0] not in (0, *NEGATIVE) or found[1] >= known, (
            f"the LAC of ledger {ledger.ledger_id} was {known}, now it is {found[1]}"
        )

    async def _verify_all(self) -> None:
        for ledger in self._ledgers:
            await self._verify(ledger)

    # -- the end

    async def _conclude(self) -> None:
        """Check that without faults it serves, has everything after yet another power cut, and
        takes entries.
        """
        settings, node, disk = self._settings, self._node, self._node.disk
        disk.heal()
        self.sim.metadata.heal()
        if settings.forgets and await self._started():
            await self._collected()  # ledgers in the trash come back
        for look in range(2):
            node.revive()
            if not await self._started():
                break
            await self._verify_all()
            if look == 0 and settings.crash_seconds:
                await self._prove()
                node.crash()
        self._raise_problems()
        if self._serving is not None:
            await self._takes_entries()
            if not self._damaged:
                await self._check_logs()
        if settings.wiped:
            await self._start_wiped()
        self._count()

    async def _prove(self) -> None:
        """Write until the journal proves that a flipped bit has damaged what was synced.

        Where nothing was written after it, no bookie can tell it from a record that the power cut.
        """
        while (bookie := self._serving) is not None and not self._is_proved(bookie):
            await self._create()
            await self._add(self._ledgers[-1], 1)

    async def _check_logs(self) -> None:
        bookie = self._lives[self._node.incarnation]
        for volume in bookie.live:

            async def check(_world: World, store: EntryStore = volume.store) -> None:
                await check_logs(store)

            await self._node.run(check)

    async def _collected(self) -> None:
        """Wait for a round of garbage collection that begins now."""
        bookie = self._lives[self._node.incarnation]
        wanted, deadline = bookie.garbage.rounds + 2, self.sim.loop.time() + _START_SECONDS
        while bookie.garbage.rounds < wanted:
            assert self.sim.loop.time() < deadline, (
                "all is well, and the bookie collects no garbage"
            )
            await asyncio.sleep(0.1)

    def _count(self) -> None:
        counts = self.counts
        counts.ends = len(self._node.ends)
        for bookie in self._lives.values():
            if bookie.is_ready:
                counts.starts += 1
                for garbage in [each.garbage for each in bookie.upkeep]:
                    counts.collected += garbage.ledgers_deleted
                    counts.compacted += garbage.compactions
                    counts.postponed += garbage.logs_postponed
                    unreadable = garbage.unreadable_logs
                    assert self._damaged or not unreadable, (
                        f"the disk is whole, and entry logs are kept for damaged: {unreadable}"
                    )
                counts.limbo += bookie.entries.limbo_times > 0
                counts.volumes_failed += any(each.is_settled for each in bookie.volumes)
                counts.volumes_gone += bool(bookie.lost_directories) and not any(
                    each.failure for each in bookie.volumes
                )

    async def _takes_entries(self) -> None:
        await asyncio.sleep(1.0)  # more than it needs to notice that there is space again
        await self._create()
        await self._add(self._ledgers[-1], 3)
        assert self._ledgers[-1].stored, "all is well, and the bookie takes no entries"
        await self._verify_all()

    async def _start_wiped(self) -> None:
        """Check that a bookie with an empty disk does not replace the bookie whose entries it has
        lost.
        """
        node = self._node
        node.restart_after_seconds = None
        node.expect(ConfigError, CorruptData)
        node.crash()
        node.disk.wipe(self._settings.wiped_keeps)
        self._may_refuse = True
        node.start()
        if await self._started():
            await self._verify_all()


def run_storage(seed: int, settings: StorageSettings | None = None) -> StorageCounts:
    """Run one seed. Return the counts. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    workload = _Workload(sim, settings or StorageSettings())
    sim.run(workload.run, max_virtual_seconds=300)
    return workload.counts
