"""The call that lists the topics of a namespace, all or those that match a pattern, and waits for
changes of the list.

A caller that has a list names its hash. The broker then answers when the list is another one, or
after a while. So nothing is lost when a caller comes to another broker, or comes late: what counts
is the difference between both lists, not the changes between two answers.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from pulsarish.broker.clients.authorization import Gate, Resource, Visible, is_visible
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.topics.topic_lists import TopicLists, TopicWatch, list_hash
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.model.topic_pattern import compile_pattern, plain_name
from pulsarish.runtime.seams import Clock
from pulsarish.security.callers import Callers
from pulsarish.security.credentials import Caller
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["TopicCalls"]

_TOPICS_MAX: Final = 10_000
_WAIT_SECONDS_MAX: Final = 30.0
_IDLE_MAX: Final = 64
_IDLE_SECONDS: Final = 60.0
"""Without a call that waits, this number of watches is kept, each for this time."""


@dataclass(eq=False, slots=True)
class _Kept:
    """A watch that all calls with one pattern share."""

    watch: TopicWatch
    hash: str
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the names are others, and then replaced."""
    calls_count: int = 0
    left_at: float = 0.0


class TopicCalls:
    """The handler of ``broker.topics``."""

    def __init__(
        self,
        *,
        clock: Clock,
        gate: Gate,
        callers: Callers,
        namespaces: Namespaces,
        lists: TopicLists,
    ) -> None:
        self._clock = clock
        self._gate = gate
        self._callers = callers
        self._namespaces = namespaces
        self._lists = lists
        self._kept: OrderedDict[tuple[str, str, str], _Kept] = OrderedDict()
        self._stopped = False

    async def list_topics(self, data: bytes, caller: Caller) -> bytes:
        """Answer a call."""
        try:
            request = pb.TopicsRequest.FromString(data)
        except DecodeError as error:
            raise InvalidArgument(f"not a TopicsRequest: {error}") from None
        try:
            answer = await self._answer(request, caller)
        except PulsarishError as error:
            answer = pb.TopicsResponse(code=error.code, message=str(error))
        return answer.SerializeToString()

    def stop(self) -> None:
        """Answer the calls that wait, and let no more wait."""
        self._stopped = True
        for kept in self._kept.values():
            kept.changed.set()

    async def _answer(self, request: pb.TopicsRequest, caller: Caller) -> pb.TopicsResponse:
        resource = Resource.of_namespace(request.namespace)
        visible = await self._visible(resource, caller)
        if request.pattern and not request.non_persistent:
            return await self._watched(request, resource, visible, caller)
        if request.pattern:
            matches = compile_pattern(request.pattern)
            found = await self._lists.not_kept(resource.tenant, resource.namespace)
            names = _seen((name for name in found if matches(plain_name(name))), visible)
            digest = list_hash(names)
            return _page(request, [] if digest == request.known_hash else names, digest)
        await self._namespaces.policies(resource.tenant, resource.namespace)
        found = await self._namespaces.topics(resource.tenant, resource.namespace)
        return _page(request, _seen(found, visible), "")

    async def _visible(self, resource: Resource, caller: Caller) -> Visible:
        identity = await self._callers.identify_caller(caller)
        return await self._gate.visible("broker.topics", identity, resource)

    async def _watched(
        self, request: pb.TopicsRequest, resource: Resource, visible: Visible, caller: Caller
    ) -> pb.TopicsResponse:
        """Answer with what matches now, or once it is not what the caller has.

        A difference is reported from a listing that began after the call. An older one may lack
        what the caller has seen at another broker.
        """
        kept, is_fresh = await self._keep(resource, request.pattern)
        try:
            is_page = bool(request.after)
            wait_seconds = request.wait_ms / 1_000 if request.known_hash else 0.0
            deadline = self._clock.monotonic() + min(wait_seconds, _WAIT_SECONDS_MAX)
            while True:
                names: Iterable[str] = kept.watch.names
                digest = kept.hash
                if visible is not None:
                    names = _seen(names, visible)
                    digest = list_hash(names)
                left = deadline - self._clock.monotonic()
                is_due = digest != request.known_hash or left <= 0 or self._stopped
                if is_due and (is_fresh or is_page):
                    break
                if is_due:
                    await self._lists.refresh(kept.watch)
                elif not await self._has_changed(kept, left):
                    names = ()
                    break
                else:
                    # Rights and credentials may have ended meanwhile.
                    visible = await self._visible(resource, caller)
                is_fresh = True
            if digest == request.known_hash:
                if (failure := self._lists.failure(kept.watch)) is not None:
                    raise failure
                names = ()
            return _page(request, sorted(names), digest)
        finally:
            self._leave(kept)

    async def _has_changed(self, kept: _Kept, seconds: float) -> bool:
        """Wait for a change. Return whether there was one, or the broker stops."""
        try:
            async with self._clock.timeout(seconds):
                await kept.changed.wait()
        except TimeoutError:
            return False
        return True

    async def _keep(self, resource: Resource, pattern: str) -> tuple[_Kept, bool]:
        """Return the watch of a pattern, and whether its names were read just now."""
        key = resource.tenant, resource.namespace, pattern
        kept = self._kept.get(key)
        is_new = kept is None
        if kept is None:
            kept = await self._begin(key)
        self._kept.move_to_end(key)
        kept.calls_count += 1
        return kept, is_new

    async def _begin(self, key: tuple[str, str, str]) -> _Kept:
        def tell(_new: Sequence[str], _gone: Sequence[str], digest: str) -> None:
            kept.hash = digest
            changed, kept.changed = kept.changed, asyncio.Event()
            changed.set()
            if not kept.calls_count and self._clock.monotonic() - kept.left_at > _IDLE_SECONDS:
                self._end(key)

        watch = await self._lists.watch(*key, tell)
        kept = _Kept(watch, list_hash(watch.names))
        other = self._kept.setdefault(key, kept)
        if other is not kept:  # another call was faster, with a listing that is as new
            self._lists.end(watch)
        return other

    def _leave(self, kept: _Kept) -> None:
        kept.calls_count -= 1
        kept.left_at = self._clock.monotonic()
        idle = [key for key, each in self._kept.items() if not each.calls_count]
        for key in idle[:-_IDLE_MAX]:
            self._end(key)

    def _end(self, key: tuple[str, str, str]) -> None:
        self._lists.end(self._kept.pop(key).watch)


def _seen(names: Iterable[str], visible: Visible) -> list[str]:
    return [name for name in names if is_visible(visible, TopicName.parse(name))]


def _page(request: pb.TopicsRequest, names: Sequence[str], digest: str) -> pb.TopicsResponse:
    start = bisect_right(names, request.after) if request.after else 0
    end = start + min(request.limit or _TOPICS_MAX, _TOPICS_MAX)
    return pb.TopicsResponse(topics=names[start:end], more=end < len(names), hash=digest)
