"""Supervision: who dies, who is told, and in which order things are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest

from pulsarish.runtime.containment import Critical, Scope, ScopedTasks, ScopeKind
from pulsarish.runtime.tasks import Supervisor


def _run(work: Coroutine[object, object, None]) -> None:
    asyncio.run(work)


async def _raise(error: Exception) -> None:
    raise error


async def _return() -> None:
    return


@pytest.mark.parametrize(("critical", "deaths"), [(Critical.JOURNAL, ["work"]), (None, [])])
def test_only_a_critical_exception_is_a_death(critical: Critical | None, deaths: list[str]) -> None:
    told: list[str] = []

    async def main() -> None:
        supervisor = Supervisor(died=lambda name, error: told.append(name))
        _ = supervisor.spawn(_raise(ValueError("x")), name="work", critical=critical)
        _ = supervisor.spawn(_return(), name="returns", critical=critical)
        cancelled = supervisor.spawn(asyncio.sleep(60), name="cancelled", critical=critical)
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0.01)
        assert supervisor.running_count == 0

    _run(main())
    assert told == deaths


def test_a_failure_ends_the_scope_of_its_task_and_is_counted_by_its_kind() -> None:
    ended: list[str] = []

    async def main() -> None:
        supervisor = Supervisor(died=lambda name, error: ended.append("the process"))
        for kind in ScopeKind:
            scope = Scope(
                kind,
                "x",
                lambda error, kind=kind: ended.append(f"{kind.value}: {error}"),  # type: ignore[misc]
            )
            _ = supervisor.spawn(_raise(ValueError("y")), name="work", scope=scope)
        _ = supervisor.spawn(_raise(ValueError("y")), name="of nobody")
        await asyncio.sleep(0.01)
        assert supervisor.contained_failures == {
            kind: 2 if kind is ScopeKind.TASK else 1 for kind in ScopeKind
        }

    _run(main())
    assert ended == [f"{kind.value}: y" for kind in ScopeKind]


def test_whatever_is_spawned_in_a_scope_belongs_to_it_and_nothing_there_is_critical() -> None:
    ended: list[BaseException] = []

    async def main() -> None:
        supervisor = Supervisor(died=lambda name, error: None)
        tasks = ScopedTasks(supervisor, Scope(ScopeKind.TOPIC, "t", ended.append))
        _ = tasks.spawn(_raise(ValueError("y")), name="work")
        await asyncio.sleep(0.01)
        assert tasks.contained_failures[ScopeKind.TOPIC] == 1
        work = _return()
        with pytest.raises(AssertionError, match="cannot be critical"):
            _ = tasks.spawn(work, name="journal", critical=Critical.JOURNAL)
        work.close()

    _run(main())
    assert len(ended) == 1


def test_stop_goes_from_the_youngest_to_the_oldest() -> None:
    ended: list[int] = []

    async def work(supervisor: Supervisor, number: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(number)
            if number == 1:
                # A task that is born during the stop is stopped too.
                _ = supervisor.spawn(work(supervisor, 10), name="late")
                await asyncio.sleep(0)

    async def main() -> None:
        supervisor = Supervisor(died=lambda name, error: None)
        for number in range(3):
            _ = supervisor.spawn(work(supervisor, number), name=str(number))
        await asyncio.sleep(0)
        await supervisor.stop()
        assert supervisor.running_count == 0

    _run(main())
    assert ended == [2, 1, 10, 0]
