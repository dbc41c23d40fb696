"""This broker's registration and its view of the other registrations: ephemeral nodes named by
instance id.

A broker registers under a new instance id. So a broker that evicts deletes exactly the instance
that it judged. ``lost`` is called at once when the session or the node is gone; then the broker
registers again.

While no broker reaches the metadata service, a broker without a session keeps its instance. When it
reaches the service again, it registers the same instance in its new session, and asks which of its
bundles were taken meanwhile (``returned``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import CorruptData, MetadataUnavailable, PulsarishError
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, ConflictReason, Op, SessionState, Versioned, World
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["BrokerRegistry"]

_log = get_logger("broker.registry")

_RETRY_SECONDS = 0.2
_ADMIN_KEY_BITS = 128


class BrokerRegistry:
    """Registers this broker and watches the other registrations.

    Args:
        lost: called in the event loop when this broker may not serve any more.
        registered: called in the event loop with a new registration.
        why_end: called in the event loop when the session is lost. Returns why this broker may not
            continue without one; empty: it continues.
        returned: called when this broker is registered again after it continued without a session.
            If it raises, this is tried again.
        listed: called in the event loop when the registrations were read again.
    """

    def __init__(
        self,
        world: World,
        records: Records,
        *,
        lost: Callable[[str], None],
        registered: Callable[[BrokerRegistration], None],
        why_end: Callable[[], str],
        returned: Callable[[], Awaitable[None]],
        listed: Callable[[], None],
    ) -> None:
        self.away = False
        """Whether this broker continues although its session, and perhaps its registration, is
        gone.
        """
        self.alive: dict[str, BrokerRegistration] = {}
        self.me: BrokerRegistration | None = None
        self._world = world
        self._records = records
        self._lost = lost
        self._registered = registered
        self._why_end = why_end
        self._returned = returned
        self._listed = listed
        self._changed = asyncio.Event()
        self._alive_changed = asyncio.Event()
        self._stopped = False
        self._first = asyncio.Event()

    async def start(self, template: BrokerRegistration) -> None:
        """Register as ``template`` says, but with a new instance id.

        Returns once this broker is registered.
        """
        self._records.listen(self._session_changed)
        _ = self._world.tasks.spawn(
            self._run(template), name="broker registry", critical=Critical.REGISTRATION
        )
        await self._first.wait()

    @property
    def instance_id(self) -> str:
        """Id of the registered instance; empty while this broker is not registered."""
        return self.me.instance_id if self.me is not None else ""

    def others(self) -> list[BrokerRegistration]:
        """Return the registrations of all other brokers."""
        return [
            registration
            for instance_id, registration in self.alive.items()
            if instance_id != self.instance_id
        ]

    async def wait_for_change(self) -> None:
        """Wait until the registrations were read again, or until this broker stops."""
        self._alive_changed.clear()
        await self._alive_changed.wait()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST and self.me is not None and not self.away:
            why = self._why_end()
            if why:
                self.gone(f"the metadata session is lost, and {why}")
            else:
                self.away = True
        self._changed.set()

    def gone(self, reason: str) -> None:
        """Serve nothing any more, and register with a new instance id."""
        self.away = False
        self._changed.set()
        if self.me is not None:
            _log.warning("not registered any more", instance=self.me.instance_id, reason=reason)
            self.me = None
            self._lost(reason)

    async def _run(self, template: BrokerRegistration) -> None:
        while not self._stopped:
            self._changed.clear()
            try:
                if self._records.state is SessionState.CONNECTED:
                    if self.me is None:
                        await self._register(template)
                    elif self.away:
                        await self._register_again(self.me)
                await self._look()
            except MetadataUnavailable as error:
                _log.debug("registry waits for metadata", reason=error)
            except (PulsarishError, Conflict) as error:
                # Others wrote records that cannot be used, or deleted required ones. A restart
                # would meet the same state.
                _log.warning("registry waits for metadata that can be used", reason=error)
            else:
                await self._changed.wait()
                continue
            # A change ends the wait: a broker that is connected again may have been evicted, and
            # must learn that before its clients come back.
            with suppress(TimeoutError):
                async with self._world.clock.timeout(_RETRY_SECONDS):
                    await self._changed.wait()

    async def _register(self, template: BrokerRegistration) -> None:
        records = self._records
        session_id = records.session_id
        instance_id = f"{template.broker_id}~{self._world.random.getrandbits(32):08x}"
        started_ms, admin_key = (
            self._world.clock.wall_ms(),
            f"{self._world.random.getrandbits(_ADMIN_KEY_BITS):032x}",
        )
        me = msgspec.structs.replace(
            template, instance_id=instance_id, started_ms=started_ms, admin_key=admin_key
        )
        await self._drop_predecessors(template.address)
        try:
            await records.commit(
                [Op("create_ephemeral", paths.broker(instance_id), encode_record(me))]
            )
        except Conflict as conflict:
            if conflict.reason is ConflictReason.EXISTS:
                raise AssertionError(f"instance id {instance_id} was drawn twice") from None
            raise
        if records.session_id != session_id or records.state is SessionState.LOST or self._stopped:
            # The node was created in a session that is over by now: this instance must not use it.
            return
        self.me = me
        self.alive[instance_id] = me
        self._registered(me)
        self._first.set()
        _log.info("registered", instance=instance_id, address=me.address)

    async def _register_again(self, me: BrokerRegistration) -> None:
        """Register the same instance in the present session, and stop being ``away``.

        The registration of the former session may still be there.
        """
        records = self._records
        session_id = records.session_id
        path = paths.broker(me.instance_id)
        place, node = await records.nodes([paths.BROKERS, path])
        if node is None or node.session_id != session_id:
            before = [Op("create", paths.BROKERS)] if place is None else []
            if node is not None:
                before.append(Op("delete", path))
            await records.commit([*before, Op("create_ephemeral", path, encode_record(me))])
        await self._returned()
        if self.me is not me or not self.away:
            return
        if records.session_id == session_id and records.state is not SessionState.LOST:
            self.away = False
            self.alive[me.instance_id] = me
            self._registered(me)
            _log.info("registered again", instance=me.instance_id)

    async def _drop_predecessors(self, address: str) -> None:
        """Delete registrations at this address: their processes are gone, because this process
        holds the address.
        """
        records = self._records
        for name in await self._names():
            path = f"{paths.BROKERS}/{name}"
            node = (await records.nodes([path]))[0]
            registration = _registration(node, path)
            if registration is not None and registration.address == address:
                await self._delete(path)

    async def _names(self, watch: Callable[[str], None] | None = None) -> list[str]:
        try:
            return await self._records.watch_children(paths.BROKERS, watch)
        except Conflict:
            await self._records.ensure(paths.BROKERS)
            return await self._records.watch_children(paths.BROKERS, watch)

    async def _look(self) -> None:
        records = self._records
        names = await self._names(lambda _: self._changed.set())
        alive: dict[str, BrokerRegistration] = {}
        nodes = await records.nodes([f"{paths.BROKERS}/{name}" for name in names])
        for name, node in zip(names, nodes, strict=True):
            registration = _registration(node, f"{paths.BROKERS}/{name}")
            if registration is not None:
                alive[registration.instance_id] = registration
        self.alive = alive
        self._alive_changed.set()
        self._listed()
        me = self.me
        if me is not None and me.instance_id not in alive and not self.away:
            # A list from before the registration does not count: read the node itself.
            await records.sync(paths.BROKERS)
            evicted = (await records.nodes([paths.broker(me.instance_id)]))[0] is None
            # the session may have been lost in the meantime, and with it this registration
            if evicted and self.me is me:
                self.gone("evicted: the registration was deleted")
            self._changed.set()

    async def is_registered(self, instance_id: str) -> bool:
        """Read whether an instance is registered now. Raises ``MetadataUnavailable``."""
        node = (await self._records.nodes([paths.broker(instance_id)]))[0]
        registration = _registration(node, paths.broker(instance_id))
        if registration is not None:
            self.alive[instance_id] = registration
            self._alive_changed.set()
        return node is not None

    async def evict(self, instance_id: str) -> bool:
        """Delete an instance's registration, which frees its bundles.

        Return whether it existed. Raises ``MetadataUnavailable``.
        """
        was_there = await self._delete(paths.broker(instance_id))
        self.alive.pop(instance_id, None)
        return was_there

    async def _delete(self, path: str) -> bool:
        try:
            await self._records.commit([Op("delete", path)])
        except Conflict as conflict:
            if conflict.reason is not ConflictReason.NO_NODE:
                raise
            return False
        return True

    async def stop(self) -> None:
        """Unregister, so that no other broker has to find out that this one is gone."""
        self._stopped = True
        self._changed.set()
        self._alive_changed.set()
        me, self.me = self.me, None
        if me is not None:
            try:
                await self._delete(paths.broker(me.instance_id))
            except MetadataUnavailable as error:
                _log.debug("registration left to its session", reason=error)


def _registration(node: Versioned | None, path: str) -> BrokerRegistration | None:
    """Decode a registration; ``None`` if it is missing or unreadable.

    An unreadable broker stays registered, but gets no work.
    """
    if node is None:
        return None
    try:
        return decode_record(node.data, BrokerRegistration, path)
    except CorruptData as error:
        _log.error("the registration of a broker cannot be read", path=path, exception=error)
        return None
