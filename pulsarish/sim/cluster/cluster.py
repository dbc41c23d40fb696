"""A whole cluster in simulation: the real bookies and brokers.

Limits are so small that the load reaches them all the time.

The machine of a node that dies, by a crash or of its own error, starts it again, as a supervisor of
processes does.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.rebuild import rebuild_bookie
from pulsarish.bookie.tree_memory import remembered_age
from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.topics.topic import Topic
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.options import LedgerOptions
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, LedgerIds
from pulsarish.model.errors import MetadataUnavailable, NotFound
from pulsarish.runtime.seams import SessionState, World
from pulsarish.sim.cluster.cluster_lock import ClusterLock
from pulsarish.sim.cluster.limits import USUAL, Limits
from pulsarish.sim.world.disk import injected_fault
from pulsarish.sim.world.nodes import Node, NodeDied
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import decode_record

__all__ = ["LEDGER_OPTIONS", "ClusterSettings", "SimCluster", "draw_cluster", "widen"]

_RESTART_SECONDS: Final = 1.0
_ON_THE_WAY_SECONDS: Final = 1.0
"""How long messages of a broker that has stopped serving may still arrive at clients."""
# A graceful stop that takes longer is cut short, as a machine's supervisor does.
_STOP_SECONDS: Final = 5.0
_MIB: Final = 1 << 20
_PENDING_ENTRIES_MAX: Final = 64
_MESSAGE_BYTES_MAX: Final = 4_096
_STREAMS_MAX: Final = 32
"""Limit of the add streams of one bookie at a time. Each may bring one message beyond a limit."""

# Errors that end a starting process without being a defect: other nodes do not answer. The machine
# starts it again.
_START_ERRORS: Final = (MetadataUnavailable,)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Properties of the cluster that a seed draws. Quorums are E, Qw, Qa."""

    bookies: int
    brokers: int
    quorums: tuple[int, int, int]
    deduplication: bool
    partitions: int
    entries_per_ledger: int
    cursor_node_writes_max: int
    cursor_flush_interval_ms: int
    read_batch: int
    bundles: int
    repair: bool
    """Bookies host auto-recovery. Its delays are so short that it works while everything fails."""
    limits: Limits = USUAL
    racks: int = 1
    """Number of racks. Bookies are assigned to them in turn."""
    balances: bool = False
    """The balancer runs again and again, and bundles rest for a moment only."""
    binary_face: bool = False
    """Brokers also serve Apache Pulsar's protocol."""


def draw_cluster(rng: random.Random) -> ClusterSettings:
    """Draw a cluster: each seed has another one (swarm testing)."""
    quorums = rng.choice(((3, 3, 2), (3, 3, 2), (3, 2, 2), (2, 2, 2)))
    return ClusterSettings(
        bookies=rng.choice((3, 4, 4, 5)),
        brokers=rng.choice((2, 2, 3)),
        quorums=quorums,
        deduplication=rng.random() < 0.5,
        partitions=rng.choice((0, 0, 2)),
        entries_per_ledger=rng.choice((4, 15, 60)),
        cursor_node_writes_max=rng.choice((0, 3)),
        read_batch=rng.choice((1, 4, 30)),
        bundles=rng.choice((1, 4)),
        cursor_flush_interval_ms=rng.choice((200, 4_000)),
        repair=rng.random() < 0.5,
    )


_WIDE_QUORUMS: Final = (
    (5, 3, 2),
    (7, 3, 2),
    (7, 5, 3),
    (5, 5, 3),
    (4, 4, 4),
    (3, 3, 3),
    (5, 2, 2),
    (3, 3, 1),
    (4, 2, 1),
    (1, 1, 1),
)


def widen(settings: ClusterSettings, rng: random.Random) -> ClusterSettings:
    """Return another shape of the same cluster: more bookies, every relation of the quorums, racks,
    and ledgers that never fill up.
    """
    quorums = rng.choice(_WIDE_QUORUMS)
    bookies = max(settings.bookies, quorums[0] + rng.choice((0, 0, 1)))
    entries = rng.choice((settings.entries_per_ledger, 2, 5_000))
    return replace(
        settings,
        bookies=bookies,
        quorums=quorums,
        racks=rng.choice((1, 2, 3)),
        entries_per_ledger=entries,
    )


