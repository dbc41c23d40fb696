"""The load of this broker: of its process and machine, and of each of its bundles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsarish.broker.ownership.balance import BundleLoad
from pulsarish.broker.ownership.bundles import Bundle, bundle_of
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.model.errors import NotFound
from pulsarish.runtime.seams import World
from pulsarish.runtime.usage import Usage

__all__ = ["BundleTraffic", "LoadMeter", "ProcessLoad"]

_WINDOW_SECONDS: Final = 10.0
# Topics that are counted before other tasks may run.
_PIECE: Final = 100


@dataclass(slots=True)
class BundleTraffic:
    """The open topics of a bundle, their clients, and rates per second."""

    topics: int = 0
    producers: int = 0
    consumers: int = 0
    message_rate_in: float = 0.0
    byte_rate_in: float = 0.0
    message_rate_out: float = 0.0
    byte_rate_out: float = 0.0

    @property
    def load(self) -> BundleLoad:
        """What decides whether the bundle is moved or split."""
        return BundleLoad(
            self.topics,
            self.producers + self.consumers,
            self.message_rate_in + self.message_rate_out,
            self.byte_rate_in + self.byte_rate_out,
        )


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """Shares of CPU time over the last finished window, and memory.

    ``cpu`` is a share of one core; ``machine_cpu`` of all cores.
    """

    cpu: float
    machine_cpu: float
    usage: Usage


class LoadMeter:
    """Measures when it is asked; between questions it costs nothing."""

    def __init__(
        self,
        world: World,
        topics: LoadedTopics,
        ownership: Ownership,
        namespaces: Namespaces,
        usage: Callable[[], Usage],
    ) -> None:
        self._world = world
        self._topics = topics
        self._ownership = ownership
        self._namespaces = namespaces
        self._usage = usage
        self._began, self._before = world.clock.monotonic(), usage()
        self._cpu = self._machine_cpu = 0.0

    def process(self) -> ProcessLoad:
        """Return the load of the process and its machine. A window lasts at least 10 s."""
        now, usage = self._world.clock.monotonic(), self._usage()
        if (elapsed := now - self._began) >= _WINDOW_SECONDS:
            before = self._before
            self._cpu = (usage.process_cpu_seconds - before.process_cpu_seconds) / elapsed
            busy = (usage.machine_busy_seconds - before.machine_busy_seconds) / elapsed
            self._machine_cpu = busy / usage.machine_cores
            self._began, self._before = now, usage
        return ProcessLoad(self._cpu, self._machine_cpu, usage)

    async def loads(self) -> dict[Bundle, BundleLoad]:
        """Return the load of each owned bundle as one number of each kind."""
        return {bundle: traffic.load for bundle, traffic in (await self.bundles()).items()}

    async def bundles(self) -> dict[Bundle, BundleTraffic]:
        """Return the load of each owned bundle, in the order of their names."""
        found = {bundle: BundleTraffic() for bundle in self._ownership.owned.bundles()}
        now = self._world.clock.monotonic()
        for number, topic in enumerate(self._topics.served(), 1):
            name = topic.name
            try:
                policies = await self._namespaces.policies(name.tenant, name.namespace)
            except NotFound:
                continue  # deleted in the meantime
            traffic = found.get(bundle_of(name, policies))
            if traffic is not None:
                came, went = (
                    topic.traffic.came.rates(now),
                    [each.out.rates(now) for each in topic.subscriptions.values()],
                )
                traffic.topics += 1
                traffic.producers += len(topic.producers)
                traffic.consumers += sum(
                    len(each.consumers) for each in topic.subscriptions.values()
                )
                traffic.message_rate_in += came[0]
                traffic.byte_rate_in += came[1]
                traffic.message_rate_out += sum(rate for rate, _ in went)
                traffic.byte_rate_out += sum(rate for _, rate in went)
            if not number % _PIECE:
                await self._world.clock.sleep(0)
        return found
