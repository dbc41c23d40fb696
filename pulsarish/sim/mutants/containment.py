"""Mutants of what contains a failure: in one request, one connection or one topic."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

from pulsarish.bookie.store import EntryStore
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.bookie_stream import BookieStream
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.errors import BookieIOError, PulsarishError
from pulsarish.model.position import Position
from pulsarish.runtime.containment import Critical, Scope, ScopedTasks
from pulsarish.sim.workloads.cluster import Result, run_seed
from pulsarish.sim.workloads.safeguard import Mutant, replaced, replacing
from pulsarish.sim.world.faults import Fault
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.nodes import Node, Process
from pulsarish.wire.bookie import AddBatch, AddResult

__all__ = ["CONTAINMENT_MUTANTS"]


def _unanswered_when_unreadable(was: Any) -> object:
    def add(
        store: EntryStore,
        message: bytes,
        batch: AddBatch,
        answer: Callable[[list[AddResult]], None],
    ) -> object:
        def answer_if_readable(results: list[AddResult]) -> None:
            if all(result.code != BookieIOError.code for result in results):
                answer(results)

        return was(store, message, batch, answer_if_readable)

    return add


def _connected_streams_stay(was: Any) -> object:
    def forgettable(pool: BookiePool, stream: BookieStream) -> bool:
        return not stream.connected and was(pool, stream)

    return forgettable


def _asks_the_store_itself(_was: object) -> object:
    async def is_newest(topic: OwnedTopicRecord) -> bool:
        async with topic.lock:
            await topic.records._store.sync(topic.path)
            found = await topic.records.get(topic.path, TopicRecord)
            return (
                found is not None and not topic.lost and topic.settled and found[1] == topic.version
            )

    return is_newest


def _critical_after_all(_was: object) -> object:
    def spawn(
        tasks: ScopedTasks,
        work: Coroutine[object, object, None],
        *,
        name: str,
        critical: Critical | None = None,
        scope: Scope | None = None,
    ) -> asyncio.Task[None]:
        return tasks._tasks.spawn(work, name=name, critical=Critical.MAIN)

    return spawn


class _Defect(Exception):
    """An unexpected error."""


def _unreadable_disks(seed: int) -> list[Fault]:
    """Let bookies fail to read now and then. Nothing else fails."""
    rng = random.Random(f"{seed}:unreadable")
    faults: list[Fault] = []
    at = rng.uniform(0.5, 1.0)
    while at < 5.0:
        faults.append(
            Fault(
                at,
                "fail_reads",
                f"bookie{rng.randrange(3)}",
                "broker0",
                rng.uniform(0.5, 1.5),
                0.99,
            )
        )
        at += rng.uniform(0.2, 0.8)
    return faults


def _broken_connections(seed: int) -> list[Fault]:
    """Break the brokers' connections to the metadata for moments. They keep their sessions."""
    rng = random.Random(f"{seed}:broken")
    faults: list[Fault] = []
    at = rng.uniform(0.3, 0.8)
    while at < 5.5:
        broker = rng.choice(("broker0", "broker1"))
        faults.append(Fault(at, "isolate", broker, METADATA, rng.uniform(0.2, 0.6), 0.9))
        faults.append(Fault(at + 0.01, "break_session", broker, METADATA, 0.0, 0.0))
        at += rng.uniform(0.2, 0.5)
    return faults


def _check_unreadable(seed: int) -> None:
    _judge(run_seed(seed, faults=_unreadable_disks(seed), extras=("brief",)))


def _check_replaced(seed: int) -> None:
    """Restart machines without their data, as other bookies at the same address."""
    _judge(
        run_seed(
            seed, faults=[Fault(2.0, "wipe", "bookie0", "bookie0", 0.5, 0.0)], extras=("brief",)
        )
    )


def _check_broken(seed: int) -> None:
    _judge(run_seed(seed, faults=_broken_connections(seed), extras=("brief", "strangers")))


def _check_defects(seed: int) -> None:
    """Raise an error in a task of a subscription: the promises still hold, and no process ends."""
    left, ended = 3, []

    def defective(was: Any) -> object:
        async def why_beyond(log: ManagedLedger, position: Position) -> PulsarishError:
            nonlocal left
            if left:
                left -= 1
                raise _Defect
            reason: PulsarishError = await was(log, position)
            return reason

        return why_beyond

    def reporting(was: Any) -> object:
        def report(node: Node, what: str, error: BaseException) -> None:
            if not isinstance(error, _Defect):
                was(node, what, error)

        return report

    def ending(was: Any) -> object:
        def ended_by(node: Node, process: Process, task: str, error: BaseException) -> None:
            if isinstance(error, _Defect):
                ended.append(f"{node.name} ended by {task}")
            was(node, process, task, error)

        return ended_by

    with (
        replaced(ManagedLedger, "why_beyond", defective),
        replaced(Node, "report", reporting),
        replaced(Node, "ended_by", ending),
    ):
        result = run_seed(seed, faults=(), extras=("brief", "strangers"))
    assert not ended, "; ".join(ended)
    _judge(result)


def _judge(result: Result) -> None:
    assert not result.anomalies, "; ".join(map(str, result.anomalies))


CONTAINMENT_MUTANTS: Final = (
    Mutant(
        "unreadable_add_keeps_its_budget",
        "a batch whose entries cannot be looked up is answered, and gives its bytes back",
        (20,),
        replacing(EntryStore, "add", _unanswered_when_unreadable),
        _check_unreadable,
        seeds=20,
    ),
    Mutant(
        "stream_to_a_gone_bookie_stays",
        "a connection that another instance has taken over is closed when it is not in use",
        (20,),
        replacing(BookiePool, "_forgettable", _connected_streams_stay),
        _check_replaced,
        seeds=40,
        first=7,
    ),
    Mutant(
        "metadata_asked_past_records",
        "a caller of the metadata gets MetadataUnavailable for a lost answer",
        (20,),
        replacing(OwnedTopicRecord, "is_newest", _asks_the_store_itself),
        _check_broken,
        seeds=40,
    ),
    Mutant(
        "client_task_ends_its_node",
        "a task of one connection, topic or subscription ends that, and not the process",
        (20,),
        replacing(ScopedTasks, "spawn", _critical_after_all),
        _check_defects,
        seeds=20,
    ),
)
