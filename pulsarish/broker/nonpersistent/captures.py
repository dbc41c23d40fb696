"""Captured messages of this broker's non-persistent topics, on their way to persistent topics.

There is one queue for each rule and bundle, because a bundle is what brokers own. It sends one
request at a time to the owner of the persistent topic, and sends it again until each entry has its
outcome. So what it stores is in the order in which this broker received it. The number of bytes
that wait is limited, for each rule and for all. Entries of a bundle that leaves are never sent
later: its next owner may have sent newer ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from pulsarish.broker.clients.producer import Producer
from pulsarish.broker.nonpersistent.captured_entry import captured_entry, captured_producer
from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.policies.store import Effective, captures_of
from pulsarish.broker.publishing.producers import TopicProducers
from pulsarish.model.captures import CaptureRule
from pulsarish.model.errors import (
    NotFound,
    PulsarishError,
    ServiceNotReady,
    error_from_code,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["NO_CAPTURES", "CaptureQueue", "CaptureReceipt", "Captures", "SendCaptured"]

_log = get_logger("broker.captures")

_BATCH_BYTES_MAX: Final = 256 << 10
_BATCH_ENTRIES_MAX: Final = 1_000
_RETRY_SECONDS: Final = 0.1
_RETRY_SECONDS_MAX: Final = 2.0
_SETTLE_SECONDS_MAX: Final = 3.0
_TURN_SECONDS: Final = 0.01
_FAILING_SECONDS: Final = 1.0
_LOG_AGAIN_SECONDS: Final = 60.0

SendCaptured = Callable[[pb.CaptureRequest], Awaitable[pb.CaptureResponse]]
"""Has the owner of the persistent topic store entries. Raises ``PulsarishError`` without answer."""
ReadPolicies = Callable[[str, str], Awaitable[Effective]]
"""Returns the policies of a namespace. Raises ``NotFound``, ``MetadataUnavailable``."""


class CaptureReceipt:
    """The receipt that a producer gets once an entry is stored by all rules that it waits for."""

    __slots__ = ("_entry", "_error", "_left_count", "_producer", "_producers", "_sequence_id")

    def __init__(
        self,
        producers: TopicProducers,
        producer: Producer,
        entry: tuple[int, int],
        sequence_id: int,
        count: int,
    ) -> None:
        """``entry``: what the receipt says. ``count``: the number of rules."""
        self._producers = producers
        self._producer = producer
        self._entry = entry
        self._sequence_id = sequence_id
        self._left_count = count
        self._error: PulsarishError | None = None

    def settle(self, error: PulsarishError | None = None) -> None:
        """Note the outcome of one rule. After the last one the producer gets its answer."""
        self._left_count -= 1
        self._error = self._error or error
        if self._left_count:
            return
        producer = self._producer
        if self._error is None:
            producer.confirmed(*self._entry, 1, self._sequence_id)
        else:
            producer.refuse_next(self._sequence_id, self._error)
        self._producers.flights.forget(producer, connected=producer.name in self._producers.by_name)


class _Waiting(NamedTuple):
    source: TopicName
    entry: bytes
    receipt: CaptureReceipt | None


class CaptureQueue:
    """What one rule has captured of one bundle's topics, and is not stored yet."""

    def __init__(
        self, captures: Captures, name: str, rule: CaptureRule, bundle: Bundle, epoch: int
    ) -> None:
        self.name = name
        self.rule = rule
        self.bundle = bundle
        self.has_ended = False
        """Whether nothing is sent any more: the bundle left, or the rule is gone."""
        self._captures = captures
        self.epoch = epoch
        self._is_removed = False
        self._waiting: deque[_Waiting] = deque()
        self._put_count = 0
        self._is_sending = False
        self._settled = asyncio.Event()
        self._failing_since: float | None = None
        self._backoff = Backoff(_RETRY_SECONDS, _RETRY_SECONDS_MAX)

    @property
    def full_name(self) -> str:
        return f"{self.bundle.tenant}/{self.bundle.namespace}/{self.name}"

    @property
    def has_room(self) -> bool:
        """Whether publishers may go on. A rule that drops never stops them."""
        return self.has_ended or self.rule.when_full == "drop" or self._takes_more

    @property
    def _takes_more(self) -> bool:
        return not self._captures.is_full(self)

    def put(self, source: TopicName, entry: bytes, receipt: CaptureReceipt | None = None) -> None:
        """Store an entry soon. Drops it if the rule says so, or if the queue has ended.

        ``receipt``: settled once it is stored, or when the rule is removed. A rule whose publishers
        wait for it never drops.
        """
        if self._is_removed and receipt is not None:
            receipt.settle()
        if self.has_ended or (self.rule.when_full == "drop" and not self._takes_more):
            gone = "the rule or the bundle is gone"
            self._captures.dropped(
                self, 1, gone if self.has_ended else "too many bytes wait to be stored"
            )
            return
        self._waiting.append(_Waiting(source, entry, receipt))
        self._put_count += 1
        self._captures.took(self, len(entry))
        if not self._is_sending:
            self._is_sending = True
            self._captures.spawn(self, self._send_all())

    def end(self, reason: str, *, is_removed: bool = False) -> None:
        """Send nothing more.

        ``is_removed``: the rule was removed. Then entries whose producers wait for their receipts
        get them, as those of topics that are not captured. Otherwise they get none, and their
        producers send them again.
        """
        self.has_ended, self._is_removed = True, is_removed
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            self._captures.gave_up(self, len(each.entry))
            if each.receipt is not None and is_removed:
                each.receipt.settle()
        lost = sum(each.receipt is None or is_removed for each in waiting)
        if lost:
            self._captures.dropped(self, lost, reason)
        self._captures.wake()
        self._settled.set()

    @property
    def is_failing(self) -> bool:
        """Whether nothing could be stored for longer than it takes to find another owner."""
        since = self._failing_since
        return since is not None and self._captures.now() - since >= _FAILING_SECONDS

    async def settled(self) -> None:
        """Wait until nothing waits any more, or until requests fail for a while."""
        while self._waiting and not self.has_ended and not self.is_failing:
            self._settled.clear()
            await self._settled.wait()

    async def last_sequence_id(self, source: TopicName, producer: str) -> int:
        """Return the last sequence id of a producer of a topic that deduplication of the persistent
        topic knows; -1: it knows none.

        Waits until all that was captured before is stored. Raises ``ServiceNotReady``, and
        ``PulsarishError`` when the persistent topic cannot be asked.
        """
        number = self._put_count
        while not self.has_ended and self._put_count - len(self._waiting) < number:
            if self.is_failing:
                raise ServiceNotReady(
                    f"messages that rule {self.full_name} captured wait to be stored in "
                    f"{self.rule.into}; open the producer again"
                )
            self._settled.clear()
            await self._settled.wait()
        if self.has_ended:
            return -1
        request = pb.CaptureRequest(
            into=self.rule.into, rule=self.full_name, ask=captured_producer(source, producer)
        )
        answer = await self._captures.send(request)
        if answer.code:
            raise error_from_code(answer.code, answer.message)
        return answer.next_sequence_id - 1

    async def _send_all(self) -> None:
        try:
            while self._waiting and not self.has_ended:
                await self._send_some()
        finally:
            self._is_sending = False
            self._settled.set()

    async def _send_some(self) -> None:
        runs = await self._runs(self._batch())
        if not self._waiting:
            return  # the queue has ended
        request = pb.CaptureRequest(
            into=self.rule.into,
            rule=self.full_name,
            range=self.bundle.range,
            epoch=self.epoch,
            runs=runs,
        )
        try:
            answer = await self._captures.send(request)
        except PulsarishError as error:
            answer = pb.CaptureResponse(code=error.code, message=str(error))
        if self.has_ended:
            return
        if answer.done or not answer.code:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = self._captures.now()
        self._note_outcomes(answer)
        if answer.code:
            self._captures.report(self, answer.message)
            self._settled.set()
            await self._captures.pause(self._backoff.next_seconds())
            await self._read_rule()
        else:
            self._backoff.reset()

    def _batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size_bytes = 0
        for each in self._waiting:
            size_bytes += len(each.entry)
            if batch and (len(batch) == _BATCH_ENTRIES_MAX or size_bytes > _BATCH_BYTES_MAX):
                break
            batch.append(each)
        return batch

    async def _runs(self, batch: Iterable[_Waiting]) -> list[pb.CapturedRun]:
        """Return entries as they are stored. Lets other work go on meanwhile."""
        runs: list[pb.CapturedRun] = []
        began = self._captures.now()
        for each in batch:
            producer, entry = captured_entry(
                each.entry, each.source, batch_bytes_max=self._captures.message_bytes_max
            )
            if not runs or runs[-1].producer != producer:
                runs.append(pb.CapturedRun(producer=producer))
            runs[-1].entries.append(entry)
            if self._captures.now() - began > _TURN_SECONDS:
                await self._captures.pause(0)
                began = self._captures.now()
        return runs

    def _note_outcomes(self, answer: pb.CaptureResponse) -> None:
        refused = {each.index: each for each in answer.refused}
        for index in range(min(answer.done, len(self._waiting))):
            each = self._waiting.popleft()
            error = None
            if index in refused:
                error = error_from_code(refused[index].code, refused[index].message)
                self._captures.refused(self, error)
            else:
                self._captures.stored_count += 1
            self._captures.gave_up(self, len(each.entry))
            if each.receipt is not None:
                each.receipt.settle(error)
        self._captures.wake()
        self._settled.set()

    async def _read_rule(self) -> None:
        """Follow a change of the rule, also while no topic of its namespace is open."""
        bundle = self.bundle
        try:
            found = await self._captures.policies(bundle.tenant, bundle.namespace)
            rule = captures_of(found.namespace).get(self.name)
        except NotFound:
            rule = None
        except PulsarishError:
            return  # the next failure reads it again
        if self.has_ended:
            return
        if rule is None:
            self._captures.removed(self)
        else:
            self.use(rule)

    def use(self, rule: CaptureRule) -> None:
        """Apply a changed rule. What waits goes where the rule says now."""
        if rule != self.rule:
            self.rule = rule
            self._captures.wake()


