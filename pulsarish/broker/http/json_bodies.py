"""JSON bodies of the admin interface, with Apache Pulsar's names.

A request body with unknown fields is refused. An answer may have more fields than declared here.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

__all__ = [
    "BacklogAnalysisBody",
    "BookieNameBody",
    "BookiesBody",
    "BrokerIsolationBody",
    "BundleStatsBody",
    "BundlesBody",
    "ClusterBody",
    "CompactionBody",
    "CompatibilityBody",
    "CursorInfoBody",
    "DrainBody",
    "ErrorBody",
    "HealthBody",
    "HolderBody",
    "HoleBody",
    "HolesBody",
    "Json",
    "LeaderBody",
    "LedgerInfoBody",
    "LoadReportBody",
    "LogInfoBody",
    "LookupBody",
    "LostBody",
    "MessageIdBody",
    "NewRackBody",
    "OldestHoleBody",
    "OwnedBundleBody",
    "PartitionsBody",
    "PositionBody",
    "RackBody",
    "RecoverBody",
    "ResourceBody",
    "ScheduleBody",
    "SchemaBody",
    "SchemaPayloadBody",
    "SchemaVersionBody",
    "SchemasBody",
    "SkipLostBody",
    "TenantBody",
    "UploadedSchemaBody",
]


class ScheduleBody(msgspec.Struct, rename="camel"):
    """A schedule of a topic. ``payload`` is base64, ``next`` the next instants.

    ``decided_until``: up to here, what was due is published or left out; empty until the
    leader broker knows of a change.
    """

    cron: str
    timezone: str
    payload: bytes
    key: str
    properties: dict[str, str]
    missed: str
    paused: bool
    decided_until: str
    next: list[str]


class ErrorBody(msgspec.Struct):
    reason: str


class HealthBody(msgspec.Struct, omit_defaults=True):
    """The health of a broker.

    ``warnings``: problems that do not stop the service, such as bookies whose disks are full.
    """

    status: str
    warnings: list[str] = []


class BrokerIsolationBody(msgspec.Struct, rename="camel"):
    """An isolation policy for which a broker is primary or secondary."""

    broker_name: str
    policy_name: str
    primary: bool
    namespace_regex: tuple[str, ...]


class CompactionBody(msgspec.Struct, rename="camel"):
    """The state of a compaction.

    ``status``: NOT_RUN, RUNNING, SUCCESS or ERROR, since the topic was loaded.
    """

    status: str
    last_error: str


class TenantBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The administrators of a tenant, and the clusters that its namespaces may use."""

    admin_roles: tuple[str, ...] | None = None
    allowed_clusters: tuple[str, ...] | None = None


class BundlesBody(msgspec.Struct, rename="camel"):
    """The bundles into which a namespace's hash space is split."""

    num_bundles: int
    boundaries: list[str] | None = None


class PositionsBody(msgspec.Struct, rename="camel"):
    """Where topics are in the hash space of their namespace."""

    namespace: str
    bundle: str
    topic_hash_positions: dict[str, int]


class PartitionsBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """The record of a partitioned topic; ``partitions`` 0: the topic is not partitioned."""

    partitions: int
    deleted: bool = False
    properties: dict[str, str] | None = None


class MessageIdBody(msgspec.Struct, rename="camel"):
    ledger_id: int
    entry_id: int
    partition_index: int = -1


class PositionBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A message id as clients send it: -1:-1 is the earliest, the largest numbers are the latest.

    ``is_excluded`` and ``excluded``: start after this message; clients use either name.
    """

    ledger_id: Annotated[int, Meta(ge=-1)]
    entry_id: Annotated[int, Meta(ge=-1)]
    partition_index: int = -1
    batch_index: int = -1
    batch_size: int = 0
    ack_set: None = None
    first_chunk_message_id: None = None
    is_excluded: bool = False
    excluded: bool = False
    properties: dict[str, str] | None = None


class LedgerInfoBody(msgspec.Struct, rename="camel"):
    """A ledger of a topic.

    ``timestamp``: when it was closed, 0 while it is open; until then metadata does not have its
    size.
    """

    ledger_id: int
    entries: int
    size: int
    timestamp: int


class CursorInfoBody(msgspec.Struct, rename="camel"):
    """A cursor of a topic. ``cursors_ledger_id`` -1: its state is in metadata."""

    version: int
    creation_date: int
    cursors_ledger_id: int
    mark_delete: MessageIdBody


class LogInfoBody(msgspec.Struct, rename="camel"):
    """A topic as metadata has it. Times are milliseconds since the epoch."""

    version: int
    creation_date: int
    ledgers: list[LedgerInfoBody]
    cursors: dict[str, CursorInfoBody]
    properties: dict[str, str]


class BacklogAnalysisBody(msgspec.Struct, rename="camel"):
    """The analysis of a subscription's backlog.

    ``aborted``: the backlog has more entries than one analysis reads.
    """

    entries: int
    messages: int
    marker_messages: int
    aborted: bool
    first_message_id: str
    last_message_id: str


class FilterBody(msgspec.Struct, forbid_unknown_fields=True):
    """The filter of a subscription; null: it has none."""

    filter: str | None


class HolderBody(msgspec.Struct, rename="camel"):
    """Where some entries of a hole are.

    ``state``: consumer, waiting (to be delivered), delayed, unread, forgotten. Times are
    milliseconds since the epoch, 0: not known. ``since_ms``: the consumer has had them at least
    since then. ``due_ms``: they are not delivered before.
    """

    state: str
    entries: int
    consumer_name: str | None = None
    since_ms: int = 0
    due_ms: int = 0


class HoleBody(msgspec.Struct, rename="camel"):
    """A run of unacknowledged entries of one ledger, both ends included.

    ``holders``: where the first ``examined`` entries are.
    """

    first: str
    last: str
    entries: int
    examined: int
    holders: list[HolderBody]


class OldestHoleBody(msgspec.Struct, rename="camel"):
    """The oldest hole, which holds up the mark-delete position.

    ``published_ms`` and ``age_ms`` are those of its first entry, so the hole is not older;
    ``None``: not known now. ``oldest_since_ms``: the mark-delete position stands still since then;
    0: since the topic was loaded, or before.
    """

    hole: HoleBody
    published_ms: int | None
    age_ms: int | None
    oldest_since_ms: int


class HolesBody(msgspec.Struct, rename="camel"):
    """The holes of a subscription.

    ``memory_bytes``: what the acknowledgements above the mark-delete position take, about.
    ``listed``: some of the holes, in order; ``next``: where the following one begins.
    """

    topic: str
    subscription: str
    holes: int
    entries_in_holes: int
    acknowledged_ranges: int
    memory_bytes: int
    mark_delete_position: str
    highest_acknowledged_position: str
    oldest: OldestHoleBody | None
    explanation: str
    listed: list[HoleBody]
    next: str | None


class TracedMessageBody(msgspec.Struct, rename="camel"):
    """What the producer wrote of a message; of a batch without an index, what all its messages
    share.

    Timestamps are milliseconds since the epoch, 0: not set. ``size_bytes``: of the whole entry as
    it is stored. ``payload_bytes``: of the message, not compressed; -1: not known. ``unreadable``:
    why the messages of a batch cannot be told apart.
    """

    publish_timestamp: int
    event_timestamp: int
    deliver_timestamp: int
    producer_name: str
    sequence_id: int
    key: str | None
    ordering_key: str | None
    properties: dict[str, str]
    size_bytes: int
    payload_bytes: int
    compression: str
    messages_in_batch: int
    schema_version: str
    is_encrypted: bool
    chunk: str
    unreadable: str = ""


class CopyBody(msgspec.Struct, rename="camel"):
    """A bookie that should hold the entry.

    ``state``: held (with the right digest), missing, corrupt, unknown, silent; empty: it was not
    asked. ``checksum``: the CRC32C of what it holds, the same for all copies.
    """

    bookie: str
    instance_id: str
    is_registered: bool
    state: str = ""
    checksum: str = ""
    reason: str = ""


class TracedLedgerBody(msgspec.Struct, rename="camel"):
    """The ledger of an entry, and the bookies of its write set.

    ``state``: open, in_recovery, closed. ``closed_ms``: when the topic closed it, 0: not yet.
    ``first_entry``: of the segment that has these bookies.
    """

    ledger_id: int
    state: str
    closed_ms: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    first_entry: int
    copies: list[CopyBody]


class TracedSubscriptionBody(msgspec.Struct, rename="camel"):
    """Where a message is for one subscription.

    ``state``: acknowledged, or a state of ``HolderBody``. ``remaining_messages``: of a batch that
    is partly acknowledged. ``is_hole``: later entries are acknowledged. ``matches_filter``: null:
    the subscription has no filter, or the entry could not be read.
    """

    type: str
    state: str
    consumer_name: str | None = None
    since_ms: int = 0
    due_ms: int = 0
    redelivery_count: int = 0
    remaining_messages: int | None = None
    is_hole: bool = False
    matches_filter: bool | None = None


class TraceBody(msgspec.Struct, rename="camel"):
    """What the owner knows of one message now.

    ``state``: stored, lost, trimmed, unwritten, absent. ``expire_timestamp``: when its time is
    over, by the TTL or its own property; 0: never.
    """

    topic: str
    message_id: str
    state: str
    explanation: str
    message: TracedMessageBody | None = None
    read_error: str = ""
    expire_timestamp: int = 0
    is_expired: bool = False
    ledger: TracedLedgerBody | None = None
    ledger_error: str = ""
    subscriptions: dict[str, TracedSubscriptionBody] = {}


class AutoRecoveryBody(msgspec.Struct, rename="camel"):
    """The state of auto-recovery.

    ``off_since_ms`` is 0 while it is enabled. ``lost_bookie_recovery_delay_seconds`` is null while
    each node uses its own option. ``auditor`` names the elected process; empty: none runs. A look
    through all ledgers is wanted while ``looks_done`` is below ``looks_asked``.
    """

    enabled: bool
    off_since_ms: int
    reason: str
    lost_bookie_recovery_delay_seconds: int | None
    auditor: str
    looks_asked: int
    looks_done: int
    under_replicated_ledgers: int
    given_up_bookies: list[str]


class ReadOnlyBody(msgspec.Struct, rename="camel"):
    """Whether an operator ``asked`` for a bookie to be read-only, and whether it is: with a full
    disk it is read-only, too. The ``reason`` is the bookie's own.
    """

    bookie_id: str
    instance_id: str
    asked: bool
    alive: bool
    read_only: bool
    reason: str


class CordonBody(msgspec.Struct, rename="camel"):
    """Which volumes of a bookie an operator ``asked`` to cordon, with the reasons, and which are
    ``cordoned``, as the bookie that runs says; by their ledger directories. With all cordoned the
    bookie is ``read_only``, and with full disks, too.
    """

    bookie_id: str
    instance_id: str
    asked: dict[str, str]
    alive: bool
    cordoned: list[str]
    read_only: bool


class WaitingLedgerBody(msgspec.Struct, rename="camel"):
    """A ledger that a drain waits for, and what helps."""

    ledger_id: int
    reason: str


class VolumeDrainBody(msgspec.Struct, rename="camel"):
    """How far the drain of a volume is. It is ``drained`` when the bookie, which is ``alive``, has
    looked and found neither closed ledgers that name it nor open ones there. ``waiting`` has some
    of them; ``failure`` says why nothing newer is known.
    """

    bookie_id: str
    instance_id: str
    directory: str
    asked: bool
    alive: bool
    draining: bool
    drained: bool
    closed_ledgers: int
    open_ledgers: int
    waiting: list[WaitingLedgerBody]
    failure: str


class VolumeRemovalBody(msgspec.Struct, rename="camel"):
    """Whether a volume is ``removing`` or ``removed``. ``refusal`` says why the last attempt did
    not remove it, or why nothing is known.
    """

    bookie_id: str
    instance_id: str
    directory: str
    removing: bool
    removed: bool
    refusal: str


class VolumeAdditionBody(msgspec.Struct, rename="camel"):
    """Whether a volume is ``adding`` or ``added``. ``refusal`` says why the last attempt did not
    add it.
    """

    bookie_id: str
    instance_id: str
    directory: str
    adding: bool
    added: bool
    refusal: str


class BookieLedgerBody(msgspec.Struct, rename="camel"):
    """A ledger that names a bookie: how many entries the bookie should hold of it, without those of
    an open end; whether it is to leave the ledger, and why it has not yet.
    """

    ledger_id: int
    state: str
    entries: int
    is_leaving: bool
    reason: str


class BookieLedgersBody(msgspec.Struct, rename="camel"):
    """A page of the ledgers that name a bookie.

    ``next``: what ``after`` of the next page is; null: this is the last one.
    """

    instance_id: str
    ledgers: list[BookieLedgerBody]
    next: int | None


class RebalancedBookieBody(msgspec.Struct, rename="camel"):
    """What a bookie holds of closed ledgers, as computed last, and what it will hold when all that
    is planned has moved.
    """

    bookie_id: str
    instance_id: str
    bytes: int
    bytes_then: int


class RebalanceBody(msgspec.Struct, rename="camel"):
    """The last request to move copies to emptier bookies, or with ``placement`` to better placed
    ones, and how far it is. ``first_ledgers`` are of the last plan.

    ``ledgers_planned`` and ``bytes_planned`` count what was moved, too. ``reason`` says why it
    ended, or why a copy was not moved. ``auditor`` names the process that works on it; empty: none
    runs.
    """

    running: bool
    placement: bool
    dry_run: bool
    rate_bytes: int
    max_ledgers: int
    tolerance_percent: int
    asked_ms: int
    ended_ms: int
    reason: str
    ledgers_moved: int
    bytes_moved: int
    ledgers_planned: int
    bytes_planned: int
    first_ledgers: list[int]
    auditor: str
    bookies: list[RebalancedBookieBody]


class LedgersBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Ids of ledgers."""

    ledgers: list[int]


class RecoverBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Bookies that are lost for good, by instance id."""

    given_up_bookies: list[str]


class SkipLostBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Entries of one closed ledger, both ends included; without an end, up to the ledger's end.

    ``given_up_bookies``: instance ids.
    """

    ledger_id: Annotated[int, Meta(ge=0)]
    first_entry: Annotated[int, Meta(ge=0)] = 0
    last_entry: Annotated[int, Meta(ge=0)] | None = None
    given_up_bookies: tuple[str, ...] = ()


class LostBody(msgspec.Struct, rename="camel"):
    """The lost entries that a topic was moved past."""

    ledger_id: int
    first_entry: int
    last_entry: int
    given_up_bookies: tuple[str, ...]
    skipped_ms: int


class LeaderBody(msgspec.Struct, rename="camel"):
    broker_id: str
    service_url: str


class LookupBody(msgspec.Struct, rename="camel"):
    """Where a topic is served.

    Clients need every field; the address of a protocol that is not served is empty.
    """

    broker_url: str
    broker_url_tls: str
    broker_url_ssl: str
    http_url: str
    http_url_tls: str
    native_url: str
    broker_id: str
    bundle: str


class NativeUrlsBody(msgspec.Struct, rename="camel"):
    """Service URLs of brokers, the one that answers first."""

    native_urls: list[str]


