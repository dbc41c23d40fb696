"""Jobs over the ledgers of a cluster of its own, in which one thing after another is broken by
name.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

import pulsarish
from pulsarish.admin import Admin
from pulsarish.cli.acked import AckedLog
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.reading import read_records
from pulsarish.ledger.repair.copier import Copied, Copier
from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.processes import Cluster
from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata import paths
from pulsarish.metadata.records import TopicLedger, TopicRecord
from pulsarish.model.errors import AlreadyExists, InvalidArgument, NotAllowedError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, LedgerState, PurposeKind
from pulsarish.model.topic_name import TopicName
from pulsarish.spark.jobs.cluster_access import JobCluster, leave, run, site
from pulsarish.spark.jobs.leaks import MIN_AGE_MS, Leaks, find_leaks
from pulsarish.spark.jobs.ledger_selection import LedgerSelection
from pulsarish.spark.jobs.removal import make_plan, read_plan, remove, restore, write_plan
from pulsarish.spark.jobs.session import save
from pulsarish.spark.jobs.usage import draw, usage
from pulsarish.spark.jobs.verify import FINDING_SCHEMA, verify
from tests.spark.support import until
from tests.support.damage import forget_ledger, spoil_entry
from tests.support.scraped import parsed

MESSAGES = 40

pytestmark = pytest.mark.timeout(300)  # many Spark jobs each


@dataclass
class Stage:
    """The cluster, and where what is broken lies."""

    cluster: Cluster
    admin: Admin
    where: JobCluster

    def data(self, bookie: str) -> Path:
        return self.cluster.log_path(bookie).parent / "data"

    def ledgers(self, topic: str) -> list[int]:
        return [each["ledgerId"] for each in self.admin.topics.internal_stats(topic)["ledgers"]]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    cluster = Cluster(tmp_path_factory.mktemp("jobs") / "cluster")
    nodes = plan_cluster(bookies=3, brokers=1, metadata="embedded", base_port=0)
    for node in nodes:
        if node.role == "bookie":
            # what is broken stays broken
            node.settings.append("auto_recovery_daemon_enabled=false")
    cluster.create(nodes)
    try:
        cluster.up()
        urls = cluster.service_urls()
        where = JobCluster(urls["metadata"])
        yield Stage(cluster, Admin(urls["http"]), where)
        leave(where)
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)


def publish(stage: Stage, topic: str, count: int = MESSAGES) -> None:
    """Messages that are entries each, in a closed ledger that a subscription keeps."""
    client = pulsarish.Client(stage.cluster.service_urls()["pulsarish"])
    client.subscribe(topic, "keep", initial_position=pulsarish.InitialPosition.Earliest).close()
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    for number in range(count):
        producer.send_async(f"message {number} of {topic}".encode(), None)
    producer.flush()
    client.close()
    stage.admin.topics.unload(topic)


def test_acknowledged_messages_are_looked_for(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    log, topic = AckedLog(tmp_path / "acked.jsonl"), "persistent://public/default/acknowledged"
    client = pulsarish.Client(stage.cluster.service_urls()["pulsarish"])
    client.subscribe(topic, "keep", initial_position=pulsarish.InitialPosition.Earliest).close()
    for batching in (True, False):
        producer = client.create_producer(topic, batching_enabled=batching)
        for number in range(MESSAGES):
            payload = f"message {number}".encode()
            log.acked(topic, producer.send(payload), log.checksum(payload))
    client.close()
    log.close()
    report = verify(
        spark, stage.where, LedgerSelection((topic,)), acked=str(tmp_path / "acked.jsonl")
    )
    assert (report.acked, report.acked_trimmed, report.findings) == (2 * MESSAGES, 0, [])
    (ledger,) = stage.ledgers("acknowledged")
    lines = (tmp_path / "acked.jsonl").read_text().splitlines()
    other = json.loads(lines[-1]) | {"crc32c": 1}
    never = {"topic": topic, "id": f"{ledger}:{10_000}:-1:-1"}
    gone = {"topic": topic, "id": "123456:0:-1:0"}
    (tmp_path / "wrong.jsonl").write_text(
        "\n".join([*lines[:-1], *map(json.dumps, (other, never, gone))])
    )
    report = verify(
        spark, stage.where, LedgerSelection((topic,)), acked=str(tmp_path / "wrong.jsonl")
    )
    assert (report.acked, report.acked_trimmed) == (2 * MESSAGES + 2, 1)
    last = int(other["id"].split(":")[1])
    assert [(row.finding, row.ledger, row.first_entry, row.owner) for row in report.findings] == [
        ("acked-different", ledger, last, f"topic {topic}"),
        ("acked-missing", ledger, 10_000, f"topic {topic}"),
    ]
    (tmp_path / "no.jsonl").write_text('{"topic": "t", "id"\n')
    with pytest.raises(InvalidArgument, match="is no line like"):
        verify(spark, stage.where, LedgerSelection((topic,)), acked=str(tmp_path / "no.jsonl"))


def test_usage_sums_up(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    publish(stage, "measured")
    stage.admin.topics.set_policy(
        "measured", "retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
    )
    stage.admin.subscriptions.skip_all_messages("measured", "keep")
    stage.admin.topics.unload("measured")
    found = usage(
        spark, stage.where, LedgerSelection(("measured",)), retention=Retention(), topics_max=10
    )
    (row,) = found.topics
    assert (row["topic"], row["entries"], row["freeable_bytes"]) == (
        "persistent://public/default/measured",
        MESSAGES,
        0,
    )
    assert row["stored_bytes"] == 3 * row["bytes"] > 0
    assert row["messages_per_entry"] == 1
    assert found.skew == pytest.approx(1)
    assert {each["bookie"]: each["stored_bytes"] for each in found.bookies} == {
        f"bookie-{n}": row["bytes"] for n in (1, 2, 3)
    }
    without = usage(
        spark,
        stage.where,
        LedgerSelection(("measured",)),
        retention=Retention(),
        wanted=Retention(0, 0),
        samples=0,
        topics_max=10,
    )
    assert without.topics[0]["freeable_bytes"] == row["stored_bytes"]
    assert without.total["topics"] == 1
    draw(found, str(tmp_path / "usage.png"))
    assert (tmp_path / "usage.png").read_bytes().startswith(b"\x89PNG")


def test_verify_names_what_is_broken(spark: SparkSession, stage: Stage, tmp_path: Path) -> None:
    for topic in ("sound", "spoiled", "forgotten"):
        publish(stage, topic)
    before = verify(spark, stage.where, LedgerSelection())
    assert before.findings == []
    assert before.entries >= 3 * MESSAGES
    assert before.copies == 3 * before.entries
    (spoiled,), (forgotten,) = (stage.ledgers(topic)[:1] for topic in ("spoiled", "forgotten"))
    stage.cluster.stop_gracefully("bookie-2")
    spoil_entry(stage.data("bookie-2"), spoiled, 7)
    spoil_entry(stage.data("bookie-2"), spoiled, 8)
    forget_ledger(stage.data("bookie-2"), forgotten)
    # A bookie that is away says nothing, which is another thing than that it has lost its copies.
    away = verify(spark, stage.where, LedgerSelection(("sound",)))
    assert {
        (row.finding, row.bookie, row.first_entry, row.last_entry) for row in away.findings
    } == {("unreachable", "bookie-2", 0, MESSAGES - 1)}
    stage.cluster.start(stage.cluster.node("bookie-2"))
    stage.cluster.wait_ready([stage.cluster.node("bookie-2")])
    after = verify(spark, stage.where, LedgerSelection())
    found = [
        (row.finding, row.ledger, row.first_entry, row.last_entry, row.bookie, row.owner)
        for row in after.findings
    ]
    assert found == [
        ("corrupt", spoiled, 7, 8, "bookie-2", "topic persistent://public/default/spoiled"),
        (
            "missing",
            forgotten,
            0,
            MESSAGES - 1,
            "bookie-2",
            "topic persistent://public/default/forgotten",
        ),
    ]
    assert verify(spark, stage.where, LedgerSelection(("sound",))).findings == []
    save(spark, after.findings, FINDING_SCHEMA, str(tmp_path / "findings.parquet"))
    saved = spark.read.parquet(str(tmp_path / "findings.parquet")).collect()
    assert [tuple(row) for row in saved] == after.findings


def read_bytes(stage: Stage, bookie: str) -> float:
    """What a bookie has given since it was started."""
    address = f"127.0.0.1:{stage.cluster.node(bookie).ports['http']}"
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return sum(parsed(answer.read().decode()).get("bookie_READ_BYTES", {}).values())


@pytest.mark.timeout(600)
def test_verify_while_a_bookie_is_killed(spark: SparkSession, stage: Stage) -> None:
    count = 5_000  # several splits at each bookie
    publish(stage, "killed", count)
    before = verify(spark, stage.where, LedgerSelection(("killed",)))
    assert (before.findings, before.entries) == ([], count)
    seen, pid = read_bytes(stage, "bookie-1"), stage.cluster.pid("bookie-2")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # so that the job waits for it when it is killed
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(verify, spark, stage.where, LedgerSelection(("killed",)))
        until("the job reads", lambda: job.done() or read_bytes(stage, "bookie-1") > seen)
        stage.cluster.kill("bookie-2")
        report = job.result()
    assert (report.entries, report.copies) == (before.entries, before.copies)
    found = [(row.finding, row.bookie, row.first_entry, row.last_entry) for row in report.findings]
    assert found == [("unreachable", "bookie-2", 0, count - 1)]
    stage.cluster.start(stage.cluster.node("bookie-2"))
    stage.cluster.wait_ready([stage.cluster.node("bookie-2")])
    assert verify(spark, stage.where, LedgerSelection(("killed",))).findings == [], (
        "all that was confirmed is there again"
    )


class _Deaf:
    def confirmed(self, last_entry: int) -> None:
        pass

    def stopped(self, error: Exception) -> None:
        pass


PAYLOADS = [f"entry {number}".encode() * 20 for number in range(12)]


def make_ledger(
    stage: Stage,
    owner: str,
    *,
    closed: bool = True,
    kind: PurposeKind = PurposeKind.TOPIC,
    copies: int = 3,
) -> int:
    """A ledger with entries to which nothing refers."""

    async def work() -> int:
        here = site(stage.where)
        client = LedgerClient(here.world, here.options)
        await client.start()
        writer = await client.create(
            ensemble_size=copies,
            write_quorum=copies,
            ack_quorum=2,
            purpose=LedgerPurpose(kind, owner),
            listener=_Deaf(),
        )
        for payload in PAYLOADS:
            writer.append(payload)
        while writer.last_add_confirmed < len(PAYLOADS) - 1:
            await here.world.clock.sleep(0.01)
        if closed:
            await writer.close()
        await client.close()
        return writer.ledger_id

    return run(work())


def forget_record(stage: Stage, ledger_id: int) -> None:
    run(site(stage.where).ledgers.delete(ledger_id, -1))


def copy_to_another(stage: Stage, ledger_id: int) -> str:
    """Give a ledger's entries to a bookie that is none of its members."""

    async def pace(_size_bytes: int) -> None:
        pass

    async def work() -> str:
        here = site(stage.where)
        found = await here.ledgers.read(ledger_id)
        assert found is not None
        other = next(
            each for each in here.bookies.members() if each not in found[0].last_segment.members
        )
        records = (
            await read_records(
                here.pool, here.options, found[0], 0, found[0].last_entry, max_bytes=1 << 20
            )
        ).records
        await Copier(here.pool, here.options, Copied(), pace, 1 << 20).write(
            ledger_id, other, records
        )
        return other

    return run(work())


