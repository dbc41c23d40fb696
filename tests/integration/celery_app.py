"""The Celery application of ``test_celery.py``: the test and its workers import it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

__all__ = ["add", "app", "fail_twice", "outlive", "total"]

_HERE = Path(os.environ["CELERY_TEST_DIRECTORY"])

app = Celery("shop", broker=os.environ["CELERY_TEST_URL"])
app.conf.update(
    broker_transport="pulsarish.integrations.kombu:Transport",
    broker_connection_retry_on_startup=True,
    result_backend=os.environ["CELERY_TEST_BACKEND"],
)


def _note(name: str, text: str) -> None:
    """Add a line to a file that the test reads."""
    with (_HERE / name).open("a") as file:
        file.write(text + "\n")


@app.task
def add(first: int, second: int) -> int:
    _note("added", f"{first}+{second}")
    return first + second


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def fail_twice(self: Any) -> None:
    _note("tried", str(self.request.retries))
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)


@app.task(bind=True, acks_late=True)
def outlive(self: Any) -> bool:
    """Wait for a file. Return whether the broker had delivered the task before."""
    _note("begun", self.request.id)
    while not (_HERE / "released").exists():
        time.sleep(0.05)
    _note("done", self.request.id)
    return bool(self.request.delivery_info["redelivered"])
