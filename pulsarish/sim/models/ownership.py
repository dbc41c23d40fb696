"""A topic's ownership and its chain of ledgers as a small model: take over, recover, change the
list, and an old owner who does not know that it was replaced (rules 4 and 14).

The model uses what ``models/ledger.py`` proves of ledgers: appends are confirmed until the ledger
is fenced, and it ends where its recovery says. The record of the owner guards nothing here, as in
the product: any broker may take the topic at any time. The invariants have the names of the
specification of chained ledgers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

__all__ = ["Chain", "Rules", "broken", "new_chain", "steps"]

T = TypeVar("T")

IDLE, ACQUIRED, RECOVERED, CREATED, SERVING = range(5)
NONE: Final = -1


class Rules(NamedTuple):
    """The safeguards. One that is ``False`` is removed."""

    # the last ledger is fenced before another follows it; without: brokers trust the record of the
    # owner
    recover_last: bool = True
    swing_by_version: bool = True  # the list changes by compare-and-set
    # no entry is appended to a ledger that the list does not name yet
    serve_after_swing: bool = True


class Ledger(NamedTuple):
    entries: tuple[int, ...] = ()
    fenced: bool = False


class Broker(NamedTuple):
    phase: int = IDLE
    version: int = 0  # of the list that it read
    ledgers: tuple[int, ...] = ()
    current: int = NONE


class Chain(NamedTuple):
    brokers: tuple[Broker, ...]
    ledgers: tuple[Ledger, ...] = ()  # all ledgers that were ever made, by id
    listed: tuple[int, ...] = ()
    version: int = 0
    confirmed: int = 0  # entries, numbered in the order of their confirmation
    takeovers_left: int = 0
    ledgers_left: int = 0
    appends_left: int = 0


def new_chain(*, brokers: int, takeovers: int, ledgers: int, appends: int) -> Chain:
    """Return an empty topic that no broker owns."""
    return Chain(
        (Broker(),) * brokers, takeovers_left=takeovers, ledgers_left=ledgers, appends_left=appends
    )


def broken(chain: Chain) -> str:
    """Return the name of an invariant that does not hold, or ""."""
    if any(
        ledger.entries and index not in chain.listed for index, ledger in enumerate(chain.ledgers)
    ):
        return "AllNonEmptyLedgersInLedgerList"
    log = [entry for ledger in chain.listed for entry in chain.ledgers[ledger].entries]
    if log != sorted(log):
        return "EntryOrderMaintained"
    if any(not chain.ledgers[ledger].fenced for ledger in chain.listed[:-1]):
        return "OnlyOneLedgerOpenAtATime"
    return ""


def steps(chain: Chain, rules: Rules) -> Iterator[tuple[str, Chain]]:
    """Yield every next state with the name of its step."""
    for index, broker in enumerate(chain.brokers):
        who = f"broker {index}"
        if chain.takeovers_left > 0:
            taken = Broker(ACQUIRED, chain.version, chain.listed)
            yield (
                f"{who} takes the topic",
                _broker(chain, index, taken)._replace(takeovers_left=chain.takeovers_left - 1),
            )
        match broker.phase:
            case phase if phase == ACQUIRED:
                recovered = (
                    _fenced(chain, broker.ledgers[-1])
                    if broker.ledgers and rules.recover_last
                    else chain
                )
                yield (
                    f"{who} recovers the last ledger",
                    _broker(recovered, index, broker._replace(phase=RECOVERED)),
                )
            case phase if phase == RECOVERED and chain.ledgers_left > 0:
                made = chain._replace(
                    ledgers=(*chain.ledgers, Ledger()), ledgers_left=chain.ledgers_left - 1
                )
                yield (
                    f"{who} makes a ledger",
                    _broker(
                        made, index, broker._replace(phase=CREATED, current=len(chain.ledgers))
                    ),
                )
            case phase if phase == CREATED:
                yield f"{who} swings the list", _swing(chain, rules, index)
                if not rules.serve_after_swing:
                    yield from _append(chain, index)
            case phase if phase == SERVING:
                yield from _append(chain, index)
                rolled = _fenced(chain, broker.current)
                yield (
                    f"{who} rolls over",
                    _broker(rolled, index, broker._replace(phase=RECOVERED, current=NONE)),
                )


def _swing(chain: Chain, rules: Rules, index: int) -> Chain:
    broker = chain.brokers[index]
    if chain.version != broker.version and rules.swing_by_version:
        return _broker(chain, index, Broker())
    listed = (*broker.ledgers, broker.current)
    chain = chain._replace(listed=listed, version=chain.version + 1)
    return _broker(chain, index, Broker(SERVING, chain.version, listed, broker.current))


def _append(chain: Chain, index: int) -> Iterator[tuple[str, Chain]]:
    broker = chain.brokers[index]
    ledger = chain.ledgers[broker.current]
    if ledger.fenced:
        yield f"broker {index} finds itself fenced", _broker(chain, index, Broker())
    elif chain.appends_left > 0:
        longer = _put(
            chain.ledgers,
            broker.current,
            ledger._replace(entries=(*ledger.entries, chain.confirmed)),
        )
        appended = chain._replace(
            ledgers=longer, confirmed=chain.confirmed + 1, appends_left=chain.appends_left - 1
        )
        yield f"broker {index} confirms entry {chain.confirmed}", appended


def _fenced(chain: Chain, ledger: int) -> Chain:
    return chain._replace(
        ledgers=_put(chain.ledgers, ledger, chain.ledgers[ledger]._replace(fenced=True))
    )


def _broker(chain: Chain, index: int, broker: Broker) -> Chain:
    return chain._replace(brokers=_put(chain.brokers, index, broker))


def _put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    return (*values[:index], value, *values[index + 1 :])
