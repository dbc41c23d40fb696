"""The retention in force for topics, from metadata: the topic's own, else its namespace's, else the
brokers' configured default.

That default is not in metadata, so the job receives it as an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import NamespacePolicies, TopicPolicies
from pulsarish.model.errors import CorruptData, InvalidArgument
from pulsarish.model.policies import COMPACTION_THRESHOLD, RETENTION
from pulsarish.model.topic_name import TopicName

__all__ = ["retentions_of"]


async def retentions_of(
    records: Records, topics: Sequence[TopicName], default: Retention
) -> list[Retention]:
    """Return one retention for each topic.

    The topics of a page are in few namespaces. Raises ``MetadataUnavailable``, ``CorruptData``.
    """
    spaces = list(dict.fromkeys((name.tenant, name.namespace) for name in topics))
    found = await records.get_many([paths.namespace(*space) for space in spaces], NamespacePolicies)
    by_space = {
        space: {} if record is None else record[0].policies
        for space, record in zip(spaces, found, strict=True)
    }
    nodes = [_policies_path(name) for name in topics]
    own = await records.get_many(nodes, TopicPolicies)
    retentions: list[Retention] = []
    for name, node, mine in zip(topics, nodes, own, strict=True):
        own_policies = {} if mine is None else mine[0].policies
        of_space = by_space[name.tenant, name.namespace]
        retention = (
            _retention(own_policies, node) or _retention(of_space, name.namespace_name) or default
        )
        threshold = {**of_space, **own_policies}.get(COMPACTION_THRESHOLD.name)
        if threshold is not None:
            retention = msgspec.structs.replace(retention, until_compacted=bool(threshold))
        retentions.append(retention)
    return retentions


def _policies_path(name: TopicName) -> str:
    """Return the path of a topic's policies. A partition has those of its partitioned topic."""
    return paths.topic_policies(
        paths.partitioned_topic(name.partitioned) if name.partition >= 0 else paths.topic(name)
    )


def _retention(policies: Mapping[str, Any], where: str) -> Retention | None:
    raw = policies.get(RETENTION.name)
    if raw is None:
        return None
    try:
        value = RETENTION.value(raw)
    except InvalidArgument as error:
        raise CorruptData(f"the retention of {where} cannot be read: {error}") from None
    return Retention(value.minutes, value.mb, value.count)
