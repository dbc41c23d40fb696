"""The limits of topics' logs: one table in the broker's configuration.

Names are Pulsar's own in snake case, units last.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pulsarish.model.errors import ConfigError, InvalidArgument
from pulsarish.model.ledger_metadata import BookieGroups, check_quorums

__all__ = ["ManagedLedgerOptions", "Retention"]

_MIB = 1 << 20


class Retention(msgspec.Struct, frozen=True):
    """How long data is kept that no durable cursor needs. -1: forever; ``minutes`` and ``mb`` 0: it
    is not kept.

    ``count``: the newest entries of the log that are kept; -1: all that the others keep.
    """

    minutes: int = 0
    mb: int = 0
    count: int = -1
    until_compacted: bool = False
    """Whether messages also stay until a compaction has seen them."""

    def check(self) -> None:
        """Check the values.

        Raises ``InvalidArgument`` for a value below -1 and for one zero beside another value.
        """
        if self.minutes < -1 or self.mb < -1:
            raise InvalidArgument(
                f"retention of {self.minutes} minutes and {self.mb} MB: -1 (forever) is the least"
            )
        if (self.minutes == 0) != (self.mb == 0):
            raise InvalidArgument(
                f"retention of {self.minutes} minutes and {self.mb} MB: set both, or both to 0"
            )


class ManagedLedgerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of a topic's log."""

    ensemble_size: Annotated[
        int, Meta(ge=1, description="Bookies that one ledger is spread over (E).")
    ] = 3
    write_quorum: Annotated[int, Meta(ge=1, description="Copies of each entry (Qw).")] = 3
    ack_quorum: Annotated[
        int, Meta(ge=1, description="Copies on disk before an entry is confirmed (Qa).")
    ] = 2

    isolation_groups: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Groups of bookies that hold the ledgers of topics whose namespace names none; "
                "empty: any bookie."
            )
        ),
    ] = ()
    secondary_isolation_groups: Annotated[
        tuple[str, ...],
        Meta(description="Groups that are used, too, while those have too few bookies."),
    ] = ()

    max_entries_per_ledger: Annotated[
        int, Meta(ge=1, description="A ledger with this many entries is full.")
    ] = 50_000
    max_size_per_ledger_mb: Annotated[
        int, Meta(ge=1, description="A ledger of this size is full.")
    ] = 2_048
    min_ledger_rollover_time_minutes: Annotated[
        int, Meta(ge=0, description="A full ledger is not replaced before this age.")
    ] = 10
    max_ledger_rollover_time_minutes: Annotated[
        int, Meta(ge=1, description="A ledger with entries is replaced at this age.")
    ] = 240
    rollover_jitter: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="The greatest share added to the maximum age, drawn for each ledger.",
        ),
    ] = 0.05

    pending_entries_max: Annotated[
        int, Meta(ge=1, description="Entries of one topic that may wait for confirmation.")
    ] = 10_000
    pending_bytes_max: Annotated[
        int, Meta(ge=_MIB, description="Bytes of one topic that may wait for confirmation.")
    ] = 64 * _MIB
    append_hold_ms: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "How long appends wait for a new ledger before they are refused with the reason."
            ),
        ),
    ] = 5_000
    retry_wait_ms: Annotated[
        int,
        Meta(
            ge=1, description="First wait before a failed step towards a new ledger is tried again."
        ),
    ] = 20
    retry_wait_max_ms: Annotated[int, Meta(ge=1, description="The wait doubles up to this.")] = (
        1_000
    )

    cursor_flush_interval_ms: Annotated[
        int,
        Meta(
            ge=0,
            description=(
                "Acknowledgements for which no client waits are durable after this time at "
                "the latest."
            ),
        ),
    ] = 1_000
    cursor_max_entries_per_ledger: Annotated[
        int, Meta(ge=1, description="A cursor ledger with this many entries is replaced.")
    ] = 50_000
    cursor_rollover_time_seconds: Annotated[
        int, Meta(ge=1, description="A cursor ledger of this age is replaced.")
    ] = 14_400
    cursor_snapshot_interval_entries: Annotated[
        int, Meta(ge=1, description="Deltas between two snapshots in a cursor ledger.")
    ] = 100
    cursor_snapshot_part_bytes: Annotated[
        int, Meta(ge=256, description="A greater snapshot is cut into entries of this size.")
    ] = _MIB
    cursor_idle_seconds: Annotated[
        int, Meta(ge=1, description="A cursor without writes for this long gives its ledger up.")
    ] = 60
    cursor_node_writes_max: Annotated[
        int,
        Meta(
            ge=0,
            description="Writes to metadata in one window after which a cursor takes a ledger.",
        ),
    ] = 5
    cursor_node_writes_window_ms: Annotated[
        int, Meta(ge=1, description="The window of the limit above.")
    ] = 10_000
    max_unacked_ranges_to_persist_in_metadata_store: Annotated[
        int, Meta(ge=0, description="Ranges that a cursor's node may hold.")
    ] = 1_000
    cursor_node_bytes_max: Annotated[
        int, Meta(ge=1_024, description="The greatest record of a cursor in metadata.")
    ] = 32 * 1_024
    max_unacked_ranges_to_persist: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "Ranges and open batches of one cursor at which its dispatch stops until "
                "holes are filled."
            ),
        ),
    ] = 50_000_000
    max_unacked_ranges_bytes: Annotated[
        int,
        Meta(
            ge=1_024,
            description=(
                "Memory of one cursor's ranges and open batches at which its dispatch stops until "
                "holes are filled. 10 million messages of which every second is acknowledged take "
                "about 3 MB."
            ),
        ),
    ] = 16 * _MIB

    @property
    def bookie_groups(self) -> BookieGroups | None:
        """The groups whose bookies hold the ledgers; ``None``: any bookie."""
        if not self.isolation_groups:
            return None
        return BookieGroups(self.isolation_groups, self.secondary_isolation_groups)

    def validate(self) -> None:
        if self.secondary_isolation_groups and not self.isolation_groups:
            raise ConfigError(
                "secondary_isolation_groups = "
                f"{', '.join(self.secondary_isolation_groups)} has no effect without "
                "isolation_groups: set those, too"
            )
        try:
            check_quorums(self.ensemble_size, self.write_quorum, self.ack_quorum)
        except InvalidArgument as error:
            raise ConfigError(str(error)) from None
        if self.min_ledger_rollover_time_minutes > self.max_ledger_rollover_time_minutes:
            raise ConfigError(
                f"min_ledger_rollover_time_minutes = {self.min_ledger_rollover_time_minutes} is "
                f"above max_ledger_rollover_time_minutes = {self.max_ledger_rollover_time_minutes}"
            )
        if self.retry_wait_ms > self.retry_wait_max_ms:
            raise ConfigError(
                f"retry_wait_ms = {self.retry_wait_ms} is above retry_wait_max_ms = "
                f"{self.retry_wait_max_ms}"
            )
