"""Which failed tasks end a process, and what the others end instead.

A task that belongs to one client, topic, subscription or ledger never ends the process. Its failure
ends what it belongs to, its ``Scope``, and is counted. Only a task in ``Critical`` ends the
process. A task that serves the whole process and is not critical is started by
``run_in_background``, and starts again after a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from pulsarish.runtime.backoff import Backoff

if TYPE_CHECKING:
    import asyncio

    from pulsarish.runtime.seams import Clock, Tasks, World

__all__ = [
    "RESTART_SECONDS",
    "RESTART_SECONDS_MAX",
    "Critical",
    "Scope",
    "ScopeKind",
    "ScopedTasks",
    "contained",
    "run_in_background",
]

RESTART_SECONDS: Final = 1.0
RESTART_SECONDS_MAX: Final = 300.0
"""A failed background task starts again after a wait between these two.

The wait doubles with each failure.
"""


class Critical(Enum):
    """The tasks without which a process must not appear alive, each with the reason.

    None of them works for one client, topic or ledger, or reads data that other nodes publish. Such
    tasks start again (``run_in_background``), because an error there would return after each
    restart of the process.
    """

    MAIN = "the program itself"
    JOURNAL = "nothing is durable without it, and a failed sync must not be tried again"
    CHECKPOINT = (
        "a failed write leaves entry logs and index in doubt, and the journal would grow "
        "without limit"
    )
    GARBAGE = "it writes entry logs and index as a checkpoint does"
    SPACE = "without it a full disk is noticed by the writes that fail"
    REGISTRATION = "others would send to a node that is not there, or not to one that is"
    METADATA_SESSION = (
        "without it the node does not notice that its session is lost, and what it owned is "
        "served twice"
    )
    METADATA_COMMIT = (
        "what was decided and not written is in memory only, and no client gets an answer"
    )
    METADATA_EXPIRY = "sessions of dead nodes would never end"
    LEDGER_TIMEOUTS = (
        "a bookie that does not answer would never be given up, and writes would wait forever"
    )
    OWNERSHIP = "the bundles of a dead broker would never be free"
    MAINTENANCE = "no ledger would be replaced, no log trimmed and no policy carried out any more"


class ScopeKind(Enum):
    """What a failure is limited to: the label ``kind`` of
    ``pulsarish_contained_failures_total``.
    """

    CONNECTION = "connection"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    LEDGER = "ledger"
    TASK = "task"
    BACKGROUND = "background"
    """A task of ``run_in_background``: it starts again."""


def _nothing(_error: BaseException) -> None:
    """Do nothing: only the failed task belonged to the scope."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a task belongs to.

    ``end`` is called in the loop with the exception that the task raised, and must not raise.
    """

    kind: ScopeKind
    name: str
    end: Callable[[BaseException], None] = _nothing


class ScopedTasks:
    """The ``Tasks`` of one scope.

    Every task started here belongs to it, and no task can be critical.
    """

    __slots__ = (
        "_scope",
        "_tasks",
        "contained_failures",
    )

    def __init__(self, tasks: Tasks, scope: Scope) -> None:
        self._tasks = tasks
        self._scope = scope
        self.contained_failures = tasks.contained_failures

    def spawn(
        self,
        work: Coroutine[object, object, None],
        *,
        name: str,
        critical: Critical | None = None,
        scope: Scope | None = None,
    ) -> asyncio.Task[None]:
        assert critical is None, (
            f"{name} belongs to {self._scope.kind.value} {self._scope.name} and cannot be critical"
        )
        return self._tasks.spawn(work, name=name, scope=scope or self._scope)

    def contain(self, task: str, error: BaseException, scope: Scope) -> None:
        self._tasks.contain(task, error, scope)


def contained(world: World, scope: Scope) -> World:
    """Return the world for everything that belongs to the scope."""
    # Field by field: ``dataclasses.replace`` takes 18 us, and each topic comes here.
    return type(world)(
        clock=world.clock,
        random=world.random,
        tasks=ScopedTasks(world.tasks, scope),
        files=world.files,
        connections=world.connections,
        metadata=world.metadata,
        open_index=world.open_index,
    )


def run_in_background(
    tasks: Tasks, clock: Clock, name: str, work: Callable[[], Coroutine[object, object, None]]
) -> asyncio.Task[None]:
    """Start a loop that serves the whole process until it returns or is cancelled.

    When it raises, the failure is counted and logged, and the loop starts again after a wait. A
    loop that then ran for ``RESTART_SECONDS_MAX`` has recovered, and its next wait is short again.
    """
    return tasks.spawn(_restarted(tasks, clock, name, work), name=name)


async def _restarted(
    tasks: Tasks, clock: Clock, name: str, work: Callable[[], Coroutine[object, object, None]]
) -> None:
    backoff = Backoff(RESTART_SECONDS, RESTART_SECONDS_MAX)
    while True:
        began = clock.monotonic()
        try:
            await work()
        except Exception as error:  # noqa: BLE001
            # Whatever it is: nothing else does the work of the loop.
            tasks.contain(name, error, Scope(ScopeKind.BACKGROUND, name))
        else:
            return
        if clock.monotonic() - began >= RESTART_SECONDS_MAX:
            backoff.reset()
        await clock.sleep(backoff.next_seconds())
