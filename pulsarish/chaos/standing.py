"""What must stay as it is while a fault hits something else: processes, registrations, sessions,
and the owner of the topic.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Final

from pulsarish.chaos.observer import Owner
from pulsarish.chaos.stage import Stage
from pulsarish.local_cluster.plan import NodePlan

__all__ = ["Standing"]

_ANSWER_SECONDS: Final = 5.0
_LOST: Final = re.compile(
    r'^pulsarish_metadata_session_changes_total\{[^}]*state="lost"\} (\S+)$', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Standing:
    """How the nodes stand at one moment.

    ``lost``: how many metadata sessions each has lost since it was started.
    """

    pids: dict[str, int | None]
    owner: Owner
    brokers: dict[str, str]
    bookies: dict[str, str]
    lost: dict[str, float]

    @classmethod
    def of(cls, stage: Stage) -> Standing:
        """Raises ``VoidRun`` when a node does not answer."""
        nodes = [node for node in stage.cluster.nodes() if node.role in ("broker", "bookie")]
        lost: dict[str, float] = {}

        def count(node: NodePlan) -> bool:
            counted = _LOST.search(_metrics(node))
            if counted:
                lost[node.name] = float(counted[1])
            return node.name in lost

        for node in nodes:
            if stage.cluster.pid(node.name) is not None:
                stage.wait(f"{node.name} counts its sessions", partial(count, node))
        bookies = {
            name: registration.instance_id
            for name, registration in stage.observer.bookies().items()
        }
        pids = {node.name: stage.cluster.pid(node.name) for node in stage.cluster.nodes()}
        return cls(pids, stage.owner(), stage.observer.brokers(), bookies, lost)

    def changes(self, now: Standing, *, besides: Collection[str] = ()) -> list[str]:
        """What has changed since, in words.

        ``besides``: nodes of which the processes may have ended.
        """
        found = [
            f"{name} has ended"
            for name, pid in self.pids.items()
            if name not in besides and now.pids.get(name) != pid
        ]
        if now.owner != self.owner:
            found.append(f"the topic has changed its owner from {self.owner} to {now.owner}")
        for kind, before, after in (
            ("broker", self.brokers, now.brokers),
            ("bookie", self.bookies, now.bookies),
        ):
            if before != after:
                found.append(f"the registered {kind}s were {before} and are {after}")
        return found + [
            f"{name} has lost its session"
            for name, count in self.lost.items()
            if now.lost.get(name, count) != count
        ]


def _metrics(node: NodePlan) -> str:
    """The metrics of a node; empty while it does not answer."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{node.http_port}/metrics", timeout=_ANSWER_SECONDS
        ) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
