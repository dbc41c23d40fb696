"""Election of the leader broker: the registered instance that the single ephemeral node names.

An instance that was evicted does not lead, although its session, and with it the node, may live on:
any other broker deletes the node. What the leader does is not urgent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, Op, World
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["LeaderElection"]

_log = get_logger("broker.leader")

_RETRY_SECONDS = 1.0


class LeaderElection:
    """Elects the leader.

    ``is_registered`` returns whether an instance is registered; raises ``MetadataUnavailable``.

    ``leader`` is the last known leader. ``is_leader`` is this broker's own belief; confirm it by a
    write when it matters.
    """

    def __init__(
        self, world: World, records: Records, is_registered: Callable[[str], Awaitable[bool]]
    ) -> None:
        self.leader: BrokerRegistration | None = None
        self.led_since = 0.0
        """When this broker was elected last (monotonic seconds)."""
        self._world = world
        self._records = records
        self._is_registered = is_registered
        self._me: BrokerRegistration | None = None
        self._changed = asyncio.Event()
        self._stopped = False

    @property
    def is_leader(self) -> bool:
        return (
            self.leader is not None
            and self._me is not None
            and self.leader.instance_id == self._me.instance_id
        )

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "leader election", self._run)

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    def stand(self, me: BrokerRegistration | None) -> None:
        """Stand for election under this registration; ``None``: stop standing."""
        self._me = me
        if me is None:
            self.leader = None
        self._changed.set()

    def look_again(self, _path: str = "") -> None:
        """Find out who leads, and whether it is registered."""
        self._changed.set()

    async def _run(self) -> None:
        while not self._stopped:
            self._changed.clear()
            try:
                await self._look()
            except MetadataUnavailable as error:
                _log.debug("leader election waits for metadata", reason=error)
                await self._world.clock.sleep(_RETRY_SECONDS)
                continue
            except CorruptData as error:
                _log.error("leader node unreadable", exception=error)
            await self._changed.wait()

    async def _look(self) -> None:
        node = (await self._records.nodes([paths.LEADER], watch=self.look_again))[0]
        if node is not None:
            leader = decode_record(node.data, BrokerRegistration, paths.LEADER)
            if await self._is_registered(leader.instance_id):
                self.leader = leader
                return
            _log.info("the leader is not registered any more", instance=leader.instance_id)
            with suppress(Conflict):
                await self._records.commit([Op("delete", paths.LEADER, version=node.version)])
        self.leader = None
        me = self._me
        if me is None:
            return
        try:
            await self._records.commit(
                [
                    Op("create_ephemeral", paths.LEADER, encode_record(me)),
                    Op("check", paths.broker(me.instance_id)),
                ]
            )
        except Conflict as conflict:
            if conflict.index == 0:
                # Another broker was faster; the watch is set or fires now.
                self._changed.set()
            return  # or this one was evicted, and will stand under its next instance
        self.leader, self.led_since = me, self._world.clock.monotonic()
        _log.info("this broker is the leader", broker=me.broker_id)

    async def resign(self) -> None:
        """Delete the leader node at a graceful stop, so that another broker leads at once."""
        if self.is_leader:
            try:
                await self._records.commit([Op("delete", paths.LEADER)])
            except (Conflict, MetadataUnavailable) as error:
                _log.debug("leader node not deleted", reason=error)