class ClusterBody(msgspec.Struct, rename="camel"):
    """The addresses of a broker; that of a port that is not served is empty."""

    service_url: str = ""
    service_url_tls: str = ""
    broker_service_url: str = ""
    broker_service_url_tls: str = ""


class OwnedBundleBody(msgspec.Struct):
    """How a broker owns a bundle: like any other bundle."""

    broker_assignment: str = "shared"
    is_controlled: bool = False
    is_active: bool = True


class ResourceBody(msgspec.Struct, rename="camel"):
    usage: float
    limit: float


class BundleStatsBody(msgspec.Struct, rename="camel"):
    """The load of a bundle: its open topics. Rates are per second."""

    topics: int
    producer_count: int
    consumer_count: int
    msg_rate_in: float
    msg_throughput_in: float
    msg_rate_out: float
    msg_throughput_out: float


class LoadReportBody(msgspec.Struct, rename="camel"):
    """The load of a broker. Rates are per second; the URL of a port that is not served is empty."""

    web_service_url: str
    web_service_url_tls: str
    pulsar_service_url: str
    pulsar_service_url_tls: str
    num_topics: int
    num_bundles: int
    num_consumers: int
    num_producers: int
    msg_rate_in: float
    msg_throughput_in: float
    msg_rate_out: float
    msg_throughput_out: float
    bundles: list[str]
    draining: bool
    process_cpu: float
    """CPU time of the broker's process, as a share of one core."""
    cpu: ResourceBody
    """Of the machine, in percent of one core."""
    memory: ResourceBody
    """Resident memory of the process, and memory of the machine, in MB."""
    bundle_stats: dict[str, BundleStatsBody]


