"""The limits and timeouts of a ledger client: one table in the configuration of its process."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.network.address_book import Transport

__all__ = ["LedgerOptions"]


_MIB = 1 << 20


class LedgerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of the replication protocol's client side."""

    window_entries: Annotated[
        int,
        Meta(
            ge=1, description="Entries of one ledger between the last confirmed and the last sent."
        ),
    ] = 5_000
    window_bytes: Annotated[
        int, Meta(ge=_MIB, description="Payload bytes of one ledger between the same.")
    ] = 32 * _MIB
    message_bytes_target: Annotated[
        int, Meta(ge=1_024, description="What a message to a bookie aims at.")
    ] = _MIB
    unanswered_messages_max: Annotated[
        int,
        Meta(ge=1, le=16, description="Messages on one stream that a bookie has not answered yet."),
    ] = 2
    overlap_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Bytes that wait for a bookie at which the next message of adds does not wait "
                "for the answer to the one before."
            ),
        ),
    ] = 128 << 10
    bookie_queue_bytes: Annotated[
        int,
        Meta(
            ge=_MIB,
            description=(
                "Bytes waiting for one bookie at which it counts as failed, so that a slow "
                "one holds bounded memory."
            ),
        ),
    ] = 64 * _MIB
    add_timeout_ms: Annotated[
        int,
        Meta(
            ge=50,
            description="A bookie that leaves a message of adds unanswered this long has failed.",
        ),
    ] = 5_000
    heartbeat_interval_ms: Annotated[
        int, Meta(ge=50, description="An idle add stream in use is tried after this.")
    ] = 2_000
    check_interval_ms: Annotated[
        int,
        Meta(
            ge=10,
            description=(
                "How often bookies are checked for silence and missing members are replaced."
            ),
        ),
    ] = 500
    transport: Annotated[
        Transport,
        Meta(
            description=(
                "How bookies are reached: framed (frames over TCP, faster), grpc, or auto: framed "
                "where a bookie offers it and can be reached so."
            ),
        ),
    ] = "auto"
    read_timeout_ms: Annotated[
        int,
        Meta(ge=50, description="A bookie that leaves a read unanswered this long has failed."),
    ] = 3_000
    speculative_read_delay_min_ms: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "When a bookie takes longer for a read than it usually does, the next replica is "
                "asked, too; not before this time."
            ),
        ),
    ] = 100
    speculative_read_delay_max_ms: Annotated[
        int,
        Meta(ge=1, description="The same, however slow the bookie usually is: after this time."),
    ] = 1_000
    speculative_reads_share_max: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description=(
                "The share of reads that may be sent to a second replica, after 20 at once; "
                "0: none."
            ),
        ),
    ] = 0.1
    slow_bookie_avoided_ms: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "A bookie that was late with a read is asked last for this long, or until it "
                "answers a read in time."
            ),
        ),
    ] = 10_000
    read_request_bytes: Annotated[
        int, Meta(ge=1_024, description="The most asked of one bookie in one read.")
    ] = 4 * _MIB
    control_timeout_ms: Annotated[
        int,
        Meta(
            ge=50,
            description="Fencing, recovery reads and LAC calls: after this the answer is unknown.",
        ),
    ] = 5_000
    reconnect_backoff_min_ms: Annotated[
        int,
        Meta(
            ge=1, description="A bookie that broke off or refused is not tried again for this long."
        ),
    ] = 100
    reconnect_backoff_max_ms: Annotated[
        int, Meta(ge=1, description="The wait doubles with each failure up to this.")
    ] = 1_000
    quarantine_ms: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "A bookie that failed is chosen last for this long, or until it registers again."
            ),
        ),
    ] = 30_000
    slow_adds_ratio: Annotated[
        float,
        Meta(
            ge=0,
            description=(
                "A bookie whose adds take this many times as long as those of the middle one of "
                "the others, for slow_adds_period_ms, is chosen after its equals for "
                "quarantine_ms; 0: never."
            ),
        ),
    ] = 5.0
    slow_adds_min_ms: Annotated[
        int, Meta(ge=1, description="Adds that take less than this are never slow.")
    ] = 200
    slow_adds_period_ms: Annotated[
        int, Meta(ge=100, description="How long a bookie must be so slow without a break.")
    ] = 10_000
    placement_policy: Annotated[
        str,
        Meta(
            description=(
                "What chooses the bookies of ledgers: module:Class of your own, or empty for the "
                "built-in policy."
            )
        ),
    ] = ""
    min_distinct_hosts: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "The copies of each entry lie on at least this many hosts, or on as many as there "
                "are copies."
            ),
        ),
    ] = 1
    min_distinct_racks: Annotated[
        int, Meta(ge=1, description="The same for racks. A bookie without rack adds none.")
    ] = 1
    min_distinct_zones: Annotated[
        int, Meta(ge=1, description="The same for zones. A bookie without zone adds none.")
    ] = 1
    min_distinct_regions: Annotated[
        int, Meta(ge=1, description="The same for regions. A bookie without region adds none.")
    ] = 1
    min_distinct_enforced: Annotated[
        bool,
        Meta(
            description=(
                "Whether a ledger or copy that breaks these rules is refused; otherwise they are "
                "broken where there is no other bookie."
            )
        ),
    ] = False
    disk_weight_based_placement_enabled: Annotated[
        bool,
        Meta(
            description=(
                "Among bookies that are equal otherwise, those with more free space are chosen "
                "more often, at most three times as often as the middle one."
            )
        ),
    ] = False
    local_host: Annotated[
        str,
        Meta(
            description=(
                "The host of this process, as bookies name theirs. A read asks the nearest replica "
                "first: of the same host, rack, zone, region, as far as these are set."
            )
        ),
    ] = ""
    local_rack: Annotated[str, Meta(description="The rack of this process, for the same.")] = ""
    local_zone: Annotated[str, Meta(description="The zone of this process, for the same.")] = ""
    local_region: Annotated[str, Meta(description="The region of this process, for the same.")] = ""
    explicit_lac_interval_ms: Annotated[
        int,
        Meta(
            ge=10,
            description=(
                "A ledger idle this long tells its bookies the last confirmed entry, for "
                "readers without recovery."
            ),
        ),
    ] = 1_000
    explicit_lac_ledgers_max: Annotated[
        int, Meta(ge=1, description="Ledgers that do so at a time, in one call a bookie.")
    ] = 1_000
    metadata_check_interval_ms: Annotated[
        int,
        Meta(
            ge=100,
            description="How often the client checks that the metadata are not older than before.",
        ),
    ] = 10_000
    ledger_id_block: Annotated[
        int, Meta(ge=1, le=10_000, description="Ledger ids drawn from metadata at a time.")
    ] = 100
    recovery_read_entries: Annotated[
        int, Meta(ge=1, description="Entries that recovery asks of a bookie at a time.")
    ] = 500
    recovery_read_bytes: Annotated[
        int, Meta(ge=1_024, description="Bytes that recovery asks of a bookie at a time.")
    ] = _MIB
    recovery_copies_wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "How long a recovery that is decided waits for copies beyond the "
                "acknowledgement quorum."
            ),
        ),
    ] = 500
    recovery_attempts: Annotated[
        int,
        Meta(
            ge=1,
            description="Times that a recovery starts over when another client changed the ledger.",
        ),
    ] = 5

    def validate(self) -> None:
        module, _, name = self.placement_policy.partition(":")
        if self.placement_policy and not (
            name.isidentifier() and all(each.isidentifier() for each in module.split("."))
        ):
            raise ConfigError(
                f"placement_policy = {self.placement_policy!r} must be module:Class of your own, "
                "or empty for the built-in policy"
            )
        if 0 < self.slow_adds_ratio < 1:
            raise ConfigError(
                f"slow_adds_ratio = {self.slow_adds_ratio} would count bookies as slow that are "
                "faster than the others: set 1 or more, or 0 for never"
            )
        if self.speculative_read_delay_max_ms < self.speculative_read_delay_min_ms:
            raise ConfigError(
                f"speculative_read_delay_max_ms = {self.speculative_read_delay_max_ms} is below "
                f"speculative_read_delay_min_ms = {self.speculative_read_delay_min_ms}"
            )
        if self.reconnect_backoff_max_ms < self.reconnect_backoff_min_ms:
            raise ConfigError(
                f"reconnect_backoff_max_ms = {self.reconnect_backoff_max_ms} is below "
                f"reconnect_backoff_min_ms = {self.reconnect_backoff_min_ms}"
            )
        if self.bookie_queue_bytes < 2 * self.message_bytes_target:
            raise ConfigError(
                f"bookie_queue_bytes = {self.bookie_queue_bytes} holds less than two messages of "
                "message_bytes_target"
            )