LEDGER_OPTIONS: Final = LedgerOptions(
    add_timeout_ms=800,
    heartbeat_interval_ms=500,
    check_interval_ms=200,
    read_timeout_ms=600,
    control_timeout_ms=800,
    quarantine_ms=2_000,
    explicit_lac_interval_ms=500,
    window_entries=32,
    message_bytes_target=2_048,
    recovery_read_entries=7,
    recovery_copies_wait_ms=50,
    ledger_id_block=3,
    metadata_check_interval_ms=10_000,
)

_REPAIR: Final = AutoRecoveryOptions(
    lost_bookie_recovery_delay_seconds=1.5,
    auditor_check_interval_seconds=1.0,
    auditor_periodic_bookie_check_interval_seconds=8.0,
    auditor_periodic_check_interval_seconds=15.0,
    auditor_page_ledgers=3,
    open_ledger_rereplication_grace_period_seconds=1.0,
    replication_ledgers_max=2,
    replication_batch_bytes=1_024,
    rw_rereplicate_backoff_ms=300,
    rw_rereplicate_backoff_max_ms=3_000,
    ledger=msgspec.structs.replace(LEDGER_OPTIONS, check_interval_ms=500),
)


def _bookie_id(name: str, wipes: int) -> str:
    return f"{name}-{wipes}" if wipes else name


def _bookie_config(name: str, settings: ClusterSettings, *, wipes: int) -> BookieConfig:
    repair = settings.repair
    config = BookieConfig(
        # A machine that comes back without its data is another bookie at the same address.
        bookie_id=_bookie_id(name, wipes),
        listen_address=f"{name}:3181",
        http_address="",
        host=name,
        rack=f"rack{int(name.removeprefix('bookie')) % settings.racks}"
        if settings.racks > 1
        else "",
        data_directory="/data",
        journal_file_size_bytes=1 << 15,
        journal_group_size_bytes=1 << 13,
        write_cache_size_bytes=1 << 14,
        read_cache_size_bytes=1 << 14,
        read_ahead_cache_size_bytes=1 << 13,
        read_ahead_batch_size_bytes=1 << 11,
        entry_log_size_bytes=1 << 15,
        open_ledgers_max=8,
        open_entry_logs_max=2,
        checkpoint_interval_seconds=1.5,
        journal_position_interval_seconds=1.0,
        read_only_free_bytes=1 << 18,
        reserved_bytes=1 << 17,
        gc_interval_seconds=5.0,
        add_probe_interval_seconds=8.0,
        add_probe_timeout_seconds=24.0,
        gc_second_look_seconds=4.0,
        trash_grace_seconds=3.0,
        metadata_check_interval_seconds=10.0,
        disk_check_interval_seconds=1.0,
        local_scrub_interval_seconds=5.0 if repair else 0.0,
        auto_recovery_daemon_enabled=repair,
        auto_recovery=_REPAIR,
    )
    return msgspec.structs.replace(config, **settings.limits.bookie)


_BUSY_BALANCER: Final = {
    "load_balancer_interval_seconds": 0.4,
    "load_balancer_imbalance_percent": 5,
    "load_balancer_bundle_rest_seconds": 0.8,
    "load_balancer_wait_seconds": 0.5,
    "load_balancer_namespace_bundle_max_topics": 3,
    "load_balancer_namespace_maximum_bundles": 8,
}
_NO_BALANCER: Final = {
    "load_balancer_enabled": False,
    "load_balancer_auto_bundle_split_enabled": False,
}


