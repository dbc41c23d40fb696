"""A user's standalone server on metadata with a flipped bit: it refuses to start and says what to
do, and after that it starts.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pulsarish

COMMAND = [sys.executable, "-m", "pulsarish"]
PORTS = [
    *("--bookie-set", "listen_address=127.0.0.1:0"),
    *(
        word
        for face in ("listen_address", "http_address", "pulsar_address")
        for word in ("--broker-set", f"{face}=127.0.0.1:0")
    ),
]


def standalone(data: Path, *options: str) -> subprocess.Popen[str]:
    words = [*COMMAND, "standalone", "--data", str(data), *PORTS, *options]
    with log_of(data).open("w") as log:
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)


def log_of(data: Path) -> Path:
    return data.with_suffix(".log")


class Serving:
    """A server that has started.

    ``warnings``: what it has said in addition to that it is ready, once it has ended.
    """

    def __init__(self, data: Path, *options: str) -> None:
        self.process = standalone(data, *options)
        self._log = log_of(data)
        assert self.process.stdout is not None
        self._said = self.process.stdout
        ready = self._said.readline().split()
        assert ready[:2] == ["standalone", "ready"], self._log.read_text()
        self.url, self.metadata_url = ready[2], ready[-1]
        self.warnings = ""

    def end(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        with self._said:
            self.warnings = self._said.read()
        self.process.wait(timeout=60)
        assert "Traceback" not in self._log.read_text()


@contextmanager
def serving(
    data: Path, *options: str, ending: signal.Signals = signal.SIGTERM
) -> Iterator[Serving]:
    server = Serving(data, *options)
    try:
        yield server
    finally:
        server.end(ending)


def refused(data: Path) -> str:
    """What the server says; it must not start."""
    server = standalone(data)
    said, _ = server.communicate(timeout=60)
    text = log_of(data).read_text()
    assert (server.returncode, said) == (1, ""), text
    assert "Traceback" not in text
    return text


def pulsarish_command(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def read_all(url: str, topic: str) -> list[bytes]:
    client = pulsarish.Client(url)
    reader = client.create_reader(topic, pulsarish.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(timeout_millis=30_000).data())
    client.shutdown()
    return found


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a server that was killed, next to a backup of its metadata from before the last
    topics.
    """
    data = tmp_path_factory.mktemp("standalone") / "data"
    with serving(data) as server:
        client = pulsarish.Client(server.url)
        client.subscribe("early", "s", initial_position=pulsarish.InitialPosition.Earliest).close()
        producer = client.create_producer("early")
        for number in range(20):
            producer.send(b"%d" % number)
        client.shutdown()
    assert server.warnings == ""
    assert (
        pulsarish_command("metadata", "backup", f"embedded:{data}/metadata", str(backup_of(data)))[
            0
        ]
        == 0
    )
    with serving(data, ending=signal.SIGKILL) as server:
        client = pulsarish.Client(server.url)
        for number in range(20):
            client.create_producer(f"late-{number}").send(b"late")
        client.shutdown()
    return data


def backup_of(data: Path) -> Path:
    return data.with_name("backup.gz")


def damaged(killed: Path, target: Path) -> tuple[Path, Path]:
    """A copy with one flipped bit in the second half of the log of its metadata; the copy, and the
    log.
    """
    shutil.copytree(killed, target)
    log = max((target / "metadata").glob("index/*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[len(content) * 3 // 4] ^= 1
    log.write_bytes(content)
    return target, log


def test_it_is_refused_and_starts_when_the_loss_is_accepted(killed: Path, tmp_path: Path) -> None:
    data, log = damaged(killed, tmp_path / "data")
    text = refused(data)
    found = re.search(
        r"ends at write (\d+), and all up to write (\d+) was synced: (\d+) synced writes are "
        r"missing",
        text,
    )
    assert found is not None, text
    last, synced, missing = map(int, found.groups())
    assert (last + missing, str(log) in text) == (synced, True)
    assert f"pulsarish metadata cut {data}/metadata" in text
    assert refused(data) == text, "a refused start changes nothing"
    status, text = pulsarish_command(
        "metadata", "cut", f"{data}/metadata", "--last-write", str(last)
    )
    assert (status, "for a standalone server, start it with --metadata-address" in text) == (
        0,
        True,
    ), text
    with serving(data) as server:
        assert read_all(server.url, "early") == [b"%d" % number for number in range(20)]
        client = pulsarish.Client(server.url)
        client.create_producer("after").send(b"new")
        client.shutdown()
    assert "warning: the metadata were cut after damage" in server.warnings
    assert (
        "topics, subscriptions, acknowledgements and the messages of newer ledgers may be lost"
        in server.warnings
    )
    # As it is said: the tree is served to the commands, and no warning is left once it is
    # confirmed.
    with serving(data, "--metadata-address", "127.0.0.1:0") as server:
        status, text = pulsarish_command(
            "metadata", "confirm", server.metadata_url, "--delete-unknown"
        )
        assert status == 0, text
    assert f"pulsarish metadata confirm {server.metadata_url}" in server.warnings
    with serving(data) as server:
        assert read_all(server.url, "after") == [b"new"]
    assert server.warnings == ""


def test_it_starts_with_a_restored_backup(killed: Path, tmp_path: Path) -> None:
    data, _ = damaged(killed, tmp_path / "data")
    assert "start with an empty one and restore a backup (pulsarish metadata restore)" in refused(
        data
    )
    (data / "metadata").rename(tmp_path / "aside")
    status, text = pulsarish_command(
        "metadata", "restore", str(backup_of(killed)), f"embedded:{data}/metadata"
    )
    assert status == 0, text
    with serving(data) as server:
        assert read_all(server.url, "early") == [b"%d" % number for number in range(20)]
    assert "warning: the metadata come from a backup" in server.warnings
