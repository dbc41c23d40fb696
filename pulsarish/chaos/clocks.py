"""Wall clocks that jump: leases, sessions and time-outs do not go by them, so nothing may come of
it but odd stamps.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

from pulsarish.chaos.moved_clock import write_offset
from pulsarish.chaos.scenario import Scenario
from pulsarish.chaos.stage import Stage
from pulsarish.chaos.standing import Standing
from pulsarish.local_cluster.plan import NodePlan

__all__ = ["CLOCK_SCENARIOS"]

_JUMP_SECONDS: Final = 86_400
_MOVED_SECONDS: Final = 5.0
_NEAR_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 5.0


def _can_move(node: NodePlan) -> bool:
    return node.role != "zookeeper"  # Java has a clock of its own


def _clock_file(stage: Stage, node: NodePlan) -> Path:
    return stage.directory / f"{node.name}.clock"


def _give_clocks(stage: Stage) -> None:
    def follow_file(node: NodePlan) -> None:
        if _can_move(node):
            path = _clock_file(stage, node)
            write_offset(path, 0)
            node.program = ["pulsarish.chaos.moved_clock", str(path)]

    stage.change_plan = follow_file


def _time_of(node: NodePlan) -> float | None:
    """The time by a node's own clock; ``None`` while it does not answer."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{node.http_port}/metrics", timeout=_ANSWER_SECONDS
        ) as answer:
            return parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except OSError:
        return None


def _shows(node: NodePlan, offset: int) -> bool:
    """Return whether a node dates its HTTP answers about this many seconds from the true time."""
    found = _time_of(node)
    return found is not None and abs(found - time.time() - offset) < _NEAR_SECONDS


def _set_clocks(stage: Stage, offsets: Mapping[str, int], what: str, *, then: str = "bite") -> None:
    """Move clocks away from the true time, in seconds.

    Wait until that is seen from outside and a window of messages was accepted.
    """
    nodes = [stage.cluster.node(name) for name in offsets]
    stage.mark("fault", what)
    for node in nodes:
        write_offset(_clock_file(stage, node), offsets[node.name])
    stage.wait(
        "the clocks show it", lambda: all(_shows(node, offsets[node.name]) for node in nodes)
    )
    acked = len(stage.ack_seconds) + stage.options.window
    stage.wait("messages are acknowledged", lambda: len(stage.ack_seconds) > acked)
    stage.mark(then, "the nodes date their answers so, and acknowledge messages")
    stage.sleep(_MOVED_SECONDS)


def _clocks_jump(stage: Stage) -> None:
    """All nodes by a day, the bookies of the ensemble the other way; then the other way around;
    then right again.
    """
    members = stage.members()
    nodes = [node.name for node in stage.cluster.nodes() if _can_move(node)]
    before = Standing.of(stage)
    ahead = {name: -_JUMP_SECONDS if name in members else _JUMP_SECONDS for name in nodes}
    _set_clocks(
        stage, ahead, "all clocks jump a day ahead, those of the ensemble's bookies a day back"
    )
    _set_clocks(
        stage,
        {name: -offset for name, offset in ahead.items()},
        "all clocks jump two days the other way",
    )
    _set_clocks(stage, dict.fromkeys(nodes, 0), "all clocks are set right", then="heal")
    stage.wrong += before.changes(Standing.of(stage))


CLOCK_SCENARIOS: Final = (
    Scenario(
        "clocks-jump",
        "the wall clocks of all nodes jump by days, not all the same way, and back",
        _clocks_jump,
        no_negative=True,
        prepare=_give_clocks,
    ),
)