def look(spark: SparkSession, stage: Stage, min_age_ms: int = 0) -> Leaks:
    return find_leaks(spark, stage.where, retention=Retention(), min_age_ms=min_age_ms)


def test_leaks_are_named_removed_and_brought_back(
    spark: SparkSession, stage: Stage, tmp_path: Path
) -> None:
    assert [leak for leak in look(spark, stage).found if leak.kind != "under-replicated"] == []
    orphan = make_ledger(stage, "persistent://public/default/nobody")
    open_orphan = make_ledger(
        stage, "persistent://public/default/nobody#reader", closed=False, kind=PurposeKind.CURSOR
    )
    stray = make_ledger(stage, "persistent://public/default/lost")
    forget_record(stage, stray)
    dangling = make_ledger(stage, "persistent://public/default/dangling")
    forget_record(stage, dangling)
    publish(stage, "dangling", 3)
    over = make_ledger(stage, "persistent://public/default/dangling", copies=2)
    other = copy_to_another(stage, over)
    path = paths.topic(TopicName.parse("dangling"))

    def name_them(record: TopicRecord | None) -> TopicRecord | None:
        assert record is not None
        lost = TopicLedger(dangling, len(PAYLOADS), 1_000, 1)
        ledgers = tuple(sorted((lost, *record.ledgers), key=lambda each: each.ledger_id))
        return msgspec.structs.replace(record, ledgers=ledgers, deleting=(*record.deleting, over))

    run(site(stage.where).records.update(path, TopicRecord, name_them))
    stage.admin.schemas.upload("dangling", "STRING")
    (version,) = run(site(stage.where).records.children(paths.schemas(path)))
    run(site(stage.where).records.delete(f"{paths.schemas(path)}/{version}"))
    leaks = look(spark, stage)
    assert leaks.gaps == []
    (schema,) = [leak for leak in leaks.found if leak.ledger_id < 0]
    assert (schema.kind, schema.owner, schema.detail) == (
        "dangling",
        path,
        "version 0 of its schema is not there",
    )
    found = {
        (leak.kind, leak.ledger_id): leak
        for leak in leaks.found
        if leak.kind != "under-replicated" and leak.ledger_id >= 0
    }
    assert set(found) == {
        ("orphan", orphan),
        ("orphan", open_orphan),
        ("stray", stray),
        ("dangling", dangling),
        ("over-replicated", over),
    }
    size_bytes = sum(map(len, PAYLOADS))
    assert found["orphan", orphan].size_bytes == 3 * size_bytes
    assert found["stray", stray].size_bytes == 3 * size_bytes
    assert found["over-replicated", over].bookies == (other,)
    assert path in found["dangling", dangling].detail
    assert [
        leak.kind for leak in look(spark, stage, MIN_AGE_MS).found if leak.kind == "orphan"
    ] == [], "they may be on their way"

    plan_file, backup = tmp_path / "plan.json", tmp_path / "backup"
    write_plan(make_plan(stage.where, leaks), plan_file)
    plan = read_plan(plan_file)
    assert {each.ledger_id for each in plan.ledgers} == {orphan, open_orphan}
    kwargs = {"retention": Retention(), "min_age_ms": 0}
    with pytest.raises(NotAllowedError, match="may be carried out after 3600 s"):
        remove(spark, stage.where, plan, backup, **kwargs)
    # One of them comes into use after all.
    used = make_ledger(stage, "persistent://public/default/dangling")
    late = make_plan(stage.where, look(spark, stage))
    assert used in {each.ledger_id for each in late.ledgers}

    def use_it(record: TopicRecord | None) -> TopicRecord | None:
        assert record is not None
        return msgspec.structs.replace(record, deleting=(*record.deleting, used))

    run(site(stage.where).records.update(path, TopicRecord, use_it))
    done = remove(spark, stage.where, late, backup, grace_ms=0, **kwargs)
    assert sorted(done.removed) == sorted([orphan, open_orphan])
    assert done.kept == {used: "it is no orphan any more"}
    with pytest.raises(AlreadyExists):
        remove(spark, stage.where, late, backup, grace_ms=0, **kwargs)
    assert run(site(stage.where).ledgers.read_newest(orphan)) is None
    again = remove(spark, stage.where, late, tmp_path / "second", grace_ms=0, **kwargs)
    assert again.kept[orphan] == "it is gone already"

    back = restore(spark, stage.where, backup)
    assert sorted(back.removed) == sorted([orphan, open_orphan])
    for ledger_id in (orphan, open_orphan):
        assert read_all(stage, ledger_id) == PAYLOADS
    assert restore(spark, stage.where, backup).entries == back.entries, (
        "bringing back is repeatable"
    )


