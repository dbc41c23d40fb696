"""A whole bookie: the order of its start, its background tasks, and its stop.

The start goes: locks, cookies, store (with replay), HTTP and gRPC listeners, registration. A
failure on the way ends the start with its reason. Nothing is served before everything that was
promised earlier is durable again. The metadata may be lost and come back while the bookie runs: it
continues to serve, and only deletion stops (rule 19).
"""

from __future__ import annotations

import asyncio
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
from pulsarish.bookie.replay import remove_below_mark
from pulsarish.bookie.scrub import Scrubber
from pulsarish.bookie.service import BookieService
from pulsarish.bookie.space import (
    SpaceMode,
    check_room_to_start,
    next_mode,
    registered_free_bytes,
    space_reason,
)
from pulsarish.bookie.store import EntryStore, has_data, how_to_rebuild, open_store
from pulsarish.bookie.trash import Trash
from pulsarish.bookie.tree_memory import remembered_age
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
        self.free_bytes = 0
        self._registered_free_bytes = 0
        self.space_reason = ""
        """Why the bookie is read-only for lack of space, and what helps; empty: it is not."""
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
        self._store: EntryStore | None = None
        self._service: BookieService | None = None
        self._registrar: Registrar | None = None
        self._operator: OperatorReadOnly | None = None
        self._registration: BookieRegistration | None = None
        self._garbage: GarbageCollector | None = None
        self._scrubber: Scrubber | None = None
        self._listeners: list[Listener] = []
        self.auto_recovery: AutoRecovery | None = None
        """The auto-recovery that runs in this process, if any."""
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._checkpoints: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self._position: JournalPosition | None = None
        self._positions: asyncio.Task[None] | None = None
        self._wants_probe = asyncio.Event()
        self._recovering: asyncio.Task[None] | None = None  # the start of auto-recovery

    @property
    def store(self) -> EntryStore:
        """The storage of a bookie that has started."""
        assert self._store is not None, "the bookie has not started"
        return self._store

    @property
    def garbage(self) -> GarbageCollector:
        """The garbage collection of a bookie that has started."""
        assert self._garbage is not None, "the bookie has not started"
        return self._garbage

    @property
    def age(self) -> TreeAge:
        """What a bookie that has started knows of the metadata's age."""
        assert self._age is not None, "the bookie has not started"
        return self._age

    @property
    def scrubber(self) -> Scrubber:
        """The scrubber of a bookie that has started."""
        assert self._scrubber is not None, "the bookie has not started"
        return self._scrubber

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
        return "; ".join(reason for reason in (self.space_reason, asked) if reason)

    @property
    def is_ready(self) -> bool:
        """Whether the bookie can serve.

        A writable bookie must have synced an add lately, of a client or its own probe.
        """
        return self.serves and (
            not self.store.is_writable
            or self.add_age_seconds <= self.config.add_probe_timeout_seconds
        )

    @property
    def add_age_seconds(self) -> float:
        """The time since an add was last synced, of a client or its own probe."""
        return self._world.clock.monotonic() - self.store.add_synced_seconds

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
        world, config = self._world, self.config
        config.validate()
        directories = [config.journal_path, config.ledger_path, config.index_path]
        for directory in directories:
            await world.files.lock(directory)
        await check_not_being_restored(self._records)
        self._age = await remembered_age(self._records, world.clock, world.files, config)
        guarded = Records(world.metadata, world.clock, world.random, guard=self._age)
        # The cookie says how far the journal has to reach. From an older tree it would demand too
        # little.
        await self._records.sync(paths.cookie(config.bookie_id))
        cookie = await agree_on_cookie(
            world.files,
            self._records,
            guarded,
            world.clock,
            world.random,
            Cookie(
                config.bookie_id,
                "",
                "",
                config.journal_path,
                config.ledger_path,
                config.index_path,
                created_ms=0,
            ),
            directories,
            has_data=await has_data(world.files, config),
        )
        self.instance_id = cookie.instance_id
        await self._make_room_to_start()
        try:
            self._store = store = await open_store(
                files=world.files,
                tasks=world.tasks,
                clock=world.clock,
                rng=world.random,
                open_index=world.open_index,
                config=config,
                instance_id=cookie.instance_id,
                ledgers_given_out=partial(_ledgers_given_out, guarded),
                durable_below=cookie.journal_position,
                limbo_times=cookie.limbo_times,
            )
        except IndexCorrupt as error:
            # Damage that only the replay met, or a compaction that it caused.
            raise BookieIOError(f"{error.strerror}. {how_to_rebuild(config)}") from error
        self._position = JournalPosition(guarded, world.clock, store, cookie)
        await self._look_at_space()
        self._operator = OperatorReadOnly(
            self._records, world.clock, self.instance_id, self._operator_changed
        )
        await self._operator.read()
        trash = Trash(store, world.clock)
        self._garbage = GarbageCollector(
            store,
            trash,
            self._records,
            LedgerStore(guarded, world.clock),
            self._age,
            world.clock,
            config,
            cluster_id=cookie.cluster_id,
        )
        self._service = BookieService(
            store,
            self._garbage,
            self._age,
            world.tasks,
            world.clock,
            config,
            lambda: self.free_bytes,
            self._access,
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
        self._scrubber = Scrubber(
            store, LedgerStore(self._records, world.clock), world.files, world.clock, config
        )
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
            read_only=not store.is_writable,
            read_only_reason=self.read_only_reason,
            limbo_below_ledger=store.limbo.ledgers_below,
            limbo_times=store.limbo.times,
            started_ms=world.clock.wall_ms(),
            framed_address=framed_address,
            zone=config.zone,
            region=config.region,
            free_bytes=self._registered_free_bytes,
        )
        self._registrar = Registrar(
            self._records, world.clock, self._registration, self._before_registering
        )
        self._checkpoints = world.tasks.spawn(
            self._run_checkpoints(), name="checkpoint", critical=Critical.CHECKPOINT
        )
        _ = world.tasks.spawn(self._run_space(), name="space", critical=Critical.SPACE)
        self._probe = run_in_background(world.tasks, world.clock, "probe", self._run_probe)
        _ = world.tasks.spawn(self._run_garbage(), name="garbage", critical=Critical.GARBAGE)
        if config.local_scrub_interval_seconds:
            _ = run_in_background(world.tasks, world.clock, "scrub", self._run_scrub)
        watch = partial(self._age.watch, config.metadata_check_interval_seconds)
        _ = run_in_background(world.tasks, world.clock, "metadata-age", watch)
        if self._access.ends_streams:
            _ = run_in_background(world.tasks, world.clock, "ends of streams", service.end_expired)
        _ = run_in_background(world.tasks, world.clock, "read-only", self._operator.follow)
        watch = partial(self._position.watch, config.journal_position_interval_seconds)
        self._positions = run_in_background(world.tasks, world.clock, "journal-position", watch)
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
            ledgers=store.states.count,
        )

    async def _make_room_to_start(self) -> None:
        """Make sure that the journal can preallocate its first file.

        Raises ``OSError`` without the space for it, and ``CorruptData``.
        """
        files, config = self._world.files, self.config
        needed_bytes = config.journal_file_size_bytes
        free_bytes = await files.free_bytes(config.journal_path)
        if free_bytes < needed_bytes:
            await remove_below_mark(files, config)
            free_bytes = await files.free_bytes(config.journal_path)
        check_room_to_start(config.journal_path, free_bytes, needed_bytes)

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
        for task in (self._probe, self._positions):
            if task is not None:
                task.cancel()
        for listener in self._listeners:
            await listener.stop(self.config.stop_grace_seconds)
        await self.http.stop(self.config.stop_grace_seconds)
        if self._service is not None:
            await self._service.wait_idle()
        if self._scrubber is not None:
            await self._scrubber.stop()
        if self._garbage is not None:
            await self._garbage.stop()
        if self._store is not None:
            self._store.checkpointer.hurry = True
            if self._checkpoints is not None:
                self._store.wants_checkpoint.set()
                await self._checkpoints
            await self._store.close()
        if self._position is not None:
            await self._position.store_last()
        self._stopped.set()

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
        if self._position is not None and not self.age.is_older:
            await self._position.store()

    async def _raise_ledger_ids(self) -> None:
        """Raise the counter of ledger ids above all ids that this bookie has.

        A tree that was restored from an old backup would otherwise give out an id again (rule 12).
        Raises ``MetadataUnavailable``.
        """
        found = await self._records.get(paths.LEDGER_IDS, LedgerIds)
        given_out = 0 if found is None else found[0].next_id
        above = await self.store.next_free_ledger(given_out)
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

    async def _run_checkpoints(self) -> None:
        store = self.store
        while not self._stopping.is_set():
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
                and self.store.is_writable
                and self.add_age_seconds >= interval
            ):
                await self.service.probe()

    async def _run_space(self) -> None:
        while not self._stopping.is_set():
            await self._world.clock.sleep(self.config.disk_check_interval_seconds)
            if not self._stopping.is_set():
                await self._look_at_space()

    async def _look_at_space(self) -> None:
        config, store = self.config, self.store
        directories = [config.journal_path, config.ledger_path, config.index_path]
        free = {
            directory: await self._world.files.free_bytes(directory) for directory in directories
        }
        fullest = min(free, key=lambda directory: free[directory])
        self.free_bytes = free[fullest]
        limits = {
            "read_only_free_bytes": config.read_only_free_bytes,
            "reserved_bytes": config.reserved_bytes,
        }
        mode = next_mode(store.space, self.free_bytes, **limits)
        before = self._registered_free_bytes
        self._registered_free_bytes = registered_free_bytes(before, free[config.ledger_path])
        if mode is store.space:
            if self._registered_free_bytes != before:
                self._register_again()
            return
        self.space_reason = space_reason(mode, fullest, self.free_bytes, **limits)
        _log.warning(
            "space on disk changed what the bookie takes",
            before=store.space.value,
            now=mode.value,
            free_bytes=self.free_bytes,
            reason=self.space_reason or "enough space is free again",
        )
        store.space = mode
        self._publish_mode()
        await store.journal.keep_spares(mode is SpaceMode.WRITABLE)

    def _operator_changed(self) -> None:
        if self._operator is not None:
            self.store.is_set_read_only = bool(self._operator.reason)
            self._publish_mode()

    def _publish_mode(self) -> None:
        """Register what the bookie takes now, and how much."""
        # A read-only bookie makes no probes. Without one its last add would be old when it becomes
        # writable again.
        if self.store.is_writable:
            self._wants_probe.set()
        self._register_again()

    def _register_again(self) -> None:
        if self._registrar is not None and self._registration is not None:
            wanted = msgspec.structs.replace(
                self._registration,
                read_only=not self.store.is_writable,
                read_only_reason=self.read_only_reason,
                free_bytes=self._registered_free_bytes,
            )
            self._registration = wanted
            self._registrar.update(wanted)

    async def _run_garbage(self) -> None:
        assert self._garbage is not None
        while not self._stopping.is_set():
            await self._garbage.wait(self.config.gc_interval_seconds)
            if self._stopping.is_set():
                return
            try:
                await self._garbage.collect()
            except OSError:
                raise  # what was written may not be durable
            except Exception as error:  # noqa: BLE001
                # Any error: the next round checks everything again.
                self._world.tasks.contain(
                    "garbage", error, Scope(ScopeKind.BACKGROUND, "a round of garbage collection")
                )

    async def _run_scrub(self) -> None:
        while not self._stopping.is_set():
            await self._world.clock.sleep(self.config.local_scrub_interval_seconds)
            if not self._stopping.is_set():
                await self.scrubber.scrub()


async def _ledgers_given_out(records: Records) -> int:
    """Return an id that is above those of all ledgers.

    A tree that came back older does not know the last ones.

    Raises ``MetadataUnavailable``.
    """
    found = await records.get(paths.LEDGER_IDS, LedgerIds)
    return _INT64_MAX if found is None else found[0].next_id


def _names_a_port(advertised: str) -> bool:
    return bool(advertised) and port_of(advertised_address(advertised, ":0")) != 0
