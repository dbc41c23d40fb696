"""A long run: a steady load over several topics while faults of all kinds come, one after another;
then everything is healed, read back, and verified on every bookie.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import Any, Final

from pulsarish.chaos.process_memory import ProcessMemory
from pulsarish.chaos.scenario import READ_SILENCE_SECONDS, Scenario
from pulsarish.chaos.soak_consumers import SoakConsumers, keyed_topics
from pulsarish.chaos.soak_faults import SoakFaults, run_storage_command
from pulsarish.chaos.soak_history import SoakHistory
from pulsarish.chaos.soak_load import Payloads, SoakLoad, read_topics
from pulsarish.chaos.soak_picture import draw_soak
from pulsarish.chaos.soak_schedule import (
    NEEDS_WHOLE,
    CopyGuard,
    Fault,
    FaultKind,
    Limits,
    draw_faults,
)
from pulsarish.chaos.stage import METADATA, Measured, Quorums, Stage, VoidRun
from pulsarish.local_cluster.restarts import why_not_whole
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerState

__all__ = ["SOAK_SCENARIOS"]

_BACK_SECONDS: Final = 180.0
_REPAIR_SECONDS: Final = 1_800.0
_SETTLE_SECONDS: Final = 1_800.0
_LOOK_SECONDS: Final = 2.0
_SECONDS_MAX: Final = 40.0
"""No fault lasts longer, unless something has to be waited for. It is more than a session."""
_SAMPLES: Final = 1_000
_NODES_MORE: Final = 2
_ALL_LINKS: Final = frozenset({"metadata", "broker", "bookie"})
_TRACEBACK: Final = "Traceback (most recent call last)"


class Soak:
    """One run on a stage, which must be that of ``prepare``."""

    def __init__(self, stage: Stage) -> None:
        options = stage.options
        self._stage = stage
        self._topics = [f"{stage.topic_name}-{number}" for number in range(1, options.topics + 1)]
        self._history = SoakHistory()
        self._payloads = Payloads(options.seed, options.message_bytes)
        self._guard = CopyGuard(options.quorums.ack)
        self._faults = SoakFaults(stage, self._guard, self._topics)
        self._consumers: SoakConsumers | None = None
        self._rows: list[dict[str, Any]] = []
        self._repairs: list[float] = []
        self._verified: list[dict[str, Any]] = []
        self._memory = ProcessMemory(
            lambda: [node.name for node in stage.cluster.nodes()],
            self._rss_bytes,
            lambda: self._history.acked_count,
            every_seconds=max(1.0, options.duration_seconds / _SAMPLES),
        )
        stage.topic_name = self._topics[0]
        stage.history = self._history
        stage.make_load = self._make_load
        stage.measured = self._measured
        stage.at_end.append(self._memory.stop)

    def _make_load(self, stage: Stage) -> SoakLoad:
        load = SoakLoad(
            stage.client,
            self._topics,
            self._history,
            payloads=self._payloads,
            window=stage.options.window,
            send_timeout_ms=stage.options.send_timeout_ms,
            ack_seconds=stage.ack_seconds,
            keyed=keyed_topics(self._topics),
        )
        self._consumers = SoakConsumers(stage.client, self._history, self._payloads, load.elapsed)
        stage.at_end.append(self._consumers.stop)
        self._memory.start()
        return load

    def _rss_bytes(self, name: str) -> int:
        return self._stage.cluster.rss_bytes(name)

    @property
    def consumers(self) -> SoakConsumers:
        assert self._consumers is not None, "the load was made"
        return self._consumers

    # -- faults

    def run(self) -> None:
        """Make faults until the duration is over; heal everything."""
        stage, options = self._stage, self._stage.options
        ends = time.monotonic() + options.duration_seconds
        faults = self._drawn()
        stage.mark("fault", f"the first of up to {len(faults)} faults, seed {options.seed}")
        try:
            for fault in faults:
                due = time.monotonic() + options.fault_every_seconds
                if due > ends:
                    break
                self._make(fault)
                self._wait_until(due)
            self._wait_until(ends)
        finally:
            self._heal()
        if not self._rows:
            raise VoidRun("there was no time for a fault: make --duration longer")
        stage.mark("bite", f"{len(self._rows)} faults were made")
        self._wait_repaired()
        self._wait_back("the last fault")
        stage.mark("heal", "every node serves and nothing is under-replicated")

    def _drawn(self) -> list[Fault]:
        options = self._stage.options
        more = 0 if options.secure else _NODES_MORE
        names = {
            role: [node.name for node in self._stage.cluster.nodes() if node.role == role]
            for role in ("bookie", "broker")
        }
        return draw_faults(
            options.seed,
            int(options.duration_seconds / options.fault_every_seconds) + 1,
            metadata=[METADATA],
            bookies=names["bookie"],
            brokers=names["broker"],
            limits=Limits(
                bookies_min=max(options.quorums.write + 1, options.bookies - more)
                if more
                else options.bookies,
                bookies_max=options.bookies + more,
                brokers_min=max(2, options.brokers - more) if more else options.brokers,
                brokers_max=options.brokers + more,
                ack_quorum=options.quorums.ack,
                seconds_max=min(_SECONDS_MAX, options.fault_every_seconds * 2 / 3),
            ),
        )

    def _make(self, fault: Fault) -> None:
        stage = self._stage
        if fault.kind in NEEDS_WHOLE:
            self._wait_repaired()
        began = stage.load.elapsed()
        row = {"at_seconds": round(began, 1), **fault.row()}
        self._rows.append(row)
        may_overlap = fault.node == METADATA or (
            fault.kind in (FaultKind.PAUSE, FaultKind.CUT) and fault.node.startswith("broker")
        )
        if may_overlap:
            self.consumers.begin_overlap()
        try:
            self._check_processes()
            row["what"] = self._faults.make(fault)
            self._wait_back(f"{fault.kind} of {fault.node}")
        except (VoidRun, PulsarishError, OSError) as error:
            if stage.ended.is_set():
                raise
            row["failed"] = str(error)
            stage.wrong.append(f"{fault.kind} of {fault.node} at {began:.0f} s: {error}")
            self._heal()
        finally:
            if may_overlap:
                self.consumers.end_overlap()
        row["took_seconds"] = round(stage.load.elapsed() - began, 1)
        stage.say(
            f"  {began:7.1f} s, {self._history.acked_count} acknowledged: {fault.kind} of "
            f"{fault.node}: {row.get('failed') or row['what']} ({row['took_seconds']} s)"
        )

    def _check_processes(self) -> None:
        """Start a node again that has ended by itself, which is wrong."""
        stage = self._stage
        for node in stage.cluster.staying():
            if stage.cluster.pid(node.name) is None:
                stage.wrong.append(f"{node.name} had ended by itself")
                stage.start(node.name)

    def _heal(self) -> None:
        """Undo what a fault that failed may have left."""
        stage = self._stage
        stage.act(stage.relays.heal())
        for node in stage.cluster.staying():
            with contextlib.suppress(PulsarishError):
                if stage.cluster.pid(node.name) is None:
                    stage.start(node.name)
                else:
                    stage.resume(node.name)

    def _wait_back(self, what: str) -> None:
        """Every node serves, and every topic takes messages."""
        stage = self._stage
        stage.wait(f"every node serves after {what}", self._serves_all, _BACK_SECONDS)
        before = {topic.topic: topic.acked_count for topic in self._history.topics}

        def takes_messages() -> bool:
            return all(each.acked_count > before[each.topic] for each in self._history.topics)

        stage.wait(f"every topic takes messages after {what}", takes_messages, _BACK_SECONDS)

    def _serves_all(self) -> bool:
        stage = self._stage
        names = {
            role: {node.name for node in stage.cluster.staying() if node.role == role}
            for role in ("broker", "bookie")
        }
        return (
            set(stage.observer.brokers()) == names["broker"]
            and {name for name, each in stage.observer.bookies().items() if not each.read_only}
            == names["bookie"]
        )

    def _wait_until(self, due: float) -> None:
        while (left := due - time.monotonic()) > 0:
            self._look_for_repair()
            self._stage.sleep(min(left, _LOOK_SECONDS))

    def _look_for_repair(self) -> bool:
        repair = self._faults.repair
        if not self._faults.is_repaired():
            return False
        if repair is not None:
            took = time.monotonic() - repair.began
            self._repairs.append(took)
            self._stage.say(f"  {repair.bookie} was repaired {took:.1f} s after it was damaged")
        return True

    def _wait_repaired(self) -> None:
        """Nothing that was damaged is left, and no copy is missing: the next one may be damaged."""
        stage = self._stage
        repair = self._faults.repair
        what = f"the repair of {repair.rot}" if repair is not None else "every copy is there"
        stage.wait(
            what,
            lambda: (
                self._look_for_repair()
                and not stage.observer.under_replicated()
                and not why_not_whole(stage.cluster)
            ),
            _REPAIR_SECONDS,
        )

    # -- the end

    def read(self) -> None:
        """Read all back; then verify every copy on every bookie."""
        stage = self._stage
        self._end_consumers()
        stage.say(f"  reading {self._history.acked_count} messages")
        read_topics(
            stage.client, self._history, self._payloads, silence_seconds=READ_SILENCE_SECONDS
        )
        stage.wait("every ledger is closed", self._closes_all, _SETTLE_SECONDS)
        stage.wait(
            "no copy is missing",
            lambda: not stage.observer.under_replicated(),
            _SETTLE_SECONDS,
        )
        for node in stage.cluster.nodes():
            if node.role == "bookie":
                found = run_storage_command(stage.cluster, node, "verify", "--metadata")
                stage.say(f"  verified {node.name}: {found['counts']}")
                self._note_verified(node.name, found)
        for name in sorted(path.parent.name for path in stage.directory.glob("*/log")):
            count = stage.cluster.log_path(name).read_text(errors="replace").count(_TRACEBACK)
            if count:
                stage.wrong.append(f"{name} has logged {count} tracebacks")

    def _end_consumers(self) -> None:
        """Wait until all is delivered; then see what the next owners would deliver again."""
        stage, consumers = self._stage, self.consumers
        consumers.wait_for_all(READ_SILENCE_SECONDS)
        stage.wrong += consumers.stop()
        stage.wait("every topic is unloaded", self._unloads_all, _BACK_SECONDS)
        consumers.receive_again()
        stage.wrong += consumers.wrong()
        stage.notes.append(
            "subscriptions: {delivered} delivered, {redelivered} redelivered, "
            "{redelivered_after_receipt} of them after a receipt, {missing} missing".format(
                **consumers.summary()
            )
        )

    def _closes_all(self) -> bool:
        ledgers = [
            ledger
            for topic in self._topics
            for ledger in self._stage.observer.ledgers(topic).ledgers
        ]
        if all(ledger.state is LedgerState.CLOSED for ledger in ledgers):
            return True
        _ = self._unloads_all()
        return False

    def _unloads_all(self) -> bool:
        try:
            self._faults.unload_topics()
        except PulsarishError as error:
            if not error.retryable:
                raise
            self._stage.say(f"  not every topic could be unloaded yet: {error}")
            return False
        return True

    def _note_verified(self, name: str, report: dict[str, Any]) -> None:
        """Count what is wrong, without the places of entry logs that the run has damaged itself:
        no entry is served from there any more.
        """
        wrong = [each for each in report["findings"] if each["wrong"]]
        damaged = [
            each
            for each in wrong
            if each["finding"] == "log-damaged" and each["file"] in self._faults.damaged_files
        ]
        self._verified.append(
            {
                "bookie": name,
                **report["counts"],
                "wrong": len(wrong) - len(damaged),
                "places_damaged_by_the_run": len(damaged),
            }
        )
        self._stage.wrong += [
            f"{name}: {each['finding']} of {each['file'] or each['ledger']}: {each['reason']}"
            for each in wrong
            if each not in damaged
        ]

    def _measured(self) -> Measured:
        self._memory.stop()  # a sample that is added meanwhile would be half in the picture
        kinds = Counter(str(row["kind"]) for row in self._rows)
        topics = self._history.topics
        values = {
            "faults_by_kind": dict(sorted(kinds.items())),
            "repairs": len(self._repairs),
            "repair_seconds_longest": round(max(self._repairs, default=0.0), 1),
            "topics": {topic.topic: topic.counters().row() for topic in topics},
            **(
                {}
                if self._consumers is None
                else {
                    "consumers": self._consumers.summary(),
                    "subscriptions": self._consumers.rows(),
                }
            ),
            "published_bytes": self._history.acked_count * self._stage.options.message_bytes,
            "memory_mib": self._memory.row(),
            "verified": self._verified,
            "faults": self._rows,
            "samples": self._memory.series(),
        }
        return Measured(values, draw_soak(self._memory, self._rows))


def _run(stage: Stage) -> None:
    _soak_of(stage).run()


def _read(stage: Stage) -> None:
    _soak_of(stage).read()


def _prepare(stage: Stage) -> None:
    stage.driver = Soak(stage)


def _soak_of(stage: Stage) -> Soak:
    assert isinstance(stage.driver, Soak), "prepare was called"
    return stage.driver


SOAK_SCENARIOS: Final = (
    Scenario(
        "soak",
        "for --duration, a steady load over several topics and a fault every minute, on any node",
        _run,
        quorums=Quorums(3, 3, 2),
        brokers=3,
        bookies=5,
        dedup=True,
        moves_owner=True,
        relayed=_ALL_LINKS,
        rate=1_000.0,
        is_soak=True,
        by_name_only=True,
        settings=(
            ("bookie", "local_scrub_interval_seconds=60"),
            ("bookie", "local_scrub_rate_bytes=33554432"),
            ("bookie", "entry_log_size_bytes=67108864"),
            ("broker", "managed_ledger.min_ledger_rollover_time_minutes=1"),
            ("broker", "managed_ledger.max_ledger_rollover_time_minutes=5"),
        ),
        prepare=_prepare,
        reading=_read,
    ),
)