def _broker_config(name: str, settings: ClusterSettings) -> BrokerConfig:
    ensemble_size, write_quorum, ack_quorum = settings.quorums
    log = ManagedLedgerOptions(
        max_entries_per_ledger=settings.entries_per_ledger,
        ensemble_size=ensemble_size,
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        min_ledger_rollover_time_minutes=0,
        pending_entries_max=_PENDING_ENTRIES_MAX,
        append_hold_ms=2_000,
        cursor_flush_interval_ms=settings.cursor_flush_interval_ms,
        cursor_max_entries_per_ledger=12,
        cursor_snapshot_interval_entries=4,
        cursor_snapshot_part_bytes=256,
        cursor_idle_seconds=3,
        cursor_node_writes_max=settings.cursor_node_writes_max,
        cursor_node_writes_window_ms=2_000,
        max_unacked_ranges_to_persist_in_metadata_store=4,
    )
    limits = settings.limits
    config = BrokerConfig(
        broker_id=name,
        listen_address=f"{name}:6660",
        http_address=f"{name}:8080",
        pulsar_address=f"{name}:6650" if settings.binary_face else "",
        managed_ledger_cache_size_bytes=4_096,
        managed_ledger_read_cache_size_bytes=32_768,
        managed_ledger_maintenance_interval_seconds=2.0,
        dispatcher_progress_timeout_ms=12_000,
        managed_ledger=msgspec.structs.replace(log, **limits.log),
        ledger=msgspec.structs.replace(LEDGER_OPTIONS, **limits.ledger),
        allow_auto_topic_creation_type="partitioned" if settings.partitions else "non-partitioned",
        default_num_partitions=max(1, settings.partitions),
        default_number_of_namespace_bundles=settings.bundles,
        max_message_size_bytes=_MESSAGE_BYTES_MAX,
        max_publish_bytes_per_connection=_MIB,
        max_concurrent_non_persistent_message_per_connection=5,
        message_bytes_target=1_024,
        producer_open_wait_seconds=3.0,
        keep_alive_interval_seconds=2.0,
        keep_alive_timeout_seconds=6.0,
        broker_deduplication_enabled=settings.deduplication,
        broker_deduplication_entries_interval=10,
        broker_deduplication_snapshot_interval_seconds=3,
        dispatcher_max_read_batch_size=settings.read_batch,
        dispatcher_max_round_robin_batch_size=3,
        dispatcher_read_failure_backoff_max_time_ms=1_000,
        max_unacked_messages_per_consumer=200,
        max_unacked_messages_per_subscription=400,
    )
    balancer = _BUSY_BALANCER if settings.balances else _NO_BALANCER
    config = msgspec.structs.replace(config, **balancer)
    return msgspec.structs.replace(config, **limits.broker)


