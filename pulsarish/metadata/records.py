"""The records in the metadata tree, one class for each kind of node.

The ledger's own record is in ``model/ledger_metadata.py``.

Each record that is changed by compare-and-set carries a ``token``, drawn again for each write. With
it a writer whose answer was lost recognises its own write when it reads back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from pulsarish.metadata.tree_state import NOTHING_SEEN, TreeState
from pulsarish.model.placement import FailureDomain, IsolationPolicy
from pulsarish.model.policies import ResourceGroup
from pulsarish.model.position import NO_ENTRY
from pulsarish.model.schedule import Schedule
from pulsarish.runtime.network.addresses import plain_address

__all__ = [
    "AgeRecord",
    "AutoRecoverySwitch",
    "BookiePlace",
    "BookieRacks",
    "BookieRegistration",
    "BrokerRegistration",
    "BundleOwner",
    "ClusterRecord",
    "CompactedView",
    "Cookie",
    "CordonedVolumes",
    "CursorRecord",
    "DynamicOptionsRecord",
    "GivenUpBookie",
    "LedgerIds",
    "ListenerAddresses",
    "LostRange",
    "NamespacePolicies",
    "PartitionedTopic",
    "PlacementRecord",
    "ReadOnlyBookie",
    "RebalanceRecord",
    "ResourceGroupRecord",
    "RestoredTree",
    "ScheduleMarks",
    "ScheduledTopics",
    "SchemaRecord",
    "SchemasRecord",
    "TenantRecord",
    "TopicLedger",
    "TopicPolicies",
    "TopicRecord",
    "TopicSchedules",
    "UnderReplicated",
    "VolumeRecord",
]

_NATIVE_URLS_MAX: Final = 16
"""A client that knows this many brokers learns the others from lookups."""


class ClusterRecord(msgspec.Struct, frozen=True):
    cluster_id: str
    created_ms: int
    token: str = ""


class LedgerIds(msgspec.Struct, frozen=True):
    """The counter of ledger ids. Ids below ``next_id`` have been given out, in blocks."""

    next_id: int
    token: str = ""


class VolumeRecord(msgspec.Struct, frozen=True):
    """One of several volumes of a bookie: a journal, a ledger and an index directory."""

    directories: tuple[str, ...]  # journal, ledger, index
    journal_position: int = 0  # all records of its journal below this one were durable
    is_opened: bool = False  # it has had data
    is_lost: bool = False  # it was given up for good
    is_removed: bool = False  # by an operator, when nothing needed it any more; it is lost, too
    is_unlisted: bool = False  # added while the bookie ran, and not in the lists of its options yet


class Cookie(msgspec.Struct, frozen=True):
    """A bookie's identity, equal in the metadata and in each of its directories (rule 7)."""

    bookie_id: str
    instance_id: str
    cluster_id: str
    journal_directory: str
    ledger_directory: str
    index_directory: str
    created_ms: int
    token: str = ""
    journal_position: int = 0  # in metadata: all records of the journal below this one were durable
    limbo_times: int = 0  # in metadata: how often the bookie was in limbo
    volume: str = ""  # in a directory: the volume's name; empty: the first or only one
    volumes: dict[str, VolumeRecord] = {}
    """By name. In metadata: all; empty: there is only one. In a ledger directory: those that are
    not lost, so that a start knows them also when the metadata came back older.
    """


class BookieRegistration(msgspec.Struct, frozen=True):
    """Ephemeral: this bookie is alive. ``host`` is the smallest failure domain."""

    bookie_id: str
    instance_id: str
    address: str
    host: str
    http_address: str = ""
    rack: str = ""
    read_only: bool = False
    read_only_reason: str = ""  # for people: the disk, its free space, and what helps
    limbo_below_ledger: int = 0  # it may have lost entries of ledgers below this id
    limbo_times: int = 0  # how often it has entered limbo
    started_ms: int = 0
    framed_address: str = ""  # framed:host:port or framed:tls:host:port; empty: gRPC only
    http_address_tls: str = ""
    zone: str = ""
    region: str = ""
    free_bytes: int = 0  # for entry logs, registered in coarse steps; 0: not known
    lost_directories: tuple[str, ...] = ()  # of volumes that have failed or were given up
    cordoned_directories: tuple[str, ...] = ()  # ledger directories of cordoned volumes


