"""What bookies really store at the end of a run.

The checks have the names of the published BookKeeper specification.

* ``AllCommittedEntriesReachAckQuorum``: each entry of a closed ledger, and each confirmed one of an
  open ledger, has Qa copies on members of its write set.
* ``AllAckedEntriesAreReadable``: at least one bookie can read each of them.
* ``missing-copies``: where auto-recovery runs, each entry of a closed ledger has all Qw copies once
  there was time for it.
* ``NoOutOfOrderEntries``: all copies of an entry are the same entry, in its place.

A machine whose disk was destroyed counts as if it held everything that it ever acknowledged: the
other copies exist for such a loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from pulsarish.bookie.bookie import Bookie
from pulsarish.metadata import paths
from pulsarish.model.errors import ChecksumError, EntryUnknown, NoSuchEntry, NoSuchLedger
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.seams import World
from pulsarish.wire.bookie import ReadAnswer, ReadItem
from pulsarish.wire.record import decode_entry_record

if TYPE_CHECKING:
    from pulsarish.sim.world.world import Simulation

__all__ = ["HasBookies", "look_at_disks", "look_for_garbage"]

_LEDGERS_MAX: Final = 100_000
_GARBAGE_AGAIN_SECONDS: Final = 30.0  # longer than two looks of a bookie at its ledgers

_Key = tuple[int, int]  # ledger, entry


class HasBookies(Protocol):
    """A scenario with bookies."""

    sim: Simulation

    def bookies_up(self) -> Iterator[tuple[str, Bookie]]:
        """Yield the bookies that serve, by the names of their nodes."""
        ...


@dataclass(slots=True)
class _Copies:
    good: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    contents: dict[bytes, str] = field(default_factory=dict)
    """Length and payload, and the bookie that holds them."""


async def look_at_disks(
    cluster: HasBookies,
    ledgers: Iterable[LedgerMetadata],
    destroyed: Iterable[str],
    report: Callable[[str, str], None],
    *,
    repaired: bool = False,
) -> int:
    """Compare closed ledgers with what their members hold. Return the number of entries.

    Args:
        ledgers: their records. The last entry of an open one is the last that is known to be
            confirmed.
        destroyed: names of machines that lost durable data. No bookie has their earlier instance
            ids now.
        repaired: closed ledgers must have all their copies.
        report: called with the name of the check that failed, and what was found.
    """
    gone = list(destroyed)
    bookies = {bookie.instance_id: (name, bookie) for name, bookie in cluster.bookies_up()}
    records = list(ledgers)
    wanted: dict[str, list[_Key]] = {}
    for record in records:
        for entry_id in range(record.last_entry + 1):
            for member in record.write_set(entry_id):
                wanted.setdefault(member, []).append((record.ledger_id, entry_id))
    copies: dict[_Key, _Copies] = {}
    for member, keys in wanted.items():
        if member in bookies:
            name, bookie = bookies[member]
            await _read(cluster, name, bookie, keys, copies)
    for record in records:
        for entry_id in range(record.last_entry + 1):
            found = copies.get((record.ledger_id, entry_id), _Copies())
            write_set = record.write_set(entry_id)
            excused = sum(
                bool(gone) and (member not in bookies or bookies[member][0] in gone)
                for member in write_set
            )
            held = sum(
                bookies[member][0] not in gone
                for member in write_set
                if member in bookies and member in found.good
            )
            what = (
                f"entry {entry_id} of ledger {record.ledger_id} ({record.purpose.owner}), "
                f"members {', '.join(write_set)}"
            )
            if not found.good:
                report("AllAckedEntriesAreReadable", f"{what}: no bookie can give it")
            elif held + excused < record.ack_quorum:
                report(
                    "AllCommittedEntriesReachAckQuorum",
                    f"{what}: only {', '.join(found.good)} hold it",
                )
            elif (
                repaired
                and record.state is LedgerState.CLOSED
                and held + excused < record.write_quorum
            ):
                report("missing-copies", f"{what}: only {', '.join(found.good)} hold it")
            if len(found.contents) > 1:
                report(
                    "NoOutOfOrderEntries",
                    f"{what}: {' and '.join(found.contents.values())} hold different entries",
                )
    return sum(record.last_entry + 1 for record in records)


async def look_for_garbage(cluster: HasBookies, report: Callable[[str, str], None]) -> None:
    """Report ``garbage``: a ledger on a bookie that the metadata do not know, once the bookie has
    had the time to check.

    A cursor may have made and deleted a ledger just now, so what is found is looked for again.
    """
    found = await _unknown_ledgers(cluster)
    if not any(found.values()):
        return
    await asyncio.sleep(_GARBAGE_AGAIN_SECONDS)
    again = await _unknown_ledgers(cluster)
    for name, ledgers in found.items():
        if left := [ledger_id for ledger_id in ledgers if ledger_id in again.get(name, ())]:
            report("garbage", f"{name} still holds {left}, which are deleted")


async def _unknown_ledgers(cluster: HasBookies) -> dict[str, list[int]]:
    """Return the ledgers of each bookie that the metadata do not know."""
    tree = cluster.sim.metadata.tree
    found: dict[str, list[int]] = {}
    for name, bookie in cluster.bookies_up():

        async def inside(_world: World, bookie: Bookie = bookie) -> list[int]:
            return (await bookie.entries.list_ledgers(-1, _LEDGERS_MAX))[0]

        held = await cluster.sim.nodes[name].run(inside)
        found[name] = [ledger_id for ledger_id in held if tree.get(paths.ledger(ledger_id)) is None]
    return found


def _found(answer: ReadAnswer) -> bytes | memoryview | None:
    """Return the record. ``None``: it is not there. Empty: it cannot be read."""
    if answer.records:
        return answer.records[0]
    return None if answer.code in (NoSuchEntry.code, NoSuchLedger.code, EntryUnknown.code) else b""


async def _read(
    cluster: HasBookies, name: str, bookie: Bookie, keys: list[_Key], copies: dict[_Key, _Copies]
) -> None:
    async def inside(_world: World) -> dict[_Key, bytes | memoryview | None]:
        answers = await bookie.entries.read(
            [ReadItem(0, ledger_id, [(entry_id, entry_id)], 0) for ledger_id, entry_id in keys]
        )
        return {key: _found(answer) for key, answer in zip(keys, answers, strict=True)}

    for key, raw in (await cluster.sim.nodes[name].run(inside)).items():
        if raw is None:
            continue
        mine = copies.setdefault(key, _Copies())
        try:
            record = decode_entry_record(raw, *key)
        except ChecksumError:
            mine.bad.append(bookie.instance_id)
            continue
        mine.good.append(bookie.instance_id)
        mine.contents.setdefault(record.length_bytes.to_bytes(8) + bytes(record.payload), name)
