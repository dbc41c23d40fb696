"""A node that could not handle the end of its session ends: another may serve by now what it
owned.
"""

from __future__ import annotations

import asyncio

from pulsarish.metadata.zookeeper.kazoo_bridge import LoopQueue
from pulsarish.metadata.zookeeper.store import ZooKeeperStore
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.seams import SessionState
from pulsarish.runtime.tasks import Supervisor


class Defect(Exception):
    """What nobody has thought of."""


def _fail(*_arguments: object) -> None:
    raise Defect


def test_a_listener_that_fails_ends_the_node() -> None:
    deaths: list[str] = []

    async def scenario() -> None:
        tasks = Supervisor(died=lambda task, _error: deaths.append(task))
        store = ZooKeeperStore("127.0.0.1:1", "/", clock=SystemClock(), tasks=tasks)
        store.listen(_fail)
        store._post(store._generation, lambda: store._change(SessionState.SUSPENDED))
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert deaths == ["metadata-session"]


def test_a_call_that_fails_does_not_keep_those_after_it() -> None:
    called: list[str] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: called.append(type(context["exception"]).__name__)
        )
        queue = LoopQueue(asyncio.get_running_loop())
        queue.post_later(_fail)
        queue.post(lambda: called.append("second"))
        for _ in range(5):
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert called == ["Defect", "second"]
