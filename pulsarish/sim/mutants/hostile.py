"""Mutants of the limits to the harm of a hostile peer, noticed by seeds with a hostile peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace as with_options

from pulsarish.bookie import store
from pulsarish.bookie.service import BookieService
from pulsarish.broker.clients.access_modes import Access
from pulsarish.broker.clients.commands import OpenProducer
from pulsarish.broker.sessions.session import Session
from pulsarish.model.errors import WrongBookie
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.peer_limits import HeldBytes, PeerConnection
from pulsarish.sim.programs import hostile_peers
from pulsarish.sim.programs.hostile_peers import ATTACKS
from pulsarish.sim.workloads.cluster import run_seed
from pulsarish.sim.workloads.safeguard import Mutant, Patch, all_replaced, replaced, replacing
from pulsarish.sim.world.faults import Fault

__all__ = ["HOSTILE_MUTANTS", "check_hostile"]


def check_hostile(seed: int, attacks: Sequence[str] = ()) -> None:
    """Run a hostile peer alone. Nothing else fails."""
    result = run_seed(seed, faults=(), extras=("brief", "hostile"), attacks=attacks or ATTACKS)
    assert not result.anomalies, "; ".join(map(str, result.anomalies))


def _check_crashing_bookies(seed: int) -> None:
    """Crash each bookie in turn: it starts again with the ledger that a hostile peer left there.

    Its id is the greatest that a bookie takes, so a counter above it could give out no id again.
    """
    faults = [
        Fault(at, "crash", name, name, 0.2, 0.0)
        for at, name in ((2.5, "bookie0"), (3.5, "bookie1"), (4.5, "bookie2"))
    ]
    with replaced(hostile_peers, "_LEDGERS", lambda _was: (ID_MAX,)):
        result = run_seed(
            seed, faults=faults, extras=("brief", "hostile"), attacks=("call_bookies",)
        )
    assert not result.anomalies, "; ".join(map(str, result.anomalies))


def _kept_by_producer_id(was: Any) -> object:
    """Forget sends that wait for their outcome when their producer is closed or opened again."""

    def forget(session: Session, producer_id: int) -> None:
        found = session._producers.get(producer_id)
        producer = getattr(found, "producer", None)
        if producer is not None and producer.sends is not None:
            producer.sends.clear()

    def close_producer(session: Session, producer_id: int) -> None:
        forget(session, producer_id)
        was(session, producer_id)

    return close_producer


def _any_ledger(_was: object) -> object:
    def refusal(service: BookieService, instance_id: str, *_ids: int) -> int:
        return 0 if instance_id == service._store.instance_id else WrongBookie.code

    return refusal


def _above_any_id(_was: object) -> object:
    def next_id_above(next_id: int, used: Sequence[int]) -> int:
        return max([next_id - 1, *used]) + 1

    return next_id_above


def _any_epoch(_was: object) -> object:
    def next_epoch(_access: Access, command: OpenProducer, epoch: int) -> int:
        return max(command.topic_epoch, epoch + 1)

    return next_epoch


def _any_epoch_passes(_was: object) -> object:
    def check_epoch(_access: Access, _command: OpenProducer, _epoch: int) -> None:
        return

    return check_epoch


def _held_without_limit(_was: object) -> object:
    def set_bytes(held: HeldBytes, connection: PeerConnection, size_bytes: int) -> None:
        held.used_bytes += size_bytes - held._held.pop(connection, 0)
        if size_bytes:
            held._held[connection] = size_bytes

    return set_bytes


def _without_limit(option: str) -> Callable[[Any], object]:
    def make(was: Any) -> object:
        def start(session: Session, command: Any) -> None:
            config = session._config
            session._config = with_options(config, **{option: 1 << 30})
            try:
                was(session, command)
            finally:
                session._config = config

        return start

    return make


_UNBOUNDED_ID: Final[Patch] = all_replaced(
    replacing(BookieService, "_refusal", _any_ledger),
    replacing(Access, "check_epoch", _any_epoch_passes),
    replacing(Access, "next_epoch", _any_epoch),
)
_LIMITS_TAKEN_AWAY: Final[Patch] = all_replaced(
    replacing(Session, "_start_producer", _without_limit("max_producers_per_connection")),
    replacing(Session, "_start_consumer", _without_limit("max_consumers_per_connection")),
)

HOSTILE_MUTANTS: Final = (
    Mutant(
        "outcome_by_position",
        "what a client calls a send is kept with the opening that it came by until its outcome is "
        "said",
        (20,),
        replacing(Session, "_close_producer", _kept_by_producer_id),
        partial(check_hostile, attacks=("reopen",)),
        seeds=10,
    ),
    Mutant(
        "unbounded_id",
        "an id or epoch that a peer names is refused when it has no successor, or was never given "
        "out",
        (20,),
        _UNBOUNDED_ID,
        partial(check_hostile, attacks=("epochs", "call_bookies")),
        seeds=10,
    ),
    Mutant(
        "made_up_id_believed",
        "the counter of ledger ids does not follow an id that a peer made up",
        (12, 20),
        replacing(store, "next_id_above", _above_any_id),
        _check_crashing_bookies,
        seeds=10,
        first=2,
    ),
    Mutant(
        "budget_taken_away",
        "connections that hold incomplete frames, or do not read, are ended when they hold too "
        "much together",
        (20,),
        replacing(HeldBytes, "set", _held_without_limit),
        partial(check_hostile, attacks=("leave_unfinished", "leave_unread")),
        seeds=10,
    ),
    Mutant(
        "limit_taken_away",
        "a connection may open a limited number of producers and consumers",
        (20,),
        _LIMITS_TAKEN_AWAY,
        partial(check_hostile, attacks=("open_many",)),
        seeds=10,
    ),
)
