"""The scenarios of the published chaos test of Apache Pulsar (Vanlightly, 2018), by their
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsarish.chaos.load import Reading
from pulsarish.chaos.scenario import (
    READ_SILENCE_SECONDS,
    Scenario,
    owner_moved,
    read_to_the_end,
    writes_without,
)
from pulsarish.chaos.stage import METADATA, Quorums, Stage, VoidRun

__all__ = ["PUBLISHED_SCENARIOS"]

_BLOCKED_SILENCE_SECONDS: Final = 10.0
_REPAIR_SECONDS: Final = 120.0


def _nothing(_stage: Stage) -> None:
    """No fault: what the others are compared with."""


def _kill_broker(stage: Stage) -> None:
    owner = stage.owner()
    stage.mark("fault", f"{owner.broker_id}, the owner, is killed")
    stage.kill(owner.broker_id)
    stage.wait("another broker owns the topic", lambda: owner_moved(stage, owner.instance_id))
    stage.mark("bite", f"{stage.owner().broker_id} owns the topic")


def _kill_bookies(count: int) -> Callable[[Stage], None]:
    def fault(stage: Stage) -> None:
        victims = stage.members()[:count]
        stage.mark(
            "fault", f"{', '.join(victims)} of the ensemble {'is' if count == 1 else 'are'} killed"
        )
        stage.kill(*victims)
        stage.wait(
            "the ledger is written without the killed bookies",
            lambda: writes_without(stage, *victims),
        )
        # Of an ensemble that found no replacement the killed ones are members still.
        stage.mark(
            "bite",
            "the ledger goes on with "
            f"{', '.join(name for name in stage.members() if name not in victims)}",
        )

    return fault


def _isolate_broker(stage: Stage) -> None:
    owner = stage.owner()
    stage.mark("fault", f"{owner.broker_id}, the owner, is cut off from the metadata service")
    stage.act(stage.relays.isolate([[owner.broker_id], [METADATA]]))
    stage.wait(
        "the owner's session expires",
        lambda: owner.instance_id not in stage.observer.brokers().values(),
    )
    stage.wait("another broker owns the topic", lambda: owner_moved(stage, owner.instance_id))
    stage.mark("bite", f"its session is lost and {stage.owner().broker_id} owns the topic")
    stage.act(stage.relays.heal())
    stage.wait("the broker registers again", lambda: owner.broker_id in stage.observer.brokers())
    stage.mark("heal", f"{owner.broker_id} is registered again")


def _isolate_bookie(stage: Stage) -> None:
    victim = stage.members()[0]
    stage.mark("fault", f"{victim} of the ensemble is cut off from the metadata service")
    stage.act(stage.relays.isolate([[victim], [METADATA]]))
    stage.wait("the bookie's session expires", lambda: victim not in stage.observer.bookies())
    stage.mark("bite", f"its session is lost; the ensemble is {', '.join(stage.members())}")
    stage.act(stage.relays.heal())
    stage.wait("the bookie registers again", lambda: victim in stage.observer.bookies())
    stage.mark("heal", f"{victim} is registered again")


def _kill_write_quorum(stage: Stage) -> None:
    victims = stage.members()
    stage.victims = victims
    stage.mark("fault", f"{', '.join(victims)}, the whole write quorum, are killed")
    stage.kill(*victims)
    stage.wait(
        "the ledger is written without the killed bookies", lambda: writes_without(stage, *victims)
    )
    stage.mark("bite", f"the ensemble is {', '.join(stage.members())}")


def _read_as_bookies_return(stage: Stage) -> None:
    """Without both bookies the reader waits.

    Each that returns lets it go on, and nothing is ever skipped.
    """
    first, *others = stage.victims
    reading = Reading(stage.client, stage.topic_name, stage.history)

    def go_on(when: str) -> int:
        reading.read(silence_seconds=_BLOCKED_SILENCE_SECONDS, wait_for_all=False)
        count = stage.history.read_count()
        stage.notes.append(f"{when} the reader has {count} of {stage.history.sent} messages")
        if count != stage.history.first_hole() and not stage.options.partitions:
            stage.wrong.append(f"{when} the reader skipped message {stage.history.first_hole()}")
        return count

    if go_on("without both bookies") == stage.history.sent:
        raise VoidRun("the reader was not blocked: what it read lies elsewhere")
    stage.start(first)
    go_on(f"with {first} back")
    stage.start(*others)
    reading.read(silence_seconds=READ_SILENCE_SECONDS, wait_for_all=True)
    reading.close()
    if missing := len(stage.history.missing()):
        stage.wrong.append(f"with all bookies back {missing} acknowledged messages cannot be read")
    stage.wait(
        "lost copies are repaired", lambda: not stage.observer.under_replicated(), _REPAIR_SECONDS
    )
    stage.kill(first)
    stage.notes.append(f"after the repair {first} is killed again")
    read_to_the_end(stage)


_METADATA_LINKS: Final = frozenset({"metadata"})
PUBLISHED_SCENARIOS: Final = (
    Scenario("no-fault", "nothing is broken", _nothing, 0, no_negative=True, needs_hosts=False),
    Scenario(
        "kill-broker",
        "the topic's owner is killed",
        _kill_broker,
        1,
        moves_owner=True,
        no_negative=True,
    ),
    Scenario(
        "kill-bookie",
        "a bookie of the current ensemble is killed",
        _kill_bookies(1),
        2,
        no_negative=True,
    ),
    Scenario(
        "isolate-broker-from-zk",
        "the owner is cut off from the metadata service until its session is lost",
        _isolate_broker,
        3,
        moves_owner=True,
        no_negative=True,
        relayed=_METADATA_LINKS,
    ),
    Scenario(
        "isolate-broker-from-zk-dedup",
        "the same with deduplication",
        _isolate_broker,
        4,
        dedup=True,
        no_negative=True,
        relayed=_METADATA_LINKS,
    ),
    Scenario(
        "isolate-bookie-from-zk",
        "a bookie of the ensemble is cut off from the metadata service until its session is lost",
        _isolate_bookie,
        5,
        no_negative=True,
        relayed=_METADATA_LINKS,
    ),
    Scenario(
        "kill-bookies",
        "two bookies of the ensemble are killed",
        _kill_bookies(2),
        6,
        Quorums(3, 3, 1),
        bookies=5,
        no_negative=True,
    ),
    Scenario(
        "kill-write-quorum",
        "both bookies of the ledger are killed, restored one by one, and after the repair one is "
        "killed again",
        _kill_write_quorum,
        7,
        bookies=5,
        # What is in the broker's memory needs no bookie.
        settings=(("broker", "managed_ledger_cache_size_bytes=0"),),
        reading=_read_as_bookies_return,
    ),
)