class BookiePlace(msgspec.Struct, frozen=True):
    """Where an operator says that a bookie stands; an empty rack: where it says itself."""

    group: str = "default"
    rack: str = ""


class BookieRacks(msgspec.Struct, frozen=True):
    """By bookie id; a bookie that is missing is in the group ``default``."""

    bookies: dict[str, BookiePlace] = {}
    token: str = ""


class ListenerAddresses(msgspec.Struct, frozen=True):
    """The addresses that clients of one listener of a broker use; empty where it does not serve the
    protocol.
    """

    address: str  # gRPC
    http_address: str = ""
    pulsar_address: str = ""
    framed_address: str = ""  # framed:host:port
    # The same ports with TLS.
    address_tls: str = ""  # tls:host:port
    http_address_tls: str = ""
    pulsar_address_tls: str = ""
    framed_address_tls: str = ""  # framed:tls:host:port

    # URLs; empty where the port is not served.

    @property
    def http_url(self) -> str:
        return f"http://{self.http_address}" if self.http_address else ""

    @property
    def http_url_tls(self) -> str:
        return f"https://{self.http_address_tls}" if self.http_address_tls else ""

    @property
    def pulsar_url(self) -> str:
        return f"pulsar://{self.pulsar_address}" if self.pulsar_address else ""

    @property
    def pulsar_url_tls(self) -> str:
        return f"pulsar+ssl://{self.pulsar_address_tls}" if self.pulsar_address_tls else ""

    @property
    def native_url(self) -> str:
        return f"pulsarish://{self.address}" if self.address else ""

    @property
    def native_url_tls(self) -> str:
        at = self.address_tls
        return f"pulsarish+ssl://{plain_address(at)}" if at else ""

    @staticmethod
    def native_urls_of(listeners: Iterable[ListenerAddresses], *, has_tls: bool) -> list[str]:
        """Return the service URLs of brokers' own protocol, some of them where there are many.

        A client that came by TLS gets no other. One that came without gets it where a broker has
        nothing else.
        """
        found = dict.fromkeys(
            each.native_url_tls if has_tls else each.native_url or each.native_url_tls
            for each in listeners
        )
        found.pop("", None)
        return list(found)[:_NATIVE_URLS_MAX]


class BrokerRegistration(msgspec.Struct, frozen=True):
    """Ephemeral: this broker is alive.

    ``instance_id`` is new with each session, so that an old one never looks alive again.
    """

    broker_id: str
    instance_id: str
    address: str
    """Of the internal listener, as the next two: gRPC, with TLS where it has that."""
    http_address: str = ""
    pulsar_address: str = ""
    started_ms: int = 0
    listeners: dict[str, ListenerAddresses] = {}  # by name, the internal one among them
    admin_key: str = ""
    """Random.

    Another broker shows it with a request that only this broker can run. It is in the metadata
    only, so no client has it.
    """
    knows_splits: bool = False
    """Whether it knows bundles that are no equal parts."""


class DynamicOptionsRecord(msgspec.Struct, frozen=True):
    """Options that all brokers change while they run: values by name, written as text."""

    values: dict[str, str] = {}
    token: str = ""


class BundleOwner(msgspec.Struct, frozen=True):
    """The broker that should serve a bundle; valid while that instance's registration exists.

    The node's version is the epoch.
    """

    broker_id: str  # "" once released
    instance_id: str
    token: str = ""
    is_split: bool = False
    """The bundle is none any more: its parts are. This stays until the namespace is deleted."""


class TenantRecord(msgspec.Struct, frozen=True):
    admin_roles: tuple[str, ...] = ()
    allowed_clusters: tuple[str, ...] = ()
    token: str = ""


