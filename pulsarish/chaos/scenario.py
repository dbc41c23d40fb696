"""What a scenario is: a fault, the cluster that it wants, and what it allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsarish.chaos.load import Reading
from pulsarish.chaos.observer import bookie_name
from pulsarish.chaos.stage import Quorums, Stage

__all__ = [
    "PUBLISHED",
    "READ_SILENCE_SECONDS",
    "Scenario",
    "owner_moved",
    "read_to_the_end",
    "writes_without",
]

PUBLISHED: Final = Quorums(2, 2, 1)
READ_SILENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """``fault`` is called in a thread of its own at the wanted acknowledgement, while messages are
    published. It breaks something, waits until that is seen from outside, heals what is to be
    healed, and returns; publishing ends no earlier.
    """

    name: str
    summary: str
    fault: Callable[[Stage], None]
    number: int | None = None  # in the published test
    quorums: Quorums = PUBLISHED
    brokers: int = 3
    bookies: int = 3
    dedup: bool | None = None  # None: as the user wishes, off without a wish
    moves_owner: bool = False  # so that without deduplication duplicates are allowed
    must_duplicate: bool = False  # a control: a run without duplicates has shown nothing
    must_lose: bool = False  # a control: a run in which nothing is missing has shown nothing
    no_negative: bool = False  # not one send may fail
    relayed: frozenset[str] = frozenset()  # roles before which relays stand
    settings: tuple[tuple[str, str], ...] = ()  # role, key=value
    rate: float | None = None  # without a wish of the user's
    at_full_speed: bool = False  # also beyond the wanted number of messages, while the fault lasts
    is_soak: bool = False  # has topics, sizes of messages and times between faults
    by_name_only: bool = False  # not part of ``all``
    # kills, cuts or looks into the tree: not for a cluster that the user names
    needs_hosts: bool = True
    metadata: str = ""  # the kind of metadata service that it is about, whatever --metadata says
    metadata_servers: int = 1
    prepare: Callable[[Stage], None] | None = None  # before the cluster starts
    reading: Callable[[Stage], None] | None = None  # instead of one reading to the end


def read_to_the_end(stage: Stage) -> None:
    reading = Reading(stage.client, stage.topic_name, stage.history)
    reading.read(silence_seconds=READ_SILENCE_SECONDS, wait_for_all=True)
    reading.close()


def owner_moved(stage: Stage, old: str) -> bool:
    """Whether another instance than ``old`` owns the topic."""
    owner = stage.observer.owner(stage.topic)
    return owner is not None and owner.instance_id != old


def writes_without(stage: Stage, *names: str) -> bool:
    """Whether the topic's newest ledger no longer counts on these bookies: others took their
    places, or their copies are given up.
    """
    newest = stage.observer.ledgers(stage.topic).newest
    record = stage.observer.under_replicated().get(newest.ledger_id)
    given_up = (
        {bookie_name(member) for member in record.missing_members} if record is not None else set()
    )
    members = {bookie_name(member) for member in newest.last_segment.members}
    return not (set(names) & members - given_up)
