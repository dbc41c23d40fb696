"""Apache Pulsar's own command line tools against a standalone server: its administration by
hundreds of commands, clients, shell.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pulsar
import pytest

from pulsarish.admin.client import Admin
from tests.clients.battery import battery
from tests.clients.building import apache_pulsar, built_tool

pytestmark = pytest.mark.timeout(600)  # the first one downloads

COMMANDS_MIN = 190
BATTERY_SECONDS_MAX = 300.0
TOOL_SECONDS_MAX = 120.0
TOPIC = "persistent://battery/a/t"
READY = re.compile(r"standalone ready pulsarish://\S+ (http://\S+) (pulsar://\S+)")


@dataclass
class Standalone:
    admin_url: str
    service_url: str

    @property
    def broker(self) -> str:
        return self.admin_url.removeprefix("http://")


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    free = ["listen_address", "http_address", "pulsar_address"]
    settings = [word for name in free for word in ("--broker-set", f"{name}=127.0.0.1:0")]
    command = [
        sys.executable,
        "-m",
        "pulsarish",
        "standalone",
        "--in-memory",
        *settings,
        "--bookie-set",
        "listen_address=127.0.0.1:0",
    ]
    directory = tmp_path_factory.mktemp("standalone")
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=directory
        ) as server,
    ):
        try:
            assert server.stdout is not None
            ready = READY.search(server.stdout.readline())
            assert ready is not None, (directory / "log").read_text()
            yield Standalone(ready[1], ready[2])
        finally:
            server.terminate()


def furnish(standalone: Standalone) -> None:
    """Make what the commands of the battery work on."""
    admin = Admin(standalone.admin_url)
    admin.tenants.create("battery")
    admin.namespaces.create("battery/a")
    admin.namespaces.set_policy(
        "battery/a", "retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}
    )
    admin.topics.create("persistent://battery/a/p", partitions=3)
    client = pulsar.Client(standalone.service_url)
    for name in ("s1", "s2"):
        client.subscribe(TOPIC, name, initial_position=pulsar.InitialPosition.Earliest).close()
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for number in range(10):
        producer.send(b"message %d" % number, partition_key=f"key {number % 3}")
    client.close()


def test_pulsar_admin_is_answered_as_is_on_record(standalone: Standalone, tmp_path: Path) -> None:
    furnish(standalone)
    rows = battery()
    assert len(rows) >= COMMANDS_MIN
    schema = tmp_path / "schema.json"
    definition = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    )
    schema.write_text(json.dumps({"type": "AVRO", "schema": definition, "properties": {}}))
    asked = "".join(
        "\t".join(row.words(schema=schema, broker=standalone.broker)) + "\n" for row in rows
    )
    command = [*built_tool("AdminBattery"), standalone.admin_url, standalone.service_url]
    done = subprocess.run(
        command,
        input=asked,
        capture_output=True,
        text=True,
        timeout=BATTERY_SECONDS_MAX,
        check=True,
    )
    answers = [line[1:].split("\t", 1) for line in done.stdout.split("\n") if line.startswith("=")]
    assert len(answers) == len(rows), done.stdout[-2_000:]
    different = [
        (
            f"{row.command}: {'ok' if row.here else row.reason!r} is on record, and the answer is "
            f"{'ok' if code == '0' else said[:300]!r}"
        )
        for row, (code, said) in zip(rows, answers, strict=True)
        if row.here is not (code == "0") or row.reason not in said
    ]
    assert not different, "\n".join(different)


def tool(name: str, *words: str) -> str:
    """Run one of the tools and return what it printed."""
    small = {
        "PULSAR_MEM": "-Xmx256m -XX:TieredStopAtLevel=1",
        "PULSAR_GC": "-XX:+UseSerialGC",
        "PULSAR_LOG_LEVEL": "info",
    }
    command = [str(apache_pulsar() / "bin" / name), *words]
    environ = {**os.environ, **small}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, env=environ, check=False
    )
    talk = done.stdout + done.stderr
    assert done.returncode == 0, talk[-4_000:]
    return talk


def test_pulsar_client_produces_consumes_and_reads(standalone: Standalone) -> None:
    topic, url = "persistent://public/default/tool", standalone.service_url
    assert "5 messages successfully produced" in tool(
        "pulsar-client", "--url", url, "produce", "-m", "hello", "-n", "5", topic
    )
    consumed = tool(
        "pulsar-client", "--url", url, "consume", "-s", "s", "-n", "5", "-p", "Earliest", topic
    )
    assert consumed.count("content:hello") == 5
    assert (
        tool("pulsar-client", "--url", url, "read", "-n", "2", "-m", "earliest", topic).count(
            "content:hello"
        )
        == 2
    )


def test_pulsar_perf_produces_and_consumes(standalone: Standalone) -> None:
    topic, url = "persistent://public/default/perf", standalone.service_url
    produced = tool("pulsar-perf", "produce", "-u", url, "-m", "1000", "-r", "1000", topic)
    assert re.search(r"Aggregated throughput stats --- \d+ records sent", produced)
    assert "1000 records received" in tool(
        "pulsar-perf", "consume", "-u", url, "-m", "1000", "-sp", "Earliest", topic
    )


def test_pulsar_shell_runs_a_file_of_commands(standalone: Standalone, tmp_path: Path) -> None:
    """Its own mark beside each command, and its exit code, say failed for whatever is run: what was
    printed counts.
    """
    topic = "persistent://public/default/shell"
    settings, commands = tmp_path / "client.conf", tmp_path / "commands"
    urls = {
        "webServiceUrl": standalone.admin_url,
        "brokerServiceUrl": standalone.service_url,
        "shellHistoryDirectory": str(tmp_path),
    }
    settings.write_text("".join(f"{name}={value}\n" for name, value in urls.items()))
    commands.write_text(
        f"admin tenants list\nclient produce -m x -n 3 {topic}\nadmin topics stats {topic}\n"
    )
    talk = tool("pulsar-shell", "-c", str(settings), "-f", str(commands))
    assert "public" in talk
    assert '"msgInCounter" : 3' in talk
