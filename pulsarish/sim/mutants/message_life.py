"""Mutants of a message's life, noticed where messages are watched from publishing to trimming."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.broker.dispatchers.dispatcher import Dispatcher
from pulsarish.broker.dispatchers.multi_consumer import MultiConsumerDispatcher
from pulsarish.broker.subscriptions import message_expiry
from pulsarish.broker.subscriptions.dispatch_loop import DispatchLoop
from pulsarish.managed_ledger import trimmer
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.position import Position
from pulsarish.sim.workloads.message_life import run_lives
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing

__all__ = ["LIFE_MUTANTS"]


def _from_publishing(_was: object) -> object:
    def ttl_starts_ms(publish_ms: int, deliver_at_ms: int, *, delays: bool) -> int:
        return publish_ms

    return ttl_starts_ms


def _unsorted(_was: object) -> object:
    def sort_out_expired(loop: DispatchLoop, reads: object, entries: Any) -> list[Any]:
        return list(entries)

    return sort_out_expired


def _whatever_waits(_was: object) -> object:
    def deliver(loop: DispatchLoop, dispatcher: Dispatcher) -> None:
        dispatcher.deliver()

    return deliver


def _none(_was: object) -> object:
    def redeliver(dispatcher: Dispatcher, *_args: object) -> int:
        return 0

    return redeliver


def _since_the_first_delivery(was: Any) -> object:
    """Let an entry's time go on when a consumer has given it back and another one has got it."""

    def redeliver_unacked(dispatcher: Any, now: float, seconds: float) -> int:
        counts = dispatcher._counts
        seen = dispatcher._seen
        dispatcher._seen = {each: (seen[each][0], counts.get(each, 0)) for each in seen}
        redelivered: int = was(dispatcher, now, seconds)
        return redelivered

    return redeliver_unacked


def _without_count(was: Any) -> object:
    def trimmable(chain: Chain, safe_mark: Position, retention: Retention, now_ms: int) -> int:
        kept = retention if retention.count < 0 else Retention()
        count: int = was(chain, safe_mark, kept, now_ms)
        return count

    return trimmable


def _mutant(
    name: str, removes: str, patch: Patch, rules: tuple[int, ...] = (), *, seeds: int = 2
) -> Mutant:
    return Mutant(name, removes, rules, patch, run_lives, seeds)


LIFE_MUTANTS: Final = (
    _mutant(
        "ttl_of_delayed_from_publishing",
        "the TTL of a delayed message counts from when it is due",
        replacing(message_expiry, "ttl_starts_ms", _from_publishing),
    ),
    _mutant(
        "expired_message_delivered",
        "a message that has expired when it is read is not delivered",
        replacing(DispatchLoop, "_sort_out_expired", _unsorted),
    ),
    _mutant(
        "expired_while_it_waited",
        "a message that expires while it waits for a consumer is not delivered",
        replacing(DispatchLoop, "_deliver", _whatever_waits),
    ),
    _mutant(
        "hung_consumer_keeps_its_messages",
        "what a consumer does not acknowledge in the policy's time goes to another one",
        replacing(MultiConsumerDispatcher, "redeliver_unacked", _none),
    ),
    _mutant(
        "time_of_a_former_delivery",
        "the time that a consumer has for a message begins when it is delivered to that consumer",
        replacing(MultiConsumerDispatcher, "redeliver_unacked", _since_the_first_delivery),
        seeds=5,
    ),
    _mutant(
        "forgotten_entry_stays",
        "what no consumer has and nothing delivers is delivered after the policy's time",
        replacing(MultiConsumerDispatcher, "redeliver_forgotten", _none),
    ),
    _mutant(
        "retention_by_count_is_none",
        "a retention by count keeps the newest entries",
        replacing(trimmer, "trimmable", _without_count),
        (17,),
    ),
)
