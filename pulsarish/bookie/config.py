"""The configuration of a bookie process.

Names are BookKeeper's in snake case with the unit last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.metadata.access import (
    MetadataAuthFile,
    MetadataOpenNodes,
    MetadataTlsCertificateFile,
    MetadataTlsKeyFile,
    MetadataTlsTrustFile,
)
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.log import REPEATS_MAX
from pulsarish.runtime.network.addresses import FramedAdvertisedAddress, FramedPort
from pulsarish.runtime.network.tls_options import (
    HttpAddressTls,
    TlsAllowedRoles,
    TlsCertificateFile,
    TlsClusterName,
    TlsKeyFile,
    TlsRequiresClientCertificate,
    TlsTrustFile,
    check_member_options,
    check_tls_address,
    check_tls_options,
)
from pulsarish.security.cluster_key import ClusterKeyFile
from pulsarish.security.metrics_tokens import MetricsTokenFile

__all__ = ["BookieConfig"]


class BookieConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a bookie. Sizes are in bytes."""

    bookie_id: Annotated[
        str,
        Meta(
            min_length=1,
            pattern="^[A-Za-z0-9._-]+$",
            description="The bookie's name, kept for its whole life.",
        ),
    ]
    metadata_url: Annotated[
        str,
        Meta(description="Where the metadata is: zk://host:port/chroot, embedded:DIR or memory:."),
    ] = "zk://127.0.0.1:2181/pulsarish"
    metadata_session_timeout_ms: Annotated[
        int, Meta(ge=1000, description="After this long without an answer the session is lost.")
    ] = 10_000
    metadata_auth_file: MetadataAuthFile = ""
    metadata_open_nodes: MetadataOpenNodes = False
    metadata_tls_trust_certs_file_path: MetadataTlsTrustFile = ""
    metadata_tls_certificate_file_path: MetadataTlsCertificateFile = ""
    metadata_tls_key_file_path: MetadataTlsKeyFile = ""
    listen_address: Annotated[
        str, Meta(description="host:port of the gRPC server; port 0 picks a free one.")
    ] = "127.0.0.1:3181"
    advertised_address: Annotated[
        str,
        Meta(description="Host, or host:port, that clients connect to; empty: the listen address."),
    ] = ""
    framed_port: FramedPort = 0
    framed_advertised_address: FramedAdvertisedAddress = ""
    cluster_key_file: ClusterKeyFile = ""
    http_address: Annotated[
        str, Meta(description="host:port of /health and /metrics; empty: none.")
    ] = "127.0.0.1:8000"
    http_address_tls: HttpAddressTls = ""
    metrics_token_file: MetricsTokenFile = ""
    tls_certificate_file_path: TlsCertificateFile = ""
    tls_key_file_path: TlsKeyFile = ""
    tls_trust_certs_file_path: TlsTrustFile = ""
    tls_require_trusted_client_cert_on_connect: TlsRequiresClientCertificate = False
    tls_cluster_name: TlsClusterName = ""
    tls_allowed_roles: TlsAllowedRoles = ()
    host: Annotated[
        str,
        Meta(
            description=(
                "The machine of this bookie, the smallest failure domain; empty: the "
                "advertised host."
            )
        ),
    ] = ""
    rack: Annotated[str, Meta(description="The rack of the machine.")] = ""
    zone: Annotated[str, Meta(description="The zone of the machine, above racks.")] = ""
    region: Annotated[str, Meta(description="The region of the machine, above zones.")] = ""

    data_directory: Annotated[
        str, Meta(min_length=1, description="The default place of the three directories below.")
    ] = "data/bookie"
    journal_directory: Annotated[
        str, Meta(description="Of the journal; empty: DATA/journal. A separate device is fastest.")
    ] = ""
    ledger_directory: Annotated[
        str, Meta(description="Of the entry logs; empty: DATA/ledgers.")
    ] = ""
    index_directory: Annotated[str, Meta(description="Of the index; empty: DATA/index.")] = ""
    journal_directories: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Of the journals of several volumes, instead of journal_directory. A volume is a "
                "journal, a ledger and an index directory: those at the same place of the three "
                "lists. Each ledger lies in one volume."
            )
        ),
    ] = ()
    ledger_directories: Annotated[
        tuple[str, ...],
        Meta(description="Of the entry logs of the volumes, as many as journal_directories."),
    ] = ()
    index_directories: Annotated[
        tuple[str, ...],
        Meta(description="Of the indexes of the volumes, as many as journal_directories."),
    ] = ()
    volume_loss: Annotated[
        Literal["refuse", "limbo"],
        Meta(
            description=(
                "A start without one of several volumes, because a directory has no cookie or "
                "cannot be used: refuse to start, or (an operator's decision) give the volume up "
                'for good, go on with the others and answer "unknown" for every ledger that may '
                "have been in it."
            )
        ),
    ] = "refuse"

    journal_file_size_bytes: Annotated[
        int, Meta(ge=4096, description="Size of a journal file; the next one is preallocated.")
    ] = 64 << 20
    journal_prepare_slice_bytes: Annotated[
        int,
        Meta(
            ge=4096,
            description=(
                "Bytes of the next journal file that are preallocated at a time, while the "
                "current one fills."
            ),
        ),
    ] = 1 << 20
    journal_group_size_bytes: Annotated[
        int,
        Meta(
            ge=4096,
            description=(
                "Bytes that are written and synced together, at most; one larger request goes "
                "alone."
            ),
        ),
    ] = 16 << 20
    journal_queue_size_bytes: Annotated[
        int, Meta(ge=4096, description="Above this many unsynced bytes, nothing more is received.")
    ] = 64 << 20
    journal_slow_sync_ms: Annotated[
        int, Meta(ge=1, description="A write and sync of the journal that took longer is logged.")
    ] = 1_000
    journal_corruption: Annotated[
        Literal["refuse", "limbo"],
        Meta(
            description=(
                "A damaged journal or a lost mark: refuse to start, or (an operator's decision) "
                "give up what cannot be read and answer"
                ' "unknown" for every ledger that existed by then.'
            )
        ),
    ] = "refuse"

    journal_position_interval_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "How often the bookie stores in the metadata how far its journal is durable, "
                "if anything was added. It does not"
                " start on a disk that has come back older than that."
            ),
        ),
    ] = 10.0

    write_cache_size_bytes: Annotated[
        int,
        Meta(ge=1024, description="Size of both generations; a checkpoint starts at half of it."),
    ] = 64 << 20
    read_cache_size_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Memory for entries that readers have read from the entry logs more than once, for "
                "the next readers; 0: none are kept."
            ),
        ),
    ] = 32 << 20
    read_ahead_cache_size_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Memory for what readers that go through a ledger in order want next, which is "
                "read before they ask; 0: nothing is read ahead."
            ),
        ),
    ] = 16 << 20
    read_ahead_batch_size_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Bytes that are read ahead at a time for a reader, which may wait for two.",
        ),
    ] = 1 << 20
    read_ahead_batch_entries: Annotated[
        int, Meta(ge=1, le=2000, description="Entries that are read ahead at a time, at most.")
    ] = 1000
    entry_log_size_bytes: Annotated[
        int, Meta(ge=4096, description="Above this size a new entry log begins.")
    ] = 512 << 20
    entry_log_remove_from_page_cache: Annotated[
        bool,
        Meta(
            description=(
                "Take synced entries out of the kernel's page cache: consumers that lag behind "
                "the broker's cache then read from the disk, but the kernel need not find memory "
                "for what is not read, which is slow on some virtual machines."
            )
        ),
    ] = False
    checkpoint_interval_seconds: Annotated[
        float, Meta(gt=0, description="Longest time between two checkpoints of the write cache.")
    ] = 10.0
    checkpoint_spread: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description=(
                "The share of that interval over which a checkpoint is spread; it is faster "
                "when the cache fills."
            ),
        ),
    ] = 0.5
    checkpoint_slice_entries: Annotated[
        int,
        Meta(
            ge=1, description="Entries that a checkpoint moves at once; adds are served in between."
        ),
    ] = 500
    checkpoint_slice_bytes: Annotated[
        int,
        Meta(
            ge=1024,
            description="Bytes that a checkpoint moves at once; one larger entry goes alone.",
        ),
    ] = 512 << 10
    checkpoint_sync_bytes: Annotated[
        int,
        Meta(
            ge=1024, description="Bytes of an entry log that are synced and then indexed at a time."
        ),
    ] = 4 << 20
    open_ledgers_max: Annotated[
        int, Meta(ge=1, description="Ledgers whose flags are kept in memory.")
    ] = 50_000
    open_entry_logs_max: Annotated[
        int, Meta(ge=1, description="Entry logs kept open for reading.")
    ] = 64

    metadata_check_interval_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "How often the bookie checks that the metadata are not older than before, and "
                "stores how new they are."
            ),
        ),
    ] = 10.0
    gc_interval_seconds: Annotated[
        float, Meta(gt=0, description="How often the bookie searches for ledgers without metadata.")
    ] = 900.0
    gc_second_look_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description=(
                "A ledger counts as deleted when the metadata do not have it at two checks "
                "this far apart."
            ),
        ),
    ] = 600.0
    trash_grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description=(
                "How long a deleted ledger stays in the trash before its space is freed; "
                "shorter on a full disk."
            ),
        ),
    ] = 3_600.0
    deleted_ledger_fence_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "How long a deleted ledger stays fenced here, against a writer that missed "
                "its deletion."
            ),
        ),
    ] = 604_800.0
    compaction_threshold: Annotated[
        float,
        Meta(
            ge=0,
            lt=1,
            description=(
                "Minor compaction: every round of garbage collection rewrites entry logs with a "
                "smaller share of live bytes."
            ),
        ),
    ] = 0.5
    major_compaction_threshold: Annotated[
        float,
        Meta(
            ge=0,
            lt=1,
            description=(
                "Major compaction rewrites entry logs with a smaller share of live bytes; 0: only "
                "those of minor compaction."
            ),
        ),
    ] = 0.8
    major_compaction_interval_seconds: Annotated[
        float, Meta(gt=0, description="The time between two rounds with major compaction.")
    ] = 86_400.0
    major_compaction_window: Annotated[
        str,
        Meta(
            pattern="^$|^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$",
            description=(
                "The hours of the day, in UTC, in which such a round may begin, as in "
                "22:00-06:00; empty: all."
            ),
        ),
    ] = ""
    compaction_rate_bytes: Annotated[
        int, Meta(ge=1024, description="Compaction reads at most this many bytes per second.")
    ] = 32 << 20

    read_only_free_bytes: Annotated[
        int, Meta(ge=0, description="Below this much free space the bookie is read-only.")
    ] = 1 << 30
    reserved_bytes: Annotated[
        int,
        Meta(
            ge=0, description="Below this, recovery writes stop, too: the rest is for checkpoints."
        ),
    ] = 512 << 20
    disk_check_interval_seconds: Annotated[
        float, Meta(gt=0, description="How often free space is checked.")
    ] = 5.0

    add_probe_interval_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "After this time without an add, a writable bookie adds and syncs a record "
                "without entries."
            ),
        ),
    ] = 5.0
    add_probe_timeout_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "A writable bookie that has synced no add for this long, from a client or its "
                "own, is not healthy."
            ),
        ),
    ] = 20.0

    connection_size_bytes: Annotated[
        int,
        Meta(ge=4096, description="Unanswered adds of one connection above which it is not read."),
    ] = 16 << 20
    read_answer_size_bytes: Annotated[
        int, Meta(ge=1024, description="Answers to reads are gathered to about this size.")
    ] = 1 << 20
    read_answers_size_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            description=(
                "Answers to reads that all clients together have not received yet. Above this "
                "a read waits, and then the stream"
                " whose client has not received its answer for the longest time is ended."
            ),
        ),
    ] = 32 << 20
    control_answer_size_bytes: Annotated[
        int, Meta(ge=1024, description="Bytes that one recovery read or fence answers, at most.")
    ] = 4 << 20
    max_frame_size_bytes: Annotated[
        int,
        Meta(
            ge=1 << 20,
            le=64 << 20,
            description=(
                "The largest gRPC message that the bookie receives: more than a quarter of the "
                "brokers'"
                " ledger.bookie_queue_bytes, and more than their max_message_size_bytes."
            ),
        ),
    ] = 24 << 20
    long_poll_max_ms: Annotated[
        int, Meta(ge=0, description="The longest wait for a LAC to move.")
    ] = 30_000
    stop_grace_seconds: Annotated[
        float, Meta(ge=0, description="How long a graceful stop waits for connections.")
    ] = 1.0

    local_scrub_interval_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Pause between two rounds that read all entries on disk; 0: no rounds.",
        ),
    ] = 604_800.0
    local_scrub_rate_bytes: Annotated[
        int, Meta(ge=1024, description="Bytes per second that such a round reads.")
    ] = 4 << 20
    auto_recovery_daemon_enabled: Annotated[
        bool,
        Meta(
            description=(
                "Host an auditor and a replication worker, as `pulsarish autorecovery` does "
                "in a process of its own."
            )
        ),
    ] = False
    auto_recovery: AutoRecoveryOptions = AutoRecoveryOptions()

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Events of this level and above are logged."),
    ] = "info"
    log_form: Annotated[
        Literal["text", "json", "logfmt"],
        Meta(description="Text for people, JSON or logfmt for machines."),
    ] = "text"
    log_repeats_max: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "How often one event is written in ten seconds; what is held back is counted; "
                "0: always."
            ),
        ),
    ] = REPEATS_MAX

    @property
    def journal_path(self) -> str:
        return self.journal_directory or f"{self.data_directory}/journal"

    @property
    def ledger_path(self) -> str:
        return self.ledger_directory or f"{self.data_directory}/ledgers"

    @property
    def index_path(self) -> str:
        return self.index_directory or f"{self.data_directory}/index"

    @property
    def paths(self) -> list[str]:
        """The journal, ledger and index directory of a bookie with one volume."""
        return [self.journal_path, self.ledger_path, self.index_path]

    @property
    def all_paths(self) -> list[str]:
        """The directories of all volumes."""
        return [path for volume in self.volumes() for path in volume.paths]

    def volumes(self) -> list[BookieConfig]:
        """Return the configuration of each volume, as of a bookie that has only this one.

        They share the memory for caches.
        """
        count = len(self.journal_directories)
        if not count:
            return [self]
        return [
            msgspec.structs.replace(
                self,
                journal_directory=journal,
                ledger_directory=ledger,
                index_directory=index,
                journal_directories=(),
                ledger_directories=(),
                index_directories=(),
                write_cache_size_bytes=max(1024, self.write_cache_size_bytes // count),
                read_cache_size_bytes=self.read_cache_size_bytes // count,
                read_ahead_cache_size_bytes=self.read_ahead_cache_size_bytes // count,
            )
            for journal, ledger, index in zip(
                self.journal_directories,
                self.ledger_directories,
                self.index_directories,
                strict=True,
            )
        ]

    def with_volume(self, directories: Sequence[str]) -> BookieConfig:
        """Return the configuration with one more volume: its journal, ledger and index directory.

        The options of one volume become lists.
        """
        journal, ledger, index = directories
        return msgspec.structs.replace(
            self,
            journal_directory="",
            ledger_directory="",
            index_directory="",
            journal_directories=(*(self.journal_directories or (self.journal_path,)), journal),
            ledger_directories=(*(self.ledger_directories or (self.ledger_path,)), ledger),
            index_directories=(*(self.index_directories or (self.index_path,)), index),
        )

    def validate(self) -> None:
        """Raise ``ConfigError`` for settings that do not fit together."""
        self.auto_recovery.validate()
        check_tls_options(self)
        check_tls_address(self, "http_address_tls", self.http_address_tls)
        check_member_options(self)
        self._check_directories()
        if self.read_only_free_bytes < self.reserved_bytes:
            raise ConfigError(
                f"read_only_free_bytes = {self.read_only_free_bytes} must be at least "
                f"reserved_bytes = {self.reserved_bytes}"
            )
        if self.add_probe_timeout_seconds <= self.add_probe_interval_seconds:
            raise ConfigError(
                f"add_probe_timeout_seconds = {self.add_probe_timeout_seconds:g} must be above "
                f"add_probe_interval_seconds = {self.add_probe_interval_seconds:g}: an idle "
                "bookie would never be healthy"
            )
        volumes = max(1, len(self.ledger_directories))
        ahead_bytes = self.read_ahead_batch_size_bytes * volumes
        if 0 < self.read_ahead_cache_size_bytes < ahead_bytes:
            raise ConfigError(
                f"read_ahead_cache_size_bytes = {self.read_ahead_cache_size_bytes} must be 0 or at "
                f"least read_ahead_batch_size_bytes for each volume, {ahead_bytes} bytes: nothing "
                "would be read ahead"
            )
        need = self.write_cache_size_bytes + 2 * self.journal_file_size_bytes
        if self.reserved_bytes < need:
            raise ConfigError(
                f"reserved_bytes = {self.reserved_bytes} must cover the write cache and two "
                f"journal files, {need} bytes: checkpoints and deletion must work on a full disk"
            )

    def _check_directories(self) -> None:
        """Raise ``ConfigError`` for directories that cannot be those of volumes."""
        singles = {
            name: getattr(self, name)
            for name in ("journal_directory", "ledger_directory", "index_directory")
        }
        for name, directory in singles.items():
            if "," in directory:
                raise ConfigError(
                    f"{name} = {directory!r} names several directories: give the lists "
                    "journal_directories, ledger_directories and index_directories instead"
                )
        lists = {
            name: getattr(self, name)
            for name in ("journal_directories", "ledger_directories", "index_directories")
        }
        if any(lists.values()):
            sizes = ", ".join(f"{name} has {len(found)}" for name, found in lists.items())
            if len(dict.fromkeys(len(found) for found in lists.values())) != 1:
                raise ConfigError(
                    f"{sizes} directories: each volume needs one of each, at the same place of "
                    "the lists"
                )
            if told := [name for name, directory in singles.items() if directory]:
                raise ConfigError(
                    f"{', '.join(told)} and journal_directories are given: put the one directory "
                    "into the list, and leave out the single options"
                )
            if any(not directory for found in lists.values() for directory in found):
                raise ConfigError(
                    "journal_directories, ledger_directories and index_directories have an empty "
                    "name: leave it out of all three"
                )
        paths = self.all_paths
        if len(dict.fromkeys(path.rstrip("/") for path in paths)) != len(paths):
            raise ConfigError(
                "journal, ledger and index directories must differ, not be " + ", ".join(paths)
            )
