"""What ``/metrics`` answered, read back by the Prometheus library's own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Labels", "Scraped", "parsed"]

Labels = tuple[tuple[str, str], ...]
Scraped = dict[str, dict[Labels, float]]
"""By name and labels."""


def parsed(text: str) -> Scraped:
    found: Scraped = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The parser gives every counter the ending that OpenMetrics wants; many of Pulsar's
            # have none.
            name = sample.name
            if f"# TYPE {name.removesuffix('_total')} counter\n" in text:
                name = name.removesuffix("_total")
            labels = tuple(sorted(sample.labels.items()))
            series = found.setdefault(name, {})
            assert labels not in series, f"{name}{labels} is exported twice"
            series[labels] = sample.value
    return found
