"""The watch over backlog quotas: an excess takes effect, and ends, within two seconds.

Only topics that have a quota are looked at. Most of them need nothing, and then nothing is read and
no task is started.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.broker.topics.policy_enforcement import check_quota, is_quota_kept
from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["QuotaWatch"]

_INTERVAL_SECONDS: Final = 0.5
"""Half a second until an excess is found, and a second at most until a producer that was held asks
again: together less than two.
"""
_PIECE_TOPICS: Final = 100  # topics that are looked at before other tasks may run

_log = get_logger("broker.topics")


class QuotaWatch:
    """Watches the backlog quotas of the topics that one broker has loaded."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._topics: dict[str, Topic] = {}  # those that have a quota, by name
        self._checking: set[str] = set()
        self._failing: set[str] = set()  # topics whose last check failed
        self._stopped = False
        self._has_topics = asyncio.Event()

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "backlog quotas", self._run)

    def stop(self) -> None:
        self._stopped = True
        self._has_topics.set()

    def follow(self, topic: Topic) -> None:
        """Watch a topic while it has a quota. Call it when it was loaded or has new policies."""
        if _is_limited(topic):
            self._topics[topic.name.full] = topic
            self._has_topics.set()

    async def _run(self) -> None:
        while not self._stopped:
            if not self._topics:
                self._has_topics.clear()
                await self._has_topics.wait()
            await self._world.clock.sleep(_INTERVAL_SECONDS)
            now_ms = self._world.clock.wall_ms()
            for number, (full, topic) in enumerate(list(self._topics.items()), 1):
                if topic.closed is not None or not _is_limited(topic):
                    if self._topics.get(full) is topic:
                        del self._topics[full]
                        self._failing.discard(full)
                elif full not in self._checking and not is_quota_kept(topic, now_ms):
                    self._checking.add(full)
                    _ = topic.world.tasks.spawn(
                        self._check(full, topic), name=f"backlog quota of {full}"
                    )
                if not number % _PIECE_TOPICS:
                    await self._world.clock.sleep(0)

    async def _check(self, full: str, topic: Topic) -> None:
        """Enforce the quotas of one topic. What fails now is tried again in the next round."""
        try:
            await check_quota(topic, self._world.clock.wall_ms())
            self._failing.discard(full)
        except PulsarishError as error:
            if full not in self._failing:
                self._failing.add(full)
                _log.warning("the backlog quota is checked later", topic=full, reason=error)
        finally:
            self._checking.discard(full)


def _is_limited(topic: Topic) -> bool:
    return topic.topic_limits.has_quota or topic.topic_limits.quota_error is not None
