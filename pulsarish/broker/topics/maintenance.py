"""Periodic maintenance of loaded topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.topics.policy_enforcement import enforce_policies
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.containment import Critical, Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.broker.topics.loaded_topics import LoadedTopics
    from pulsarish.broker.topics.topic import Topic

__all__ = ["Maintenance"]

# Topics maintained before other tasks may run: most need nothing, and then nothing is waited for.
_PIECE_TOPICS: Final = 50

_log = get_logger("broker.topics")


class Maintenance:
    """Maintains the topics of one broker."""

    def __init__(self, world: World, config: BrokerConfig, topics: LoadedTopics) -> None:
        self._world = world
        self._interval_seconds = config.managed_ledger_maintenance_interval_seconds
        self._topics = topics
        # topics in maintenance; true: maintain once more afterwards
        self._looking_after: dict[str, bool] = {}
        self._stopped = False

    def start(self) -> None:
        _ = self._world.tasks.spawn(
            self._run(), name="topic maintenance", critical=Critical.MAINTENANCE
        )

    def stop(self) -> None:
        self._stopped = True

    async def _run(self) -> None:
        """Maintain all topics periodically: replace old ledgers, trim, finish deletions, and
        enforce policies.
        """
        while not self._stopped:
            await self._world.clock.sleep(self._interval_seconds)
            for number, topic in enumerate(list(self._topics.loaded.values()), 1):
                if topic.closed is not None:
                    continue
                try:
                    await self.look_after(topic)
                except Exception as error:  # noqa: BLE001
                    # An error of one topic ends it: maintain the others.
                    self._world.tasks.contain(f"maintenance of {topic.name}", error, topic.scope)
                if not number % _PIECE_TOPICS:
                    await self._world.clock.sleep(0)
            await self._let_go_of_unused()

    async def _let_go_of_unused(self) -> None:
        try:
            await self._topics.not_kept.let_go_of_unused()
        except PulsarishError as error:
            _log.warning("unused topics are deleted later", reason=error)
        except Exception as error:  # noqa: BLE001  # an error of one topic: maintain the others
            self._world.tasks.contain(
                "topic maintenance", error, Scope(ScopeKind.TASK, "unused non-persistent topics")
            )

    async def look_after(self, topic: Topic) -> None:
        """Maintain a topic.

        Only one run at a time; if called meanwhile, run once more afterwards.
        """
        full = topic.name.full
        if full in self._looking_after:
            self._looking_after[full] = True
            return
        again = True
        while again:
            self._looking_after[full] = False
            try:
                if await enforce_policies(
                    topic, self._world.clock.wall_ms(), self._interval_seconds
                ):
                    await self._topics.delete_unused(topic)
            except PulsarishError as error:
                _log.warning("maintenance goes on later", topic=topic.name, reason=error)
            finally:
                again = self._looking_after.pop(full) and topic.closed is None
