"""A log that is followed by a broker that does not own it: how old what it knows may be."""

from __future__ import annotations

import asyncio

from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.followed_log import FollowedLog
from pulsarish.model.errors import NotEnoughBookies, ServiceNotReady
from pulsarish.model.position import Position
from pulsarish.runtime.seams import World
from tests.support.logs import NAME, Shelf, names, simulate
from tests.support.memory_ledgers import MemoryLedgerClient, MemoryLedgers, MemoryReader


class Polled(MemoryReader):
    """A reader of a ledger whose bookies answer, or do not."""

    def __init__(self, client: Followed, ledger_id: int) -> None:
        super().__init__(client.cluster, client.cluster.find(ledger_id))
        self._client = client

    async def refresh(self, **_: object) -> int:
        if self.ledger_id in self._client.silent:
            raise NotEnoughBookies("no bookie answers")
        found = await self._client.metadata(self.ledger_id)
        assert found is not None
        self.metadata = found
        return await super().refresh()

    async def poll(self, wait_seconds: float) -> int:
        before, clock = self._last, self._client.world.clock
        until = clock.monotonic() + wait_seconds
        while (last := await super().refresh()) == before and clock.monotonic() < until:
            await clock.sleep(0.01)
        return last


class Followed(MemoryLedgerClient):
    def __init__(self, cluster: MemoryLedgers, world: World) -> None:
        super().__init__(cluster)
        self.world = world
        self.silent: set[int] = set()
        self.grew_to: list[Position] = []
        self._log: FollowedLog | None = None

    def _grew(self) -> None:
        if self._log is not None:
            self.grew_to.append(self._log.last_confirmed)

    async def open_no_recovery(self, ledger_id: int) -> Polled:
        await asyncio.sleep(0)
        return Polled(self, ledger_id)

    async def follow(self, shelf: Shelf) -> FollowedLog:
        log = await FollowedLog.open(
            NAME,
            self,  # type: ignore[arg-type]
            shelf.records(self.world),
            self.world,
            EntryCaches(1 << 20, 1 << 20),
            grew=self._grew,
            trimmed=lambda _last: None,
        )
        self._log = log
        _ = self.world.tasks.spawn(log.follow(), name="follow")
        return log


def test_the_lag_is_small_while_bookies_answer_and_grows_while_they_do_not() -> None:
    async def scenario(shelf: Shelf) -> None:
        owner, _ = await shelf.open()
        await shelf.append(owner, names(0, 3))

        async def work(world: World) -> None:
            client = Followed(shelf.ledgers, world)
            log = await client.follow(shelf)
            for _ in range(50):
                await world.clock.sleep(0.1)
                assert log.lag_seconds < 1.5
            client.silent.add(owner.ledgers[-1].ledger_id)
            await world.clock.sleep(10.0)
            assert "no bookie answers" in log.failure
            assert 8.5 < log.lag_seconds < 11.5
            client.silent.clear()
            await world.clock.sleep(2.0)
            assert not log.failure
            assert log.lag_seconds < 1.5
            log.stop(ServiceNotReady("over"))

        await shelf.on("b2", work)

    simulate(scenario)


def test_the_lag_of_a_topic_without_an_open_ledger_is_that_of_its_record() -> None:
    async def scenario(shelf: Shelf) -> None:
        owner, _ = await shelf.open()
        await shelf.append(owner, names(0, 3))
        await shelf.on("b1", lambda world: owner.close())

        async def work(world: World) -> None:
            log = await Followed(shelf.ledgers, world).follow(shelf)
            await world.clock.sleep(10.0)
            assert log.lag_seconds < 1.5
            log.stop(ServiceNotReady("over"))

        await shelf.on("b2", work)

    simulate(scenario)


def test_the_end_of_a_closed_ledger_says_nothing_of_the_next_one() -> None:
    async def scenario(shelf: Shelf) -> None:
        owner, _ = await shelf.open()
        await shelf.append(owner, names(0, 3))

        async def work(world: World) -> None:
            client = Followed(shelf.ledgers, world)
            log = await client.follow(shelf)
            await world.clock.sleep(3.0)
            await shelf.on("b1", lambda _: owner.roll())
            client.silent.add(owner.ledgers[-1].ledger_id)
            await shelf.append(owner, names(3, 4))
            confirmed_at = world.clock.monotonic()
            await world.clock.sleep(5.0)
            assert log.last_confirmed < owner.last_confirmed
            assert world.clock.monotonic() - log.lag_seconds < confirmed_at
            log.stop(ServiceNotReady("over"))

        await shelf.on("b2", work)

    simulate(scenario)


def test_a_ledger_that_is_found_closed_is_told_as_one_that_grew() -> None:
    """Without it readers would wait for the next message."""

    async def scenario(shelf: Shelf) -> None:
        owner, _ = await shelf.open()
        await shelf.append(owner, names(0, 3))

        async def work(world: World) -> None:
            client = Followed(shelf.ledgers, world)
            log = await client.follow(shelf)
            client.silent.add(owner.ledgers[-1].ledger_id)
            await world.clock.sleep(3.0)
            await shelf.on("b1", lambda _: owner.roll())
            await shelf.append(owner, names(3, 5))
            last = owner.last_confirmed
            await shelf.on("b1", lambda _: owner.roll())
            client.silent.clear()
            await world.clock.sleep(5.0)
            assert log.last_confirmed == last
            assert last in client.grew_to
            log.stop(ServiceNotReady("over"))

        await shelf.on("b2", work)

    simulate(scenario)
