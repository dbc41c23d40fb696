"""How lost copies are found and repaired, one table in the configuration of the process that does
it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pulsarish.ledger.options import LedgerOptions
from pulsarish.model.errors import ConfigError

__all__ = ["AutoRecoveryOptions"]

_MIB = 1 << 20


class AutoRecoveryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every option of auditor and replication worker.

    Names are BookKeeper's own in snake case with the unit last.
    """

    lost_bookie_recovery_delay_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "A bookie that is not registered for this long is lost; the time starts again "
                "when the metadata were away."
            ),
        ),
    ] = 60.0
    lost_bookies_share_max: Annotated[
        float,
        Meta(
            gt=0,
            lt=1,
            description=(
                "When more than this share of all bookies is lost at once nothing is copied "
                "until an operator decides."
            ),
        ),
    ] = 0.5
    auditor_check_interval_seconds: Annotated[
        float, Meta(gt=0, description="How often the auditor looks for lost bookies.")
    ] = 1.0
    auditor_periodic_bookie_check_interval_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "So often all ledgers are looked through for members that are lost, known to "
                "be or not."
            ),
        ),
    ] = 86_400.0
    auditor_periodic_check_interval_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "How often the auditor asks each member of each closed ledger which of its "
                "entries it holds."
            ),
        ),
    ] = 604_800.0
    auditor_periodic_placement_policy_check_interval_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "How often the auditor looks for closed ledgers whose copies share a host or "
                "rack although a better choice of bookies is there."
            ),
        ),
    ] = 86_400.0
    repaired_placement_policy_not_adhering_bookie_enable: Annotated[
        bool,
        Meta(
            description=(
                "Move the copies that this look finds, at replication_rate_bytes; otherwise "
                "they are only counted."
            )
        ),
    ] = False
    auditor_ledgers_per_second: Annotated[
        float, Meta(gt=0, description="How fast it looks through all ledgers.")
    ] = 2_000.0
    auditor_page_ledgers: Annotated[
        int, Meta(ge=1, le=5_000, description="Ledgers that it reads from the metadata at a time.")
    ] = 500
    auditor_asked_entries_per_second: Annotated[
        float,
        Meta(
            gt=0,
            description=(
                "Entries that the auditor checks in a second when it asks the members of all "
                "ledgers."
            ),
        ),
    ] = 20_000.0
    underreplicated_ledgers_max: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "When this many ledgers wait for repair, the auditor publishes no more until "
                "there are fewer."
            ),
        ),
    ] = 50_000
    replication_ledgers_max: Annotated[
        int, Meta(ge=1, le=256, description="Ledgers that one worker mends at a time.")
    ] = 4
    replication_rate_bytes: Annotated[
        int,
        Meta(ge=1_024, description="Bytes a second that one worker reads in order to copy them."),
    ] = 32 * _MIB
    replication_slow_ratio: Annotated[
        float,
        Meta(
            ge=0,
            description=(
                "When copying takes this many times as long as at best in the last minutes, "
                "bookies have too much to do: the rate falls, to an eighth of "
                "replication_rate_bytes at least, until it takes less again; above 1, or 0: never."
            ),
        ),
    ] = 2.0
    replication_batch_bytes: Annotated[
        int, Meta(ge=1_024, description="Bytes that are copied at a time.")
    ] = _MIB
    open_ledger_rereplication_grace_period_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description=(
                "So long the writer of an open ledger may deal with a lost bookie itself; "
                "then it is recovered."
            ),
        ),
    ] = 30.0
    rw_rereplicate_backoff_ms: Annotated[
        int,
        Meta(
            ge=1,
            description=(
                "A ledger that could not be repaired is tried again after this; the wait "
                "doubles with each attempt."
            ),
        ),
    ] = 5_000
    rw_rereplicate_backoff_max_ms: Annotated[
        int, Meta(ge=1, description="The longest such wait.")
    ] = 300_000
    ledger: LedgerOptions = LedgerOptions()

    def validate(self) -> None:
        self.ledger.validate()
        if 0 < self.replication_slow_ratio <= 1:
            raise ConfigError(
                f"replication_slow_ratio = {self.replication_slow_ratio:g} must be 0 or above 1: "
                "copying would be slow at its best, and its rate would stay at an eighth of "
                "replication_rate_bytes"
            )
        if self.rw_rereplicate_backoff_max_ms < self.rw_rereplicate_backoff_ms:
            raise ConfigError(
                f"rw_rereplicate_backoff_max_ms = {self.rw_rereplicate_backoff_max_ms} is below "
                f"rw_rereplicate_backoff_ms = {self.rw_rereplicate_backoff_ms}"
            )
