"""Several volumes behind one bookie: each ledger lies in one of them, and one that fails takes only
its own ledgers.

A volume is a journal, a ledger and an index directory with a store of its own. A ledger that a
volume knows lies there. A new one goes to a volume that takes entries, drawn by free space. Which
volume it is stays in memory for the ledgers in use, and is asked of the indexes otherwise. A volume
that an operator has cordoned takes no new ones, and those that lie there go on.

A write or sync that fails ends a bookie with one volume (rule 9). Of several, it ends the volume:
what waits for it is refused, and nothing of it is answered any more. "Not there" would now be a lie
for every ledger that it may have had, and an add or fence of such a ledger would begin it again
elsewhere without its fence. So these ledgers get an error at first. Then, once the metadata say
which ids were given out, every other volume notes
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

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.ledger_index import ROWS_MAX
from pulsarish.bookie.space import SpaceMode
from pulsarish.bookie.volume import Volume, uncordoned
from pulsarish.model.errors import BookieIOError, CorruptData
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.disk_errors import is_full
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Tasks

__all__ = ["VolumeHomes"]

_log = get_logger("bookie.volumes")


class VolumeHomes:
    """The volumes of a bookie that has several, and which of them has which ledger.

    Args:
        ids_below: returns an id above those of all ledgers, once the metadata can be asked.
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
        ids_below: Callable[[], Awaitable[int]],
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
        self._ids_below = ids_below
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
        if not self.is_serving or volume not in self.volumes:
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
        # All that have failed by now: a note that names one must cover its ledgers, too. Those that
        # fail from here on may have ledgers that are given out after the metadata were asked, and
        # get a note of their own.
        failed = [each for each in self.volumes if each.failure is not None and not each.is_removed]
        lost = [each.name for each in failed]
        # The metadata are asked without the lock: a volume that is being added, and with it a stop,
        # would wait for them.
        below = max(each.highest for each in failed) + 1
        try:
            below = min(below, await self._ids_below())
        except CorruptData as error:
            _log.error(
                "the metadata cannot say which ledger ids were given out, so all up to the highest "
                "one of the failed volumes are in doubt",
                exception=error,
                ledgers_below=below,
            )
        async with self._settling:
            times = max(each.store.limbo_times for each in self.volumes) + 1
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

    async def join(self, volume: Volume, on_joined: Callable[[], None]) -> None:
        """Give new ledgers to one more volume, which is open and has had none.

        ``on_joined`` is called before it gets the first one. Raises ``BookieIOError`` when it has
        failed, or the bookie is closing, and ``OSError``: it is not used then.
        """
        async with self._settling:
            limbos = [each.store.limbo for each in self.volumes if each.failure is None]
            times = max(limbo.times for limbo in limbos)
            lost = list(dict.fromkeys(name for limbo in limbos for name in limbo.lost))
            if times or lost:
                # What the others are in doubt about, this one must not deny.
                await volume.store.limbo.doubt_absent(
                    max(limbo.below for limbo in limbos),
                    "the bookie is in limbo, or has lost a volume",
                    lost=lost,
                    times=times,
                )
            volume.store.states.enter_limbo()
            if volume.failure is not None:
                raise BookieIOError(str(volume.failure))
            if self.is_closing:
                raise BookieIOError("the bookie stops")
            # Nothing is awaited from here on.
            self.volumes.append(volume)
            self._configured += volume.config.paths
            self._epoch += 1
            on_joined()
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
