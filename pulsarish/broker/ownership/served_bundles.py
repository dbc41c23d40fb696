"""Which bundles this broker serves: those that it owns and is not unloading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.ownership import BundleSplit, Ownership
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import NotOwner, PulsarishError, ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Clock, Op

__all__ = ["ServedBundles"]

_MOVE_SECONDS_MAX: Final = 5.0


class _Leave:
    """A bundle that is being unloaded or split.

    ``done`` is set when that has ended. ``error`` says why the bundle did not leave.
    """

    __slots__ = ("done", "error", "is_split")

    def __init__(self, *, is_split: bool) -> None:
        self.is_split = is_split
        self.done = asyncio.Event()
        self.error: Exception | None = None


class ServedBundles:
    """The bundles of one broker, as its topics ask for them."""

    def __init__(self, clock: Clock, ownership: Ownership) -> None:
        self._clock = clock
        self._ownership = ownership
        # bundles being unloaded or split: their topics are not opened
        self._leaving: dict[Bundle, _Leave] = {}
        # bundles that their owners have announced, and until when clients wait for them
        self._arriving: dict[Bundle, tuple[asyncio.Event, float]] = {}

    @property
    def leaving(self) -> Sequence[Bundle]:
        """The bundles that are being unloaded."""
        return tuple(self._leaving)

    def owned(self) -> list[Bundle]:
        return self._ownership.owned.bundles()

    def serves(self, bundle: Bundle) -> bool:
        return self.served_epoch(bundle) is not None

    def served_epoch(self, bundle: Bundle) -> int | None:
        """Return the epoch of a bundle; ``None`` if this broker does not own it or unloads it."""
        return None if bundle in self._leaving else self.epoch(bundle)

    def epoch(self, bundle: Bundle) -> int | None:
        """Return the version of the bundle's record under which this broker owns it; ``None``: it
        does not own it.
        """
        return self._ownership.owned.epoch(bundle)

    def lease(self, name: TopicName, bundle: Bundle) -> Sequence[Op]:
        """Return the conditions on metadata under which a topic of the bundle may be changed.

        Raises ``NotOwner``.
        """
        lease = self._ownership.lease(bundle)
        if lease is None or bundle in self._leaving:
            raise NotOwner(f"this broker does not serve {name}; look it up again")
        return lease

    def lost(self, bundle: Bundle, epoch: int | None) -> None:
        """Note that this broker does not own the bundle any more, unless it acquired it again."""
        if self.epoch(bundle) == epoch:
            self._ownership.owned.released(bundle)

    async def left(self, bundle: Bundle) -> None:
        """Wait until the unload of a bundle has ended, if one is under way.

        Raises ``ServiceNotReady`` if that takes long.
        """
        leave = self._leaving.get(bundle)
        if leave is None:
            return
        try:
            async with self._clock.timeout(_MOVE_SECONDS_MAX):
                await leave.done.wait()
        except TimeoutError:
            raise ServiceNotReady(f"bundle {bundle} is still being unloaded; try again") from None

    # -- bundles that come from other brokers

    def expect(self, bundle: Bundle) -> None:
        """Let clients wait for a bundle that its owner is about to hand over to this broker.

        Raises ``ServiceNotReady`` if this broker takes no bundles, or may not have this one.
        """
        self._ownership.check_takes(bundle)
        now = self._clock.monotonic()
        for late in [each for each, (_, until) in self._arriving.items() if until < now]:
            del self._arriving[late]
        event, _ = self._arriving.get(bundle) or (asyncio.Event(), now)
        self._arriving[bundle] = event, now + _MOVE_SECONDS_MAX

    async def take(self, bundle: Bundle, owner: str, epoch: int) -> None:
        """Acquire a bundle, and serve the clients that wait for it.

        Raises the errors of ``Ownership.take``. Then the clients look their topics up.
        """
        try:
            await self._ownership.take(bundle, owner, epoch)
        finally:
            event, _ = self._arriving.pop(bundle, (None, 0.0))
            if event is not None:
                event.set()

    async def learn(self, bundle: Bundle) -> None:
        """Find out whether a bundle is this broker's after all, for a client that was sent here.

        Its owner may be about to hand it over. Or other brokers know better than this one, which
        got no answer when it split the bundle.

        Raises the errors of ``Ownership.owner``.
        """
        await self.arrived(bundle)
        if not self.serves(bundle) and bundle not in self._leaving:
            _ = await self._ownership.owner(bundle)

    async def arrived(self, bundle: Bundle) -> None:
        """Wait for a bundle that its owner has announced, until it comes, or for a few seconds."""
        event, until = self._arriving.get(bundle, (None, 0.0))
        if event is None:
            return
        with suppress(TimeoutError):
            async with self._clock.timeout(max(0.0, until - self._clock.monotonic())):
                await event.wait()

    # -- bundles that go

    async def unload(
        self,
        bundle: Bundle,
        close: Callable[[Bundle], Awaitable[None]],
        to: BrokerRegistration | None = None,
    ) -> None:
        """Close the topics of a bundle with ``close``, then release the bundle or hand it over to
        the broker ``to``.

        ``to`` is asked before anything is closed. From then on it lets clients wait that come too
        early, so they can be sent there as soon as their topics are closed.

        If the bundle is being unloaded already, wait for that and raise its error if it fails.

        Raises ``ServiceNotReady`` if ``to`` takes no bundles; then nothing was closed.
        """
        if to is not None and bundle not in self._leaving:
            await self._ownership.announce(bundle, to)
        under_way = self._leaving.get(bundle)
        if under_way is not None:
            await under_way.done.wait()
            if under_way.error is not None:
                raise under_way.error
            if under_way.is_split:
                raise ServiceNotReady(f"bundle {bundle} has just been split; unload its parts")
            if to is not None:
                raise ServiceNotReady(
                    f"bundle {bundle} was being unloaded already, perhaps to another broker than "
                    f"{to.broker_id}; look it up, and try again if it is not there"
                )
            return
        async with self._leave(bundle):
            await close(bundle)
            await self._ownership.release(bundle, to)

    async def split(
        self,
        bundle: Bundle,
        parts: Sequence[Bundle],
        commit: Callable[[Sequence[Op]], Awaitable[None]],
        renew: Callable[[], None],
    ) -> None:
        """Replace a bundle by ``parts``, which this broker owns afterwards. Its topics stay open.

        Args:
            commit: writes the namespace's new list of bundles together with what it is given.
            renew: gives the open topics of the bundle the leases of the parts.

        Raises ``ServiceNotReady`` if the bundle is being unloaded, the errors of
        ``Ownership.free_versions`` and ``split_ops``, and those of ``commit``. Then the bundle is
        as before, or its record says that it is split, and no commit of its topics succeeds.
        """
        ownership = self._ownership
        versions = await ownership.free_versions(parts)
        if bundle in self._leaving:
            raise ServiceNotReady(f"bundle {bundle} is being unloaded or split; try again")
        ops, instance_id = ownership.split_ops(bundle, versions), ownership.registry.instance_id
        async with self._leave(bundle, is_split=True):
            try:
                await commit(ops)
            except PulsarishError:
                if await self._is_split(bundle):  # the answer was lost
                    for part in parts:
                        _ = await ownership.owner(part)
                    renew()
                raise
            ownership.was_split(bundle, versions, instance_id)
            renew()

    async def _is_split(self, bundle: Bundle) -> bool:
        """Return whether a bundle of this broker is known to be split, after a commit with an
        unknown outcome.
        """
        owned = self._ownership.owned
        epoch, instance_id = owned.epoch(bundle), self._ownership.registry.instance_id
        if epoch is None:  # its topics have been dropped
            return False
        owned.released(bundle)
        try:
            _ = await self._ownership.owner(bundle)
        except BundleSplit:
            return True
        except PulsarishError:
            # Not known yet. If it is split, the next commit of each topic is refused.
            if instance_id == self._ownership.registry.instance_id:
                owned.acquired(bundle, epoch)
        return False

    @asynccontextmanager
    async def _leave(self, bundle: Bundle, *, is_split: bool = False) -> AsyncIterator[None]:
        leave = self._leaving[bundle] = _Leave(is_split=is_split)
        try:
            yield
        except Exception as error:
            leave.error = error
            raise
        except asyncio.CancelledError:
            leave.error = ServiceNotReady(f"the unload of bundle {bundle} was cancelled; try again")
            raise
        finally:
            del self._leaving[bundle]
            leave.done.set()