NO_CAPTURES: Final[Sequence[CaptureQueue]] = ()


class Captures:
    """The queues of one broker.

    Args:
        pending_bytes_max: how many bytes may wait in all of them.
        message_bytes_max: the size of the largest message that a client may publish.
        policies: reads the policies of a namespace.
    """

    def __init__(
        self,
        world: World,
        pending_bytes_max: int,
        message_bytes_max: int,
        policies: ReadPolicies,
    ) -> None:
        self.message_bytes_max = message_bytes_max
        self.policies = policies
        self.pending_bytes = 0
        """Bytes that wait to be stored."""
        self.stored_count = 0
        """Entries that were stored since the start."""
        self.dropped_count = 0
        """Entries that were not captured, because too many bytes waited or because their bundle or
        rule was gone.
        """
        self.refused_count = 0
        """Entries that the persistent topic refused for what they are."""
        self.failures_count = 0
        """Requests after which entries were sent again."""
        self._world = world
        self._pending_bytes_max = pending_bytes_max
        self._send: SendCaptured | None = None
        self._attempts_count = 0
        self._sender = f"capture {world.random.getrandbits(64):016x}"
        self._queues: dict[tuple[Bundle, str], CaptureQueue] = {}
        self._bytes: dict[str, int] = {}  # by full name of a rule
        self._room = asyncio.Event()
        self._logged_at: dict[str, float] = {}

    def begin(self, send: SendCaptured) -> None:
        """Set how entries are sent. Queues wait until then."""
        self._send = send

    # -- topics

    def of(
        self, name: TopicName, bundle: Bundle, epoch: int, policies: Effective
    ) -> Sequence[CaptureQueue]:
        """Return the queues of the rules that capture a topic.

        ``epoch``: that of this broker's ownership of ``bundle``.
        """
        rules = captures_of(policies.namespace)
        self._end_removed(bundle, rules)
        if not rules:
            return NO_CAPTURES
        return [
            self._queue(each, rule, bundle, epoch)
            for each, rule in sorted(rules.items())
            if rule.matches(name)
        ]

    def _queue(self, name: str, rule: CaptureRule, bundle: Bundle, epoch: int) -> CaptureQueue:
        queue = self._queues.get((bundle, name))
        if queue is None:
            queue = CaptureQueue(self, name, rule, bundle, epoch)
            self._queues[bundle, name] = queue
        queue.use(rule)
        queue.epoch = max(queue.epoch, epoch)
        return queue

    def _end_removed(self, bundle: Bundle, rules: Mapping[str, CaptureRule]) -> None:
        for queue in [each for each in self._queues.values() if each.bundle == bundle]:
            if queue.name not in rules:
                self.removed(queue)

    def removed(self, queue: CaptureQueue) -> None:
        """End the queue of a rule that was removed."""
        _ = self._queues.pop((queue.bundle, queue.name), None)
        queue.end("the rule was removed", is_removed=True)

    async def settle(self, bundle: Bundle) -> None:
        """Wait for a while until what was captured of a bundle is stored.

        Does not wait for persistent topics that cannot be reached now.
        """
        with suppress(TimeoutError):
            async with self._world.clock.timeout(_SETTLE_SECONDS_MAX):
                for queue in self._of_bundle(bundle):
                    await queue.settled()

    def drop_bundle(self, bundle: Bundle) -> None:
        """Send nothing more of a bundle that this broker does not serve any more."""
        for queue in self._of_bundle(bundle):
            del self._queues[queue.bundle, queue.name]
            queue.end("the bundle of the topics left this broker")

    def drop_all(self) -> None:
        for bundle in {each.bundle for each in self._queues.values()}:
            self.drop_bundle(bundle)

    def _of_bundle(self, bundle: Bundle) -> list[CaptureQueue]:
        return [each for each in self._queues.values() if each.bundle == bundle]

    async def wait_for_change(self) -> None:
        """Wait until a queue may have room again, or until a topic has closed."""
        self._room.clear()
        await self._room.wait()

    def wake(self) -> None:
        """Have those look again that wait for room."""
        self._room.set()

    # -- queues

    def is_full(self, queue: CaptureQueue) -> bool:
        """Return whether as many bytes wait as the queue's rule allows, or all rules together."""
        return (
            self._bytes.get(queue.full_name, 0) >= queue.rule.pending_bytes_max
            or self.pending_bytes >= self._pending_bytes_max
        )

    def took(self, queue: CaptureQueue, size_bytes: int) -> None:
        """Count bytes that wait from now on."""
        self.pending_bytes += size_bytes
        self._bytes[queue.full_name] = self._bytes.get(queue.full_name, 0) + size_bytes

    def gave_up(self, queue: CaptureQueue, size_bytes: int) -> None:
        """Count bytes that do not wait any more."""
        self.pending_bytes -= size_bytes
        left = self._bytes[queue.full_name] - size_bytes
        if left:
            self._bytes[queue.full_name] = left
        else:
            del self._bytes[queue.full_name]

    async def send(self, request: pb.CaptureRequest) -> pb.CaptureResponse:
        """Send a request as the newest one of this broker. Raises ``PulsarishError``."""
        self._attempts_count += 1
        request.sender, request.attempt = self._sender, self._attempts_count
        assert self._send is not None
        return await self._send(request)

    def now(self) -> float:
        """Return monotonic seconds."""
        return self._world.clock.monotonic()

    async def pause(self, seconds: float) -> None:
        await self._world.clock.sleep(seconds)

    def spawn(self, queue: CaptureQueue, work: Coroutine[object, object, None]) -> None:
        """Start to send what a queue has."""
        name = f"capture {queue.full_name} {queue.bundle.range}"
        _ = self._world.tasks.spawn(work, name=name, scope=Scope(ScopeKind.TASK, queue.full_name))

    def dropped(self, queue: CaptureQueue, count: int, reason: str) -> None:
        """Count entries that are not captured."""
        self.dropped_count += count
        self._log_once(queue, "captured messages are dropped", reason)

    def refused(self, queue: CaptureQueue, error: PulsarishError) -> None:
        """Count an entry that the persistent topic refused."""
        self.refused_count += 1
        self._log_once(queue, "the persistent topic refuses a captured message", error)

    def report(self, queue: CaptureQueue, reason: str) -> None:
        """Count a request that did not store everything, and log why, once in a while."""
        self.failures_count += 1
        self._log_once(queue, "captured messages wait to be stored", reason)

    def _log_once(self, queue: CaptureQueue, event: str, reason: object) -> None:
        now, key = self._world.clock.monotonic(), f"{event} {queue.full_name}"
        if now - self._logged_at.get(key, -_LOG_AGAIN_SECONDS) < _LOG_AGAIN_SECONDS:
            return
        if len(self._logged_at) > _BATCH_ENTRIES_MAX:
            self._logged_at.clear()
        self._logged_at[key] = now
        _log.error(
            event,
            rule=queue.full_name,
            into=queue.rule.into,
            waiting_bytes=self._bytes.get(queue.full_name, 0),
            dropped=self.dropped_count,
            reason=reason,
        )
