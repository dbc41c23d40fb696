"""The records in the metadata tree, one class a kind of node. The ledger's own record is ``model/ledger_metadata.py``.

Each record that is changed by compare-and-set carries a ``token``: who wrote this version, drawn anew for each write, so that a writer
whose answer was lost recognises its own write when it reads back.
"""

from __future__ import annotations

import msgspec

from pulsarish.model.position import NO_ENTRY

__all__ = [
    "BookieRegistration",
    "BrokerRegistration",
    "BundleOwner",
    "ClusterRecord",
    "Cookie",
    "CursorRecord",
    "LedgerIds",
    "NamespacePolicies",
    "PartitionedTopic",
    "TenantRecord",
    "TopicLedger",
    "TopicRecord",
    "UnderReplicated",
]


class ClusterRecord(msgspec.Struct, frozen=True):
    cluster_id: str
    created_ms: int
    token: str = ""


class LedgerIds(msgspec.Struct, frozen=True):
    """Ids below ``next_id`` have been given out, in blocks."""

    next_id: int
    token: str = ""


class Cookie(msgspec.Struct, frozen=True):
    """A bookie's identity, the same in metadata and in each of its directories (rule 7)."""

    bookie_id: str
    instance_id: str
    cluster_id: str
    journal_directory: str
    ledger_directory: str
    index_directory: str
    created_ms: int
    token: str = ""


class BookieRegistration(msgspec.Struct, frozen=True):
    """Ephemeral: this bookie is alive. ``host`` is the smallest failure domain."""

    bookie_id: str
    instance_id: str
    address: str
    host: str
    http_address: str = ""
    rack: str = ""
    read_only: bool = False
    started_ms: int = 0


class BrokerRegistration(msgspec.Struct, frozen=True):
    """Ephemeral: this broker is alive. ``instance_id`` is new with each session, so that an old one never looks alive again."""

    broker_id: str
    instance_id: str
    address: str  # gRPC, for clients and brokers
    http_address: str = ""
    pulsar_address: str = ""
    started_ms: int = 0


class BundleOwner(msgspec.Struct, frozen=True):
    """Who should serve a bundle; valid while that instance's registration exists. The node's version is the epoch."""

    broker_id: str  # "" once released
    instance_id: str
    token: str = ""


class TenantRecord(msgspec.Struct, frozen=True):
    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()
    token: str = ""


class NamespacePolicies(msgspec.Struct, frozen=True):
    """A namespace. ``None`` means: as the broker's configuration says."""

    bundles: int = 4
    deduplication: bool | None = None
    retention_minutes: int | None = None  # -1: for ever
    retention_mb: int | None = None
    created_ms: int = 0
    token: str = ""


class TopicLedger(msgspec.Struct, frozen=True):
    """One ledger of a topic's chain. ``entries`` and ``size_bytes`` are 0 until it is closed; ``closed_ms`` is 0 while it is open."""

    ledger_id: int
    entries: int = 0
    size_bytes: int = 0
    closed_ms: int = 0


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic: its chain of ledgers in order. Every change is a compare-and-set by the owner (rule 14)."""

    ledgers: tuple[TopicLedger, ...] = ()
    deleting: tuple[int, ...] = ()  # ledgers out of the chain whose deletion is intended but not yet finished
    deleted: bool = False  # the topic itself is being deleted
    terminated: bool = False
    highest_ledger: int = -1  # that was ever in the chain: positions of a later one must be greater, or cursors would pass them over
    properties: dict[str, str] = {}
    created_ms: int = 0
    token: str = ""


class CursorRecord(msgspec.Struct, frozen=True):
    """A subscription's position: whole here while it is small, else the last snapshot before ``cursor_ledger`` took over.

    ``ranges`` are the acknowledged entries above the mark: ledger, first, last (inclusive), flattened. ``batches`` are the partly
    acknowledged batches: ledger, entry, then the indexes still unacknowledged as a hexadecimal bit set.
    """

    mark_ledger: int
    mark_entry: int = NO_ENTRY
    ranges: tuple[int, ...] = ()
    batches: tuple[tuple[int, int, str], ...] = ()
    cursor_ledger: int = -1
    deleting: tuple[int, ...] = ()  # cursor ledgers out of use whose deletion is intended but not yet known to be finished
    deleted: bool = False  # the subscription itself is being deleted
    properties: dict[str, int] = {}
    created_ms: int = 0
    token: str = ""


class PartitionedTopic(msgspec.Struct, frozen=True):
    partitions: int
    properties: dict[str, str] = {}
    created_ms: int = 0
    token: str = ""


class UnderReplicated(msgspec.Struct, frozen=True):
    """Copies that a ledger's policy promises and that are missing: published as soon as known. Nothing mends them yet."""

    ledger_id: int
    missing_members: tuple[str, ...] = ()
    below_policy: bool = False
    since_ms: int = 0
    token: str = ""
