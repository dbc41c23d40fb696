"""What jobs are given: topics, logs of acknowledgements, plans, names of what they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarish.cli.acked import AckedLog
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import (
    AlreadyExists,
    ConfigError,
    CorruptData,
    InvalidArgument,
    PulsarishError,
)
from pulsarish.spark.jobs.acked import Acked, parse_acked
from pulsarish.spark.jobs.cluster_access import check_url
from pulsarish.spark.jobs.ledger_selection import LedgerSelection, kept_topic
from pulsarish.spark.jobs.removal import Plan, PlannedLedger, read_plan, write_plan
from pulsarish.spark.jobs.session import format_of

TOPIC = "persistent://public/default/t"


def test_an_acknowledgement_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = AckedLog(tmp_path / "acked.jsonl")
    log.acked(TOPIC, MessageId(2, 12, 7, 3), log.checksum(b"payload"))
    log.close()
    assert (
        (tmp_path / "acked.jsonl").read_text()
        == '{"topic": "persistent://public/default/t", "id": "12:7:2:3", "crc32c": 4108544368}\n'
    )
    assert parse_acked(TOPIC, "12:7:2:3", 4108544368) == Acked(TOPIC, 12, 7, 2, 3, 4108544368)
    assert parse_acked(TOPIC, "12:7:-1:-1", None).crc32c == -1
    with pytest.raises(FileExistsError):
        AckedLog(tmp_path / "acked.jsonl")


@pytest.mark.parametrize("text", ["", "12", "12:7", "12:7:0:0:0", "a:b:c:d", "1:2:3:"])
def test_what_is_no_id_is_named(text: str) -> None:
    with pytest.raises(InvalidArgument, match="must look like LEDGER:ENTRY:PARTITION:INDEX"):
        parse_acked(TOPIC, text, None)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    plan = Plan("pulsarish-leaks-plan", 1, "cluster", 5, (PlannedLedger(7, "topic t", -1, 4, 99),))
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    with pytest.raises(AlreadyExists):
        write_plan(plan, tmp_path / "plan.json")
    for text in (
        "{",
        '{"format": "other"}',
        (tmp_path / "plan.json").read_text().replace('"version": 1', '"version": 2'),
    ):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(CorruptData, match=r"bad\.json"):
            read_plan(tmp_path / "bad.json")


@pytest.mark.parametrize(
    ("topics", "namespace", "text"),
    [
        (("t",), "public/default", "not both"),
        ((), "public", "tenant/namespace"),
        ((), "a/b/c", "tenant/namespace"),
    ],
)
def test_a_scope_is_topics_or_a_namespace(
    topics: tuple[str, ...], namespace: str, text: str
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        LedgerSelection(topics, namespace)


def test_a_topic_that_is_not_stored_has_no_ledgers() -> None:
    assert kept_topic("t").full == TOPIC
    with pytest.raises(InvalidArgument, match="has no ledgers"):
        kept_topic("non-persistent://public/default/t")


@pytest.mark.parametrize("url", ["memory:", "embedded:data", "http://127.0.0.1", "zk:/x"])
def test_metadata_that_one_process_has_is_refused(url: str) -> None:
    with pytest.raises(PulsarishError) as raised:
        check_url(url)
    assert isinstance(raised.value, InvalidArgument | ConfigError)
    assert url in str(raised.value)


def test_the_ending_says_the_format() -> None:
    assert [format_of(f"found.{ending}") for ending in ("parquet", "json", "csv")] == [
        "parquet",
        "json",
        "csv",
    ]
    with pytest.raises(InvalidArgument, match=r"\.parquet"):
        format_of("found")
