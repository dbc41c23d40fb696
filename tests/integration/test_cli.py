"""Commands that move messages: what goes to stdout, what an interrupted one has acknowledged,
positions that are printed and taken.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pulsar
import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.schema import AvroSchema, Bytes, Long, Record, StringSchema

COMMAND = [sys.executable, "-m", "pulsarish"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables that lead commands to a standalone server."""
    directory: Path = tmp_path_factory.mktemp("standalone")
    free = ["--bookie-set", "listen_address=127.0.0.1:0"]
    free += [
        "--broker-set",
        "listen_address=127.0.0.1:0",
        "--broker-set",
        "http_address=127.0.0.1:0",
    ]
    free += ["--broker-set", "pulsar_address=127.0.0.1:0"]
    server = subprocess.Popen(
        [*COMMAND, "standalone", "--data", str(directory / "data"), *free],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    _, _, url, admin_url, pulsar_url = server.stdout.readline().split()
    yield {
        **os.environ,
        "PULSARISH_URL": url,
        "PULSARISH_ADMIN_URL": admin_url,
        "PULSAR_URL": pulsar_url,
    }
    server.terminate()
    server.communicate(timeout=60)


def run(environment: dict[str, str], *arguments: str, stdin: str = "") -> str:
    """A command's stdout."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_produce_from_stdin_and_read_by_printed_positions(environment: dict[str, str]) -> None:
    lines = [json.dumps({"number": number, "shape": f"s{number % 3}"}) for number in range(20)]
    assert (
        run(
            environment,
            "produce",
            "shapes",
            "-f",
            "-",
            "--key-from",
            "shape",
            stdin="\n".join(lines),
        )
        == ""
    )
    assert run(environment, "read", "shapes").splitlines() == lines
    records = [
        json.loads(line)
        for line in run(environment, "read", "shapes", "--format", "json").splitlines()
    ]
    assert [record["key"] for record in records] == [f"s{number % 3}" for number in range(20)]
    assert (
        run(
            environment, "read", "shapes", "--from", records[5]["id"], "--to", records[7]["id"]
        ).splitlines()
        == lines[5:8]
    )
    assert run(environment, "read", "shapes", "--from", "latest") == ""
    assert (
        run(environment, "read", "shapes", "--from", "2001-01-01", "-n", "1").splitlines()
        == lines[:1]
    )
    kept = ("--checkpoint-topic", "positions", "--name", "report")
    assert run(environment, "read", "shapes", *kept, "-n", "12").splitlines() == lines[:12]
    assert (
        run(environment, "read", "shapes", *kept, "--from", "2001-01-01").splitlines()
        == (lines[12:])
    )


def test_produce_says_what_became_of_the_messages_before_a_bad_one(
    environment: dict[str, str],
) -> None:
    lines = '{"shape": "a"}\n{"shape": "b"}\n{"size": 1}\n{"shape": "c"}\n'
    command = [*COMMAND, "produce", "broken", "-f", "-", "--key-from", "shape"]
    done = subprocess.run(
        command,
        input=lines,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "message 3 is not a JSON object with that field: '{\"size\": 1}'" in done.stderr
    assert "of the 2 messages before it 2 were acknowledged by broken" in done.stderr
    assert run(environment, "read", "broken").splitlines() == lines.splitlines()[:2]


def test_what_was_consumed_of_a_batch_does_not_come_again(environment: dict[str, str]) -> None:
    run(
        environment,
        "produce",
        "batched",
        *(part for number in range(5) for part in ("-m", str(number))),
    )
    consume = ("consume", "batched", "-s", "s", "--from", "earliest")
    assert run(environment, *consume, "-n", "2").split() == ["0", "1"]
    assert run(environment, *consume, "-n", "1").split() == ["2"]
    assert run(environment, *consume, "--follow", "-n", "2").split() == ["3", "4"]
    assert run(environment, *consume) == ""


def test_messages_with_a_schema_are_printed_as_their_values(environment: dict[str, str]) -> None:
    class Order(Record):
        number = Long(required=True)
        raw = Bytes()

    with pulsarish.Client(environment["PULSARISH_URL"]) as client:
        with client.create_producer("orders", schema=AvroSchema(Order)) as producer:
            producer.send(Order(number=7, raw=b"r\xff"))
        with client.create_producer("orders") as plain:
            plain.send(b"plain")
        with client.create_producer("words", schema=StringSchema()) as words:
            words.send("word")
    assert run(environment, "read", "orders").splitlines() == [
        '{"number": 7, "raw": "r\ufffd"}',
        "plain",
    ]
    consume = (
        "consume",
        "orders",
        "-s",
        "s",
        "--from",
        "earliest",
        "--format",
        "json",
        "--follow",
        "-n",
        "2",
    )
    found = [json.loads(line)["value"] for line in run(environment, *consume).splitlines()]
    assert found == [{"number": 7, "raw": "r\ufffd"}, "plain"]
    assert run(environment, "read", "words") == "word\n"
    assert run(environment, "read", "orders", "-n", "1", "--format", "hex") == "0e 02 04 72 ff\n"
    assert [
        each["version"]
        for each in json.loads(run(environment, "schemas", "list", "orders", "-o", "json"))
    ] == [0]
    # Without its schema it is what it is.
    run(environment, "schemas", "delete", "orders")
    done = subprocess.run(
        [*COMMAND, "read", "orders", "--format", "hex"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.stdout.splitlines()[0] == "0e 02 04 72 ff"
    done = subprocess.run(
        [*COMMAND, "read", "orders", "-n", "1"],
        capture_output=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"\x0e\x02\x04r\xff\n")
    assert (
        b"is printed without decoding: the message was written with version 0 of the schema"
        in done.stderr
    )


def test_perf_measures_only_what_perf_has_made(environment: dict[str, str]) -> None:
    run(
        environment,
        "produce",
        "measured",
        "-m",
        "hello",
        "-m",
        "a longer message",
        "-m",
        "12345678",
    )
    run(environment, "perf", "produce", "measured", "-n", "50", "--size", "100", "-o", "json")
    found = json.loads(run(environment, "perf", "consume", "measured", "-n", "53", "-o", "json"))
    assert found["messages"] == 53
    assert 0 < found["latency_ms"]["p50"] <= found["latency_ms"]["p100"] < 600_000
    assert (
        json.loads(run(environment, "perf", "consume", "measured", "-o", "json"))["messages"] == 0
    ), "there were no more"
    assert (
        json.loads(run(environment, "perf", "produce", "measured", "-n", "1", "-o", "json"))[
            "failed"
        ]
        == 0
    )


def test_perf_fails_when_messages_do(environment: dict[str, str]) -> None:
    run(environment, "topics", "create", "small")
    run(environment, "topics", "set-max-message-size", "small", "1KB")
    command = [*COMMAND, "perf", "produce", "small", "-n", "2", "--size", "50000", "--no-batching"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert (done.returncode, "0 messages" in done.stdout) == (1, True)
    assert (
        "2 messages were not acknowledged by small, the first because of MessageTooBig"
        in done.stderr
    )


def test_topics_that_match_are_consumed_together(environment: dict[str, str]) -> None:
    for place in ("eu", "us"):
        run(environment, "produce", f"sold.{place}.created", "-m", place)
    consume = ("consume", "--from", "earliest", "-n", "2")
    found = run(environment, *consume, "sold.*.created", "--wildcard", "-s", "w")
    assert sorted(found.split()) == ["eu", "us"]
    found = run(
        environment,
        *consume,
        r"public/default/sold\..*",
        "--pattern",
        "-s",
        "p",
        "--format",
        "json",
    )
    topics = [json.loads(line)["topic"] for line in found.splitlines()]
    names = [f"persistent://public/default/sold.{place}.created" for place in ("eu", "us")]
    assert sorted(topics) == names
    assert run(environment, "topics", "list", "--pattern", r"sold\.[eu]+\..*").split() == [
        "TOPIC",
        *names[:1],
    ]


def test_interrupted_consume_has_acknowledged_what_it_printed(environment: dict[str, str]) -> None:
    run(
        environment,
        "produce",
        "followed",
        *(part for number in range(10) for part in ("-m", str(number))),
    )
    command = [*COMMAND, "consume", "followed", "-s", "s", "--from", "earliest", "--follow"]
    # A shell that runs the tests in the background has it ignored, and programs go on with what
    # they were started with.
    command = ["env", "--default-signal=INT", *command]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as consumer:
        assert consumer.stdout is not None
        printed = [consumer.stdout.readline().strip() for _ in range(10)]
        consumer.send_signal(signal.SIGINT)
        try:
            rest, talk = consumer.communicate(timeout=60)
        finally:
            consumer.kill()
    assert (printed, rest, consumer.returncode) == ([str(number) for number in range(10)], "", 130)
    assert "Traceback" not in talk
    assert (
        json.loads(run(environment, "subscriptions", "get", "followed", "s", "-o", "json"))[
            "msgBacklog"
        ]
        == 0
    )


def test_every_list_and_record_is_json_on_demand(environment: dict[str, str]) -> None:
    run(environment, "produce", "listed", "-m", "x")
    run(environment, "subscriptions", "create", "listed", "s", "--from", "earliest")
    for command in (
        ["tenants", "list"],
        ["tenants", "get", "public"],
        ["namespaces", "list", "public"],
        ["namespaces", "get-policies", "public/default"],
        ["topics", "list"],
        ["topics", "internal-stats", "listed"],
        ["topics", "stats", "listed"],
        ["topics", "lookup", "listed"],
        ["subscriptions", "peek", "listed", "s", "-n", "5"],
        ["subscriptions", "list", "listed"],
        ["subscriptions", "get", "listed", "s"],
        ["brokers", "list"],
        ["brokers", "leader"],
        ["bookies", "list"],
        ["ledgers", "list"],
    ):
        assert json.loads(run(environment, *command, "-o", "json")), command


def test_output_that_nobody_reads_any_more_is_no_error_to_tell(environment: dict[str, str]) -> None:
    run(environment, "produce", "long", "-f", "-", stdin="line\n" * 20_000)
    reader = subprocess.Popen(
        [*COMMAND, "read", "long"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline() == "line\n"
    reader.stdout.close()
    assert reader.stderr.read() == ""
    reader.wait(timeout=60)
    reader.stderr.close()


def test_bash_completes_names_of_the_cluster(environment: dict[str, str], tmp_path: Path) -> None:
    run(environment, "topics", "create", "completed")
    command = tmp_path / "pulsarish"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pulsarish "$@"\n')
    command.chmod(0o755)
    # As bash calls it at a tab: compopt tells what it would do about the space, here where there is
    # no line that is edited.
    script = """
    eval "$(pulsarish completion bash)"
    compopt() { printf '%s ' "$@"; echo; }
    COMP_WORDS=(pulsarish topics stats comp); COMP_CWORD=3
    _pulsarish_completion pulsarish; echo "${COMPREPLY[*]}"; COMPREPLY=()
    COMP_WORDS=(pulsarish namespaces get-policies pub)
    _pulsarish_completion pulsarish; echo "${COMPREPLY[*]}"
    """
    path = {
        **environment,
        "PATH": f"{tmp_path}:{environment['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=path, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["completed", "-o nospace ", "public/"]


def test_dead_letters_are_redriven(environment: dict[str, str]) -> None:
    client = pulsarish.Client(environment["PULSARISH_URL"])
    admin = Admin(environment["PULSARISH_ADMIN_URL"])
    admin.topics.create("jobs-work-DLQ")
    admin.subscriptions.create("jobs-work-DLQ", "inspect")
    consumer = client.subscribe(
        "jobs",
        "work",
        consumer_type=pulsarish.ConsumerType.Shared,
        dead_letter_policy=pulsarish.ConsumerDeadLetterPolicy(1),
        retry_enabled=True,
    )
    client.create_producer("jobs").send(b"bill", partition_key="k")
    for _ in range(2):
        consumer.reconsume_later(consumer.receive(10_000), timedelta(milliseconds=10))
    command = ["subscriptions", "redrive", "jobs", "work"]
    shown = run(environment, *command, "--dry-run")
    assert "key=k" in shown
    assert "RECONSUMETIMES=2" in shown
    assert run(environment, *command) == shown, "the dry run moved nothing"
    message = consumer.receive(10_000)
    assert (message.data(), message.properties()["REDRIVE_TIMES"]) == (b"bill", "1")
    assert "RECONSUMETIMES" not in message.properties()
    client.close()


def test_urgent_messages_are_consumed_first(environment: dict[str, str]) -> None:
    """With every kind of producer: ours, its command, and Apache Pulsar's."""
    run(environment, "topics", "create", "tasks")
    run(environment, "topics", "set-message-priority-window", "tasks", "100")
    assert run(environment, "topics", "get-message-priority-window", "tasks").split() == ["100"]
    run(environment, "subscriptions", "create", "tasks", "work")
    client = pulsarish.Client(environment["PULSARISH_URL"])
    producer = client.create_producer("tasks", batching_enabled=True)
    producer.send(b"later", priority=0)
    producer.send_async(b"usual", None)
    producer.send_async(b"soon", None, priority=6)
    producer.flush()
    client.close()
    official = pulsar.Client(environment["PULSAR_URL"])
    sender = official.create_producer("tasks")
    sender.send(b"next", properties={"pulsarish-priority": "7"})
    official.close()
    run(environment, "produce", "tasks", "-m", "first", "--priority", "9")
    consume = ("consume", "tasks", "-s", "work", "--type", "shared", "-n", "5")
    assert run(environment, *consume).split() == ["first", "next", "soon", "usual", "later"]
