"""A topic's log under faults: rival owners on real ledgers and bookies, and the oracle that watches
them.

What must hold, whatever fails (rules 4, 14, 16, 17):

* an entry that was confirmed is in the log at its position with its bytes, unless it was trimmed,
  and then the subscription had it;
* no entry is in the log twice; the entries of one owner are in the order in which it appended them;
* an acknowledgement that was answered as durable is there for every later owner; no entry counts as
  acknowledged without a client's acknowledgement;
* an exact count of unacknowledged messages is right, whichever owner appended them;
* an owner that was replaced makes no acknowledgement durable that its successor does not know;
* after everything has healed, the topic can be opened, read to its end and appended to (liveness).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.options import LedgerOptions
from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import ManagedLedgerOptions, Retention
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata.paths import ROOTS
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import PulsarishError
from pulsarish.model.position import EARLIEST, Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.faults import FaultPlan
from pulsarish.sim.world.nodes import Node, NodeDied
from pulsarish.sim.world.world import Simulation

__all__ = [
    "LOG_FAULTS",
    "LOG_LEDGER_OPTIONS",
    "LogCounts",
    "LogSettings",
    "log_bookie",
    "run_log",
]

LOG_FAULTS: Final = (
    "crash",
    "pause",
    "cut",
    "clog",
    "slow_node",
    "slow_disk",
    "lose_answers",
    "slow_metadata",
    "break_session",
    "drift",
)

_NAME: Final = TopicName.parse("persistent://public/default/simulated")
_SUBSCRIPTION: Final = "s"
LOG_LEDGER_OPTIONS: Final = LedgerOptions(
    add_timeout_ms=800,
    heartbeat_interval_ms=500,
    check_interval_ms=100,
    read_timeout_ms=600,
    control_timeout_ms=800,
    quarantine_ms=2_000,
    explicit_lac_interval_ms=200,
    recovery_copies_wait_ms=50,
    ledger_id_block=3,
)
_SETTLE_SECONDS: Final = 30.0
_FINAL_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Amounts of load and faults. ``seconds`` is how long both last."""

    bookies: int = 3
    brokers: int = 3
    seconds: float = 10.0
    kinds: Sequence[str] = LOG_FAULTS
    quorums: tuple[int, int, int] = (3, 3, 2)
    entries_per_ledger: int = 12
    node_writes_max: int = 2
    rival_chance: float = 0.5
    """The chance that two brokers open the topic at about the same time."""
    stay_seconds: float = 2.0
    """The longest time that the topic stays with a broker."""
    dead_bookies: int = 0
    """Bookies that die early, for good."""
    blackout_seconds: float = 0.0
    """Mean pause between crashes of all bookies at once; 0: none."""
    dies_chance: float = 0.0
    """The chance that an owner's process dies within milliseconds of an append.

    Then the recovery of the ledger decides the outcome.
    """


