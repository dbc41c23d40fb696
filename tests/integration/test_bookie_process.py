"""A bookie as a real process: SIGKILL and restart, a second process on the same directory,
health.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from pulsarish.model.errors import LedgerFenced
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import MetadataStore, StreamBroken
from pulsarish.runtime.world import production
from pulsarish.wire._pb import bookie_pb2 as pb
from tests.support.bookies import BookieClient, make_record
from tests.support.worlds import run_in_production_loop


class Process:
    """A bookie process over one data directory, with embedded metadata beside it.

    ``more``: further settings.
    """

    def __init__(self, home: Path, *more: str) -> None:
        self.home = home
        self.more = more
        self.address = self.http_address = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        settings = [
            "bookie_id=b1",
            f"metadata_url=embedded:{self.home}/metadata",
            "listen_address=127.0.0.1:0",
            "http_address=127.0.0.1:0",
            f"data_directory={self.home}/data",
            "journal_file_size_bytes=1048576",
            "write_cache_size_bytes=1048576",
            "checkpoint_interval_seconds=0.2",
            *self.more,
        ]
        command = [
            sys.executable,
            "-m",
            "pulsarish",
            "bookie",
            *(word for setting in settings for word in ("--set", setting)),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def up(self) -> None:
        self.process = self.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        self.address, self.http_address = (word.split("=")[1] for word in line.split()[-2:])

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    process.up()
    yield process
    process.kill()


def talk(bookie: Process, work: Callable[[BookieClient], Awaitable[None]]) -> None:
    async def run() -> None:
        parts = production(outside=OutsideWork())
        world = parts.world(cast("MetadataStore", None))
        try:
            status = pb.StatusResponse.FromString(
                await world.connections.call(
                    bookie.address, "bookie.status", b"", timeout_seconds=30
                )
            )
            await work(BookieClient(world, bookie.address, status.instance_id))
        finally:
            await parts.close()

    run_in_production_loop(run)


def test_acknowledged_entries_and_fences_survive_sigkill_at_any_time(bookie: Process) -> None:
    promised: list[int] = []

    async def add_until_killed(client: BookieClient) -> None:
        assert bookie.process is not None
        await client.fence(9)
        first = promised[-1] + 1 if promised else 0
        try:
            for batch in range(400):
                entries = range(first + batch * 50, first + batch * 50 + 50)
                codes = await client.add(
                    [make_record(1, entry, b"%d" % entry * 20) for entry in entries]
                )
                assert set(codes.values()) == {0}
                promised.extend(entries)
                if batch == 150:
                    os.kill(bookie.process.pid, signal.SIGKILL)
        except StreamBroken:
            return
        raise AssertionError("the bookie outlived SIGKILL")

    async def look(client: BookieClient) -> None:
        at = 0
        while at <= promised[-1]:
            _, found = await client.read(1, at, promised[-1])
            assert found, f"entry {at} was acknowledged and is not there"
            for entry_id, payload in found.items():
                assert payload == b"%d" % entry_id * 20
            at += len(found)
        assert await client.add([make_record(9, 0, b"x")]) == {(9, 0): LedgerFenced.code}

    for _ in range(3):
        talk(bookie, add_until_killed)
        bookie.kill()
        bookie.up()
        talk(bookie, look)
    assert len(promised) >= 3 * 150 * 50


def test_a_second_process_on_the_same_directories_refuses(bookie: Process) -> None:
    second = bookie.start()
    _, said = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "is in use by process" in said
    assert "Traceback" not in said


def test_health_and_metrics_and_a_graceful_end(bookie: Process) -> None:
    async def work(client: BookieClient) -> None:
        await client.add([make_record(1, 0, b"x")])
        await client.read(1, 0, 0)

    talk(bookie, work)
    with urllib.request.urlopen(f"http://{bookie.http_address}/health", timeout=30) as answer:
        health = json.load(answer)
    assert (health["status"], health["registered"], health["address"]) == (
        "ok",
        True,
        bookie.address,
    )
    with urllib.request.urlopen(f"http://{bookie.http_address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    assert 'bookkeeper_server_ADD_ENTRY_REQUEST_count{bookie="b1",success="true"} 1\n' in text
    assert 'bookkeeper_server_READ_ENTRY_REQUEST_count{bookie="b1",success="true"} 1\n' in text
    assert bookie.process is not None
    bookie.process.send_signal(signal.SIGTERM)
    _, said = bookie.process.communicate(timeout=60)
    assert bookie.process.returncode == 0
    assert "Traceback" not in said
    bookie.up()
    talk(bookie, work)


def test_a_graceful_end_does_not_wait_for_clients_to_leave(bookie: Process) -> None:
    async def work(client: BookieClient) -> None:
        assert bookie.process is not None
        await client.add([make_record(1, 0, b"x")])
        bookie.process.send_signal(signal.SIGTERM)
        with pytest.raises(StreamBroken):
            while True:
                assert set((await client.add([make_record(1, 0, b"x")])).values()) == {0}

    talk(bookie, work)
    assert bookie.process is not None
    _, said = bookie.process.communicate(timeout=60)
    assert bookie.process.returncode == 0
    assert "Traceback" not in said, said
