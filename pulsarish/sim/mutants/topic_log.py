"""Mutants of the safeguards of a topic's log.

The oracle of ``workloads/topic_log.py`` must notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger import managed_ledger, takeover, trim, trimmer
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.chain_core import ChainCore
from pulsarish.managed_ledger.cursors.cursor_state import CursorImage
from pulsarish.managed_ledger.cursors.cursor_store import CursorStore
from pulsarish.managed_ledger.ledger_counts import UNKNOWN
from pulsarish.managed_ledger.options import Retention
from pulsarish.managed_ledger.owned_record import OwnedRecord
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.metadata.records import TopicLedger, TopicRecord
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.position import LATEST, Position
from pulsarish.runtime.seams import Op
from pulsarish.sim.workloads.quiet_hours import RETENTION, run_hours
from pulsarish.sim.workloads.renewed_topic import run_renewed
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing
from pulsarish.sim.workloads.stale_owner import run_stale_owner
from pulsarish.sim.workloads.topic_log import LogSettings, run_log

__all__ = ["LOG_MUTANTS", "LOG_SCENARIOS"]

LOG_SCENARIOS: Final[dict[str, LogSettings]] = {
    "rivals": LogSettings(
        seconds=6.0, kinds=("slow_metadata", "slow_node"), rival_chance=0.9, entries_per_ledger=30
    ),
    "power": LogSettings(
        seconds=10.0,
        kinds=("slow_disk",),
        rival_chance=0.0,
        stay_seconds=20.0,
        blackout_seconds=0.7,
        entries_per_ledger=200,
    ),
    "power of all copies": LogSettings(
        seconds=10.0,
        kinds=("slow_disk",),
        quorums=(3, 3, 3),
        rival_chance=0.0,
        stay_seconds=20.0,
        blackout_seconds=0.7,
        entries_per_ledger=200,
    ),
    "cursors": LogSettings(
        seconds=5.0, kinds=("slow_metadata",), rival_chance=0.0, node_writes_max=0, dies_chance=0.6
    ),
    "ranges": LogSettings(
        seconds=5.0,
        kinds=("slow_metadata",),
        rival_chance=0.0,
        node_writes_max=0,
        entries_per_ledger=4,
    ),
}
"""Settings by what they stress."""

_RANGES_MAX: Final = 2


def _list_without_version(was: object) -> object:
    write: Any = was

    async def blind(cell: Any, wanted: Any, *, guards: Callable[[], Sequence[Op]] = tuple) -> None:
        if isinstance(wanted, TopicRecord) and cell.version is not None:
            cell.version = await cell._records.compare_and_set(cell.path, wanted, -1)
            cell.record = wanted
        else:
            await write(cell, wanted, guards=guards)

    return blind


def _resend_everything(_was: object) -> object:
    def recovered(
        core: ChainCore, _last_entry: int, payloads: Sequence[bytes | memoryview]
    ) -> tuple[None, int]:
        if payloads:
            core.chain.grow(len(payloads), sum(map(len, payloads)))
        core.pushed = core.pushed_bytes = 0
        return None, 0

    return recovered


def _last_ledger_as_it_is(_was: object) -> object:
    async def recovered_chain(topic: OwnedTopicRecord, ledgers: LedgerClient, now_ms: int) -> Chain:
        links: list[TopicLedger] = []
        for found in topic.record.ledgers:
            if found.closed_ms:
                links.append(found)
                continue
            reader = await ledgers.open_no_recovery(found.ledger_id)
            if reader.last_add_confirmed >= 0:
                links.append(
                    TopicLedger(
                        found.ledger_id, reader.last_add_confirmed + 1, reader.length_bytes, now_ms
                    )
                )
        return Chain(links, topic.record.lost)

    return recovered_chain


def _cursor_ledger_deleted_first(was: Any) -> object:
    async def store_record(
        store: CursorStore, image: CursorImage, cursor_ledger: int, with_ops: Sequence[Op] = ()
    ) -> None:
        before = store.cell.record.cursor_ledger
        if before not in (-1, cursor_ledger):
            await store._ledgers.delete(before)
        await was(store, image, cursor_ledger, with_ops)

    return store_record


def _few_ranges(was: Any) -> object:
    def of(
        kind: type[CursorImage], acks: AckRanges, properties: Mapping[str, int], ranges_max: int
    ) -> CursorImage:
        whole: CursorImage = was.__func__(kind, acks, properties, ranges_max)
        return msgspec.structs.replace(whole, ranges=whole.ranges[: 3 * _RANGES_MAX])

    return classmethod(of)


def _first_set_only(was: Any) -> object:
    def of(
        kind: type[CursorImage], acks: AckRanges, properties: Mapping[str, int], ranges_max: int
    ) -> CursorImage:
        whole: CursorImage = was.__func__(kind, acks, properties, ranges_max)
        return msgspec.structs.replace(whole, sets=whole.sets[:1])

    return classmethod(of)


def _unguarded(_was: object) -> object:
    def guards(topic: OwnedTopicRecord) -> list[Op]:
        return [Op("check", topic.path)]

    return guards


def _any_topic(_was: object) -> object:
    return lambda topic: Op("check", topic.path)


def _without_lease(was: Any) -> object:
    async def take_over(*arguments: Any) -> object:
        *others, _lease = arguments
        return await was(*others)

    return take_over


def _trim_without_cursors(was: Any) -> object:
    def trimmable(chain: Chain, _safe_mark: Position, retention: Retention, now_ms: int) -> int:
        count: int = was(chain, LATEST, retention, now_ms)
        return count

    return trimmable


def _single_messages(was: Any) -> object:
    async def recovered_chain(topic: OwnedTopicRecord, ledgers: LedgerClient, now_ms: int) -> Chain:
        chain: Chain = await was(topic, ledgers, now_ms)
        for link in chain.links:
            if link.messages_total == UNKNOWN:
                link._messages = link.entries
        return chain

    return recovered_chain


def _check_retention(seed: int) -> None:
    run_hours(seed, RETENTION)


def _check_renewed(seed: int) -> None:
    run_renewed(seed)


def _mutant(
    name: str,
    removes: str,
    rules: tuple[int, ...],
    patch: Patch,
    scenario: str,
    seeds: int = 40,
    first: int = 0,
) -> Mutant:
    def check(seed: int) -> None:
        run_log(seed, LOG_SCENARIOS[scenario])

    return Mutant(name, removes, rules, patch, check, seeds, first)


LOG_MUTANTS: Final = (
    _mutant(
        "list_swung_without_version",
        "every change of a topic's list of ledgers is a compare-and-set",
        (14,),
        replacing(OwnedRecord, "write", _list_without_version),
        "rivals",
    ),
    _mutant(
        "resend_what_recovery_kept",
        "of what a stopped writer left unconfirmed only that is sent again which its closed "
        "ledger lacks (Pulsar's #7490)",
        (4,),
        replacing(ChainCore, "recovered", _resend_everything),
        "power of all copies",
        first=15,
    ),
    _mutant(
        "last_ledger_not_fenced",
        "an owner recovers the last ledger, and so fences it, before it serves: having the lease "
        "is not enough",
        (14,),
        replacing(takeover, "_recovered_chain", _last_ledger_as_it_is),
        "rivals",
    ),
    _mutant(
        "stale_owner_acknowledges",
        "what an owner writes below a topic's record is checked against that record's version in "
        "the same commit",
        (14, 16),
        replacing(OwnedTopicRecord, "guards", _unguarded),
        "rivals",
    ),
    _mutant(
        "cursor_ledger_deleted_first",
        "a cursor's ledger goes only when the cursor's node names the next one",
        (16,),
        replacing(CursorStore, "_store_record", _cursor_ledger_deleted_first),
        "cursors",
    ),
    _mutant(
        "acknowledged_ranges_cut",
        "every acknowledged range is stored, however many there are",
        (16,),
        replacing(CursorImage, "of", _few_ranges),
        "cursors",
    ),
    _mutant(
        "acknowledged_sets_cut",
        "a snapshot has the acknowledged entries of every ledger",
        (16,),
        replacing(CursorImage, "of", _first_set_only),
        "ranges",
    ),
    _mutant(
        "trim_without_cursors",
        "trimming stays below every cursor's durable mark",
        (17,),
        replacing(trimmer, "trimmable", _trim_without_cursors),
        "cursors",
    ),
    _mutant(
        "unknown_messages_guessed",
        "the messages in a ledger that its owner did not close count as unknown until its entries "
        "are read",
        (),
        replacing(takeover, "_recovered_chain", _single_messages),
        "cursors",
    ),
    Mutant(
        "former_topic_written",
        "what an owner writes is checked against the topic's incarnation in the same commit, as "
        "versions begin again when a topic is created again",
        (14,),
        replacing(OwnedTopicRecord, "_same_topic", _any_topic),
        _check_renewed,
        seeds=10,
    ),
    Mutant(
        "lease_not_checked",
        "a topic is taken over only by the broker that owns its bundle, whatever it knows",
        (14,),
        replacing(managed_ledger, "take_over", _without_lease),
        run_stale_owner,
        seeds=2,
    ),
    Mutant(
        "trimmed_by_two_clocks",
        "a ledger that another broker has closed is kept longer by what the clocks of two brokers "
        "may be apart",
        (17,),
        replacing(trim, "CLOCK_TOLERANCE_MS", lambda _was: 0),
        _check_retention,
        seeds=10,
    ),
)
