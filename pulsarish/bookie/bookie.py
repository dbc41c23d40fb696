"""A whole bookie: the order of its start, its background tasks, and its stop.

The start goes: locks, cookies, store (with replay), HTTP and gRPC listeners, registration. A
failure on the way ends the start with its reason. Nothing is served before everything that was
promised earlier is durable again. The metadata may be lost and come back while the bookie runs: it
continues to serve, and only deletion stops (rule 19).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from pulsarish.autorecovery.autorecovery import AutoRecovery
from pulsarish.bookie.access import Access
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.cookies import agree_on_cookie
from pulsarish.bookie.garbage import GarbageCollector
from pulsarish.bookie.http import BookieHttp
from pulsarish.bookie.journal_position import JournalPosition
from pulsarish.bookie.read_only import OperatorReadOnly
from pulsarish.bookie.registration import Registrar
from pulsarish.bookie.replay import make_room_to_start
from pulsarish.bookie.scrub import Scrubber
from pulsarish.bookie.service import BookieService
from pulsarish.bookie.space import (
    SpaceMode,
    next_mode,
    registered_free_bytes,
    space_reason,
)
from pulsarish.bookie.store import EntryStore, has_data, how_to_rebuild, open_store
from pulsarish.bookie.trash import Trash
from pulsarish.bookie.tree_memory import remembered_age
from pulsarish.bookie.unlisted_volumes import options_of, with_unlisted
from pulsarish.bookie.volume import Volume, VolumeTasks, uncordoned
from pulsarish.bookie.volume_addition import VolumeAdditions
from pulsarish.bookie.volume_drains import VolumeDrains
from pulsarish.bookie.volume_garbage import VolumesGarbage
from pulsarish.bookie.volume_removal import VolumeRemovals
from pulsarish.bookie.volume_start import count_together, open_volumes
from pulsarish.bookie.volumes import Volumes
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.metadata import paths
from pulsarish.metadata.backup.backup import check_not_being_restored
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration, Cookie, LedgerIds
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.metadata.tree_age import TreeAge
from pulsarish.model.errors import BookieIOError
from pulsarish.runtime.cluster_members import read_cluster_key
from pulsarish.runtime.containment import Critical, Scope, ScopeKind, run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.metrics import Histogram
from pulsarish.runtime.network.addresses import advertised_address, host_of, port_of
from pulsarish.runtime.network.tls_options import tls_of_server
from pulsarish.runtime.network.watch_ports import WatchPorts
from pulsarish.runtime.seams import IndexCorrupt, Listener, World
from pulsarish.security.membership import Membership

__all__ = ["Bookie"]

_log = get_logger("bookie")
_INT64_MAX: Final = 2**63 - 1


@dataclass(slots=True)
class Upkeep:
    """What works on one volume in the background."""

    garbage: GarbageCollector
    scrubber: Scrubber
    position: JournalPosition
    checkpoints: asyncio.Task[None] | None = None


class Bookie:
    """One bookie in its world.

    Args:
        world: its clock, disk and network; the metadata store is connected.
        config: the validated configuration.
        lags: how late the event loop runs, if the process measures that.
    """

    def __init__(
        self, world: World, config: BookieConfig, *, lags: Histogram | None = None
    ) -> None:
        self.address = ""
        self.http = WatchPorts(world.connections, config, world.clock.wall_ms)
        self.instance_id = ""
        self._registered_free_bytes = 0
        self.config = config
        self._world = world
        self.wall_ms = world.clock.wall_ms
        self._access = Access(
            read_cluster_key(config.cluster_key_file, world.clock.wall_ms)
            if config.cluster_key_file
            else None,
            Membership(config.tls_cluster_name, config.tls_allowed_roles, world.clock.wall_ms)
            if config.tls_require_trusted_client_cert_on_connect
            else None,
        )
        self._lags = lags
        self._session = SessionWatch(world)
        self._records = Records(world.metadata, world.clock, world.random)
        self._age: TreeAge | None = None
        self.volumes: list[Volume] = []
        """Of a bookie that has started; one, unless it was given lists of directories."""
        self._several: Volumes | None = None
        self._drains: VolumeDrains | None = None
        self._removals: VolumeRemovals | None = None
        self._additions: VolumeAdditions | None = None
        self._service: BookieService | None = None
        self._registrar: Registrar | None = None
        self._operator: OperatorReadOnly | None = None
        self._registration: BookieRegistration | None = None
        self.upkeep: list[Upkeep] = []
        """Of each volume."""
        self._collectors: list[GarbageCollector] = []
        self._listeners: list[Listener] = []
        self.auto_recovery: AutoRecovery | None = None
        """The auto-recovery that runs in this process, if any."""
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._probe: asyncio.Task[None] | None = None
        self._positions: list[asyncio.Task[None]] = []
        self._wants_probe = asyncio.Event()
        self._recovering: asyncio.Task[None] | None = None  # the start of auto-recovery

    @property
    def store(self) -> EntryStore:
        """The storage of a bookie that has started, or of its first volume."""
        assert self.volumes, "the bookie has not started"
        return self.volumes[0].store

    @property
    def entries(self) -> EntryStore | Volumes:
        """What takes adds, reads and calls about ledgers."""
        return self.store if self._several is None else self._several

    @property
    def live(self) -> list[Volume]:
        """The volumes that have not failed."""
        return [volume for volume in self.volumes if volume.failure is None]

    @property
    def lost_directories(self) -> list[str]:
        """The configured directories of volumes that have failed or were given up."""
        return [] if self._several is None else self._several.lost_directories

    @property
    def volume_reasons(self) -> list[str]:
        """What is wrong with single volumes of several, and what helps."""
        if self._several is None:
            return []
        gone = ", ".join(self.lost_directories)
        lost = (
            f"volumes have failed or were given up ({gone}): auto-recovery copies their ledgers "
            "again. Put in another disk, empty the directories, and start the bookie with "
            "them, or take them out of the lists"
        )
        return (
            [lost] * bool(gone)
            + [volume.space_reason for volume in self.live if not self.space_reason]
            + [volume.cordon_reason for volume in self.live if self.entries.is_writable]
        )

    @property
    def cordoned_directories(self) -> list[str]:
        """The ledger directories of the volumes that an operator has cordoned."""
        return [volume.config.ledger_path for volume in self.live if volume.cordon_reason]

    @property
    def space(self) -> SpaceMode:
        """What the volume takes that takes the most."""
        modes = [volume.store.space for volume in self.live]
        return next((mode for mode in SpaceMode if mode in modes), SpaceMode.RESERVED)

    @property
    def free_bytes(self) -> int:
        """The free space of the volume that has the most."""
        return max((volume.free_bytes for volume in self.live), default=0)

    @property
    def space_reason(self) -> str:
        """Why no volume is writable for lack of space, and what helps; empty: one is.

        A cordoned volume counts only when all are.
        """
        reasons = [volume.space_reason for volume in uncordoned(self.live)]
        return "; ".join(reasons) if all(reasons) else ""

    @property
    def garbage(self) -> GarbageCollector:
        """The garbage collection of a bookie that has started, or of its first volume."""
        assert self.upkeep, "the bookie has not started"
        return self.upkeep[0].garbage

    @property
    def age(self) -> TreeAge:
        """What a bookie that has started knows of the metadata's age."""
        assert self._age is not None, "the bookie has not started"
        return self._age

    @property
    def scrubber(self) -> Scrubber:
        """The scrubber of a bookie that has started, or of its first volume."""
        assert self.upkeep, "the bookie has not started"
        return self.upkeep[0].scrubber

    @property
    def service(self) -> BookieService:
        """The gRPC service of a bookie that has started."""
        assert self._service is not None, "the bookie has not started"
        return self._service

    @property
    def registered(self) -> bool:
        return self._registrar is not None and self._registrar.registered

    @property
    def serves(self) -> bool:
        """Whether the bookie has started and is not stopping."""
        return bool(self.address) and not self._stopping.is_set()

    @property
    def read_only_reason(self) -> str:
        """Why the bookie is read-only, and what helps; empty for a writable one."""
        asked = "" if self._operator is None else self._operator.reason
        cordons = [] if self.entries.is_writable else [each.cordon_reason for each in self.live]
        return "; ".join(reason for reason in (self.space_reason, asked, *cordons) if reason)

    @property
    def _takes_adds(self) -> bool:
        """Whether any volume takes what writers add, also a cordoned one."""
        return any(volume.store.is_writable for volume in self.live)

    @property
    def is_ready(self) -> bool:
        """Whether the bookie can serve.

        A writable bookie must have synced an add lately, of a client or its own probe.
        """
        return self.serves and all(
            not volume.store.is_writable
            or self._add_age_seconds(volume) <= self.config.add_probe_timeout_seconds
            for volume in self.live
        )

    @property
    def add_age_seconds(self) -> float:
        """The time since an add was last synced, of a client or its own probe, in the volume where
        it is longest.
        """
        writable = [volume for volume in self.live if volume.store.is_writable] or self.live
        return max(self._add_age_seconds(volume) for volume in writable)

    def _add_age_seconds(self, volume: Volume) -> float:
        return self._world.clock.monotonic() - volume.store.add_synced_seconds

    async def run(self) -> None:
        """Start, and run until ``stop``."""
        await self.start()
        await self._stopped.wait()

    async def start(self) -> None:
        """Begin to serve.

        Raises ``Locked`` for a directory in use, ``ConfigError`` for cookies that do not agree,
        ``CorruptData`` for damage to what was promised, ``MetadataUnavailable``, and ``OSError``
        for an address in use.
        """
        world = self._world
        self.config.validate()
        # The cookie says which volumes there are, and how far their journals have to reach. From an
        # older tree it would demand too little.
        await self._records.sync(paths.cookie(self.config.bookie_id))
        unlisted = await self._name_unlisted()
        config = self.config
        unusable = await self._lock_directories()
        await check_not_being_restored(self._records)
        self._age = await remembered_age(
            self._records,
            world.clock,
            world.files,
            config,
            lambda: [volume.config.ledger_path for volume in self.live],
        )
        guarded = Records(world.metadata, world.clock, world.random, guard=self._age)
        cookie = await self._open(guarded, unusable, unlisted)
        self.instance_id = cookie.instance_id
        if self._several is not None:
            self._drains = VolumeDrains(
                self.volumes, self._records, LedgerStore(guarded, world.clock), world.clock
            )
            self._removals = VolumeRemovals(
                self._several,
                self._drains,
                self._records,
                guarded,
                self.age,
                world.clock,
                world.tasks,
                cookie,
            )
            self._additions = VolumeAdditions(
                self._several,
                world,
                guarded,
                cookie,
                config,
                ledgers_given_out=partial(_ledgers_given_out, guarded),
                take_in=partial(self._take_in, guarded),
            )
        await self._look_at_space()
        self._operator = OperatorReadOnly(
            self._records, world.clock, self.instance_id, self._follow_operator
        )
        await self._operator.read()
        ledgers = LedgerStore(self._records, world.clock)
        self.upkeep = [self._upkeep_of(volume, guarded, cookie, ledgers) for volume in self.volumes]
        collectors = self._collectors = [each.garbage for each in self.upkeep]
        self._service = BookieService(
            self.entries,
            collectors[0] if self._several is None else VolumesGarbage(self.volumes, collectors),
            self._age,
            world.tasks,
            world.clock,
            config,
            lambda: self.free_bytes,
            self._access,
            self._removals,
            self._additions,
        )
        service = self._service
        listener = await world.connections.serve(
            config.listen_address,
            service.streams(),
            service.calls(),
            message_bytes_max=config.max_frame_size_bytes,
            tls=tls_of_server(config),
        )
        self._listeners.append(listener)
        framed_address = await self._serve_framed(service)
        if config.auto_recovery_daemon_enabled:
            self.auto_recovery = AutoRecovery(world, config.auto_recovery, cookie.instance_id)
        if config.http_address or config.http_address_tls:
            await self.http.open(BookieHttp(self, self._session, self._lags).handle)
        self.address = listener.address
        advertised = advertised_address(config.advertised_address, listener.address)
        self._registration = BookieRegistration(
            bookie_id=config.bookie_id,
            instance_id=cookie.instance_id,
            address=advertised,
            host=config.host or host_of(advertised),
            http_address=self._advertised_http(self.http.address, advertised),
            http_address_tls=self._advertised_http(self.http.address_tls, advertised),
            rack=config.rack,
            read_only=not self.entries.is_writable,
            read_only_reason=self.read_only_reason,
            limbo_below_ledger=self.entries.limbo_below,
            limbo_times=self.entries.limbo_times,
            lost_directories=tuple(self.lost_directories),
            cordoned_directories=tuple(self.cordoned_directories),
            started_ms=world.clock.wall_ms(),
            framed_address=framed_address,
            zone=config.zone,
            region=config.region,
            free_bytes=self._registered_free_bytes,
        )
        self._registrar = Registrar(
            self._records, world.clock, self._registration, self._before_registering
        )
        for volume, upkeep in zip(self.volumes, self.upkeep, strict=True):
            self._keep_up(volume, upkeep)
        _ = world.tasks.spawn(self._run_space(), name="space", critical=Critical.SPACE)
        self._probe = run_in_background(world.tasks, world.clock, "probe", self._run_probe)
        watch = partial(self._age.watch, config.metadata_check_interval_seconds)
        _ = run_in_background(world.tasks, world.clock, "metadata-age", watch)
        if self._access.ends_streams:
            _ = run_in_background(world.tasks, world.clock, "ends of streams", service.end_expired)
        _ = run_in_background(world.tasks, world.clock, "read-only", self._operator.follow)
        if self._drains is not None:
            _ = run_in_background(world.tasks, world.clock, "drains of volumes", self._drains.run)
        _ = world.tasks.spawn(
            self._registrar.run(), name="registration", critical=Critical.REGISTRATION
        )
        await self._registrar.wait_tried()
        if self.auto_recovery is not None:
            self._recovering = run_in_background(
                world.tasks, world.clock, "auto-recovery", self.auto_recovery.start
            )
        _log.info(
            "bookie serves",
            instance=self.instance_id,
            address=self.address,
            ledgers=self.entries.ledgers_count,
        )

    async def _name_unlisted(self) -> list[str]:
        """Take the volumes that were added while the bookie ran into the configuration. Return the
        ledger directories of those that its lists do not name.
        """
        found = await self._records.get(paths.cookie(self.config.bookie_id), Cookie)
        stored = None if found is None else found[0]
        self.config, unlisted = await with_unlisted(self._world.files, self.config, stored)
        if unlisted:
            self.config.validate()
            _log.warning(
                "volumes that were added while the bookie ran are not in its lists, and are used: "
                "give the options that name them",
                options=options_of(self.config),
            )
        return unlisted

    async def _lock_directories(self) -> dict[str, str]:
        """Lock all directories. Return those of several volumes that cannot be used, and why."""
        unusable: dict[str, str] = {}
        for directory in self.config.all_paths:
            try:
                await self._world.files.lock(directory)
            except OSError as error:
                if len(self.config.volumes()) == 1:
                    raise
                unusable[directory] = str(error)
        return unusable

    async def _open(
        self, guarded: Records, unusable: Mapping[str, str], unlisted: Sequence[str]
    ) -> Cookie:
        """Open the volumes whose cookies agree, and replay their journals. Return the bookie's
        cookie in the metadata.
        """
        world, config = self._world, self.config
        given_out = partial(_ledgers_given_out, guarded)
        found = await self._records.get(paths.cookie(config.bookie_id), Cookie)
        if config.journal_directories or (found is not None and found[0].volumes):
            self._several, cookie = await open_volumes(
                world,
                self._records,
                guarded,
                config,
                unusable,
                unlisted=unlisted,
                ledgers_given_out=given_out,
                on_change=self._follow_operator,
            )
            self.volumes = self._several.volumes
            return cookie
        (volume_config,) = config.volumes()
        journal, ledger, index = volume_config.paths
        cookie = await agree_on_cookie(
            world.files,
            self._records,
            guarded,
            world.clock,
            world.random,
            Cookie(config.bookie_id, "", "", journal, ledger, index, created_ms=0),
            volume_config.paths,
            has_data=await has_data(world.files, volume_config),
        )
        await make_room_to_start(world.files, volume_config)
        try:
            store = await open_store(
                files=world.files,
                tasks=world.tasks,
                clock=world.clock,
                rng=world.random,
                open_index=world.open_index,
                config=volume_config,
                instance_id=cookie.instance_id,
                ledgers_given_out=given_out,
                durable_below=cookie.journal_position,
                limbo_times=cookie.limbo_times,
            )
        except IndexCorrupt as error:
            # Damage that only the replay met, or a compaction that it caused.
            raise BookieIOError(f"{error.strerror}. {how_to_rebuild(volume_config)}") from error
        volume = Volume("", volume_config)
        await volume.opened(store)
        self.volumes = [volume]
        return cookie

    async def _take_in(self, guarded: Records, volume: Volume, cookie: Cookie) -> None:
        """Have a volume that was opened while the bookie runs take ledgers. Raises what
        ``VolumeHomes.join`` raises.
        """
        assert self._several is not None, "a bookie with one volume gets no other one"
        await self._look_at_space_of(volume)
        count_together([self.store, volume.store])
        ledgers = LedgerStore(self._records, self._world.clock)
        upkeep = self._upkeep_of(volume, guarded, cookie, ledgers)

        def joined() -> None:
            self.upkeep.append(upkeep)
            self._collectors.append(upkeep.garbage)

        await self._several.join(volume, joined)
        self._keep_up(volume, upkeep)

    def _upkeep_of(
        self, volume: Volume, guarded: Records, cookie: Cookie, ledgers: LedgerStore
    ) -> Upkeep:
        world, store, several = self._world, volume.store, self._several
        garbage = GarbageCollector(
            store,
            Trash(store, world.clock),
            self._records,
            LedgerStore(guarded, world.clock),
            self.age,
            world.clock,
            volume.config,
            cluster_id=cookie.cluster_id,
        )
        position = (
            JournalPosition(guarded, world.clock, store, cookie)
            if several is None
            else JournalPosition(
                guarded,
                world.clock,
                store,
                cookie,
                volume=volume.name,
                lost=lambda: several.settled_names,
            )
        )
        scrubber = Scrubber(store, ledgers, world.files, world.clock, volume.config)
        return Upkeep(garbage, scrubber, position)

    def _keep_up(self, volume: Volume, upkeep: Upkeep) -> None:
        """Start the background tasks of a volume."""
        world, config = self._world, self.config
        tasks = world.tasks
        if self._several is not None:
            tasks = VolumeTasks(world.tasks, self._several.guard, volume)
        upkeep.checkpoints = tasks.spawn(
            self._run_checkpoints(volume), name="checkpoint", critical=Critical.CHECKPOINT
        )
        _ = tasks.spawn(
            self._run_garbage(volume, upkeep.garbage), name="garbage", critical=Critical.GARBAGE
        )
        name = f"ledger records {volume.name}".strip()
        follow = partial(self._run_copies, volume, upkeep.garbage)
        _ = run_in_background(world.tasks, world.clock, name, follow)
        if config.local_scrub_interval_seconds:
            scrub = partial(self._run_scrub, volume, upkeep.scrubber)
            _ = run_in_background(world.tasks, world.clock, f"scrub {volume.name}".strip(), scrub)
        watch = partial(upkeep.position.watch, config.journal_position_interval_seconds)
        name = f"journal-position {volume.name}".strip()
        self._positions.append(run_in_background(world.tasks, world.clock, name, watch))

    async def stop(self) -> None:
        """Stop gracefully: unregister, finish what was received, write everything out, and
        close.
        """
        self._stopping.set()
        if self._recovering is not None and self.auto_recovery is not None:
            self._recovering.cancel()
            await self.auto_recovery.stop()
        if self._age is not None:
            self._age.stop()
        if self._operator is not None:
            self._operator.stop()
        if self._registrar is not None:
            await self._registrar.stop()
        for task in (self._probe, *self._positions):
            if task is not None:
                task.cancel()
        for listener in self._listeners:
            await listener.stop(self.config.stop_grace_seconds)
        await self.http.stop(self.config.stop_grace_seconds)
        if self._service is not None:
            await self._service.wait_idle()
        await self._stop_volumes()
        self._stopped.set()

    async def _stop_volumes(self) -> None:
        """Write everything out, close, and note how far the journals reach."""
        if self._several is not None:
            self._several.is_closing = True
        if self._additions is not None:
            await self._additions.stop()
        for volume, upkeep in zip(self.volumes, self.upkeep, strict=False):
            await upkeep.scrubber.stop()
            if volume.failure is not None:
                continue
            await upkeep.garbage.stop()
            volume.store.checkpointer.hurry = True
            if upkeep.checkpoints is not None:
                volume.store.wants_checkpoint.set()
                await upkeep.checkpoints
        for volume in self.live:
            await volume.store.close()
        for volume, upkeep in zip(self.volumes, self.upkeep, strict=False):
            if volume.failure is None:
                await upkeep.position.store_last()

    def _advertised_http(self, listening: str, advertised: str) -> str:
        """Return the address of an HTTP port for others; empty for one that is not open."""
        # The advertised port, if one is configured, is that of the gRPC listener.
        host = host_of(advertised) if self.config.advertised_address else ""
        return advertised_address(host, listening) if listening else ""

    async def _serve_framed(self, service: BookieService) -> str:
        """Listen for the framed transport. Return the address for clients; empty when it is off."""
        config = self.config
        if config.framed_port < 0:
            return ""
        advertised = config.framed_advertised_address or config.advertised_address
        if advertised == config.advertised_address and _names_a_port(advertised):
            # It is the port of a proxy or of a port mapping before the gRPC port. Nothing says
            # where the framed port is then.
            _log.info(
                "frames are not offered: framed_advertised_address has to say where clients reach "
                "them, as advertised_address names a port",
                advertised_address=advertised,
            )
            return ""
        listener = await self._world.connections.serve_framed(
            f"{host_of(config.listen_address)}:{config.framed_port}",
            service.streams(),
            service.calls(),
            message_bytes_max=config.max_frame_size_bytes,
            tls=tls_of_server(config),
        )
        self._listeners.append(listener)
        return advertised_address(advertised, listener.address)

    async def _before_registering(self) -> None:
        """Mark a tree that is older than one that this bookie has seen, before it registers.

        Raises ``MetadataUnavailable``.
        """
        await self.age.look()
        await self._raise_ledger_ids()
        if not self.age.is_older:
            for volume, upkeep in zip(self.volumes, self.upkeep, strict=True):
                if volume.failure is None:
                    await upkeep.position.store()

    async def _raise_ledger_ids(self) -> None:
        """Raise the counter of ledger ids above all ids that this bookie has.

        A tree that was restored from an old backup would otherwise give out an id again (rule 12).
        Raises ``MetadataUnavailable``.
        """
        found = await self._records.get(paths.LEDGER_IDS, LedgerIds)
        given_out = 0 if found is None else found[0].next_id
        above = await self.entries.next_free_ledger(given_out)
        if above == given_out:
            return
        _log.warning(
            "this bookie has ledgers with ids that the metadata have not given out; it raises "
            "their counter",
            next_id=above,
        )
        _ = await self._records.update(
            paths.LEDGER_IDS,
            LedgerIds,
            lambda ids: LedgerIds(max(above, ids.next_id if ids is not None else 0)),
        )

    # Tasks that run besides the streams.

    async def _run_checkpoints(self, volume: Volume) -> None:
        store = volume.store
        while not self._stopping.is_set() and volume.failure is None:
            try:
                async with self._world.clock.timeout(self.config.checkpoint_interval_seconds):
                    await store.wants_checkpoint.wait()
            except TimeoutError:
                pass  # the interval is over, which is a reason for a checkpoint, too
            if not self._stopping.is_set():
                await store.checkpoint()

    async def _run_probe(self) -> None:
        """Add a probe at intervals without adds.

        ``is_ready`` reports a probe that does not return.
        """
        interval = self.config.add_probe_interval_seconds
        while not self._stopping.is_set():
            try:
                async with self._world.clock.timeout(interval):
                    await self._wants_probe.wait()
            except TimeoutError:
                pass  # the interval is over
            self._wants_probe.clear()
            if (
                not self._stopping.is_set()
                and self._takes_adds
                and self.add_age_seconds >= interval
            ):
                await self.service.probe()

    async def _run_space(self) -> None:
        while not self._stopping.is_set():
            await self._world.clock.sleep(self.config.disk_check_interval_seconds)
            if not self._stopping.is_set():
                await self._look_at_space()

    async def _look_at_space(self) -> None:
        for volume in self.live:
            try:
                await self._look_at_space_of(volume)
            except OSError as error:
                if self._several is None or not self._several.fail(volume, error):
                    raise
        before = self._registered_free_bytes
        self._count_free_bytes()
        if self._registered_free_bytes != before:
            self._register_again()

    def _count_free_bytes(self) -> None:
        free_bytes = sum(volume.ledger_free_bytes for volume in uncordoned(self.live))
        self._registered_free_bytes = registered_free_bytes(self._registered_free_bytes, free_bytes)

    async def _look_at_space_of(self, volume: Volume) -> None:
        config, store = self.config, volume.store
        free = {
            directory: await self._world.files.free_bytes(directory)
            for directory in volume.config.paths
        }
        fullest = min(free, key=lambda directory: free[directory])
        volume.free_bytes = free[fullest]
        volume.ledger_free_bytes = free[volume.config.ledger_path]
        limits = {
            "read_only_free_bytes": config.read_only_free_bytes,
            "reserved_bytes": config.reserved_bytes,
        }
        mode = next_mode(store.space, volume.free_bytes, **limits)
        if mode is store.space:
            return
        volume.space_reason = space_reason(mode, fullest, volume.free_bytes, **limits)
        _log.warning(
            "space on disk changed what the bookie takes",
            before=store.space.value,
            now=mode.value,
            free_bytes=volume.free_bytes,
            reason=volume.space_reason or "enough space is free again",
        )
        store.space = mode
        self._publish_mode()
        await store.journal.keep_spares(mode is SpaceMode.WRITABLE)

    def _follow_operator(self) -> None:
        """Follow the requests of operators, with the volumes that are there."""
        if self._operator is None:
            return
        cordoned = self._operator.cordoned
        for volume in self.volumes:
            volume.cordon_reason = (
                self._cordon_words(volume, cordoned[volume.name]) if volume.name in cordoned else ""
            )
        if self._drains is not None:
            self._drains.follow(self._operator.draining)
        is_read_only = bool(self._operator.reason) or all(
            volume.cordon_reason for volume in self.live
        )
        for volume in self.volumes:
            volume.store.is_set_read_only = is_read_only
        self._count_free_bytes()
        self._publish_mode()

    def _cordon_words(self, volume: Volume, reason: str) -> str:
        directory = volume.config.ledger_path
        why = f" ({reason})" if reason else ""
        return (
            f"an operator cordoned the volume {directory}{why}; to end that: pulsarish storage "
            f"uncordon {self.config.bookie_id} {directory}"
        )

    def _publish_mode(self) -> None:
        """Register what the bookie takes now, and how much."""
        # A read-only bookie makes no probes. Without one its last add would be old when it becomes
        # writable again.
        if self._takes_adds:
            self._wants_probe.set()
        self._register_again()

    def _register_again(self) -> None:
        if self._registrar is not None and self._registration is not None:
            wanted = msgspec.structs.replace(
                self._registration,
                read_only=not self.entries.is_writable,
                read_only_reason=self.read_only_reason,
                free_bytes=self._registered_free_bytes,
                limbo_below_ledger=self.entries.limbo_below,
                limbo_times=self.entries.limbo_times,
                lost_directories=tuple(self.lost_directories),
                cordoned_directories=tuple(self.cordoned_directories),
            )
            self._registration = wanted
            self._registrar.update(wanted)

    async def _run_garbage(self, volume: Volume, garbage: GarbageCollector) -> None:
        while not self._stopping.is_set():
            await garbage.wait(self.config.gc_interval_seconds)
            if self._stopping.is_set() or volume.failure is not None:
                return
            try:
                await garbage.collect()
            except OSError:
                raise  # what was written may not be durable
            except Exception as error:  # noqa: BLE001
                # Any error: the next round checks everything again.
                self._world.tasks.contain(
                    "garbage", error, Scope(ScopeKind.BACKGROUND, "a round of garbage collection")
                )

    async def _run_copies(self, volume: Volume, garbage: GarbageCollector) -> None:
        if volume.failure is None:
            await garbage.copies.follow()

    async def _run_scrub(self, volume: Volume, scrubber: Scrubber) -> None:
        while not self._stopping.is_set() and volume.failure is None:
            await self._world.clock.sleep(self.config.local_scrub_interval_seconds)
            if not self._stopping.is_set() and volume.failure is None:
                await scrubber.scrub()


async def _ledgers_given_out(records: Records) -> int:
    """Return an id that is above those of all ledgers.

    A tree that came back older does not know the last ones.

    Raises ``MetadataUnavailable``.
    """
    await records.sync(paths.LEDGER_IDS)
    found = await records.get(paths.LEDGER_IDS, LedgerIds)
    return _INT64_MAX if found is None else found[0].next_id


def _names_a_port(advertised: str) -> bool:
    return bool(advertised) and port_of(advertised_address(advertised, ":0")) != 0
