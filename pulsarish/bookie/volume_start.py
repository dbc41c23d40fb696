"""The start of a bookie with several volumes: which are there, what is given up, and the limbo that
all of them share.

When a volume is given up, the others note below which ledger id they are in doubt about ledgers
that they do not know; then the metadata learn of it. Every start brings all volumes to the same
such id, so a new volume, or one beside a volume that has given up a part of its journal, answers
"unknown" as the others do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.limbo import Limbo
from pulsarish.bookie.replay import make_room_to_start
from pulsarish.bookie.store import EntryStore, how_to_rebuild, open_store
from pulsarish.bookie.unlisted_volumes import note_volumes
from pulsarish.bookie.volume import Volume, VolumeFiles, VolumeTasks
from pulsarish.bookie.volume_cookies import agree_on_volumes
from pulsarish.bookie.volumes import Volumes
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, VolumeRecord
from pulsarish.model.errors import BookieIOError, ConfigError, CorruptData, MetadataUnavailable
from pulsarish.runtime.disk_errors import is_full
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import IndexCorrupt, World

__all__ = ["count_together", "open_volume", "open_volumes"]

_log = get_logger("bookie.volumes")
_RETRY_SECONDS: Final = 1.0


async def open_volumes(
    world: World,
    records: Records,
    guarded: Records,
    config: BookieConfig,
    unusable: Mapping[str, str],
    *,
    unlisted: Collection[str],
    ledgers_given_out: Callable[[], Awaitable[int]],
    on_change: Callable[[], None],
) -> tuple[Volumes, Cookie]:
    """Open the volumes of a bookie. Return them with the bookie's cookie in the metadata.

    Args:
        unusable: directories that could not be locked, and why.
        unlisted: the ledger directories of volumes that the lists of the options do not name.
        ledgers_given_out: returns an id above those of all ledgers.
        on_change: called when a volume fails while the bookie runs.

    Raises ``ConfigError``, ``CorruptData``, ``BookieIOError``, ``OSError``,
    ``MetadataUnavailable``.
    """
    start = _Start(world, guarded, config, ledgers_given_out)
    agreed = await agree_on_volumes(
        world.files, records, guarded, world.clock, world.random, config, unusable, unlisted
    )
    # What this start gives up is noted as lost once the others know it durably.
    start.known = {
        name: msgspec.structs.replace(record, is_lost=record.is_lost and name not in agreed.lost)
        for name, record in agreed.cookie.volumes.items()
    }
    await start.store_known(agreed.cookie)
    times = agreed.cookie.limbo_times
    for _, each in agreed.usable:
        try:
            times = max(times, (await _limbo(world, each)).times)
        except OSError:
            if config.volume_loss != "limbo":
                raise
            # Its disk has died since it was looked at: opening it fails, too, and gives it up.
    volumes = Volumes(
        [Volume(name, volume) for name, volume in agreed.usable],
        world.tasks,
        world.random,
        agreed.cookie.instance_id,
        config=config,
        ids_below=start.ids_below,
        on_change=on_change,
        removed_directories=[
            directory
            for record in agreed.cookie.volumes.values()
            if record.is_removed
            for directory in record.directories
        ],
    )
    lost = dict(agreed.lost)
    for volume in volumes.volumes:
        try:
            await open_volume(
                world,
                volumes,
                volume,
                ledgers_given_out=ledgers_given_out,
                durable_below=start.known[volume.name].journal_position,
                limbo_times=times,
            )
        except (OSError, BookieIOError, CorruptData) as error:
            if config.volume_loss != "limbo" or is_full(error):
                raise
            lost[volume.name] = str(error)
            volume.failure = error
    for volume in volumes.volumes:
        if volume.failure is not None and volume.name not in lost:
            # It has failed behind the start's back.
            if config.volume_loss != "limbo":
                raise volume.failure
            lost[volume.name] = str(volume.failure)
    if not volumes.live:
        raise ConfigError(
            f"none of the volumes of bookie {config.bookie_id} can be opened: "
            + "; ".join(lost.values())
        )
    count_together([volume.store for volume in volumes.live])
    limbos = [volume.store.limbo for volume in volumes.live]
    if lost:
        # After the replay: what a volume had in its journal only is there, and in no doubt.
        await start.give_up(lost, limbos, max([times, *(limbo.times for limbo in limbos)]))
        await start.store_known(agreed.cookie)
    await _share(limbos)
    for volume in volumes.live:
        volume.store.states.enter_limbo()
    cookie = msgspec.structs.replace(agreed.cookie, volumes=start.known)
    for volume in volumes.live:
        await note_volumes(world.files, volume.config.ledger_path, cookie)
    volumes.begin(lost)
    return volumes, cookie


class _Start:
    """What a start does to the list of volumes in the metadata, and to the limbo of the volumes."""

    def __init__(
        self,
        world: World,
        guarded: Records,
        config: BookieConfig,
        ledgers_given_out: Callable[[], Awaitable[int]],
    ) -> None:
        self.known: dict[str, VolumeRecord] = {}
        self.ledgers_given_out = ledgers_given_out
        self._world = world
        self._guarded = guarded
        self._config = config

    async def ids_below(self) -> int:
        """Return an id above those of all ledgers. Wait until the metadata say so."""
        while True:
            try:
                return await self.ledgers_given_out()
            except MetadataUnavailable as error:
                _log.warning(
                    "the ledgers of the failed volume get errors until the metadata say which ids "
                    "were given out",
                    reason=error,
                )
                await self._world.clock.sleep(_RETRY_SECONDS)

    async def give_up(self, lost: Mapping[str, str], limbos: Sequence[Limbo], times: int) -> None:
        """Give up volumes, in the other volumes durably. ``times``: how many limbos there were."""
        for name, reason in lost.items():
            _log.error(
                'a volume is given up: the ledgers that may have been in it are answered "unknown" '
                "until auto-recovery has copied them",
                volume=name,
                reason=reason,
            )
        below = await self.ledgers_given_out()
        for limbo in limbos:
            await limbo.doubt_absent(
                below, "; ".join(lost.values()), lost=list(lost), times=times + 1
            )
        self.known = {
            name: msgspec.structs.replace(record, is_lost=record.is_lost or name in lost)
            for name, record in self.known.items()
        }

    async def store_known(self, cookie: Cookie) -> None:
        """Write the list of volumes to the metadata. Raises ``MetadataUnavailable``."""

        def changed(stored: Cookie | None) -> Cookie | None:
            if stored is None or stored.instance_id != cookie.instance_id:
                raise ConfigError(
                    f"the cookie of bookie {cookie.bookie_id} was changed at this moment: start "
                    "it again"
                )
            return msgspec.structs.replace(stored, volumes=self.known)

        path = paths.cookie(cookie.bookie_id)
        found = await self._guarded.get(path, Cookie)
        if found is None or found[0].volumes != self.known:
            _ = await self._guarded.update(path, Cookie, changed)


async def _limbo(world: World, config: BookieConfig) -> Limbo:
    limbo = Limbo(world.files, config.ledger_path)
    await limbo.load()
    return limbo


async def open_volume(
    world: World,
    volumes: Volumes,
    volume: Volume,
    *,
    ledgers_given_out: Callable[[], Awaitable[int]],
    durable_below: int = 0,
    limbo_times: int = 0,
) -> None:
    """Open the store of one of several volumes, as ``open_store``."""
    files = VolumeFiles(world.files, volume.name)
    await make_room_to_start(files, volume.config)
    try:
        store = await open_store(
            files=files,
            tasks=VolumeTasks(world.tasks, volumes.guard, volume),
            clock=world.clock,
            rng=world.random,
            open_index=world.open_index,
            config=volume.config,
            instance_id=volumes.instance_id,
            ledgers_given_out=ledgers_given_out,
            durable_below=durable_below,
            limbo_times=limbo_times,
        )
    except IndexCorrupt as error:
        raise BookieIOError(f"{error.strerror}. {how_to_rebuild(volume.config)}") from error
    await volume.opened(store)


def count_together(stores: Sequence[EntryStore]) -> None:
    """Let all volumes count into the same histograms."""
    first = stores[0]
    for store in stores[1:]:
        store.add_seconds, store.read_seconds = first.add_seconds, first.read_seconds
        store.journal.sync_seconds = first.journal.sync_seconds
        store.checkpointer.flush_seconds = first.checkpointer.flush_seconds


async def _share(limbos: Sequence[Limbo]) -> None:
    """Bring all volumes to the same limbo."""
    below = max(limbo.below for limbo in limbos)
    times = max(limbo.times for limbo in limbos)
    lost = list(dict.fromkeys(name for limbo in limbos for name in limbo.lost))
    for limbo in limbos:
        if limbo.absent_below < below or limbo.times < times or len(limbo.lost) < len(lost):
            await limbo.doubt_absent(
                below, "another volume is in limbo, or lost", lost=lost, times=times
            )