class NamespacePolicies(msgspec.Struct, frozen=True):
    """A namespace.

    ``policies`` has those that are set, by the names of ``model/policies.py``, in their JSON form.

    A change of a topic's own policies is counted here in the same commit, with the topic's name at
    the end of ``topic_changes``, which keeps the last few. So a broker that has loaded topics of
    the namespace watches only this node.
    """

    bundles: int = 4
    policies: dict[str, Any] = {}
    properties: dict[str, str] = {}
    topic_changes_count: int = 0
    topic_changes: tuple[str, ...] = ()
    created_ms: int = 0
    token: str = ""
    boundaries: tuple[int, ...] = ()
    """The edges of its bundles, from 0 to the greatest hash, once one was split.

    Empty: they are equal parts.
    """


class PlacementRecord(msgspec.Struct, frozen=True):
    """The rules of which brokers serve which bundles.

    ``groups``: the anti-affinity group of each namespace that has one, by its full name.
    """

    isolation: dict[str, IsolationPolicy] = {}
    domains: dict[str, FailureDomain] = {}
    groups: dict[str, str] = {}
    token: str = ""


class ResourceGroupRecord(msgspec.Struct, frozen=True):
    """The limits of a resource group, in Apache Pulsar's JSON form."""

    limits: ResourceGroup = ResourceGroup()
    token: str = ""


class TopicLedger(msgspec.Struct, frozen=True, gc=False):
    """One ledger of a topic's chain.

    ``entries`` and ``size_bytes`` are 0 until it is closed; ``closed_ms`` is 0 while it is open.
    ``own_times_ms`` is the latest time at which an entry of it says that it is to be delivered, or
    that it expires (wall clock); 0: none says so; -1: not known.
    ``messages``: in all its entries, each message of a batch counted; -1: not known.
    """

    ledger_id: int
    entries: int = 0
    size_bytes: int = 0
    closed_ms: int = 0
    own_times_ms: int = -1
    messages: int = -1


class LostRange(msgspec.Struct, frozen=True):
    """Entries of a closed ledger that are lost, both ends included: an operator's command moved
    past them (rule 20).
    """

    ledger_id: int
    first_entry: int
    last_entry: int
    given_up: tuple[str, ...] = ()  # bookies that could not be asked and that the operator gave up
    skipped_ms: int = 0


class CompactedView(msgspec.Struct, frozen=True):
    """The newest message of each key, up to and including the horizon, in a closed ledger of its
    own; -1 when none is left.
    """

    horizon_ledger: int
    horizon_entry: int
    ledger_id: int = -1
    entries: int = 0
    size_bytes: int = 0
    made_ms: int = 0


class ScheduleMarks(msgspec.Struct, frozen=True):
    """Up to when the instants of a topic's schedules are decided, by their names, in milliseconds;
    0 or less: the schedule was changed, and begins when its owner is asked for it, but not before
    that number without its sign.

    With ``after``, the ledger and number of an entry, later instants may be in the log behind it:
    their publisher has not noted yet what became of them.
    """

    decided_ms: dict[str, int] = {}
    after: tuple[int, int] | None = None


class TopicRecord(msgspec.Struct, frozen=True, gc=False):
    """A topic: its chain of ledgers in order.

    Every change is a compare-and-set by the owner (rule 14).
    """

    ledgers: tuple[TopicLedger, ...] = ()
    # ledgers out of the chain, or not in use yet, whose deletion is intended but not yet finished
    deleting: tuple[int, ...] = ()
    compacted: CompactedView | None = None
    deleted: bool = False  # the topic itself is being deleted
    terminated: bool = False
    lost: tuple[LostRange, ...] = ()  # in the order of the log, not adjacent to each other
    # since when the topic is unused, where unused topics are deleted; 0: not known to be unused
    inactive_since_ms: int = 0
    # grows with each exclusive producer, so that an earlier one that comes back is fenced; -1:
    # there was none
    producer_epoch: int = -1
    # the greatest id that was ever in the chain: a later ledger must be greater, or cursors would
    # skip its positions
    highest_ledger: int = -1
    # the last entry that trimming has removed: an entry after it that is not there never existed
    trimmed_ledger: int = -1
    trimmed_entry: int = NO_ENTRY
    properties: dict[str, str] = {}
    created_ms: int = 0
    # names the node below the topic's that a later topic of the same name never has; "": a release
    # that made no such node created the topic, and no owner has opened it since
    incarnation: str = ""
    schedules: ScheduleMarks | None = None  # None: the topic has no schedules
    token: str = ""

    @property
    def ledgers_named(self) -> tuple[int, ...]:
        """The ids of all ledgers that the record names, with those to be deleted."""
        view = self.compacted
        return (
            *(link.ledger_id for link in self.ledgers),
            *self.deleting,
            *(() if view is None or view.ledger_id < 0 else (view.ledger_id,)),
        )


