"""The metrics of a broker about who its callers are and what they may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pulsarish.broker.audit_topic import AuditTopic
from pulsarish.broker.audit_trail import AuditTrail
from pulsarish.broker.clients.authorization import Gate
from pulsarish.runtime.metrics import Family, Metrics, Page
from pulsarish.security.callers import Callers

__all__ = ["export_security"]


def export_security(
    metrics: Metrics,
    callers: Callers,
    gate: Gate,
    audit: AuditTrail,
    audit_topic: AuditTopic,
    refused_addresses_count: Callable[[], int],
    sessions_ended_count: Callable[[], int],
) -> None:
    """Add them to the registry of a broker. No label has a value that a caller chooses."""
    metrics.read_each(
        "pulsar_authentication_success_total",
        "counter",
        "Callers that proved who they are.",
        "auth_method",
        lambda: callers.successes,
    )
    _read_pairs(
        metrics,
        "pulsar_authentication_failures_total",
        "Callers that did not prove who they are.",
        ("auth_method", "reason"),
        lambda: callers.failures,
    )
    metrics.read(
        "pulsarish_authentication_refused_addresses",
        "gauge",
        "Addresses whose attempts are refused now, because too many failed.",
        refused_addresses_count,
    )
    _read_pairs(
        metrics,
        "pulsarish_authorization_denials_total",
        "Permissions denied, those that were only reported included.",
        ("permission", "reason"),
        lambda: gate.denials,
    )
    metrics.read(
        "pulsarish_authorization_report_only",
        "gauge",
        "1 while denied permissions are only reported, and nothing is refused.",
        lambda: int(gate.report_only),
    )
    metrics.read(
        "pulsarish_sessions_ended_total",
        "counter",
        "Connections ended because their credentials expired or were revoked.",
        sessions_ended_count,
    )
    metrics.read(
        "pulsarish_audit_records_total",
        "counter",
        "Records of the audit trail written to disk.",
        lambda: audit.records_count,
    )
    metrics.read(
        "pulsarish_audit_lost_total",
        "counter",
        "Records of the audit trail lost because they could not be written.",
        lambda: audit.lost_count,
    )
    metrics.read(
        "pulsarish_audit_failures_total",
        "counter",
        "Failed attempts to write the audit trail.",
        lambda: audit.failures_count,
    )
    metrics.read(
        "pulsarish_audit_last_record",
        "gauge",
        "Number of the newest record of the audit trail on disk.",
        lambda: audit.last_sequence,
    )
    metrics.read(
        "pulsarish_audit_published_total",
        "counter",
        "Records of the audit trail published to audit_topic.",
        lambda: audit_topic.published_count,
    )
    metrics.read(
        "pulsarish_audit_unpublished_total",
        "counter",
        "Records of the audit trail lost for audit_topic, which the files have.",
        lambda: audit_topic.lost_count,
    )


def _read_pairs(
    metrics: Metrics,
    name: str,
    meaning: str,
    labels: tuple[str, str],
    values: Callable[[], Mapping[tuple[str, str], int]],
) -> None:
    """Register a counter with two labels, whose few values are known beforehand."""
    first, second = labels

    def collect(page: Page) -> Iterator[None]:
        for (one, other), value in values().items():
            page.put(name, page.labels({first: one, second: other}), value)
        return iter(())

    metrics.source([Family(name, "counter", meaning, labels)], collect)