class DrainBody(msgspec.Struct, rename="camel"):
    draining: bool
    bundles_left: int
    destination_broker: str


class BookieNameBody(msgspec.Struct, rename="camel"):
    bookie_id: str


class BookiesBody(msgspec.Struct):
    bookies: list[BookieNameBody]


class TrashBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Ledgers in the trash of bookies."""

    ledgers: list[int] = []


class TrashedLedgerBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """A deleted ledger at one bookie; ``error``: that bookie does not answer."""

    bookie: str
    ledger_id: int = -1
    since_ms: int = 0
    size_bytes: int = 0
    error: str = ""


class TrashResultBody(msgspec.Struct, rename="camel"):
    """The ledgers that were changed, and the errors, each by bookie."""

    ledgers: dict[str, list[int]] = {}
    errors: dict[str, str] = {}


class GarbageBody(msgspec.Struct, rename="camel"):
    """Garbage collection of a bookie. What a field before ``failure`` counts is of the last round
    that ended; the fields after it say what waits.
    """

    bookie: str
    ended: int
    wanted: int
    ledgers_deleted: int
    stray_bytes: int
    logs_deleted: int
    freed_bytes: int
    copied_bytes: int
    failure: str
    missing_ledgers: int
    trash_ledgers: int
    stray_ledgers: int
    postponed_logs: int


class OrphanBody(msgspec.Struct, rename="camel"):
    """A ledger or another node of the metadata that nothing refers to.

    ``size_bytes`` is -1, and ``created_ms`` is 0, where they are not known. ``deletable``: whether
    the search deletes it where that is on.
    """

    kind: str
    path: str
    ledger_id: int
    owner: str
    size_bytes: int
    created_ms: int
    first_found_ms: int
    deletable: bool
    why: str


class OrphansBody(msgspec.Struct, rename="camel"):
    """What the last whole search of the leader has found.

    ``searched_ms`` is 0 before the first one. ``searching``: another search runs or is about to.
    ``failure``: why the search after it did not come to its end.
    """

    searched_ms: int
    searching: bool
    failure: str
    deletion_enabled: bool
    orphans: list[OrphanBody]


class RackBody(msgspec.Struct):
    """The location of a bookie; ``hostname`` is the smallest failure domain."""

    rack: str
    hostname: str


class NewRackBody(msgspec.Struct, forbid_unknown_fields=True):
    """A bookie's rack, by an operator; empty: as the bookie says itself. ``hostname`` is taken and
    has no effect: a bookie says itself on which host it is.
    """

    rack: Annotated[str, Meta(max_length=128)] = ""
    hostname: str | None = None


class SchemaPayloadBody(msgspec.Struct, forbid_unknown_fields=True):
    """A schema to upload: the name of its type and its definition.

    For KEY_VALUE the definition is an object with both parts.
    """

    type: str
    schema: str = ""
    properties: dict[str, str] | None = None


class SchemaBody(msgspec.Struct):
    """A version of a topic's schema.

    ``timestamp``: when it was added, in milliseconds since the epoch.
    """

    version: int
    type: str
    timestamp: int
    data: str
    properties: dict[str, str]


class SchemasBody(msgspec.Struct, rename="camel"):
    get_schema_responses: list[SchemaBody]


class SchemaVersionBody(msgspec.Struct):
    """The version of a schema; -1: the topic does not have it."""

    version: int


class UploadedSchemaBody(msgspec.Struct):
    version: SchemaVersionBody


class CompatibilityBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """Whether a schema is compatible; if not, ``reason`` says why."""

    compatibility: bool
    schema_compatibility_strategy: str
    reason: str = ""


Json = dict[str, Any]
