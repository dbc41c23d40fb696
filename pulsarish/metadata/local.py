"""Open the tree of a process that keeps its metadata itself."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from pulsarish.metadata.damage import check_cut_is_finished, open_tree
from pulsarish.metadata.tree.local import LocalTree
from pulsarish.metadata.tree.tree import Tree
from pulsarish.runtime.seams import Clock, Files, KeyValueIndex, Tasks

__all__ = ["open_local"]


async def open_local(
    directory: str,
    *,
    clock: Clock,
    tasks: Tasks,
    rng: random.Random,
    files: Files,
    open_index: Callable[[str], Awaitable[KeyValueIndex]],
) -> LocalTree:
    """Open the tree of ``embedded:DIR``, or with an empty ``directory`` that of ``memory:``, for a
    process that gives each of several nodes a store of it.

    Raises ``Locked`` when another process has the directory, ``CorruptData``.
    """
    if not directory:
        return await LocalTree.open(None, Tree(), clock, tasks, rng)
    await files.lock(directory)
    await check_cut_is_finished(files, directory)
    index, tree = await open_tree(open_index, directory)
    return await LocalTree.open(index, tree, clock, tasks, rng)