class TopicSchedules(msgspec.Struct, frozen=True):
    """The schedules of a topic, by their names. Only the topic's owner changes them."""

    schedules: dict[str, Schedule] = {}
    token: str = ""


class ScheduledTopics(msgspec.Struct, frozen=True):
    """The topics that have schedules, by full name, each with the number of its last change.

    A change of a topic's schedules is counted here in the same commit. So the leader watches only
    this node. A topic that was deleted stays until the leader finds that.
    """

    topics: dict[str, int] = {}
    changes_count: int = 0
    token: str = ""


class CursorRecord(msgspec.Struct, frozen=True):
    """A subscription's position: whole here while it is small, else the last snapshot before
    ``cursor_ledger``.

    ``ranges`` are the acknowledged entries above the mark-delete position: ledger, first, last
    (inclusive), flattened. ``batches`` are the partly acknowledged batches: ledger, entry, then the
    unacknowledged indexes as a hexadecimal bit set.
    """

    mark_ledger: int
    mark_entry: int = NO_ENTRY
    ranges: tuple[int, ...] = ()
    batches: tuple[tuple[int, int, str], ...] = ()
    cursor_ledger: int = -1
    # ledgers out of use whose deletion is intended but not yet known to be finished
    deleting: tuple[int, ...] = ()
    # ledgers that hold buckets of delayed entries
    delayed: tuple[int, ...] = ()
    deleted: bool = False  # the subscription itself is being deleted
    properties: dict[str, int] = {}
    subscription_properties: dict[str, str] = {}  # properties that users set
    # when it last had consumers, where unused subscriptions expire; 0: not known
    last_active_ms: int = 0
    created_ms: int = 0
    token: str = ""

    @property
    def ledgers_in_use(self) -> tuple[int, ...]:
        """The ids of the ledgers that the subscription uses, without those to be deleted."""
        return self.delayed if self.cursor_ledger < 0 else (self.cursor_ledger, *self.delayed)

    @property
    def ledgers_named(self) -> tuple[int, ...]:
        """The ids of all ledgers that the record names, with those to be deleted."""
        return (*self.ledgers_in_use, *self.deleting)


class TopicPolicies(msgspec.Struct, frozen=True):
    """The policies of one topic, of all partitions of a partitioned one, as
    ``NamespacePolicies.policies``.
    """

    policies: dict[str, Any] = {}
    token: str = ""


class SchemasRecord(msgspec.Struct, frozen=True):
    """The schemas of a topic, or of all partitions of a partitioned one.

    ``versions_count`` is the number of the next version.
    """

    versions_count: int = 0
    token: str = ""


class SchemaRecord(msgspec.Struct, frozen=True):
    """One version, never changed.

    ``data`` is Base64 here. ``type`` is Apache Pulsar's number, 0 where all before it was deleted.
    """

    type: int
    name: str = ""
    data: bytes = b""
    properties: dict[str, str] = {}
    created_ms: int = 0


class PartitionedTopic(msgspec.Struct, frozen=True):
    partitions: int
    properties: dict[str, str] = {}
    created_ms: int = 0
    token: str = ""


