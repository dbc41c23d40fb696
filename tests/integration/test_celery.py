"""Celery with real workers, on the transport for Pulsarish."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import celery
import celery.exceptions
import pytest

from pulsarish.testing import LocalServer
from tests.support.until import until

ROOT = Path(__file__).parents[2]
WAIT = 60
NODE = "worker@test"

pytestmark = pytest.mark.xdist_group("celery")


@contextmanager
def worker(*options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, killed at the end."""
    command = [sys.executable, "-m", "celery", "-A", "tests.integration.celery_app", "worker"]
    process = subprocess.Popen(
        [*command, "-n", NODE, "-l", "warning", "--without-heartbeat", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a worker and the processes of its pool, without a chance to say anything."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def tasks_of(server: LocalServer, figure: str) -> int:
    stats = server.admin().topics.stats("public/default/celery")
    return int(stats["subscriptions"]["celery"][figure])


def backlog(server: LocalServer) -> int:
    """Return how many tasks are not acknowledged."""
    return tasks_of(server, "msgBacklog")


def unacknowledged(server: LocalServer) -> int:
    """Return how many tasks workers have and have not acknowledged."""
    return tasks_of(server, "unackedMessages")


@contextmanager
def tasks(url: str, directory: Path, backend: str) -> Iterator[Any]:
    """The module of the application, as this process and the workers import it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CELERY_TEST_URL", url)
        patch.setenv("CELERY_TEST_DIRECTORY", str(directory))
        patch.setenv("CELERY_TEST_BACKEND", backend)
        patch.delitem(sys.modules, "tests.integration.celery_app", raising=False)
        module = importlib.import_module("tests.integration.celery_app")
        try:
            yield module
        finally:
            module.app.close()


def see_success(app: celery.Celery) -> None:
    """Return when a worker has said that a task has succeeded."""
    seen: list[str] = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(
            connection, handlers={"*": lambda event: seen.append(event["type"])}
        )
        for _ in receiver.itercapture(wakeup=False):
            if "task-succeeded" in seen:
                return


def test_tasks_of_a_worker(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    with (
        LocalServer() as server,
        tasks(server.service_url, tmp_path, f"file://{tmp_path}/results") as shop,
        worker("-c", "2", "-E", "--max-tasks-per-child", "8"),
    ):
        # each is done once
        results = [shop.add.delay(number, 1) for number in range(20)]
        assert [each.get(timeout=WAIT) for each in results] == list(range(1, 21))
        assert sorted(lines(tmp_path / "added")) == sorted(f"{n}+1" for n in range(20))
        # retries, which a task asks for itself from a process of the pool
        # (its result may say RETRY forever: Celery writes that after it has sent the retry)
        shop.fail_twice.delay()
        until("tried three times", lambda: lines(tmp_path / "tried") == ["0", "1", "2"])
        # later
        assert shop.add.apply_async((2, 2), countdown=0.5).get(timeout=WAIT) == 4
        # groups, and what follows them
        chord = celery.chord([shop.add.s(n, n) for n in range(4)])(shop.total.s())
        assert chord.get(timeout=WAIT) == 12
        # events of tasks
        watch = threading.Thread(target=see_success, args=(shop.app,), daemon=True)
        watch.start()
        until(
            "heard of a task",
            lambda: bool(shop.add.delay(5, 5).get(timeout=WAIT) and not watch.is_alive()),
        )
        # remote control: answers, and a task that is not to be done any more
        assert shop.app.control.ping(destination=[NODE], timeout=WAIT) == [{NODE: {"ok": "pong"}}]
        unwanted = shop.add.apply_async((0, 0), countdown=1)
        shop.app.control.revoke(unwanted.id, destination=[NODE], reply=True, timeout=WAIT)
        with pytest.raises(celery.exceptions.TaskRevokedError):
            unwanted.get(timeout=WAIT)
        assert lines(tmp_path / "added").count("0+0") == 1  # of the chord


def test_a_task_outlives_its_worker(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    with (
        LocalServer() as server,
        tasks(server.service_url, tmp_path, f"file://{tmp_path}/results") as shop,
    ):
        with worker("-c", "1") as first:
            result = shop.outlive.delay()
            until("a task has begun", lambda: bool(lines(tmp_path / "begun")))
            # These wait in the worker, and then with the broker.
            others = [shop.add.delay(number, 1) for number in range(10)]
            until("a second task is held", lambda: unacknowledged(server) > 1)
            kill(first)
        (tmp_path / "released").touch()
        with worker("-P", "solo"):
            assert result.get(timeout=WAIT) is True
            assert [each.get(timeout=WAIT) for each in others] == list(range(1, 11))
            until("nothing waits", lambda: backlog(server) == 0)
        assert lines(tmp_path / "begun") == [result.id] * 2
        assert lines(tmp_path / "done") == [result.id]


def test_a_worker_goes_on_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    kept = str(tmp_path / "server")
    settings = [f"listen_address=127.0.0.1:{port}"]
    server = LocalServer(kept, settings)
    try:
        with (
            tasks(f"pulsarish://127.0.0.1:{port}", tmp_path, "rpc://") as shop,
            worker("-P", "threads", "-c", "2"),
        ):
            assert shop.add.delay(1, 2).get(timeout=WAIT) == 3
            held = shop.outlive.delay()
            until("a task has begun", lambda: bool(lines(tmp_path / "begun")))
            server.close()
            server = LocalServer(kept, settings)
            assert shop.add.delay(3, 4).get(timeout=WAIT) == 7
            (tmp_path / "released").touch()
            held.get(timeout=WAIT)
            # The worker that holds it does not begin the copy that the broker delivers again.
            assert lines(tmp_path / "begun") == [held.id]
            until("nothing waits", lambda: backlog(server) == 0)
    finally:
        server.close()
