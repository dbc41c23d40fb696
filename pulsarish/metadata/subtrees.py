"""The nodes below a topic's node, or a partitioned topic's, when it is deleted as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records

__all__ = ["nodes_below"]


async def nodes_below(records: Records, topic_path: str, kinds: Sequence[str]) -> list[str]:
    """Return the nodes of the ``kinds`` that a listing found, each after what lies below it; not
    those of cursors.

    Schemas are listed only where there are some. Raises ``MetadataUnavailable``.
    """
    parent = paths.schemas(topic_path)
    children = [f"{topic_path}/{kind}" for kind in kinds]
    versions = await records.children(parent) if parent in children else []
    return [*(f"{parent}/{version}" for version in versions), *children]