class RestoredTree(msgspec.Struct, frozen=True):
    """The mark of a tree that came out of a backup, or came back older, and may be older than what
    bookies hold.

    While the node exists, bookies delete nothing (rule 12).
    """

    # empty: there was no restore; "rebuilt": the tree was made from what bookies know
    backup_sha256: str
    backup_ms: int  # when the backup began
    # 0 while the restore runs, and then no node starts on this tree; or when it was found to be
    # older
    restored_ms: int = 0
    # it came back older than nodes had seen it, and no operator has accepted it: no ledger is made,
    # changed or deleted
    older: bool = False
    found_by: str = ""  # the node that saw that first, and what it found
    found: TreeState = NOTHING_SEEN
    # the newest tree that nodes have seen and that this one is older than
    seen: TreeState = NOTHING_SEEN
    token: str = ""


class AgeRecord(msgspec.Struct, frozen=True):
    """The age of the tree.

    ``count`` grows while the tree changes; the node that notices first writes it.

    An operator who accepts or confirms a tree begins the next epoch: what nodes have seen before is
    not compared with it.
    """

    epoch: int = 0
    count: int = 0
    token: str = ""


class UnderReplicated(msgspec.Struct, frozen=True):
    """Copies that a ledger's policy promises and that are missing, and members that are to be
    replaced although they may have theirs.

    A node publishes them as soon as it knows, and the replication worker that repaired them deletes
    them. It deletes them only at the version that it read before the repair, so that copies
    published in the meantime stay.
    """

    ledger_id: int
    missing_members: tuple[str, ...] = ()
    below_policy: bool = False
    since_ms: int = 0
    reason: str = ""  # why the last attempt to repair it did not end well
    token: str = ""
    leaving_members: tuple[str, ...] = ()  # an operator wants their copies on other bookies


class AutoRecoverySwitch(msgspec.Struct, frozen=True):
    """What operators have asked of auto-recovery on all nodes.

    A look through all ledgers is wanted while ``looks_done`` is below ``looks_asked``. The last one
    that must ask the bookies, too, has the number ``looks_asking_bookies``.
    """

    off_since_ms: int = 0  # 0: it is on
    reason: str = ""  # why it is off
    lost_bookie_recovery_delay_seconds: int = 0  # 0: each node's option of that name
    looks_asked: int = 0
    looks_asking_bookies: int = 0
    looks_done: int = 0
    token: str = ""


class RebalanceRecord(msgspec.Struct, frozen=True):
    """The move of old copies from fuller bookies to emptier ones, or with ``placement`` to those
    with which replicas share fewer domains, as an operator asked for it, and how far it is.
    It runs while ``ended_ms`` is 0.
    """

    number: int = 0  # of the request; 0: there was none
    placement: bool = False
    dry_run: bool = False
    rate_bytes: int = 0  # a second
    ledgers_max: int = 0  # 0: no limit
    tolerance_percent: int = 0  # of what a bookie holds on average
    asked_ms: int = 0
    ended_ms: int = 0
    reason: str = ""  # why it ended, or why something could not be moved
    ledgers_moved: int = 0
    bytes_moved: int = 0
    ledgers_planned: int = 0  # with those that were moved
    bytes_planned: int = 0
    first_ledgers: tuple[int, ...] = ()  # of the last plan, the first few
    held: dict[str, int] = {}  # bytes by instance id, as computed last
    held_then: dict[str, int] = {}  # once all that is planned has moved
    token: str = ""


class ReadOnlyBookie(msgspec.Struct, frozen=True):
    """A bookie that an operator has set read-only."""

    bookie_id: str
    instance_id: str
    asked_ms: int = 0
    reason: str = ""
    token: str = ""


class CordonedVolumes(msgspec.Struct, frozen=True):
    """The volumes of a bookie that an operator has cordoned: they take no new ledgers."""

    bookie_id: str
    instance_id: str
    volumes: dict[str, str] = {}  # why, by the volume's name in the cookie
    token: str = ""
    draining: tuple[str, ...] = ()  # those of them whose ledgers are to leave the bookie


class GivenUpBookie(msgspec.Struct, frozen=True):
    """A bookie that an operator gave up: it counts as lost at once, and its cookie goes when no
    ledger names it any more.
    """

    bookie_id: str
    instance_id: str
    asked_ms: int = 0
    walked_ms: int = 0  # when the auditor had searched all ledgers for it; 0: not yet
    token: str = ""
