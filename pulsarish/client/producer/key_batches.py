"""Key-based batching: what was gathered becomes a batch for each key, so that a key-shared subscription can tell them apart."""

from __future__ import annotations

from collections.abc import Mapping

from pulsarish.client.messages.entry_encoder import NO_EXTRAS, Extras

__all__ = ["by_key", "key_alone"]


def by_key(count: int, extras: Mapping[int, Extras]) -> list[list[int]]:
    """The indexes of messages of one key each, in the order in which keys came up; those without a key are together."""
    found: dict[tuple[bool, str | None], list[int]] = {}
    for index in range(count):
        beside = extras.get(index, NO_EXTRAS)
        is_ordering = beside.ordering_key is not None
        found.setdefault((is_ordering, beside.ordering_key if is_ordering else beside.partition_key), []).append(index)
    return list(found.values())


def key_alone(extras: Extras | None) -> Extras:
    """What a batch's own metadata says of the key of its messages."""
    if extras is None or (extras.partition_key is None and extras.ordering_key is None):
        return NO_EXTRAS
    if extras.ordering_key is not None:
        return Extras(ordering_key=extras.ordering_key)
    return Extras(partition_key=extras.partition_key, key_form=extras.key_form)
