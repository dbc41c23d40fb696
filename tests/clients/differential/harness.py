"""Runs programs on Apache Pulsar's Python client and on ours, and compares their outcomes.

A program is a function ``(pulsar, client, topic)`` in a module of a theme: ``pulsar`` is either
package, ``client`` connected, ``topic`` its own. It returns what it found. With a fourth parameter
``admin`` it gets the administration, too.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from pulsarish.admin.client import Admin
from tests.clients.differential.outcomes import caught, normalised

__all__ = ["NoOutcome", "Program", "connected", "own_client", "programs_of", "run_all"]

SECONDS_MAX: Final = 90.0
WORKERS: Final = 12
"""Programs that run at the same time: most of them wait."""


@dataclass(frozen=True)
class NoOutcome:
    """A program that raised, hangs, or left a client that cannot be closed."""

    reason: str


@dataclass(frozen=True)
class Program:
    theme: str
    name: str
    function: Callable[..., object]

    @property
    def key(self) -> str:
        return f"{self.theme}.{self.name}"

    def run(self, package: ModuleType, client: Any, url: str, admin: Admin) -> Any:
        """Return its outcome on a package, normalised, or why it has none."""
        topic = f"persistent://public/default/diff-{self.theme}-{self.name}-{package.__name__}"
        own = getattr(self.function, "needs_own_client", False)
        if own:
            client = connected(package, url)
        given = [package, client, topic]
        if "admin" in inspect.signature(self.function).parameters:
            given.append(admin)
        done: list[Any] = []

        def work() -> None:
            try:
                found = normalised(self.function(*given), topic)
                if own:
                    _close(package, client)
                done.append(found)
            except Exception as error:  # noqa: BLE001  # reported as a failure
                done.append(NoOutcome(f"{type(error).__name__}: {error}"))

        thread = threading.Thread(target=work, daemon=True, name=self.key)
        thread.start()
        thread.join(SECONDS_MAX)
        return done[0] if done else NoOutcome(f"did not end within {SECONDS_MAX:.0f} s")


def _close(package: ModuleType, client: Any) -> None:
    outcome = caught(package, client.close)
    # The program may have closed it: theirs cannot be closed twice.
    if outcome is not None and (package.__name__, outcome) != (
        "pulsar",
        {"raised": "AlreadyClosed"},
    ):
        raise AssertionError(f"closing the client: {outcome}")


def connected(package: ModuleType, url: str) -> Any:
    """Return a client, which logs errors only."""
    if package.__name__ == "pulsar":
        return package.Client(url, logger=package.ConsoleLogger(package.LoggerLevel.Error))
    return package.Client(url)


def own_client(function: Callable[..., object]) -> Callable[..., object]:
    """Mark a program that closes its client or is disturbed by other programs of the client."""
    function.needs_own_client = True  # type: ignore[attr-defined]
    return function


def programs_of(module: ModuleType) -> list[Program]:
    """Return the programs of a theme, in their order."""
    theme = module.__name__.rpartition(".")[2]
    return [
        Program(theme, name, value)
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and value.__module__ == module.__name__
    ]


def run_all(
    programs: Iterable[Program], packages: dict[ModuleType, str], admin: Admin
) -> dict[str, list[Any]]:
    """Return the outcomes of each program, in the order of ``packages``: package and service
    URL.
    """
    clients = {package: connected(package, url) for package, url in packages.items()}
    with ThreadPoolExecutor(WORKERS) as pool:
        found = {
            program.key: [
                pool.submit(program.run, package, clients[package], url, admin)
                for package, url in packages.items()
            ]
            for program in programs
        }
        outcomes = {key: [each.result() for each in futures] for key, futures in found.items()}
    for client in clients.values():
        client.close()
    return outcomes
