"""The tree that the records of ledgers imply: which topics there were, with which ledgers.

A ledger's purpose names its topic, and the ids of a topic's ledgers ascend, so they give its chain.
A ledger that is not known to be closed stays open in the chain, and the next owner recovers it. Its
record is marked as restored: it is not closed before every bookie was asked for more of it.

Policies are not known. Without the subscriptions that needed them, and without retention, a topic's
messages would be trimmed when it is opened. So the namespaces that are made keep everything, and
delete no topic, until an operator sets their policies again. Topics that are made in a namespace
that is there already get such policies of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.backup.ledger_copies import BookieCopies
from pulsarish.metadata.records import (
    ClusterRecord,
    CursorRecord,
    NamespacePolicies,
    PartitionedTopic,
    TenantRecord,
    TopicLedger,
    TopicPolicies,
    TopicRecord,
)
from pulsarish.model import policies
from pulsarish.model.errors import InvalidTopicName
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState, PurposeKind
from pulsarish.model.policies import InactiveTopicPolicies, RetentionPolicies
from pulsarish.model.position import NO_ENTRY
from pulsarish.model.topic_name import TopicName
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["PlannedTopic", "TreePlan", "plan_tree"]

_KEEP_ALL: Final = {
    policies.RETENTION.name: RetentionPolicies(minutes=-1, mb=-1),
    policies.INACTIVE_TOPIC.name: InactiveTopicPolicies(delete_while_inactive=False),
}


@dataclass(slots=True)
class PlannedTopic:
    name: TopicName
    record: TopicRecord
    cursors: dict[str, CursorRecord] = field(default_factory=dict)
    """By subscription."""
    policies: TopicPolicies | None = None
    """Its own, unless its namespace keeps everything. Those of a partition are among the nodes."""


@dataclass(slots=True)
class TreePlan:
    """The tree that is to be there."""

    nodes: dict[str, bytes] = field(default_factory=dict)
    """All nodes but those of ledgers and topics."""
    ledgers: dict[int, LedgerMetadata] = field(default_factory=dict)
    topics: list[PlannedTopic] = field(default_factory=list)
    unattached: dict[int, str] = field(default_factory=dict)
    """Ledgers that no planned topic or subscription refers to, and what they belong to."""
    held_back: set[str] = field(default_factory=set)
    """Topics that are not to be made: policies that are there would have them trimmed."""


def plan_tree(
    known: Mapping[int, LedgerMetadata],
    bookies: Sequence[BookieCopies],
    now_ms: int,
    there: Mapping[str, bytes] | None = None,
) -> TreePlan:
    """Return the tree that these ledgers and cookies imply.

    Args:
        known: by id, ascending.
        bookies: at least one, all of one cluster.
        there: the nodes of the tree.
    """
    plan = TreePlan()
    first = min(bookies, key=lambda each: each.cookie.created_ms).cookie
    plan.nodes[paths.CLUSTER] = encode_record(ClusterRecord(first.cluster_id, first.created_ms))
    for bookie in bookies:
        plan.nodes[paths.cookie(bookie.cookie.bookie_id)] = encode_record(bookie.cookie)
    chains: dict[str, list[LedgerMetadata]] = {}
    for metadata in known.values():
        plan.ledgers[metadata.ledger_id] = _doubted(metadata)
        if metadata.purpose.kind is PurposeKind.TOPIC and _parsed(metadata.purpose.owner):
            chains.setdefault(metadata.purpose.owner, []).append(metadata)
    topics = {owner: _planned(owner, chain, now_ms) for owner, chain in sorted(chains.items())}
    plan.topics = list(topics.values())
    logs: dict[tuple[str, str], LedgerMetadata] = {}
    for metadata in known.values():
        if metadata.purpose.kind is PurposeKind.CURSOR:
            place = _cursor_of(metadata.purpose.owner, topics)
            if place is not None and _is_better(metadata, logs.get(place)):
                logs[place] = metadata
    for (owner, subscription), metadata in logs.items():
        # The ledger has the position. Without it everything is delivered again, also what is due
        # later: the delayed messages are in the topic, and their own ledger is of no use.
        first_ledger = topics[owner].record.ledgers[0].ledger_id
        cursor_ledger = -1 if metadata.purpose.delayed else metadata.ledger_id
        topics[owner].cursors[subscription] = CursorRecord(
            first_ledger, NO_ENTRY, cursor_ledger=cursor_ledger, created_ms=now_ms
        )
    named = {each.ledger_id for topic in plan.topics for each in topic.record.ledgers}
    named |= {each.ledger_id for each in logs.values() if not each.purpose.delayed}
    for ledger_id, metadata in plan.ledgers.items():
        if ledger_id not in named:
            plan.unattached[ledger_id] = f"{metadata.purpose.kind} {metadata.purpose.owner}"
    for topic in plan.topics:
        _add_parents(plan.nodes, topic.name, now_ms)
        if there and paths.topic(topic.name) not in there and not _keeps_all(there, topic.name):
            if _policies_of_all_partitions(topic.name) in there:
                plan.held_back.add(topic.name.full)
            else:
                _add_policies(plan.nodes, topic)
    plan.topics = [each for each in plan.topics if each.name.full not in plan.held_back]
    return plan


def _doubted(metadata: LedgerMetadata) -> LedgerMetadata:
    """Return the record to write. One of an open ledger may be old: others may hold more of it."""
    if metadata.state is LedgerState.CLOSED:
        return metadata
    return msgspec.structs.replace(metadata, restored=True)


def _parsed(owner: str) -> TopicName | None:
    """Return the persistent topic of this full name; ``None`` when it is none."""
    try:
        name = TopicName.parse(owner)
    except InvalidTopicName:
        return None
    return name if name.persistent and name.full == owner else None


def _planned(owner: str, chain: Sequence[LedgerMetadata], now_ms: int) -> PlannedTopic:
    record = TopicRecord(
        tuple(_link(metadata, now_ms) for metadata in chain),
        highest_ledger=chain[-1].ledger_id,
        created_ms=min(metadata.created_ms for metadata in chain),
    )
    return PlannedTopic(TopicName.parse(owner), record)


def _link(metadata: LedgerMetadata, now_ms: int) -> TopicLedger:
    """Return a ledger's place in the chain.

    The next owner looks for itself at one that is not closed, or closed and empty.
    """
    if metadata.state is not LedgerState.CLOSED or metadata.last_entry == NO_ENTRY:
        return TopicLedger(metadata.ledger_id)
    return TopicLedger(
        metadata.ledger_id, metadata.last_entry + 1, metadata.length_bytes, max(1, now_ms)
    )


def _cursor_of(owner: str, topics: Mapping[str, PlannedTopic]) -> tuple[str, str] | None:
    """Return the topic and the subscription of a cursor's ledger; ``None`` when that is not clear.

    Both names may contain the ``#`` between them.
    """
    words = owner.split("#")
    places = [("#".join(words[:count]), "#".join(words[count:])) for count in range(1, len(words))]
    found = [place for place in places if place[0] in topics and place[1]]
    return found[0] if len(found) == 1 else None


def _is_better(metadata: LedgerMetadata, other: LedgerMetadata | None) -> bool:
    """Return whether a subscription's position is rather in this ledger of it.

    Ledgers of delayed messages belong to it, too. They are closed as soon as they are written, and
    those of older versions do not say what they are.
    """
    return other is None or _rank(metadata) > _rank(other)


def _rank(metadata: LedgerMetadata) -> tuple[bool, bool, int]:
    is_open = metadata.state is not LedgerState.CLOSED
    return not metadata.purpose.delayed, is_open, metadata.ledger_id


def _add_parents(nodes: dict[str, bytes], name: TopicName, now_ms: int) -> None:
    """Add the tenant, the namespace, and the partitioned topic of a partition."""
    nodes[paths.tenant(name.tenant)] = encode_record(TenantRecord())
    nodes[paths.namespace(name.tenant, name.namespace)] = encode_record(
        NamespacePolicies(policies=_kept_by(), created_ms=now_ms)
    )
    if name.partition < 0:
        return
    path = paths.partitioned_topic(name.partitioned)
    before = msgspec.json.decode(nodes[path], type=PartitionedTopic) if path in nodes else None
    count = max(name.partition + 1, 0 if before is None else before.partitions)
    nodes[path] = encode_record(PartitionedTopic(count, created_ms=now_ms))


def _kept_by() -> dict[str, object]:
    """Return policies that keep everything, as they are stored."""
    return {key: msgspec.to_builtins(value) for key, value in _KEEP_ALL.items()}


def _keeps_all(there: Mapping[str, bytes], name: TopicName) -> bool:
    """Return whether the policies that are there keep all of a topic, or its namespace is still to
    be made.
    """
    path = paths.namespace(name.tenant, name.namespace)
    if path not in there:
        return True
    found = dict(decode_record(there[path], NamespacePolicies, path).policies)
    own = _policies_of_all_partitions(name)
    if own in there:
        found |= decode_record(there[own], TopicPolicies, own).policies
    return all(found.get(key) == value for key, value in _kept_by().items())


def _policies_of_all_partitions(name: TopicName) -> str:
    """Return the path of the policies of a partition's topic; empty for any other topic."""
    if name.partition < 0:
        return ""
    return paths.topic_policies(paths.partitioned_topic(name.partitioned))


def _add_policies(nodes: dict[str, bytes], topic: PlannedTopic) -> None:
    """Have a topic keep everything, whatever its namespace says."""
    kept = TopicPolicies(_kept_by())
    if path := _policies_of_all_partitions(topic.name):
        nodes[path] = encode_record(kept)
    else:
        topic.policies = kept