class SimCluster:
    """Boots the nodes of a cluster. ``service_url`` names all brokers."""

    def __init__(self, sim: Simulation, settings: ClusterSettings) -> None:
        self.sim = sim
        self.lock: ClusterLock | None = None
        """Set before ``boot``: nodes ask for credentials."""
        self.settings = settings
        self.bookies = [f"bookie{number}" for number in range(settings.bookies)]
        self.brokers = [f"broker{number}" for number in range(settings.brokers)]
        self.service_url = "pulsarish://" + ",".join(f"{name}:6660" for name in self.brokers)
        self._running: dict[str, Bookie | Broker] = {}
        self._rebuilding: dict[str, None] = {}
        self._unregistered_at = (
            -math.inf
        )  # when a broker last learned that its registration is gone
        self.indexes_rebuilt = 0
        self._giving_up: dict[str, None] = {}
        self.journals_given_up = 0
        self.unread: dict[str, None] = {}
        """Bookies whose index was rebuilt although a part of their entry logs could not be read."""

    def boot(self) -> None:
        for name in self.bookies:
            self._node(name, self._bookie(name))
        for name in self.brokers:
            self._node(name, self._broker(name))

    def _node(self, name: str, main: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        node = self.sim.node(name, main)
        node.restart_after_seconds = _RESTART_SECONDS
        node.expect_at_start(*_START_ERRORS)

    def _bookie(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        async def main(world: World) -> None:
            config = _bookie_config(
                name, self.settings, wipes=self.sim.nodes[name].disk.wipes_count
            )
            if self.lock is not None:
                config = msgspec.structs.replace(config, **self.lock.bookie_options())
            if name in self._rebuilding:
                await self._rebuild(name, config, world)
                return
            if name in self._giving_up:
                config = msgspec.structs.replace(config, journal_corruption="limbo")
            bookie = self._running[name] = Bookie(world, config)
            await bookie.start()
            if self._giving_up.pop(name, 0) is None:
                self.journals_given_up += 1

        return main

    async def _rebuild(self, name: str, config: BookieConfig, world: World) -> None:
        """Run the operator's command, then start the bookie.

        If the command ends early, whatever the reason, it is run again.
        """
        node = self.sim.nodes[name]
        disk, process = node.disk, node.process

        async def given_out() -> int:
            age = await remembered_age(
                Records(world.metadata, world.clock, world.random), world.clock, world.files, config
            )
            found = await Records(world.metadata, world.clock, world.random, guard=age).get(
                paths.LEDGER_IDS, LedgerIds
            )
            return 0 if found is None else found[0].next_id

        try:
            found, _ = await rebuild_bookie(
                world.files,
                world.open_index,
                config,
                given_out=given_out,
                remove=lambda path: disk.indexes.pop(path, None),
                replace=disk.replace_index,
                progress=lambda _logs, _of, _entries: None,
            )
        except NotFound as error:
            self.sim.trace(f"nothing to rebuild on {name}: {error}")
        else:
            self.indexes_rebuilt += 1
            self.sim.trace(f"index of {name} rebuilt: {found.entries} entries")
            if found.unreadable_records:
                self.unread[name] = None
        del self._rebuilding[name]

        def start() -> None:
            if node.process is process:
                node.restart()

        self.sim.at(0.0, start)

    def _broker(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        lock = self.lock
        config = msgspec.structs.replace(
            _broker_config(name, self.settings), **(lock.broker_options() if lock else {})
        )
        config.validate()

        async def main(world: World) -> None:
            broker = self._running[name] = Broker(
                world,
                config,
                authenticator=None if lock is None else lock.authenticator(world, config),
            )
            registry = broker._ownership.registry
            lost = registry._lost

            def unregistered(reason: str) -> None:
                self._unregistered_at = self.sim.loop.time()
                lost(reason)

            registry._lost = unregistered
            await broker.start()

        return main

    # -- reading the state of the nodes, from outside

    def _up(self, name: str) -> Bookie | Broker | None:
        running = self._running.get(name)
        return running if running is not None and self.sim.nodes[name].alive else None

    def bookies_running(self) -> Iterator[tuple[str, Bookie]]:
        """Yield the bookies whose process is alive, ready or not."""
        for name in self.bookies:
            bookie = self._up(name)
            if isinstance(bookie, Bookie):
                yield name, bookie

    def bookies_up(self) -> Iterator[tuple[str, Bookie]]:
        """Yield the bookies that serve."""
        for name, bookie in self.bookies_running():
            if bookie.serves:
                yield name, bookie

    def brokers_up(self) -> Iterator[tuple[str, Broker]]:
        for name in self.brokers:
            broker = self._up(name)
            if isinstance(broker, Broker):
                yield name, broker

    def stop_balancing(self) -> None:
        """Let bundles stay where they are from now on."""
        for _, broker in self.brokers_up():
            broker._balancer.stop()
            broker._splitter.stop()

    def owner_may_be_stale(self) -> bool:
        """Return whether a broker serves although its registration is gone, or did a moment ago.

        It was cut off or asleep and was evicted, and does not know that yet.
        """
        if self.sim.loop.time() - self._unregistered_at < _ON_THE_WAY_SECONDS:
            return True
        nodes = self.sim.metadata.tree.nodes
        registrations = (broker._ownership.registry.me for _, broker in self.brokers_up())
        return any(
            me is not None and paths.broker(me.instance_id) not in nodes for me in registrations
        )

    def ledger_clients(self) -> Iterator[tuple[str, LedgerClient]]:
        for name, broker in self.brokers_up():
            yield name, broker._ledgers

    def loaded_topics(self) -> Iterator[tuple[str, Topic]]:
        for name, broker in self.brokers_up():
            for topic in broker._topics.loaded.values():
                yield name, topic

    def is_lost(self, name: str) -> bool:
        """Return whether a node's metadata session is lost, according to the node itself."""
        world = self.sim.nodes[name].world
        return world is not None and world.metadata.state is SessionState.LOST

    def roots(self) -> list[object]:
        """Return the root objects of the living nodes.

        All their other objects are reached from these.
        """
        return [
            node for name in [*self.bookies, *self.brokers] if (node := self._up(name)) is not None
        ]

    def sessions(self) -> list[int]:
        """Return the sessions that living nodes have with the metadata service."""
        return [node.session_id for node in self.sim.nodes.values() if node.alive]

    def beyond_limits(self) -> Iterator[str]:
        """Yield the queues and caches that hold more than their options allow.

        One message may be added to what was below its limit.
        """
        for name, bookie in self.bookies_up():
            config, store = bookie.config, bookie.store
            # Each half takes one message beyond its limit, and small entries take more memory than
            # their bytes.
            if (
                store.cache.size_bytes
                > 4 * config.write_cache_size_bytes + 2 * _PENDING_ENTRIES_MAX * _MESSAGE_BYTES_MAX
            ):
                yield (
                    f"the write cache of {name} holds {store.cache.size_bytes} of "
                    f"{config.write_cache_size_bytes} bytes"
                )
            if (
                bookie.service.unanswered_bytes
                > 2 * config.journal_queue_size_bytes + _STREAMS_MAX * _MESSAGE_BYTES_MAX
            ):
                yield (
                    f"{name} owes answers to {bookie.service.unanswered_bytes} of "
                    f"{config.journal_queue_size_bytes} bytes"
                )
        for name, broker in self.brokers_up():
            caches = broker._topics.caches
            for what, cache in (("tail", caches.tail), ("read", caches.reads)):
                if cache.size_bytes > cache.limit_bytes:
                    yield (
                        f"the {what} cache of {name} holds {cache.size_bytes} of "
                        f"{cache.limit_bytes} bytes"
                    )
        for name, topic in self.loaded_topics():
            # Each connection that publishes may add one message.
            pending_max = topic.log._appender._options.pending_entries_max
            if topic.log.pending_entries > pending_max + 3 * _PENDING_ENTRIES_MAX:
                yield (
                    f"{topic.name} on {name} has {topic.log.pending_entries} of {pending_max} "
                    "entries pending"
                )

    def reached_limits(self) -> Iterator[str]:
        """Yield the limits at which a request waits now, by the names of their counts."""
        for _, bookie in self.bookies_up():
            if bookie.service._all_adds.full:
                yield "bookies_full"
            if bookie.store.cache.is_full:
                yield "caches_full"
        for _, broker in self.brokers_up():
            if broker._face._traffic.budget.full:
                yield "brokers_full"
            for writer in broker._ledgers._writers.values():
                if writer._replicator.crowded:
                    yield "streams_crowded"
                elif not writer.has_room:
                    yield "windows_full"
        for _, topic in self.loaded_topics():
            if not topic.log.has_room:
                yield "topics_full"

    # -- actions of operators

    def replace_lost(self, names: Sequence[str]) -> None:
        """Give up bookies that do not vouch for their data any more, as an operator does.

        Empty machines replace them.
        """
        for name in names:
            bookie, node = self._running.get(name), self.sim.nodes[name]
            if (
                isinstance(bookie, Bookie)
                and node.alive
                and bookie.serves
                and name not in self._rebuilding
            ):
                continue
            node.crash()
            node.disk.wipe()
            node.start()

    def rebuild_index(self, name: str) -> None:
        """Stop a bookie, rebuild its index and start it again, as an operator does."""
        self._rebuilding[name] = None
        self.sim.nodes[name].restart()

    def give_up_journal(self, name: str) -> None:
        """Start a bookie once without the records that are missing in its journal, as an operator
        does.
        """
        self._giving_up[name] = None
        self.sim.nodes[name].restart()

    def journal_end(self, name: str) -> int | None:
        """Return the number of the next record of a bookie's journal, or None when the bookie does
        not serve.
        """
        bookie = dict(self.bookies_up()).get(name)
        return None if bookie is None else bookie.store.journal.queue.next_sequence

    def position_known(self, name: str) -> int:
        """Return the record number up to which (exclusive) the metadata know that a bookie's
        journal is durable.
        """
        node = self.sim.metadata.tree.get(
            paths.cookie(_bookie_id(name, self.sim.nodes[name].disk.wipes_count))
        )
        return 0 if node is None else decode_record(node.data, Cookie, name).journal_position

    def gone_for_good(self) -> list[str]:
        """Return the ids of bookies whose machines lost everything and are other bookies now."""
        wipes = {name: self.sim.nodes[name].disk.wipes_count for name in self.bookies}
        return [
            _bookie_id(name, number) for name, count in wipes.items() for number in range(count)
        ]

    async def restart_gracefully(self, name: str) -> None:
        """Send SIGTERM, then start a new process. A process that cannot stop in time is killed."""
        node: Node = self.sim.nodes[name]
        if not node.alive or node.paused:
            return
        running, incarnation = self._running.get(name), node.incarnation

        async def stop(world: World) -> None:
            if running is not None:
                async with asyncio.timeout(_STOP_SECONDS):
                    await running.stop()
                await world.metadata.close()

        self.sim.trace(f"stop {name} gracefully")
        try:
            await node.run(stop)
        except (NodeDied, OSError) as error:
            if not isinstance(error, NodeDied | TimeoutError) and injected_fault(error) is None:
                raise
            self.sim.trace(f"stop of {name} was cut short: {error!r}")
        if node.incarnation == incarnation and node.alive:
            node.restart()
