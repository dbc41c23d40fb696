"""Key-based batching: one batch for each key, so that key-shared subscriptions can dispatch batches
by key.
"""

from __future__ import annotations

from collections.abc import Mapping

from pulsarish.client.messages.entry_encoder import NO_EXTRAS, Extras

__all__ = ["by_key", "key_alone"]


def by_key(count: int, extras: Mapping[int, Extras]) -> list[list[int]]:
    """Return the indexes of messages grouped by key, in order of first appearance; messages without
    a key are one group.
    """
    found: dict[tuple[bool, str | None], list[int]] = {}
    for index in range(count):
        beside = extras.get(index, NO_EXTRAS)
        is_ordering = beside.ordering_key is not None
        found.setdefault(
            (is_ordering, beside.ordering_key if is_ordering else beside.partition_key), []
        ).append(index)
    return list(found.values())


def key_alone(extras: Extras | None) -> Extras:
    """Return what the metadata of a batch says about the key of its messages."""
    if extras is None or (extras.partition_key is None and extras.ordering_key is None):
        return NO_EXTRAS
    if extras.ordering_key is not None:
        return Extras(ordering_key=extras.ordering_key)
    return Extras(partition_key=extras.partition_key, key_form=extras.key_form)
