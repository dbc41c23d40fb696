"""The progress guarantee in production.

A subscription with a backlog, permits and no reason to wait must read or deliver.

One task of the broker checks all subscriptions of loaded topics. One that has moved since the last
check costs one comparison. A breach is counted, logged with everything that decided it, and
repaired: the dispatcher is restarted, which loses and reorders nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.progress.collect import progress_mark, restart_dispatcher, snapshot_of
from pulsarish.broker.progress.explain import must_move
from pulsarish.runtime.containment import Scope, ScopeKind, run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.broker.subscriptions.subscription import Subscription
    from pulsarish.broker.topics.topic import Topic

__all__ = ["LOOKS", "STALLED", "ProgressWatchdog"]

STALLED: Final = "a subscription did not move and had no reason to wait"
"""The event in the log."""

LOOKS: Final = 3
"""Consecutive checks without progress that make a breach.

The time of the option lies between the first and the last of them.
"""
_PIECE_TOPICS: Final = 50  # topics checked before other tasks may run

_log = get_logger("broker.progress")


class ProgressWatchdog:
    """Checks all subscriptions of loaded topics and restarts stalled dispatchers."""

    def __init__(
        self, world: World, config: BrokerConfig, topics: Callable[[], Iterable[Topic]]
    ) -> None:
        self.stalls_count = 0
        self._world = world
        self._interval_seconds = config.dispatcher_progress_timeout_ms / 1000 / LOOKS
        self._repairs = config.unblock_stuck_subscription_enabled
        self._topics = topics
        self._stopped = False

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "progress watchdog", self._run)

    def stop(self) -> None:
        self._stopped = True

    async def _run(self) -> None:
        clock = self._world.clock
        while not self._stopped:
            await clock.sleep(self._interval_seconds)
            for number, topic in enumerate(list(self._topics()), 1):
                for subscription in list(topic.subscriptions.values()):
                    try:
                        self.look(subscription)
                    except Exception as error:  # noqa: BLE001
                        # An error of one subscription: check the others.
                        scope = Scope(ScopeKind.TOPIC, topic.name.full, topic.fail)
                        self._world.tasks.contain("progress watchdog", error, scope)
                if not number % _PIECE_TOPICS:
                    await clock.sleep(0)

    def look(self, subscription: Subscription) -> None:
        """Check one subscription. Restart its dispatcher when it has not moved for too long."""
        now_ms, stall, mark = (
            self._world.clock.wall_ms(),
            subscription.marks.stall,
            progress_mark(subscription),
        )
        if stall.moved(mark) or not subscription.consumers or subscription.closed is not None:
            stall.look(mark, now_ms, must_move=False)
            return
        snapshot = snapshot_of(subscription, now_ms)
        looks = stall.look(mark, now_ms, must_move=must_move(snapshot))
        if looks < LOOKS:
            return
        self.stalls_count += 1
        _log.error(
            STALLED,
            topic=subscription.topic,
            subscription=subscription.name,
            stalled_ms=now_ms - stall.since_ms,
            restarted=self._repairs,
            **snapshot.shown(),
        )
        # Count it once for each period of the option.
        stall.look(mark, now_ms, must_move=False)
        if self._repairs:
            restart_dispatcher(subscription)
