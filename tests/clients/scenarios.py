"""The scenarios that every official client goes through; a program knows each by its name."""

from __future__ import annotations

__all__ = ["PROXIED", "SCENARIOS"]

SCENARIOS = (
    "produce_consume",
    "batches",
    "compression",
    "partitioned",
    "shared",
    "non_persistent",
    "failover",
    "key_shared",
    "negative_ack",
    "ack_timeout",
    "dead_letters",
    "reader",
    "seek",
    "pattern",
    "table_view",
    "chunked",
    "deduplication",
    "access_modes",
    "delayed",
    "encrypted",
    "json_schema",
    "avro_schema",
    "owner_killed",
)

PROXIED = ("produce_consume", "partitioned", "chunked", "pattern", "encrypted", "owner_killed")
"""Those that every client goes through behind a proxy too."""
