"""What a restored tree is worth, by what bookies hold and the live tree names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pulsarish.ledger.bookie_control import NoAnswer
from pulsarish.ledger.repair.rehearsal import rehearse_stock
from pulsarish.metadata import paths
from pulsarish.metadata.records import Cookie
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)


class Tree:
    """Records of the given ledgers and bookies."""

    def __init__(self, bookies: str, **ledgers: tuple[str, int]) -> None:
        self._nodes: dict[str, Any] = {
            paths.cookie(name): Cookie(name, f"{name}~1", "c", "", "", "", 0) for name in bookies
        }
        for name, (members, last_entry) in ledgers.items():
            ledger_id = int(name[1:])
            self._nodes[paths.ledger(ledger_id)] = LedgerMetadata(
                ledger_id,
                len(members),
                len(members),
                1,
                LedgerPurpose(PurposeKind.TOPIC, "t"),
                (Segment(0, tuple(f"{member}~1" for member in members)),),
                LedgerState.OPEN if last_entry < -1 else LedgerState.CLOSED,
                max(-1, last_entry),
                restored=True,
            )

    async def children(self, path: str) -> list[str]:
        below = [node[len(path) + 1 :] for node in self._nodes if node.startswith(path + "/")]
        return sorted({name.partition("/")[0] for name in below})

    async def get_many(self, wanted: list[str], _kind: object) -> list[Any]:
        return [(self._nodes[path], 1) if path in self._nodes else None for path in wanted]


class Control:
    """Bookies that list their ledgers; ``None``: it is silent."""

    def __init__(self, held: dict[str, list[int] | None]) -> None:
        self._held = held

    async def list_ledgers(self, bookie: str, after: int) -> tuple[list[int], bool]:
        found = self._held[bookie.partition("~")[0]]
        if found is None:
            raise NoAnswer(f"{bookie} is silent")
        return [each for each in found if each > after], False


def rehearse(restored: Tree, live: Tree, **held: list[int] | None) -> Any:
    return asyncio.run(rehearse_stock(restored, live, Control(held)))  # type: ignore[arg-type]


def test_ledgers_are_sorted_by_what_happened_to_them() -> None:
    open_then = ("ab", -2)
    restored = Tree("abx", L1=("ab", 9), L2=("ab", 9), L3=("ab", 9), L4=open_then, L5=("ab", -1))
    live = Tree("abc", L1=("ab", 9), L3=("ab", 9), L4=("ac", 20), L5=("ab", -1), L6=("bc", 3))
    found = rehearse(restored, live, a=[1, 4], b=[1, 6], c=[4, 6])
    assert (found.ledgers, found.newer, found.deleted) == (5, [6], [2])
    assert (found.lost, found.elsewhere) == ([3], {4: ["c~1"]})
    assert (found.gone_bookies, found.silent) == (["x~1"], {})
    assert not found.is_well


@pytest.mark.parametrize("held", [[3], None])
def test_a_ledger_whose_member_is_silent_is_not_lost_but_the_bookie_is_named(
    held: list[int] | None,
) -> None:
    tree = Tree("ab", L3=("ab", 9))
    found = rehearse(tree, tree, a=[], b=held)
    assert (found.lost, list(found.silent)) == ([], [] if held else ["b~1"])
    assert found.is_well is bool(held)
