"""The node with the rules of placement: reading and changing it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import PlacementRecord
from pulsarish.model.errors import LimitReached
from pulsarish.runtime.seams import Op
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["PlacementStore", "without_group"]

_BYTES_MAX: Final = 512 << 10
"""Half of what a node of the metadata service holds."""


class PlacementStore:
    """Reads and changes the rules of placement. Brokers that follow the node see each change."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def read(self, watch: Callable[[str], None] | None = None) -> PlacementRecord:
        """Return the rules; none without the node.

        ``watch`` is called once when they may have changed. Raises ``CorruptData``,
        ``MetadataUnavailable``.
        """
        node = (await self._records.nodes([paths.PLACEMENT], watch=watch))[0]
        return (
            PlacementRecord()
            if node is None
            else decode_record(node.data, PlacementRecord, paths.PLACEMENT)
        )

    async def change(
        self,
        change: Callable[[PlacementRecord], PlacementRecord],
        *,
        with_ops: Sequence[Op] = (),
    ) -> None:
        """Replace the rules by what ``change`` makes of them, in one commit with ``with_ops``.

        ``change`` may raise to refuse. Raises ``LimitReached``, ``CorruptData``,
        ``MetadataUnavailable``, and ``Conflict`` when one of those operations is refused.
        """

        def changed(record: PlacementRecord | None) -> PlacementRecord | None:
            before = record or PlacementRecord()
            after = change(before)
            if after == before:
                return None
            size_bytes = len(encode_record(after))
            if size_bytes > _BYTES_MAX:
                raise LimitReached(
                    f"the rules of placement would have {size_bytes} bytes together; at most "
                    f"{_BYTES_MAX} are allowed: use fewer policies, or patterns for several names"
                )
            return after

        await self._records.update(
            paths.PLACEMENT, PlacementRecord, changed, with_ops=lambda _: with_ops
        )

    async def remove_namespace(self, namespace: str) -> None:
        """Take a namespace out of its anti-affinity group, if it has one.

        Raises ``CorruptData``, ``MetadataUnavailable``.
        """
        if namespace in (await self.read()).groups:
            await self.change(lambda record: without_group(record, namespace))


def without_group(record: PlacementRecord, namespace: str) -> PlacementRecord:
    """Return the rules without the anti-affinity group of a namespace."""
    groups = {name: group for name, group in record.groups.items() if name != namespace}
    return msgspec.structs.replace(record, groups=groups)
