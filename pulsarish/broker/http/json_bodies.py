"""The JSON of the administration: Apache Pulsar's names for what comes in bodies and goes out in answers.

What comes in refuses fields that it does not know; what goes out may have more fields than stand here.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

__all__ = [
    "BacklogAnalysisBody",
    "BookieNameBody",
    "BookiesBody",
    "BundlesBody",
    "ClusterBody",
    "CompactionBody",
    "CompatibilityBody",
    "CursorInfoBody",
    "ErrorBody",
    "HealthBody",
    "Json",
    "LeaderBody",
    "LedgerInfoBody",
    "LoadReportBody",
    "LogInfoBody",
    "LookupBody",
    "LostBody",
    "MessageIdBody",
    "OwnedBundleBody",
    "PartitionsBody",
    "PositionBody",
    "RackBody",
    "RecoverBody",
    "SchemaBody",
    "SchemaPayloadBody",
    "SchemaVersionBody",
    "SchemasBody",
    "SkipLostBody",
    "TenantBody",
    "UploadedSchemaBody",
]


class ErrorBody(msgspec.Struct):
    reason: str


class HealthBody(msgspec.Struct, omit_defaults=True):
    """``warnings``: what does not end serving, such as bookies whose disks are full."""

    status: str
    warnings: list[str] = []


class CompactionBody(msgspec.Struct, rename="camel"):
    """``status``: NOT_RUN, RUNNING, SUCCESS or ERROR, since the topic was loaded."""

    status: str
    last_error: str


class TenantBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Who administers a tenant, and the clusters that its namespaces may live in."""

    admin_roles: tuple[str, ...] | None = None
    allowed_clusters: tuple[str, ...] | None = None


class BundlesBody(msgspec.Struct, rename="camel"):
    """How a namespace's hash space is cut."""

    num_bundles: int
    boundaries: list[str] | None = None


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
    """A message id as clients send it: -1:-1 is the earliest, the greatest numbers are the latest.

    ``is_excluded`` and ``excluded``: the one after it is meant; clients call it either way.
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
    """``timestamp``: when it was closed, 0 while it is open; until then what it holds is not in metadata."""

    ledger_id: int
    entries: int
    size: int
    timestamp: int


class CursorInfoBody(msgspec.Struct, rename="camel"):
    """``cursors_ledger_id`` -1: its state is in metadata."""

    version: int
    creation_date: int
    cursors_ledger_id: int
    mark_delete: MessageIdBody


class LogInfoBody(msgspec.Struct, rename="camel"):
    """A topic as metadata has it. Dates are milliseconds since the epoch."""

    version: int
    creation_date: int
    ledgers: list[LedgerInfoBody]
    cursors: dict[str, CursorInfoBody]
    properties: dict[str, str]


class BacklogAnalysisBody(msgspec.Struct, rename="camel"):
    """``aborted``: there is more than one analysis reads."""

    entries: int
    messages: int
    marker_messages: int
    aborted: bool
    first_message_id: str
    last_message_id: str


class RecoverBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Bookies that are gone for good, by instance id."""

    given_up_bookies: list[str]


class SkipLostBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Entries of one closed ledger, both ends included; without an end, to the ledger's. ``given_up_bookies``: instance ids."""

    ledger_id: Annotated[int, Meta(ge=0)]
    first_entry: Annotated[int, Meta(ge=0)] = 0
    last_entry: Annotated[int, Meta(ge=0)] | None = None
    given_up_bookies: tuple[str, ...] = ()


class LostBody(msgspec.Struct, rename="camel"):
    """What a topic was moved past."""

    ledger_id: int
    first_entry: int
    last_entry: int
    given_up_bookies: tuple[str, ...]
    skipped_ms: int


class LeaderBody(msgspec.Struct, rename="camel"):
    broker_id: str
    service_url: str


class LookupBody(msgspec.Struct, rename="camel"):
    """Where a topic is served. Clients want every field to be there; one that is not served is empty."""

    broker_url: str
    broker_url_tls: str
    broker_url_ssl: str
    http_url: str
    http_url_tls: str
    native_url: str
    broker_id: str
    bundle: str


class ClusterBody(msgspec.Struct, rename="camel"):
    service_url: str = ""
    broker_service_url: str = ""


class OwnedBundleBody(msgspec.Struct):
    """How a broker has a bundle: as any other might."""

    broker_assignment: str = "shared"
    is_controlled: bool = False
    is_active: bool = True


class LoadReportBody(msgspec.Struct, rename="camel"):
    """Rates are a second's."""

    web_service_url: str
    pulsar_service_url: str
    num_topics: int
    num_bundles: int
    num_consumers: int
    num_producers: int
    msg_rate_in: float
    msg_throughput_in: float
    msg_rate_out: float
    msg_throughput_out: float
    bundles: list[str]


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
    """The ledgers with which it was done, and what went wrong, each by bookie."""

    ledgers: dict[str, list[int]] = {}
    errors: dict[str, str] = {}


class RackBody(msgspec.Struct):
    """Where a bookie stands; ``hostname`` is the smallest failure domain."""

    rack: str
    hostname: str


class SchemaPayloadBody(msgspec.Struct, forbid_unknown_fields=True):
    """A schema as it is uploaded: the name of its type, its definition, and of KEY_VALUE an object with the definitions of both parts."""

    type: str
    schema: str = ""
    properties: dict[str, str] | None = None


class SchemaBody(msgspec.Struct):
    """A version of a topic's schema. ``timestamp``: when it was brought, in milliseconds since the epoch."""

    version: int
    type: str
    timestamp: int
    data: str
    properties: dict[str, str]


class SchemasBody(msgspec.Struct, rename="camel"):
    get_schema_responses: list[SchemaBody]


class SchemaVersionBody(msgspec.Struct):
    """-1: the schema is none of the topic's."""

    version: int


class UploadedSchemaBody(msgspec.Struct):
    version: SchemaVersionBody


class CompatibilityBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """``reason``: why it is not compatible."""

    compatibility: bool
    schema_compatibility_strategy: str
    reason: str = ""


Json = dict[str, Any]
