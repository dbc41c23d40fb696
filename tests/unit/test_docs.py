"""The documentation names what is there: files, symbols, paths in the metadata, records, methods,
options, rules, links.

Prose rots silently; these checks are what can be checked about it without running anything.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from pulsarish import Client, Consumer, Producer
from pulsarish.autorecovery.config import AutoRecoveryConfig
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.journal.journal_format import RecordType
from pulsarish.broker.clients.authorization import PERMISSIONS
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.stats.topic_metric_rows import (
    COMPACTION,
    CONSUMER,
    NOT_KEPT,
    SUBSCRIPTION,
    TOPIC,
)
from pulsarish.metadata import paths, records
from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.zookeeper_server import ZooKeeperServerConfig
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.config import describe
from pulsarish.sim.workloads.message_life import table
from pulsarish.wire._pb import bookie_pb2, broker_pb2

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pulsarish"
DOCS = sorted(
    [
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    ]
)
CONFIGS = {
    "broker": BrokerConfig,
    "bookie": BookieConfig,
    "metadata": MetadataConfig,
    "zookeeper": ZooKeeperServerConfig,
    "autorecovery": AutoRecoveryConfig,
    "proxy": ProxyConfig,
}
RECORDS = {name: getattr(records, name) for name in records.__all__} | {
    "LedgerMetadata": LedgerMetadata
}

_FILE = re.compile(r"(?<![\w/.*-])((?:[\w-]+/)*[\w-]+\.(?:py|proto))(?::(\w+(?:\.\w+)?))?")
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_RULES = re.compile(r"\brules? (\d+(?:(?:, | and | to |, and )\d+)*)")
_ROOT_ROW = re.compile(r"^\| `(/[\w-]+)` \| `(\w+)` \| (.+) \|$", re.MULTILINE)
_METHOD_ROW = re.compile(
    r"^\| `((?:bookie|broker)\.\w+)` \| \w+ \| `(\w+)` \| `(\w+)` \|$", re.MULTILINE
)


def doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


@functools.cache
def symbols(file: Path) -> frozenset[str]:
    """Names at the top of a module, and ``Class.member`` of its classes."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        names = _defined(node)
        found.update(names)
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{member}" for each in node.body for member in _defined(each))
    return frozenset(found)


