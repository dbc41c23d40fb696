"""What a store makes durable after each batch is enough to rebuild the tree as it was at that
batch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from pulsarish.metadata.tree.nodes import Committed
from pulsarish.metadata.tree.rows import Batch, load
from pulsarish.metadata.tree.tree import Tree
from pulsarish.model.errors import CorruptData
from tests.unit.metadata.tree.test_tree import SESSIONS, random_op


class DictIndex:
    """An index in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    async def write(
        self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), *, sync: bool
    ) -> None:
        self.rows.update(puts)
        for key in deletes:
            self.rows.pop(key, None)

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.rows.get(key) for key in keys]

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        return [
            (key, self.rows[key])
            for key in sorted(self.rows, reverse=reverse)
            if start <= key < end
        ][:limit]

    async def close(self) -> None:
        pass


def durable(tree: Tree) -> object:
    nodes = {
        path: (node.data, node.stat(), node.creates, sorted(node.children or ()))
        for path, node in tree.nodes.items()
    }
    sessions = {
        key: (one.password, one.timeout_ms, sorted(one.ephemerals))
        for key, one in tree.sessions.items()
    }
    return tree.zxid, nodes, sessions


@pytest.mark.parametrize("seed", range(30))
def test_the_rows_of_each_batch_rebuild_the_tree(seed: int) -> None:
    async def run() -> None:
        rng = random.Random(seed)
        tree, index = Tree(), DictIndex()
        for _ in range(40):
            batch = Batch()
            for step in range(rng.choice([1, 2, 10])):
                session_id = rng.choice(SESSIONS)
                outcome: object
                if session_id not in tree.sessions:
                    outcome = tree.open_session(
                        session_id, rng.randbytes(16), rng.randrange(1, 60_000), 0
                    )
                elif rng.random() < 0.1:
                    outcome = tree.close_session(session_id)
                else:
                    outcome = tree.commit(
                        session_id, [random_op(rng) for _ in range(rng.choice([1, 1, 3]))], step
                    )
                if isinstance(outcome, Committed):
                    batch.add(outcome)
            if batch:
                await index.write(*batch.rows(tree), sync=True)
            again = await load(index)
            again.check()
            assert durable(again) == durable(tree)

    asyncio.run(run())


def test_damage_is_refused() -> None:
    async def run() -> None:
        tree, index = Tree(), DictIndex()
        batch = Batch()
        batch.add(tree.open_session(5, bytes(16), 1000, 0))
        await index.write(*batch.rows(tree), sync=True)
        index.rows[b"n/orphan/child"] = bytes(64)
        with pytest.raises(CorruptData, match="tree"):
            await load(index)
        del index.rows[b"n/orphan/child"]
        index.rows[b"m"] = b"\0\0\0\x09" + bytes(8)
        with pytest.raises(CorruptData, match="format 9"):
            await load(index)

    asyncio.run(run())