@dataclass(slots=True)
class LogCounts:
    """Counts of what a run reached: a branch that no seed reaches is not tested."""

    opened: int = 0
    refused: int = 0
    fenced: int = 0
    confirmed: int = 0
    unknown_kept: int = 0
    acknowledged: int = 0
    ledgers: int = 0
    trimmed: int = 0
    messages_read: int = 0
    """Runs in which entries had to be read to count messages."""

    def add(self, other: LogCounts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class _Session:
    """One owner's time with the topic. It gets the events of the log as its ``LogListener``."""

    oracle: LogOracle
    number: int
    appended_count: int = 0
    next_confirmed: int = 0
    over: PulsarishError | None = None
    log: ManagedLedger | None = None

    def payload(self) -> bytes:
        payload = b"%d:%d" % (self.number, self.appended_count)
        self.appended_count += 1
        return payload

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        assert self.over is None, "confirmed after the fence"
        assert self.log is not None, "confirmed before it was open"
        payloads = [context for context in contexts if isinstance(context, bytes)]
        self.log.messages.add(first_entry, [_messages(payload) for payload in payloads])
        for offset, context in enumerate(contexts):
            assert isinstance(context, bytes)
            number = int(context.split(b":")[1])
            assert number >= self.next_confirmed, "confirmed out of order"
            self.next_confirmed = number + 1
            self.oracle.confirm(Position(ledger_id, first_entry + offset), context)

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        assert len(contexts) > 0
        assert error is not None

    def fenced(self, error: PulsarishError) -> None:
        assert self.over is None, "fenced twice"
        self.over = error


def _messages(payload: bytes | memoryview) -> int:
    """Return how many messages an entry stands for."""
    return 1 + int(bytes(payload).split(b":")[1]) % 3


@dataclass(slots=True)
class LogOracle:
    """What clients know."""

    confirmed: dict[Position, bytes] = field(default_factory=dict)
    # answered as durable; only for membership tests
    acknowledged: set[Position] = field(default_factory=set)
    maybe_acknowledged: set[Position] = field(default_factory=set)
    # the highest cumulative acknowledgement: it includes entries whose producer got no answer
    cumulative: Position = EARLIEST
    owners: list[tuple[_Session, ManagedLedger, Cursor]] = field(default_factory=list)
    counts: LogCounts = field(default_factory=LogCounts)

    def acknowledge(self, log: ManagedLedger, positions: Sequence[Position]) -> None:
        """Note that this owner answered them as durable."""
        self.acknowledged.update(positions)
        self.counts.acknowledged += len(positions)
        self.owners = [owner for owner in self.owners if owner[0].over is None]
        for session, other, cursor in self.owners:
            if other._topic.version > log._topic.version:
                unknown = [
                    position for position in positions if not cursor.is_acknowledged(position)
                ]
                assert not unknown, (
                    f"{unknown[0]} was acknowledged at an owner whose successor {session.number} "
                    "does not know of it"
                )

    def confirm(self, position: Position, payload: bytes) -> None:
        known = self.confirmed.setdefault(position, payload)
        assert known == payload, f"two values at {position}: {known!r} and {payload!r}"
        self.counts.confirmed += 1

    def check(self, log: Sequence[tuple[Position, bytes]], first: Position, cursor: Cursor) -> None:
        """Check everything at the end."""
        found = dict(log)
        assert len({payload for _, payload in log}) == len(log), "an entry is in the log twice"
        for position, payload in self.confirmed.items():
            if position < first:
                assert position in self.maybe_acknowledged, (
                    f"{position} was trimmed and never acknowledged"
                )
            else:
                assert found.get(position) == payload, (
                    f"confirmed {payload!r} at {position}, found {found.get(position)!r}"
                )
        latest: dict[int, int] = {}
        for position, payload in log:
            session, number = map(int, payload.split(b":"))
            assert latest.get(session, -1) < number, (
                f"{payload!r} at {position} is behind {latest[session]}"
            )
            latest[session] = number
            self.counts.unknown_kept += position not in self.confirmed
            if cursor.is_acknowledged(position):
                unconfirmed = position not in self.confirmed and position <= self.cumulative
                assert unconfirmed or position in self.maybe_acknowledged, (
                    f"{position} was skipped: no client acknowledged it"
                )
            else:
                assert position not in self.acknowledged, (
                    f"{position} was acknowledged durably and comes again"
                )


def log_bookie(name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
    """Return the program of a bookie with small files."""
    config = BookieConfig(
        bookie_id=name,
        listen_address=f"{name}:3181",
        http_address="",
        host=name,
        data_directory="/data",
        journal_file_size_bytes=1 << 15,
        journal_group_size_bytes=1 << 13,
        write_cache_size_bytes=1 << 14,
        read_cache_size_bytes=1 << 14,
        read_ahead_cache_size_bytes=1 << 13,
        read_ahead_batch_size_bytes=1 << 11,
        entry_log_size_bytes=1 << 15,
        read_only_free_bytes=1 << 18,
        reserved_bytes=1 << 17,
    )
    return lambda world: Bookie(world, config).run()


class _Workload:
    def __init__(self, sim: Simulation, settings: LogSettings, oracle: LogOracle) -> None:
        self.sim = sim
        self.oracle = oracle
        self._settings = settings
        self._rng = sim.workload
        self._clients: dict[str, tuple[int, LedgerClient]] = {}
        self._sessions = 0
        self._over = False
        ensemble_size, write_quorum, ack_quorum = settings.quorums
        self._options = ManagedLedgerOptions(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            max_entries_per_ledger=settings.entries_per_ledger,
            min_ledger_rollover_time_minutes=0,
            append_hold_ms=500,
            retry_wait_ms=10,
            retry_wait_max_ms=200,
            cursor_flush_interval_ms=300,
            cursor_max_entries_per_ledger=8,
            cursor_snapshot_interval_entries=3,
            cursor_idle_seconds=2,
            cursor_node_writes_max=settings.node_writes_max,
            max_unacked_ranges_to_persist_in_metadata_store=6,
            cursor_snapshot_part_bytes=256,
        )

    async def run(self) -> None:
        settings, sim = self._settings, self.sim
        bookies = [f"bookie{number}" for number in range(settings.bookies)]
        setup = sim.node("setup")
        await setup.run(self._prepare)
        for name in bookies:
            sim.node(name, log_bookie(name)).restart_after_seconds = 1.0
        brokers = [sim.node(f"broker{number}") for number in range(settings.brokers)]
        for node in brokers:
            node.restart_after_seconds = 0.5
        await asyncio.sleep(2.0)
        for name in bookies[: settings.dead_bookies]:
            sim.nodes[name].restart_after_seconds = None
            sim.at(0.5, sim.nodes[name].crash)
        living = bookies[settings.dead_bookies :]
        FaultPlan(
            sim, [*living, *(node.name for node in brokers)], settings.seconds, kinds=settings.kinds
        ).start()
        sim.at(settings.seconds, self._end_load)
        if settings.blackout_seconds:
            self._next_blackout(living)
        await self._move_about(brokers)
        await asyncio.sleep(_SETTLE_SECONDS)
        await self._final(sim.node("final"))

    def _end_load(self) -> None:
        self._over = True

    def _next_blackout(self, bookies: Sequence[str]) -> None:
        self.sim.at(
            self.sim.faults.expovariate(1 / self._settings.blackout_seconds),
            lambda: self._blackout(bookies),
        )

    def _blackout(self, bookies: Sequence[str]) -> None:
        if self._over:
            return
        for name in bookies:
            node = self.sim.nodes[name]
            node.crash()
            self.sim.at(self.sim.faults.uniform(0.1, 1.0), node.revive)
        self._next_blackout(bookies)

    async def _prepare(self, world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        for path in ROOTS:
            await records.ensure(path)
        await create_topic(records, _NAME, created_ms=world.clock.wall_ms())

    # -- owners

    async def _move_about(self, brokers: list[Node]) -> None:
        """Move the topic from broker to broker.

        Mostly the former owner is not notified. Sometimes two brokers take it at once.
        """
        rng = self._rng
        running: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        while not self._over:
            takers = rng.sample(brokers, 2 if rng.random() < self._settings.rival_chance else 1)
            running += [
                loop.create_task(self._own(node, rng.choice((0.0, 0.0, 0.002, 0.01))))
                for node in takers
            ]
            await asyncio.sleep(
                self._settings.stay_seconds * rng.choice((0.025, 0.25, 1.0)) * rng.random()
            )
        await asyncio.gather(*running)

    async def _own(self, node: Node, wait_seconds: float) -> None:
        if not node.alive or node.process is None:
            return
        try:
            await node.run(lambda world: self._serve(world, node, wait_seconds))
        except NodeDied:
            pass  # the next owner takes the topic over
        except PulsarishError as error:
            self.oracle.counts.refused += 1
            self.sim.trace(f"refused on {node}: {type(error).__name__}: {error}")

    async def _open(
        self, world: World, node: Node, session: _Session
    ) -> tuple[ManagedLedger, Cursor]:
        known = self._clients.get(node.name)
        if known is None or known[0] != node.incarnation:
            known = self._clients[node.name] = (
                node.incarnation,
                LedgerClient(world, LOG_LEDGER_OPTIONS),
            )
            await known[1].start()
        records = Records(world.metadata, world.clock, world.random)
        tail_bytes, read_bytes = self._rng.choice(((0, 1 << 20), (500, 4_000), (1 << 20, 0)))
        log = await ManagedLedger.open(
            _NAME,
            known[1],
            records,
            world,
            self._options,
            session,
            caches=EntryCaches(tail_bytes, read_bytes),
            retention=Retention(),
        )
        session.log = log
        cursor = await log.open_cursor(_SUBSCRIPTION, initial=EARLIEST)
        self.oracle.owners.append((session, log, cursor))
        return log, cursor

    async def _serve(self, world: World, node: Node, wait_seconds: float) -> None:
        rng, oracle = self._rng, self.oracle
        await world.clock.sleep(wait_seconds)
        self._sessions += 1
        session = _Session(oracle, self._sessions)
        log, cursor = await self._open(world, node, session)
        oracle.counts.opened += 1
        position = cursor.read_from
        pause = rng.choice((0.002, 0.02, 0.2))
        for _ in range(rng.randrange(5, 10 + int(25 * self._settings.stay_seconds))):
            if session.over is not None:
                oracle.counts.fenced += 1
                return
            match rng.choice(("append", "append", "consume", "consume", "rest", "trim")):
                case "append":
                    for _ in range(rng.randrange(1, 6)):
                        payload = session.payload()
                        log.append(payload, payload)
                    if self._settings.dies_chance and rng.random() < self._settings.dies_chance:
                        self.sim.at(rng.uniform(0.0, 0.01), node.crash)
                        self.sim.at(0.3, node.revive)
                case "consume":
                    position = await self._consume(log, cursor, position)
                case "trim":
                    oracle.counts.trimmed += await log.trimmer.trim()
                case _:
                    await world.clock.sleep(pause * rng.random())
        if rng.random() < 0.3:
            await log.close()

    async def _consume(self, log: ManagedLedger, cursor: Cursor, position: Position) -> Position:
        rng, oracle = self._rng, self.oracle
        entries = await log.read(position, max_entries=rng.randrange(1, 9), max_bytes=1_000)
        if not entries:
            return position
        for entry in entries:
            known = oracle.confirmed.get(entry.position)
            assert known is None or known == bytes(entry.payload), (
                f"{entry.position} reads {bytes(entry.payload)!r}, confirmed {known!r}"
            )
        positions = [entry.position for entry in entries if rng.random() < 0.7]
        oracle.maybe_acknowledged.update(positions)
        if positions and rng.random() < 0.2:
            # Everything below is acknowledged with it.
            last = positions[-1]
            oracle.maybe_acknowledged.update(found for found in oracle.confirmed if found <= last)
            oracle.maybe_acknowledged.update(
                entry.position for entry in entries if entry.position <= last
            )
            oracle.cumulative = max(oracle.cumulative, last)
            positions = [last]
            cursor.acknowledge_cumulative(last)
        else:
            cursor.acknowledge(positions)
        if rng.random() < 0.8:
            await cursor.flush()
            oracle.acknowledge(log, positions)
        return log.next_position(entries[-1].position)

    # -- the end

    async def _final(self, node: Node) -> None:
        deadline = self.sim.loop.time() + _FINAL_SECONDS
        while True:
            try:
                await node.run(lambda world: self._last_look(world, node))
            except PulsarishError as error:
                if self.sim.loop.time() > deadline:
                    raise AssertionError(
                        "the topic cannot be opened and read although all is well again"
                    ) from error
                await asyncio.sleep(0.5)
            else:
                return

    async def _last_look(self, world: World, node: Node) -> None:
        self._sessions += 1
        session = _Session(self.oracle, self._sessions)
        log, cursor = await self._open(world, node, session)
        log.trimmer.retention = Retention(-1, -1)
        for _ in range(20):
            payload = session.payload()
            log.append(payload, payload)
        while log.pending_entries and session.over is None:
            await world.clock.sleep(0.01)
        assert session.over is None, f"the only owner was fenced: {session.over}"
        first = log.first_position
        found: list[tuple[Position, bytes]] = []
        position = first
        while entries := await log.read(position, max_entries=50, max_bytes=4_096):
            found += [(entry.position, bytes(entry.payload)) for entry in entries]
            position = log.next_position(entries[-1].position)
        self.oracle.counts.ledgers += len(log.ledgers)
        self.oracle.check(found, first, cursor)
        await self._count_messages(log, cursor, found)

    async def _count_messages(
        self, log: ManagedLedger, cursor: Cursor, entries: Sequence[tuple[Position, bytes]]
    ) -> None:
        left = sum(
            _messages(payload)
            for position, payload in entries
            if not cursor.is_acknowledged(position)
        )
        counted = log.messages.backlog(cursor)
        self.oracle.counts.messages_read += counted.is_estimate
        if counted.is_estimate:
            await log.messages.complete(
                [cursor], lambda entry: _messages(entry.payload), entries_max=1_000_000
            )
            counted = log.messages.backlog(cursor)
        assert not counted.is_estimate, "messages are not counted although all was read"
        assert counted.messages == left, f"{counted.messages} messages counted, {left} are there"


def run_log(seed: int, settings: LogSettings | None = None) -> LogCounts:
    """Run one seed. Return the counts. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    oracle = LogOracle()
    workload = _Workload(sim, settings or LogSettings(), oracle)
    sim.run(workload.run, max_virtual_seconds=400)
    return oracle.counts