def _defined(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case _:
            pass


@functools.cache
def all_symbols() -> frozenset[str]:
    return frozenset().union(*(symbols(file) for file in PACKAGE.rglob("*.py")))


def anchors(file: Path) -> frozenset[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    )


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_named_files_and_symbols_exist(file: Path) -> None:
    for name, symbol in _FILE.findall(file.read_text()):
        target = next((base / name for base in (PACKAGE, ROOT) if (base / name).is_file()), None)
        assert target is not None, f"{file.name} names {name}, which is not there"
        if symbol:
            assert symbol in symbols(target), (
                f"{file.name} names {symbol} of {name}, which is not there"
            )


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_members_named_without_a_file_exist_somewhere(file: Path) -> None:
    for span in _SPAN.findall(file.read_text()):
        if re.fullmatch(r"[A-Z]\w+\.[a-z_]\w*", span):
            assert span in all_symbols(), f"{file.name} names {span}, which no module defines"


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_links_resolve(file: Path) -> None:
    for link in _LINK.findall(file.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = file.parent / name if name else file
        assert target.exists(), f"{file.name} links to {link}"
        assert not anchor or anchor in anchors(target), (
            f"{file.name} links to {link}: there is no such heading"
        )


def test_rules_that_are_pointed_to_are_in_the_guarantees() -> None:
    known = {
        int(number) for number in re.findall(r"^(\d+)\. \*\*", doc("guarantees.md"), re.MULTILINE)
    }
    assert known == set(range(1, len(known) + 1))
    for file in [*DOCS, *PACKAGE.rglob("*.py")]:
        for numbers in _RULES.findall(file.read_text()):
            for number in re.findall(r"\d+", numbers):
                assert int(number) in known, f"{file.name} points to rule {number}"


def test_the_map_has_every_package_in_its_layer() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)/` \|", doc("ARCHITECTURE.md"), re.MULTILINE)
    packages = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    assert sorted(name for _, name in rows) == sorted(packages)
    contract = re.search(r"layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL)
    assert contract is not None
    layers = [re.findall(r"\w+", line) for line in re.findall(r'"(.*?)"', contract[1])]
    layer_of = {name: len(layers) - index for index, names in enumerate(layers) for name in names}
    assert {name: int(layer) for layer, name in rows} == {name: layer_of[name] for name in packages}


def test_metadata_roots_are_those_of_the_code() -> None:
    rows = _ROOT_ROW.findall(doc("formats.md"))
    constants = {
        name: value
        for name, value in vars(paths).items()
        if name.isupper() and isinstance(value, str)
    }
    assert {constant: root for root, constant, _ in rows} == constants
    made_early = {root for root, _, made in rows if "by the first broker" in made}
    assert made_early == set(paths.ROOTS)


def test_every_root_has_a_section_and_every_record_an_example() -> None:
    text = doc("formats.md")
    sections = {
        "/" + found.split("/")[1] for found in re.findall(r"^### `(/.+)`$", text, re.MULTILINE)
    }
    assert sections == {
        value for name, value in vars(paths).items() if name.isupper() and isinstance(value, str)
    }
    examples = re.findall(r"^```json (\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    # parts of other records
    nested = {
        "BookiePlace",
        "CompactedView",
        "LostRange",
        "TopicLedger",
        "Persistence",
        "ListenerAddresses",
        "ScheduleMarks",
        "VolumeRecord",
    }
    assert {name for name, _ in examples} == set(RECORDS) - nested
    for name, example in examples:
        record = msgspec.json.decode(example, type=RECORDS[name])
        assert json.loads(example) == json.loads(msgspec.json.encode(record)), (
            f"the example of {name} has other fields than the class"
        )


def test_methods_are_those_that_are_served() -> None:
    rows = {
        method: (request, response)
        for method, request, response in _METHOD_ROW.findall(doc("formats.md"))
    }
    served = {name for name in PERMISSIONS if name.startswith("broker.")}
    served |= set(re.findall(r'"(bookie\.\w+)": self', (PACKAGE / "bookie/service.py").read_text()))
    assert set(rows) == served
    for method, names in rows.items():
        module = bookie_pb2 if method.startswith("bookie.") else broker_pb2
        for name in names:
            assert name in module.DESCRIPTOR.message_types_by_name, (
                f"{method} is said to carry {name}"
            )


def test_journal_record_types_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (\d) \| `([A-Z_]+)` \|", doc("formats.md"), re.MULTILINE)
    assert {name: int(number) for number, name in rows} == {
        kind.name: kind.value for kind in RecordType
    }


@pytest.mark.parametrize("role", CONFIGS)
def test_options_are_shown_as_they_are(role: str) -> None:
    section = doc("configuration.md").partition(f"### `pulsarish {role}`")[2].partition("\n#")[0]
    options = {option.name: option for option in describe(CONFIGS[role])}
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert 1 <= len(rows) <= 12
    for row in rows:
        option = options.get(row.split("`")[1])
        assert option is not None, f"pulsarish {role} has no such option: {row}"
        assert row == f"| `{option.name}` | `{option.default}` | {option.meaning} |"


def test_metrics_of_topics_are_on_their_page_in_the_same_words() -> None:
    page = doc("metrics.md")
    needed: list[tuple[str, str, str]] = []
    for row in (*TOPIC, *SUBSCRIPTION, *NOT_KEPT, *COMPACTION, *CONSUMER):
        needed.append((row.name, row.kind, row.meaning))
        if row.in_all is not None:
            needed.append((row.in_all[0], row.kind, row.in_all[1]))
    for name, kind, meaning in needed:
        row_on_page = rf"^\| `{name}` \| {kind} \| .+ \| {re.escape(meaning)} \|$"
        assert re.search(row_on_page, page, re.MULTILINE), (
            f"docs/metrics.md needs a row for the {kind} {name}: {meaning}"
        )


@pytest.mark.parametrize("script", ["options.py", "api.py"])
def test_a_page_that_is_written_from_the_code_is_current(script: str) -> None:
    """To repair it: run the script, without ``--check``."""
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / script, "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@functools.cache
def all_words() -> frozenset[str]:
    """The words of the code, and pairs of them with a dot between."""
    code = "\n".join(each.read_text() for each in PACKAGE.rglob("*.py"))
    return frozenset(re.findall(r"\w+", code)) | frozenset(re.findall(r"\b(?=(\w+\.\w+))", code))


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_options_that_are_named_exist(file: Path) -> None:
    """In backticks, in snake case and with a unit: an option of some process, or a field of the
    code.
    """
    options = {option.name for config in CONFIGS.values() for option in describe(config)}
    known = options | {name.rpartition(".")[2] for name in options}
    words = all_words() if file.parent.name == "docs" else frozenset()
    for span in _SPAN.findall(file.read_text()):
        if re.fullmatch(r"[a-z]\w*(?:\.\w+)?_(?:ms|seconds|minutes|bytes|mb|max)", span):
            assert span in known or span in words, f"{file.name} names the option {span}"


def test_the_table_of_a_messages_life_is_the_one_that_is_tried() -> None:
    assert table() in (ROOT / "docs" / "guarantees.md").read_text(), (
        "copy what pulsarish.sim.workloads.message_life.table() returns"
    )


def test_what_migration_names_is_there() -> None:
    text = doc("migration.md")
    holders = {"client": Client, "producer": Producer, "consumer": Consumer}
    named = set(re.findall(r"\b(client|producer|consumer)\.(\w+)\(", _ours(text)))
    assert len(named) > 12
    missing = [f"{who}.{name}" for who, name in named if not hasattr(holders[who], name)]
    assert missing == []
    arguments = _arguments(Client.create_producer, Client.subscribe, Producer.send)
    given = set(re.findall(r"`(\w+)=|[(, ](\w+)=", _ours(text)))
    of_others = {"concurrency", "max_redeliver_count", "minutes"}
    assert {a or b for a, b in given} <= arguments | of_others


def _ours(text: str) -> str:
    """Return the second column of all tables."""
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return "\n".join(cells[1] for cells in rows)


def _arguments(*methods: Callable[..., object]) -> set[str]:
    return {name for method in methods for name in inspect.signature(method).parameters}