def read_all(stage: Stage, ledger_id: int) -> list[bytes]:
    async def work() -> list[bytes]:
        here = site(stage.where)
        found = await here.records.get(paths.ledger(ledger_id), LedgerMetadata)
        assert found is not None
        assert found[0].state is LedgerState.CLOSED
        records = await read_records(
            here.pool, here.options, found[0], 0, found[0].last_entry, max_bytes=1 << 20
        )
        return [bytes(record.payload) for record in records.records]

    return run(work())


def test_nothing_is_planned_on_an_incomplete_view(spark: SparkSession, stage: Stage) -> None:
    bookie = stage.cluster.node("bookie-3")
    stage.cluster.stop_gracefully("bookie-3")
    try:
        leaks = look(spark, stage)
        assert len(leaks.gaps) == 1
        assert leaks.gaps[0][0].startswith("ledgers of bookie bookie-3~")
        # What a broker has recorded of it, because it did not answer in time, is no conclusion of
        # this look.
        concluded = [
            leak
            for leak in leaks.found
            if leak.kind == "under-replicated" and leak.detail.endswith("members")
        ]
        assert not any("bookie-3" in each for leak in concluded for each in leak.bookies)
        with pytest.raises(NotAllowedError, match="bookie-3"):
            make_plan(stage.where, leaks)
    finally:
        stage.cluster.start(bookie)
        stage.cluster.wait_ready([bookie])
