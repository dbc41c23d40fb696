"""Mutants of the upper layers, noticed by whole-cluster seeds: acknowledgements, deduplication,
trimming, the client's resending.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any, Final

from pulsarish.broker.clients.commands import Outcome
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.producer import Flight, Flights
from pulsarish.broker.dispatchers.delayed import DelayedEntries
from pulsarish.broker.dispatchers.key_shared import KeySharedDispatcher, Line
from pulsarish.broker.dispatchers.reads import Ready
from pulsarish.broker.dispatchers.single_active import SingleActiveDispatcher
from pulsarish.broker.nonpersistent.subscription import NonPersistentSubscription
from pulsarish.broker.nonpersistent.topics import NonPersistentTopics
from pulsarish.broker.ownership.balance import Move
from pulsarish.broker.ownership.outage import Outage
from pulsarish.broker.ownership.placement import Placement
from pulsarish.broker.ownership.placement_rules import PlacementRules
from pulsarish.broker.publishing.dedup import Deduplication, Verdict
from pulsarish.broker.subscriptions.ack_receipts import AckReceipts
from pulsarish.broker.subscriptions.dispatch_loop import DispatchLoop
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.client.producer.send_queue import SendQueue
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.reader import LedgerReader
from pulsarish.managed_ledger import readable_log
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.cursors.cursor_core import CursorCore
from pulsarish.managed_ledger.cursors.cursor_store import CursorStore
from pulsarish.managed_ledger.followed_log import FollowedLog
from pulsarish.managed_ledger.read_cache import ReadCache
from pulsarish.managed_ledger.view_log import ViewWriter
from pulsarish.managed_ledger.views import Views
from pulsarish.metadata.tree_state import TreeState
from pulsarish.model.filter_terms import FilteredMessage
from pulsarish.model.ledger_metadata import LedgerState
from pulsarish.model.message_filter import MessageFilter
from pulsarish.model.position import Position
from pulsarish.sim.cluster.cluster import ClusterSettings
from pulsarish.sim.programs.optional_programs import extras_of
from pulsarish.sim.workloads.cluster import Result, run_seed
from pulsarish.sim.workloads.safeguard import Mutant, Patch, all_replaced, replacing
from pulsarish.sim.world.faults import Fault

__all__ = ["CLUSTER_MUTANTS", "SMALL", "judge", "unheard_answers"]


def _receipt_before_durable(_was: object) -> object:
    async def flush(receipts: AckReceipts) -> None:
        while receipts._waiting:
            answered, receipts._waiting = receipts._waiting, []
            for consumer, request_id in answered:
                consumer.outlet.put(Outcome(request_id, None))
        receipts._flushing = False

    return flush


def _left_where_it_was(was: Callable[..., Any]) -> object:
    async def look(log: FollowedLog, *, wait_seconds: float) -> None:
        link, reader = log._chain.current, log._open
        if link is not None and reader is not None and link.entries:
            await reader.refresh()
            if reader.metadata.state is LedgerState.CLOSED:
                log._close(link, link.size_bytes)
                return
        await was(log, wait_seconds=wait_seconds)

    return look


def _new_ones_first(_was: object) -> object:
    def waits_at(_loop: DispatchLoop, _position: Position) -> bool:
        return True

    return waits_at


def _deduplication_forgets(_was: object) -> object:
    def observe(_marks: Deduplication, _name: str, _mark: int, _now_ms: int) -> None:
        return

    return observe


def _pending_is_a_duplicate(was: Any) -> object:
    def push(marks: Deduplication, name: str, first: int, last: int) -> Verdict:
        verdict: Verdict = was(marks, name, first, last)
        return Verdict.DUPLICATE if verdict is Verdict.UNCERTAIN else verdict

    return push


def _no_wait(_was: object) -> object:
    async def landed(_flights: Flights, _flight: Flight) -> None:
        return

    return landed


def _goes_on_without_session(_was: object) -> object:
    def why_end(_outage: Outage, _others: Collection[str], _now: float, *, begins: bool) -> str:
        return ""

    return why_end


def _batch_as_a_whole(_was: object) -> object:
    def acknowledge_indexes(
        core: CursorCore, position: Position, _batch_size: int, _indexes: object
    ) -> bool:
        return core.acknowledge(position)

    return acknowledge_indexes


def _as_many_as_come(was: Any) -> object:
    def add(dispatcher: SingleActiveDispatcher, consumer: Consumer) -> None:
        failover, dispatcher._failover = dispatcher._failover, True
        try:
            was(dispatcher, consumer)
        finally:
            dispatcher._failover = failover

    return add


def _draining_ignored(_was: object) -> object:
    def drains(_dispatcher: KeySharedDispatcher, _key_hash: int, _consumer: Consumer) -> bool:
        return False

    return drains


def _in_the_order_of_coming(_was: object) -> object:
    def sort(line: Any) -> object:
        return line.positions

    return sort


def _beyond_what_was_surveyed(was: Any) -> object:
    async def use(views: Views, writer: ViewWriter | None, horizon: Position, made_ms: int) -> None:
        await was(views, writer, Position(horizon.ledger_id, horizon.entry_id + 3), made_ms)

    return use


def _resends_the_newest_first(was: Any) -> object:
    def disconnected(outgoing: Any) -> None:
        outgoing._sent.reverse()
        was(outgoing)

    return disconnected


class _Unfenced:
    """Opens ledgers as they are, without fencing their writers."""

    def __init__(self, ledgers: LedgerClient) -> None:
        self._ledgers = ledgers

    async def open(self, ledger_id: int) -> LedgerReader:
        return await self._ledgers.open_no_recovery(ledger_id)


def _cursor_ledger_as_it_is(was: Any) -> object:
    async def load(store: CursorStore, successor: Callable[[Position], Position]) -> CursorCore:
        ledgers: Any = store._ledgers
        store._ledgers = _Unfenced(ledgers)  # type: ignore[assignment]
        try:
            core: CursorCore = await was(store, successor)
            return core
        finally:
            store._ledgers = ledgers

    return load


def _never_rewound(_was: object) -> object:
    def failed(_marks: Deduplication, _name: str, _first: int) -> None:
        return

    return failed


def _any_position(_was: object) -> object:
    def check_position(_cursor: Cursor, _position: Position) -> None:
        return

    return check_position


def _foreign_is_ours(_was: object) -> object:
    def judge(chain: Chain, position: Position, *_metadata: object, **_names: object) -> Position:
        return chain.next_position(position)

    return judge


def _waits_for_permits(_was: object) -> object:
    def push(subscription: NonPersistentSubscription, entries: Sequence[Ready]) -> None:
        dispatcher = subscription._dispatcher
        last = entries[-1].position
        subscription._next_position = Position(last.ledger_id, last.entry_id + 1)
        dispatcher.reads.came(entries)
        dispatcher.deliver()
        for consumer in dispatcher.consumers:
            dispatcher.acknowledged(consumer, list(consumer.pending))

    return push


def _nothing_to_check(_was: object) -> object:
    def check(_subscription: NonPersistentSubscription) -> None:
        return

    return check


def _stays_with_its_users(_was: object) -> object:
    def close(_topics: NonPersistentTopics, *_what: object) -> None:
        return

    return close


SMALL: Final = ClusterSettings(
    bookies=3,
    brokers=2,
    quorums=(3, 3, 2),
    deduplication=True,
    partitions=0,
    entries_per_ledger=60,
    cursor_node_writes_max=3,
    cursor_flush_interval_ms=4_000,
    read_batch=4,
    bundles=1,
    repair=False,
)


def _stuck_appends(seed: int) -> list[Fault]:
    """Let nothing reach the bookies, again and again.

    Meanwhile the producers' connections break, and then all brokers die.
    """
    rng = random.Random(f"{seed}:stuck")
    faults: list[Fault] = []
    at = 1.0
    while at < 10.0:
        for broker in ("broker0", "broker1"):
            faults += [Fault(at, "cut", broker, f"bookie{number}", 2.5, 0.0) for number in range(3)]
            faults.append(Fault(at + 1.5, "crash", broker, broker, 0.3, 0.0))
        faults += [
            Fault(at + rng.uniform(0.2, 0.8), "reset", app, app, 0.0, 0.99)
            for app in ("app0", "app1")
        ]
        at += rng.uniform(3.5, 4.5)
    return sorted(faults, key=lambda fault: fault.at_seconds)


def _failed_appends(seed: int) -> list[Fault]:
    """Let nothing reach the bookies for longer than appends are held. No process dies."""
    rng = random.Random(f"{seed}:failed")
    at = rng.uniform(1.0, 2.0)
    return [
        Fault(at, "cut", broker, f"bookie{number}", 6.0, 0.0)
        for broker in ("broker0", "broker1")
        for number in range(3)
    ]


def _dying_brokers(seed: int) -> list[Fault]:
    rng = random.Random(f"{seed}:dying")
    faults: list[Fault] = []
    at = rng.uniform(1.0, 2.0)
    while at < 11.0:
        broker = rng.choice(("broker0", "broker1"))
        faults.append(Fault(at, "crash", broker, broker, 0.3, 0.0))
        at += rng.uniform(0.8, 1.8)
    return faults


def unheard_answers(seed: int) -> list[Fault]:
    """Let brokers die whose producers no longer hear what was stored, and so send it again."""
    rng = random.Random(f"{seed}:unheard")
    faults: list[Fault] = []
    at = rng.uniform(1.0, 2.0)
    while at < 10.0:
        for broker in ("broker0", "broker1"):
            faults += [Fault(at, "cut", broker, app, 1.0, 0.0) for app in ("app0", "app1")]
            faults.append(Fault(at + 0.6, "crash", broker, broker, 0.3, 0.0))
            at += rng.uniform(1.5, 2.5)
    return sorted(faults, key=lambda fault: fault.at_seconds)


def _sleeping_brokers(seed: int) -> list[Fault]:
    """Stop brokers in the middle of their work, for so long that other brokers take over.

    Then they continue.
    """
    rng = random.Random(f"{seed}:sleeping")
    faults: list[Fault] = []
    at = rng.uniform(1.0, 2.0)
    while at < 10.0:
        broker = rng.choice(("broker0", "broker1"))
        faults.append(Fault(at, "pause", broker, broker, rng.uniform(2.0, 5.0), 0.0))
        at += rng.uniform(1.0, 3.0)
    return faults


def _without_metadata(seed: int) -> list[Fault]:
    """Take only the metadata service away from the brokers, for longer than a session lasts."""
    brokers = (("broker0",), ("broker1",), ("broker0", "broker1"))[seed % 3]
    return [Fault(0.3, "isolate", broker, broker, 11.6, 0.9) for broker in brokers]


def _check_without_metadata(seed: int) -> None:
    judge(run_seed(seed, faults=_without_metadata(seed), settings=SMALL, extras=()))


def _check_stuck(seed: int) -> None:
    judge(run_seed(seed, faults=_stuck_appends(seed), settings=SMALL, extras=()))


def _check_resumed(seed: int) -> None:
    judge(run_seed(seed, faults=_failed_appends(seed), settings=SMALL, extras=("resumes",)))


def _check_dying(seed: int) -> None:
    judge(run_seed(seed, faults=_dying_brokers(seed), settings=SMALL, extras=()))


def _check_unheard(seed: int) -> None:
    judge(run_seed(seed, faults=unheard_answers(seed), settings=SMALL, extras=()))


def _check_sleeping(seed: int) -> None:
    judge(run_seed(seed, faults=_sleeping_brokers(seed), settings=SMALL, extras=()))


def _check_older_metadata(seed: int) -> None:
    faults = [
        Fault(at, "older_metadata", "bookie0", "broker0", 3.0, seed % 10 / 10) for at in (1.0, 6.5)
    ]
    judge(run_seed(seed, faults=faults, settings=SMALL, extras=()))


def _older_tree_believed(_was: object) -> object:
    def is_older_than(_state: TreeState, _other: TreeState) -> bool:
        return False

    return is_older_than


def _unknown_is_enough(_was: object) -> object:
    def matches(judge: MessageFilter, message: FilteredMessage) -> bool:
        return judge._condition(message) is not False

    return matches


def _with_all_before(_was: object) -> object:
    def acknowledge_undelivered(subscription: Subscription, positions: Sequence[Position]) -> int:
        subscription._acknowledge_through(max(positions))
        return len(positions)

    return acknowledge_undelivered


def _bucket_of_all(_was: object) -> object:
    def holds(delayed: DelayedEntries, position: Position) -> bool:
        # not only what is in a bucket, but all that was read before
        return delayed.reaches(position)

    return holds


def _check_any(seed: int) -> None:
    judge(run_seed(seed, extras=()))


def _check_with(extra: str, seed: int) -> None:
    judge(run_seed(_taking_part(extra, seed), extras=(extra,)))


def _taking_part(extra: str, number: int) -> int:
    """Return the ``number``-th seed in which this extra takes part."""
    return next(islice((each for each in count() if extras_of(each, (extra,))), number, None))


def _check_placement(number: int) -> None:
    """Run seeds in which rules of placement change; several brokers have bundles then."""
    seed = _taking_part("placement", number)
    settings = replace(SMALL, brokers=3, bundles=4, balances=True)
    judge(run_seed(seed, settings=settings, extras=("placement", "brief")))


def _stays_where_it_is_forbidden(_was: object) -> object:
    def moves(_rules: Placement, *_: Any, **__: Any) -> list[Move]:
        return []

    return moves


def _rules_read_once(_was: object) -> object:
    async def run(_rules: PlacementRules) -> None:
        return

    return run


_check_keys: Final = partial(_check_with, "keys")
_check_compacting: Final = partial(_check_with, "compacting")
_check_fleeting: Final = partial(_check_with, "fleeting")
_check_parcels: Final = partial(_check_with, "parcels")
_check_filters: Final = partial(_check_with, "filters")


def _check_strangers(seed: int) -> None:
    judge(run_seed(seed, extras=("strangers",)))


def _check_replicas(seed: int) -> None:
    judge(run_seed(seed, faults=[], settings=SMALL, extras=("replicas", "brief")))


def judge(result: Result) -> None:
    """Raise ``AssertionError`` with what a run broke."""
    assert not result.anomalies, "; ".join(map(str, result.anomalies))


def _of_any_ledger(was: Any) -> object:
    def by_number(cache: ReadCache, _ledger_id: int, *rest: Any, **how: Any) -> object:
        return was(cache, 0, *rest, **how)

    return by_number


def _mutant(
    name: str,
    removes: str,
    rules: tuple[int, ...],
    patch: Patch,
    check: Callable[[int], None] = _check_any,
    seeds: int = 10,
    first: int = 0,
) -> Mutant:
    return Mutant(name, removes, rules, patch, check, seeds, first)


CLUSTER_MUTANTS: Final = (
    _mutant(
        "replica_leaves_a_ledger_early",
        "a replica reads a ledger to the end that closing it has decided, before it goes on",
        (),
        replacing(FollowedLog, "_look", _left_where_it_was),
        _check_replicas,
        seeds=20,
        first=9,
    ),
    _mutant(
        "new_entries_first",
        "entries that were just confirmed go to a subscription at once only if it has delivered "
        "everything before them",
        (),
        replacing(DispatchLoop, "waits_at", _new_ones_first),
        first=5,
    ),
    _mutant(
        "kept_entry_of_any_ledger",
        "what the broker keeps of backlogs is found by ledger and entry, and nothing else is read "
        "instead of it",
        (),
        all_replaced(
            replacing(ReadCache, "insert", _of_any_ledger),
            replacing(ReadCache, "read", _of_any_ledger),
        ),
    ),
    _mutant(
        "bundle_stays_where_it_is_forbidden",
        "the balancer moves a bundle away from a broker that may not have it",
        (),
        replacing(Placement, "moves", _stays_where_it_is_forbidden),
        _check_placement,
        first=3,
    ),
    _mutant(
        "rules_read_once",
        "a broker follows the rules of placement while it runs",
        (),
        replacing(PlacementRules, "_run", _rules_read_once),
        _check_placement,
        first=3,
    ),
    _mutant(
        "receipt_before_durable",
        "an acknowledgement with a receipt is answered once it is durable",
        (16,),
        replacing(AckReceipts, "_flush", _receipt_before_durable),
        _check_dying,
    ),
    _mutant(
        "cursor_ledger_not_fenced",
        "an owner recovers a cursor's ledger, and so fences it: no acknowledgement is accepted by "
        "the owner before",
        (14, 16),
        replacing(CursorStore, "load", _cursor_ledger_as_it_is),
        _check_sleeping,
        seeds=40,
        first=10,
    ),
    _mutant(
        "older_tree_believed",
        "metadata that came back older than nodes have seen them are not written, and nothing is "
        "deleted on their word",
        (12,),
        replacing(TreeState, "is_older_than", _older_tree_believed),
        _check_older_metadata,
        seeds=20,
    ),
    _mutant(
        "deduplication_forgets",
        "the marks of deduplication are rebuilt from snapshot and log before the first accept",
        (15,),
        replacing(Deduplication, "observe", _deduplication_forgets),
        _check_unheard,
    ),
    _mutant(
        "pending_taken_for_duplicate",
        "what was pushed and is not yet in the log is no duplicate, and a producer's successor "
        "waits until that is known",
        (15,),
        all_replaced(
            replacing(Deduplication, "push", _pending_is_a_duplicate),
            replacing(Flights, "landed", _no_wait),
        ),
        _check_stuck,
    ),
    _mutant(
        "failed_add_not_rewound",
        "an add that failed takes the mark of what was pushed back, so that it can be sent again",
        (15,),
        replacing(Deduplication, "failed", _never_rewound),
        _check_resumed,
        seeds=20,
        first=6,
    ),
    _mutant(
        "served_without_a_session",
        "a broker whose session is lost stops serving when another one reaches the metadata",
        (19,),
        replacing(Outage, "why_end", _goes_on_without_session),
        _check_without_metadata,
    ),
    _mutant(
        "delayed_bucket_stands_for_all",
        "an owner that finds a bucket of delayed entries reads what lies between these entries",
        (16,),
        replacing(DelayedEntries, "holds", _bucket_of_all),
        _check_parcels,
        seeds=20,
        first=4,
    ),
    _mutant(
        "unknown_taken_for_true",
        "a filter delivers what is true of a message, not what is unknown of it",
        (),
        replacing(MessageFilter, "matches", _unknown_is_enough),
        _check_filters,
        seeds=3,
    ),
    _mutant(
        "rejected_acknowledged_with_all_before",
        "an entry that a filter rejects is acknowledged by itself",
        (16,),
        replacing(Subscription, "acknowledge_undelivered", _with_all_before),
        _check_filters,
    ),
    _mutant(
        "foreign_id_acknowledged",
        "only what is in the topic's log can be acknowledged",
        (18,),
        replacing(Cursor, "_check_position", _any_position),
        _check_strangers,
        seeds=40,
        first=10,
    ),
    _mutant(
        "foreign_id_sought",
        "a seek to a ledger that is not the topic's is refused",
        (18,),
        replacing(readable_log, "judge_foreign", _foreign_is_ours),
        _check_strangers,
        seeds=40,
        first=1,
    ),
    _mutant(
        "batch_acknowledged_as_a_whole",
        "of a batch only the acknowledged messages are",
        (16,),
        replacing(CursorCore, "acknowledge_indexes", _batch_as_a_whole),
    ),
    _mutant(
        "two_exclusive_consumers",
        "an exclusive subscription has one consumer",
        (),
        replacing(SingleActiveDispatcher, "add", _as_many_as_come),
    ),
    _mutant(
        "draining_ignored",
        "a key that has moved to another consumer waits until what the first one holds of it is "
        "acknowledged",
        (),
        replacing(KeySharedDispatcher, "_drains", _draining_ignored),
        _check_keys,
    ),
    _mutant(
        "blocked_key_passed",
        "what waits for its key or is given back is delivered before what is read later",
        (),
        replacing(Line, "sort", _in_the_order_of_coming),
        _check_keys,
        seeds=40,
        first=4,
    ),
    _mutant(
        "compacted_beyond_the_view",
        "a compacted view goes as far as was surveyed for it, and no further",
        (),
        replacing(Views, "use", _beyond_what_was_surveyed),
        _check_compacting,
        first=4,
    ),
    _mutant(
        "kept_until_somebody_takes_it",
        "what no consumer takes of a non-persistent topic is dropped at once",
        (),
        all_replaced(
            replacing(NonPersistentSubscription, "push", _waits_for_permits),
            # Noticed by clients, and not only by a look into the broker.
            replacing(NonPersistentSubscription, "check", _nothing_to_check),
        ),
        _check_fleeting,
    ),
    _mutant(
        "not_kept_topic_outlives_its_bundle",
        "a non-persistent topic leaves its broker with its bundle, and its users with it",
        (),
        all_replaced(
            replacing(NonPersistentTopics, "close_bundle", _stays_with_its_users),
            replacing(NonPersistentTopics, "close_all", _stays_with_its_users),
        ),
        _check_fleeting,
        seeds=20,
        first=3,
    ),
    _mutant(
        "resends_the_newest_first",
        "a client sends again what has no receipt in its order",
        (),
        replacing(SendQueue, "disconnected", _resends_the_newest_first),
        first=1,
    ),
)
