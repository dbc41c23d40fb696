"""Supervision: every task has one owner.

A critical task that fails ends its process; any other ends its scope.

A node whose journal has failed but whose process still answers health checks is worse than a dead
node (the field's bug lists show it again and again). So that end is loud and immediate.
``runtime/containment.py:Critical`` lists these tasks. A critical task that *returns* has completed
its work: only an exception ends the process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine

from pulsarish.runtime.containment import Critical, Scope, ScopeKind
from pulsarish.runtime.disk_errors import disk_remedy
from pulsarish.runtime.log import flush_logs, get_logger
from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.seams import Tasks

__all__ = ["EXIT_CRITICAL_TASK", "Supervisor", "end_process", "export_contained"]

EXIT_CRITICAL_TASK = 70
"""The exit status of a process that a failed critical task has ended (EX_SOFTWARE)."""

_log = get_logger("tasks")


def end_process(task: str, error: BaseException) -> None:
    """End this process without cleaning up: a clean-up might write state that the failed task left
    half done.
    """
    flush_logs()
    os._exit(EXIT_CRITICAL_TASK)


def export_contained(metrics: Metrics, tasks: Tasks) -> None:
    """Register the counts of failures that ended only their scope."""
    metrics.read_each(
        "pulsarish_contained_failures_total",
        "counter",
        "Failures that left the process up: each ended a connection, topic, subscription, ledger "
        "or task; a background task starts again.",
        "kind",
        lambda: {kind.value: count for kind, count in tasks.contained_failures.items()},
    )


class Supervisor:
    """The production ``Tasks``: owns a node's tasks until ``stop``.

    ``died`` is called with a task's name and its exception when a critical task raised. In
    production it does not return.
    """

    def __init__(self, *, died: Callable[[str, BaseException], None] = end_process) -> None:
        self._died = died
        # Keyed by a running number: ``stop`` goes in order of creation, and nothing depends on
        # memory addresses.
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._created_count = 0
        self._stopping = False
        self.contained_failures = dict.fromkeys(ScopeKind, 0)

    @property
    def running_count(self) -> int:
        return len(self._tasks)

    def spawn(
        self,
        work: Coroutine[object, object, None],
        *,
        name: str,
        critical: Critical | None = None,
        scope: Scope | None = None,
    ) -> asyncio.Task[None]:
        """Start ``work`` under this owner.

        When a task that is not critical fails, the failure is counted and logged, and its scope
        ends.
        """
        number = self._created_count
        self._created_count += 1
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[number] = task
        task.add_done_callback(lambda done: self._ended(number, done, critical, scope))
        return task

    def _ended(
        self, number: int, task: asyncio.Task[None], critical: Critical | None, scope: Scope | None
    ) -> None:
        del self._tasks[number]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if critical is None:
            self.contain(task.get_name(), error, scope or Scope(ScopeKind.TASK, task.get_name()))
            return
        if remedy := disk_remedy(error):
            # Nothing in the code is wrong, so no traceback.
            _log.error(
                "a critical task failed, the node ends",
                task=task.get_name(),
                error=str(error),
                remedy=remedy,
            )
        else:
            _log.error(
                "a critical task failed, the node ends",
                exception=error,
                task=task.get_name(),
                reason=critical.value,
            )
        self._died(task.get_name(), error)

    def contain(self, task: str, error: BaseException, scope: Scope) -> None:
        """Count and log a failure, and end its scope."""
        self.contained_failures[scope.kind] += 1
        what = (
            "a background task failed and starts again"
            if scope.kind is ScopeKind.BACKGROUND
            else "a task failed, what it belongs to ends"
        )
        _log.error(what, exception=error, task=task, kind=scope.kind.value, scope=scope.name)
        scope.end(error)

    async def stop(self) -> None:
        """Cancel the remaining tasks, the newest first (older ones serve newer ones), and wait
        until each has ended.

        A task that was started while others were ending is cancelled too. The caller's own task
        keeps running.
        """
        own = asyncio.current_task()
        while left := [task for task in self._tasks.values() if task is not own]:
            task = left[-1]
            task.cancel()
            # gather returns a child's cancellation as a value. A cancellation of this task is still
            # raised.
            await asyncio.gather(task, return_exceptions=True)
            # The done callback may run after this wake-up. Without this the loop could find the
            # finished task again.
            await asyncio.sleep(0)
