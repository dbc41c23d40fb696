"""The words that policies choose from, declared once for brokers, the administration and its
commands.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AuthAction",
    "CaptureAcknowledged",
    "CaptureSyntax",
    "CaptureWhenFull",
    "InactiveDeleteMode",
    "QuotaPolicy",
    "QuotaType",
    "SchemaStrategy",
    "SchemaStrategyOldName",
    "SubscriptionAuthMode",
]

AuthAction = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]
"""What a grant permits a role to do."""
CaptureSyntax = Literal["wildcard", "regex"]
CaptureAcknowledged = Literal["received", "stored"]
CaptureWhenFull = Literal["pause", "drop"]
SubscriptionAuthMode = Literal["None", "Prefix"]
"""``Prefix``: the name of a subscription must begin with the role that uses it."""
InactiveDeleteMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]
QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
QuotaType = Literal["destination_storage", "message_age"]
SchemaStrategy = Literal[
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
]
"""``BACKWARD``: the new schema reads what the previous one wrote.

``FORWARD``: the previous one reads what the new one writes. ``FULL``: both. ``_TRANSITIVE``: the
same for all earlier schemas.
"""
SchemaStrategyOldName = Literal[
    "AutoUpdateDisabled",
    "AlwaysCompatible",
    "Backward",
    "Forward",
    "Full",
    "BackwardTransitive",
    "ForwardTransitive",
    "FullTransitive",
]
"""The names of the same strategies, in the same order, in an older route of Apache Pulsar."""
