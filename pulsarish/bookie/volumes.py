"""Several volumes behind one bookie: each ledger lies in one of them, and one that fails takes only
its own ledgers.

A volume is a journal, a ledger and an index directory with a store of its own. A ledger that a
volume knows lies there. A new one goes to a volume that takes entries, drawn by free space. Which
volume it is stays in memory for the ledgers in use, and is asked of the indexes otherwise. A volume
that an operator has cordoned takes no new ones, and those that lie there go on.

A write or sync that fails ends a bookie with one volume (rule 9). Of several, it ends the volume:
what waits for it is refused, and nothing of it is answered any more. "Not there" would now be a lie
for every ledger that it may have had, and an add or fence of such a ledger would begin it again
elsewhere without its fence. So these ledgers get an error at first. Then every other volume notes
durably below which id ledgers that it does not know are in limbo, and the bookie answers "unknown"
for them until auto-recovery has copied them here again. The failed volume is not used again: its
ledgers may have been fenced or written elsewhere since. A full disk is no failure of that kind: it
ends the process as ever.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager

from pulsarish.bookie.adds import check_records, read_heads, refused
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.entry_logs.entry_log import READ_LANE
from pulsarish.bookie.ledger_index import ROWS_MAX
from pulsarish.bookie.reads import Admit
from pulsarish.bookie.space import SpaceMode
from pulsarish.bookie.store import check_whole
from pulsarish.bookie.volume import Answer, Volume, VolumeAdd, uncordoned
from pulsarish.model.errors import BookieIOError, EntryUnknown
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.disk_errors import is_full
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Tasks
from pulsarish.wire.bookie import AddBatch, AddResult, ReadAnswer, ReadItem, encode_add
from pulsarish.wire.record import RECORD_HEAD_SIZE, peek_ids

__all__ = ["Volumes"]

_log = get_logger("bookie.volumes")


class _Parts:
    """The answer to a batch whose entries go to several volumes, once all of them have answered."""

    def __init__(self, count: int, answer: Answer) -> None:
        self._left = count
        self._answer = answer
        self._results: list[AddResult] = []

    def take(self, results: list[AddResult]) -> None:
        self._results += results
        self._left -= 1
        if not self._left:
            self._answer(self._results)


class Volumes:
    """The volumes of a bookie that has several: they take what one store takes otherwise.

    Args:
        on_change: called when a volume has failed or was taken out, and again when all others know
            it durably.
        removed_directories: of volumes that an operator has removed earlier.
    """

    def __init__(
        self,
        volumes: Sequence[Volume],
        tasks: Tasks,
        rng: random.Random,
        instance_id: str,
        *,
        config: BookieConfig,
        on_change: Callable[[], None],
        removed_directories: Collection[str] = (),
    ) -> None:
        self.volumes = list(volumes)
        self.instance_id = instance_id
        self.is_serving = False
        """Set by ``begin``: until then a failure is only noted."""
        self.is_closing = False
        """Set when the bookie stops: from then on a volume that fails ends the process."""
        self._tasks = tasks
        self._rng = rng
        self._open_max = config.open_ledgers_max
        self._on_change = on_change
        self._homes: dict[int, Volume] = {}
        # ledgers that must keep their entry in ``_homes``: something that uses it is under way
        self._pins: Counter[int] = Counter()
        # raised whenever what was found in the indexes may not be true any more
        self._epoch = 0
        self._numbers = 0
        self._configured = config.all_paths
        self._removed = removed_directories
        self._settling = asyncio.Lock()

    # -- what is there

    @property
    def live(self) -> list[Volume]:
        """The volumes that have not failed."""
        return [volume for volume in self.volumes if volume.failure is None]

    @property
    def is_writable(self) -> bool:
        """Whether any volume takes new ledgers of writers."""
        return any(volume.takes_ledgers for volume in self.live)

    @property
    def ledgers_count(self) -> int:
        return sum(volume.store.ledgers_count for volume in self.live)

    @property
    def journal_queue_bytes(self) -> int:
        return sum(volume.store.journal_queue_bytes for volume in self.live)

    @property
    def write_cache_bytes(self) -> int:
        return sum(volume.store.write_cache_bytes for volume in self.live)

    @property
    def limbo_times(self) -> int:
        return max(volume.store.limbo_times for volume in self.live)

    @property
    def limbo_below(self) -> int:
        return max(volume.store.limbo_below for volume in self.live)

    @property
    def lost_directories(self) -> list[str]:
        """The configured directories that are not used: their volumes have failed or were given
        up. Not those that an operator has removed.
        """
        kept = [volume for volume in self.volumes if volume.failure is None or volume.is_removed]
        used = [path for volume in kept for path in volume.config.paths]
        return [path for path in self._configured if path not in (*used, *self._removed)]

    @property
    def settled_names(self) -> list[str]:
        """The volumes whose failure or removal all others know durably."""
        return [volume.name for volume in self.volumes if volume.is_settled]

    def begin(self, given_up: Collection[str]) -> None:
        """Serve the volumes that are open.

        ``given_up``: the names of those that have failed, and that the others know as lost. Raises
        the error of a volume that has failed since.
        """
        for volume in self.volumes:
            if volume.failure is not None and volume.name not in given_up:
                raise volume.failure
        self.volumes = self.live
        self.is_serving = True

    # -- failures

    async def guard(self, volume: Volume, work: Coroutine[object, object, None]) -> None:
        """Run a task of a volume. Raises its error when that must end the process."""
        try:
            await work
        except (OSError, BookieIOError) as error:
            if not self.fail(volume, error):
                raise

    def fail(self, volume: Volume, error: Exception) -> bool:
        """Give up a volume whose disk has failed.

        ``False``: the error must end the process, as the disk is full, or no volume would be left.
        """
        if volume.failure is not None:
            return True
        if not self.is_serving:
            volume.failure = error
            return True
        if self.is_closing or self.live == [volume] or is_full(error):
            return False
        if volume.store.space is SpaceMode.RESERVED:
            # Whatever the index says of the error: the disk is about full.
            return False
        volume.failure = error
        self._epoch += 1
        self._homes = {each: home for each, home in self._homes.items() if home is not volume}
        _log.error(
            "a volume has failed: its ledgers are answered with errors, the bookie goes on with "
            "the others",
            exception=error,
            volume=volume.name,
            directories=volume.where,
        )
        volume.store.fail(error)
        for adding in list(volume.adds.values()):
            adding.fail()
        self._on_change()
        # Critical: without it the ledgers of the volume get errors forever.
        _ = self._tasks.spawn(
            self._settle(volume), name="volume failure", critical=Critical.CHECKPOINT
        )
        return True

    async def _settle(self, volume: Volume) -> None:
        """Let all other volumes know durably that ledgers which they do not know are in doubt."""
        async with self._settling:
            times = max(each.store.limbo_times for each in self.volumes) + 1
            # All that have failed by now: a note that names one must cover its ledgers, too.
            failed = [
                each for each in self.volumes if each.failure is not None and not each.is_removed
            ]
            lost = [each.name for each in failed]
            below = max(each.highest for each in failed) + 1
            for other in self.live:
                try:
                    # What it has in its journal only is no doubt of the next start's replay.
                    await other.store.checkpointer.flush()
                    await other.store.limbo.doubt_absent(
                        below, str(volume.failure), lost=lost, times=times
                    )
                except (OSError, BookieIOError) as error:
                    if not self.fail(other, error):
                        raise
            for other in self.live:
                other.store.states.enter_limbo()
            volume.is_settled = True
            self._epoch += 1
            _log.warning(
                'the ledgers that may have been in the failed volume are answered "unknown" until '
                "auto-recovery has copied them",
                volume=volume.name,
                ledgers_below=self.limbo_below,
            )
            self._on_change()

    def take_out(self, volume: Volume) -> None:
        """Use a volume no more of which it is proved that nothing needs it, and which is not the
        last one. ``settle_removed`` must follow.

        Until that has ended, the ledgers that it may have known get errors: their fences are
        nowhere else.
        """
        assert self.live != [volume], "one volume is left"
        volume.failure = BookieIOError(f"the volume {volume.where} was removed")
        volume.is_removed = True
        self._epoch += 1
        self._homes = {each: home for each, home in self._homes.items() if home is not volume}
        for adding in list(volume.adds.values()):
            adding.fail()
        self._on_change()

    async def settle_removed(self, volume: Volume) -> None:
        """Fence in another volume what the removed one knew, and let all others know durably that
        it is not used again.

        Raises the error of a disk that must end the process.
        """
        async with self._settling:
            while not await self._fence_elsewhere(volume):
                pass
            for other in self.live:
                limbo = other.store.limbo
                try:
                    await limbo.doubt_absent(
                        0, str(volume.failure), lost=[volume.name], times=limbo.times
                    )
                except OSError as error:
                    if not self.fail(other, error):
                        raise
            volume.is_settled = True
            self._epoch += 1
            self._on_change()

    async def _fence_elsewhere(self, volume: Volume) -> bool:
        """Fence all ledgers that a removed volume knows, or remembers as deleted, in another one.

        ``False``: that one has failed meanwhile.
        """
        target, store = self._choose(), volume.store
        known, more = [-1], True
        while more:
            known, more = await store.list_ledgers(known[-1], ROWS_MAX)
            if not await self._fence_in(target, known):
                return False
        deleted = await store.index.deleted_after(-1, ROWS_MAX)
        while deleted:
            if not await self._fence_in(target, deleted):
                return False
            deleted = await store.index.deleted_after(deleted[-1], ROWS_MAX)
        return True

    async def _fence_in(self, target: Volume, ledger_ids: Sequence[int]) -> bool:
        try:
            await target.store.fence_all(ledger_ids)
        except (OSError, BookieIOError) as error:
            if not self.fail(target, error):
                raise
            return False
        return True

    def _is_doubtful(self, ledger_id: int) -> bool:
        """Return whether nothing can be said of a ledger that no volume knows."""
        return any(
            volume.failure is not None and not volume.is_settled and ledger_id <= volume.highest
            for volume in self.volumes
        )

    # -- where a ledger is

    @contextmanager
    def _pinned(self, ledger_ids: Sequence[int]) -> Iterator[None]:
        self._pins.update(ledger_ids)
        try:
            yield
        finally:
            for ledger_id in ledger_ids:
                if self._pins[ledger_id] == 1:
                    del self._pins[ledger_id]
                else:
                    self._pins[ledger_id] -= 1

    async def _find(self, ledger_ids: Sequence[int], *, create: bool) -> dict[int, Volume]:
        """Return where each of these ledgers is; one without a volume is in doubt, or, without
        ``create``, not here.

        With ``create`` the caller pins them. Raises ``BookieIOError`` when an index cannot be
        read: the ledger may be there.
        """
        wanted = list(dict.fromkeys(ledger_ids))
        while missing := [each for each in wanted if each not in self._homes]:
            epoch = self._epoch
            found: dict[int, Volume] = {}
            for volume in self.live:
                left = [each for each in missing if each not in found]
                if left:
                    known = await volume.store.knows(left)
                    found.update(
                        (each, volume) for each, here in zip(left, known, strict=True) if here
                    )
            if epoch != self._epoch:
                continue
            # Nothing is awaited from here on: two who look for a new ledger get the same volume.
            for ledger_id in missing:
                if ledger_id in self._homes:
                    continue
                volume_of = found.get(ledger_id)
                if volume_of is None and create and not self._is_doubtful(ledger_id):
                    volume_of = self._choose()
                    if ledger_id <= ID_MAX:
                        volume_of.highest = max(volume_of.highest, ledger_id)
                if volume_of is not None:
                    self._homes[ledger_id] = volume_of
            break
        homes = {each: self._homes[each] for each in wanted if each in self._homes}
        self._evict()
        return homes

    async def _home(self, ledger_id: int) -> Volume:
        """Return where a ledger is; any volume for one that is not here.

        Raises ``BookieIOError`` for one in doubt.
        """
        home = (await self._find([ledger_id], create=False)).get(ledger_id)
        if home is None:
            self._check_doubt([ledger_id])
        return home or self._choose()

    def _check_doubt(self, ledger_ids: Sequence[int]) -> None:
        for ledger_id in ledger_ids:
            if self._is_doubtful(ledger_id):
                raise BookieIOError(
                    f"ledger {ledger_id} may be in a volume that has failed a moment ago"
                )

    def _choose(self) -> Volume:
        """Draw the volume of a new ledger by free space, among those that take the most.

        A cordoned one gets it only when all are: the bookie is read-only then, and takes fences and
        what recovery and repair write.
        """
        taking = [each for each in self.live if not each.store.takes_no_copies]
        among = uncordoned(taking or self.live)
        for mode in (SpaceMode.WRITABLE, SpaceMode.READ_ONLY):
            fit = [volume for volume in among if volume.store.space is mode]
            if fit:
                return self._rng.choices(fit, [max(1, volume.free_bytes) for volume in fit])[0]
        return among[0]

    def _evict(self) -> None:
        """Forget the ledgers that were looked for longest ago and that the index would name."""
        too_many = len(self._homes) - self._open_max
        if too_many <= 0:
            return
        gone: list[int] = []
        for ledger_id, volume in self._homes.items():
            if len(gone) == too_many:
                break
            state = volume.store.states.loaded.get(ledger_id)
            if ledger_id not in self._pins and (state is None or state.exists):
                gone.append(ledger_id)
        for ledger_id in gone:
            del self._homes[ledger_id]
        if gone:
            self._epoch += 1

    async def _by_volume(self, ledger_ids: Sequence[int]) -> dict[Volume, list[int]]:
        """Return where each of these ledgers is or is to be.

        The caller pins them. Raises ``BookieIOError``.
        """
        homes = await self._find(ledger_ids, create=True)
        self._check_doubt([each for each in ledger_ids if each not in homes])
        groups: dict[Volume, list[int]] = {}
        for ledger_id in dict.fromkeys(ledger_ids):
            groups.setdefault(homes[ledger_id], []).append(ledger_id)
        return groups

    # -- adds

    def add(self, message: bytes, batch: AddBatch, answer: Answer) -> Awaitable[None] | None:
        """Store the entries of a batch that may be stored, as ``EntryStore.add``.

        Batches that go to different volumes are answered in any order.
        """
        homes = self._homes
        home: Volume | None = None
        last = -1
        for record in batch.records:
            ledger_id = peek_ids(record)[1] if len(record) >= RECORD_HEAD_SIZE else -1
            if ledger_id == last:
                continue
            volume = homes.get(ledger_id)
            if volume is None or (home is not None and home is not volume):
                check_whole(check_records(batch.records)[1], len(batch.records))
                return self._add_found(message, batch, answer)
            home, last = volume, ledger_id
        return self._add_to(home or self.live[0], message, batch, answer)

    async def _add_found(self, message: bytes, batch: AddBatch, answer: Answer) -> None:
        """Add a batch once it is known where its ledgers are."""
        if batch.instance_id != self.instance_id:
            waiting = self._add_to(self.live[0], message, batch, answer)
            if waiting is not None:
                await waiting
            return
        heads = read_heads(batch.records)
        ledger_ids = list(dict.fromkeys(head[1] for head in heads))
        with self._pinned(ledger_ids):
            try:
                homes = await self._find(ledger_ids, create=True)
            except BookieIOError as error:
                _log.error(
                    "entries refused, because it cannot be read where their ledgers are",
                    exception=error,
                    entries=len(heads),
                )
                homes = {}
            places: dict[Volume | None, list[int]] = {}
            for place, head in enumerate(heads):
                places.setdefault(homes.get(head[1]), []).append(place)
            parts = _Parts(len(places), answer)
            waits: list[Awaitable[None]] = []
            for volume, here in places.items():
                if volume is None:
                    parts.take(refused(heads, here, BookieIOError.code))
                    continue
                part, part_message = batch, message
                if len(here) < len(heads):
                    part = AddBatch(
                        batch.instance_id,
                        batch.recovery,
                        [batch.records[place] for place in here],
                    )
                    part_message = b"".join(
                        encode_add(
                            part.instance_id,
                            recovery=part.recovery,
                            sizes=[len(record) for record in part.records],
                            parts=part.records,
                        )
                    )
                waiting = self._add_to(volume, part_message, part, parts.take)
                if waiting is not None:
                    waits.append(waiting)
            failure: Exception | None = None
            for waiting in waits:
                try:
                    await waiting
                except Exception as error:  # noqa: BLE001 - raised once all were waited for
                    failure = failure or error
            if failure is not None:
                raise failure

    def _add_to(
        self, volume: Volume, message: bytes, batch: AddBatch, answer: Answer
    ) -> Awaitable[None] | None:
        self._numbers += 1
        adding = VolumeAdd(volume, self._numbers, batch.records, answer)
        try:
            waiting = volume.store.add(message, batch, adding.answer)
        except OSError:
            if volume.failure is None:
                adding.drop()
                raise
            adding.fail()
            return None
        except Exception:
            adding.drop()
            raise
        return None if waiting is None else self._wait(volume, waiting, adding, batch)

    async def _wait(
        self, volume: Volume, waiting: Awaitable[None], adding: VolumeAdd, batch: AddBatch
    ) -> None:
        with self._pinned([head[1] for head in read_heads(batch.records)]):
            try:
                await waiting
            except Exception:
                if volume.failure is None:
                    adding.drop()
                    raise
                adding.fail()

    # -- calls

    async def fence(self, ledger_id: int) -> tuple[int, int]:
        """Fence one ledger, as ``fence_all``."""
        return (await self.fence_all([ledger_id]))[0]

    async def fence_all(self, ledger_ids: Sequence[int]) -> list[tuple[int, int]]:
        """Fence ledgers, as ``EntryStore.fence_all``."""
        found: dict[int, tuple[int, int]] = {}
        with self._pinned(ledger_ids):
            for volume, here in (await self._by_volume(ledger_ids)).items():
                fenced = await volume.store.fence_all(here)
                _check_live(volume)
                found.update(zip(here, fenced, strict=True))
        return [found[ledger_id] for ledger_id in ledger_ids]

    async def clear_limbo(self, ledger_id: int, times: int) -> int:
        """End a ledger's limbo, as ``EntryStore.clear_limbo``."""
        with self._pinned([ledger_id]):
            (volume,) = await self._by_volume([ledger_id])
            if times != self.limbo_times:
                return EntryUnknown.code
            code = await volume.store.clear_limbo(ledger_id, volume.store.limbo_times)
        _check_live(volume)
        return code

    async def write_lacs(self, lacs: Sequence[tuple[int, int]]) -> list[int]:
        """Store explicit LACs, as ``EntryStore.write_lacs``."""
        ledger_ids = [ledger_id for ledger_id, _ in lacs]
        codes = [BookieIOError.code] * len(lacs)
        with self._pinned(ledger_ids):
            homes = await self._find(ledger_ids, create=True)
            places: dict[Volume, list[int]] = {}
            for place, ledger_id in enumerate(ledger_ids):
                if ledger_id in homes:
                    places.setdefault(homes[ledger_id], []).append(place)
            for volume, here in places.items():
                try:
                    answered = await volume.store.write_lacs([lacs[place] for place in here])
                except (OSError, BookieIOError):
                    if volume.failure is None:
                        raise
                    continue
                for place, code in zip(here, answered, strict=True):
                    codes[place] = code
        return codes

    async def read_lac(
        self, ledger_id: int, after_lac: int, wait_seconds: float
    ) -> tuple[int, int]:
        """Return ``(code, LAC)``, as ``EntryStore.read_lac``."""
        volume = await self._home(ledger_id)
        answer = await volume.store.read_lac(ledger_id, after_lac, wait_seconds)
        _check_live(volume)
        return answer

    async def recovery_read(
        self, ledger_id: int, first: int, last: int, max_bytes: int
    ) -> ReadAnswer:
        """Fence, then read, as ``EntryStore.recovery_read``."""
        with self._pinned([ledger_id]):
            (volume,) = await self._by_volume([ledger_id])
            answer = await volume.store.recovery_read(ledger_id, first, last, max_bytes)
        _check_live(volume)
        return answer

    async def read_fenced(self, items: Sequence[ReadItem], limit_bytes: int) -> list[ReadAnswer]:
        """Read fenced ledgers, as ``EntryStore.read_fenced``."""
        volume, here = await self._first_run(items)
        answers = await volume.store.read_fenced(here, limit_bytes)
        _check_live(volume)
        return answers

    async def read(
        self,
        items: Sequence[ReadItem],
        limit_bytes: int = 0,
        admit: Admit | None = None,
        *,
        lane: str = READ_LANE,
    ) -> list[ReadAnswer]:
        """Read entries, as ``EntryStore.read``.

        With a limit, the answers may end where those of another volume would follow.
        """
        answers: list[ReadAnswer] = []
        while len(answers) < len(items):
            rest = items[len(answers) :]
            try:
                volume, here = await self._first_run(rest)
                found = await volume.store.read(here, limit_bytes, admit, lane=lane)
                _check_live(volume)
            except BookieIOError:
                found = [ReadAnswer(rest[0].request_id, BookieIOError.code)]
            answers += found
            if limit_bytes:
                break
        return answers

    async def _first_run(self, items: Sequence[ReadItem]) -> tuple[Volume, list[ReadItem]]:
        """Return the reads at the beginning that go to one volume. Raises ``BookieIOError``."""
        homes = await self._find([item.ledger_id for item in items], create=False)
        first = homes.get(items[0].ledger_id)
        if first is None:
            self._check_doubt([items[0].ledger_id])
        here: list[ReadItem] = []
        for item in items:
            home = homes.get(item.ledger_id)
            if home is not first or (home is None and self._is_doubtful(item.ledger_id)):
                break
            here.append(item)
        return first or self._choose(), here

    async def list_entries(self, ledger_id: int, first: int, last: int) -> tuple[int, list[int]]:
        """List entries, as ``Reader.list_entries``."""
        volume = await self._home(ledger_id)
        answer = await volume.store.list_entries(ledger_id, first, last)
        _check_live(volume)
        return answer

    async def list_ledgers(self, after: int, limit: int) -> tuple[list[int], bool]:
        """Return ledgers above ``after`` in order, and whether there are more."""
        found: dict[int, None] = {}
        more = False
        for volume in self.live:
            here, has_more = await volume.store.list_ledgers(after, limit)
            found.update(dict.fromkeys(here))
            more = more or has_more
        return sorted(found)[:limit], more or len(found) > limit

    async def next_free_ledger(self, next_id: int) -> int:
        """Return the first id above those of all ledgers known here, as
        ``EntryStore.next_free_ledger``.
        """
        before = -1
        while before != next_id:
            before = next_id
            for volume in self.live:
                next_id = await volume.store.next_free_ledger(next_id)
        return next_id

    async def probe(self) -> None:
        """Add a batch without entries to each volume that is writable."""
        for volume in self.live:
            if volume.store.is_writable:
                try:
                    await volume.store.probe()
                except OSError:
                    if volume.failure is None:
                        raise


def _check_live(volume: Volume) -> None:
    """Raise ``BookieIOError`` when a volume has failed or was removed while it was asked: what it
    has not is no evidence any more, and what it has stored is not used again.
    """
    if volume.failure is not None:
        raise BookieIOError(f"the volume {volume.where} is not used any more: {volume.failure}")
