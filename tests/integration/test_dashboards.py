"""What running processes export is what the dashboard, the alerts and the documentation name: a
metric that is renamed fails here.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser as promql
import pytest
import yaml

import pulsarish
from pulsarish.admin import Admin
from tests.support.scraped import parsed

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy/grafana/pulsarish.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
DOC = ROOT / "docs/metrics.md"

TOPIC = "persistent://public/default/watched"
ATTACHED = frozenset(("instance", "job"))
"""Labels that Prometheus puts on every series itself."""
COMMON = {"broker": "cluster", "bookie": "bookie", "metadata": ""}

_SERIES_SUFFIX = re.compile(r"_(bucket|sum|count)$")
_ROW = re.compile(r"^\| `(\w+)` \| (counter|gauge|histogram) \| (.*?) \| (.+) \|$", re.MULTILINE)


class Exported(NamedTuple):
    """A family as one role's processes export it."""

    kind: str
    meaning: str
    labels: frozenset[str]


Families = dict[str, Exported]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Families]]:
    """By role, after some traffic."""
    from pulsarish.local_cluster.plan import plan_cluster
    from pulsarish.local_cluster.processes import Cluster

    cluster = Cluster(tmp_path_factory.mktemp("watched") / "cluster")
    nodes = plan_cluster(bookies=3, brokers=1, metadata="embedded", base_port=0)
    for node in nodes:
        if node.role == "broker":
            node.settings.append("expose_consumer_level_metrics_in_prometheus=true")
    cluster.create(nodes)
    cluster.up()
    try:
        admin = Admin(cluster.admin_url())
        admin.resource_groups.set("g", publish_messages=1_000_000, publish_bytes=1 << 40)
        admin.namespaces.set_policy("public/default", "resource-group", "g")
        client = pulsarish.Client(cluster.service_urls()["pulsarish"])
        consumer = client.subscribe(TOPIC, "s", consumer_type=pulsarish.ConsumerType.Shared)
        producer = client.create_producer(TOPIC)
        for number in range(100):
            producer.send_async(b"%d" % number, lambda *_outcome: None)
        producer.flush()
        for _ in range(100):
            consumer.acknowledge(consumer.receive(timeout_millis=30_000))
        admin.topics.compact(TOPIC)
        client.subscribe(TOPIC.replace("persistent://", "non-persistent://"), "s")
        found: dict[str, Families] = {}
        for node in cluster.nodes():
            with urllib.request.urlopen(
                f"http://127.0.0.1:{node.ports['http']}/metrics", timeout=30
            ) as answer:
                found.setdefault(node.role, _families(answer.read().decode()))
        client.close()
        yield found
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)


def _families(text: str) -> Families:
    scraped = parsed(text)
    meanings = dict(re.findall(r"^# HELP (\w+) (.*)$", text, re.MULTILINE))
    found: Families = {}
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE):
        labels: set[str] = set()
        for suffix in ("_sum", "_count", "_bucket") if kind == "histogram" else ("",):
            for series in scraped[name + suffix]:
                labels.update(label for label, _ in series)
        found[name] = Exported(kind, meanings[name], frozenset(labels))
    return found


def queries() -> Iterator[tuple[str, str, list[str]]]:
    """Every expression: what it belongs to, the expression itself, and the labels that a text
    beside it shows.
    """
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            shown = re.findall(r"{{\s*(\w+)\s*}}", target["legendFormat"])
            yield (
                f"panel {panel['title']!r}",
                target["expr"].replace("$__rate_interval", "5m"),
                shown,
            )
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert match is not None, variable["definition"]
            yield f"variable {variable['name']}", match[1], [match[2]]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            texts = " ".join(rule["annotations"].values())
            yield f"alert {rule['alert']}", rule["expr"], re.findall(r"\$labels\.(\w+)", texts)


def labels_after(node: Any, exported: Families, what: str) -> frozenset[str]:
    """The labels that the result of an expression can have; every name in it is checked on the
    way.
    """
    match node:
        case promql.VectorSelector():
            return _selected(node, exported, what)
        case promql.MatrixSelector():
            return labels_after(node.vector_selector, exported, what)
        case promql.AggregateExpr():
            inner = labels_after(node.expr, exported, what)
            if node.modifier is None:
                return inner if "topk" in str(node.op) else frozenset()
            named = frozenset(node.modifier.labels)
            assert named <= inner, (
                f"{what}: {node.op} by {sorted(named - inner)}, which its metrics do not have"
            )
            return named
        case promql.BinaryExpr():
            left, right = (
                labels_after(node.lhs, exported, what),
                labels_after(node.rhs, exported, what),
            )
            return left or right
        case promql.Call():
            found = [labels_after(each, exported, what) for each in node.args]
            return frozenset().union(*found)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return labels_after(node.expr, exported, what)
        case _:
            return frozenset()


def _selected(selector: Any, exported: Families, what: str) -> frozenset[str]:
    name = selector.name
    if name == "up":
        return ATTACHED
    base = name if name in exported else _SERIES_SUFFIX.sub("", name)
    assert base in exported, f"{what} asks for {name}, which nobody exports"
    family = exported[base]
    assert (base == name) == (family.kind != "histogram"), (
        f"{what} asks for {name}, which is a {family.kind}"
    )
    labels = family.labels | ATTACHED
    for matcher in selector.matchers.matchers:
        assert matcher.name in labels, (
            f"{what}: {name} has no label {matcher.name!r}, only {sorted(labels)}"
        )
    return labels


def test_every_query_names_metrics_and_labels_that_are_exported(
    exported: dict[str, Families],
) -> None:
    everything: Families = {}
    for families in exported.values():
        for name, family in families.items():
            known = everything.get(name)
            labels = family.labels if known is None else family.labels | known.labels
            everything[name] = family._replace(labels=labels)
    asked = list(queries())
    assert len(asked) > 100
    for what, expression, shown in asked:
        found = labels_after(promql.parse(expression), everything, what)
        assert set(shown) <= found, (
            f"{what} shows {sorted(set(shown) - found)}, which {expression} does not give"
        )


def test_every_alert_can_be_read() -> None:
    names = []
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            names.append(rule["alert"])
            assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
            assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
            assert rule["annotations"]["summary"], rule["alert"]
    assert len(names) == len(dict.fromkeys(names))


def test_the_documentation_has_every_metric_as_it_is_exported(
    exported: dict[str, Families],
) -> None:
    sections = dict(
        re.findall(
            r"^## Of (?:a|the|every) (\w+).*?\n(.*?)(?=^## |\Z)",
            DOC.read_text(),
            re.MULTILINE | re.DOTALL,
        )
    )
    documented = {
        role: {row[0]: row for row in _ROW.findall(text)} for role, text in sections.items()
    }
    shared = documented.pop("process")
    assert set(documented) == set(exported)
    for role, families in exported.items():
        rows = {**shared, **documented[role]}
        # a bookie has all measurements and not the last one apart
        optional = {"pulsarish_loop_lag_seconds"}
        assert set(families) <= set(rows), f"not documented: {sorted(set(families) - set(rows))}"
        assert set(rows) - set(families) <= optional, (
            f"not exported by a {role}: {sorted(set(rows) - set(families))}"
        )
        for name, family in families.items():
            labels = (
                ", ".join(f"`{label}`" for label in sorted(family.labels - {"le", COMMON[role]}))
                or "-"
            )
            assert rows[name] == (name, family.kind, labels, family.meaning), (
                f"| `{name}` | {family.kind} | {labels} | {family.meaning} |"
            )
