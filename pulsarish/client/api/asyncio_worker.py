"""Hand the messages of a subscription to a coroutine function, in tasks of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol, Self

from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.api.worker_options import EXTEND_SECONDS, WorkerOptions, worker_options
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.messages.message import Message
from pulsarish.client.schemas.schema import Schema
from pulsarish.client.type_variables import Chosen
from pulsarish.model.errors import CryptoError, NotAllowedError, PulsarishError
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, Tasks

__all__ = ["AsyncWorker", "MakesAsyncWorkers"]

_log = get_logger("client.worker")


class _Subscribes(Protocol):
    _parts: ClientContext

    async def subscribe(self, *arguments: Any, **named: Any) -> AsyncConsumer: ...


class MakesAsyncWorkers:
    """What a client has for workers."""

    def worker(
        self: _Subscribes,
        topic: Any,
        subscription_name: str,
        *,
        concurrency: int = 1,
        attempts_max: int | None = None,
        retry_delay: timedelta = timedelta(seconds=1),
        dead_letter_topic: str | None = None,
        schema: Schema[Chosen] | None = None,
        **options: Any,
    ) -> Callable[[Callable[[Message[Chosen]], Awaitable[object]]], AsyncWorker]:
        """Make a decorated coroutine function the worker of a subscription.

            @client.worker("orders", "billing", concurrency=8, attempts_max=5)
            async def bill(message): ...

            await bill.run()

        Nothing happens before the worker is started. Messages that the function raises for come
        again.

        Args:
            topic: as for ``subscribe``.
            subscription_name: the shared subscription; workers with the same one share the work.
            concurrency: how many messages are handled at a time.
            attempts_max: the number of failures after which a message goes to the dead letters;
                ``None``: it comes again until it is handled.
            retry_delay: before the second attempt; twice as long before each further one, up to a
                minute.
            dead_letter_topic: ``None``: ``TOPIC-SUBSCRIPTION-DLQ``.
            schema: of the messages; ``None``: they are bytes.
            options: more arguments of ``subscribe``.

        Raises ``InvalidArgument``.
        """
        chosen = worker_options(
            topic,
            subscription_name,
            concurrency,
            attempts_max,
            retry_delay,
            dead_letter_topic,
            {"schema": schema, **options},
        )

        def subscribe() -> Awaitable[AsyncConsumer]:
            return self.subscribe(topic, subscription_name, **chosen.consumer)

        parts = self._parts
        return lambda handle: AsyncWorker(subscribe, handle, chosen, parts.clock, parts.tasks)


class AsyncWorker:
    """A coroutine function that handles messages, ``concurrency`` of them at a time.

    A client of ``pulsarish.asyncio`` makes it. ``run`` works until it is cancelled or
    ``stop`` is called; ``async with`` works beside the program. Calling the worker calls the
    function.

    A message is acknowledged when the function returns. When it raises, the message comes again
    after a delay that grows, or goes to the dead letters. A message may be handled twice: when the
    process or the connection ended before the acknowledgement.
    """

    def __init__(
        self,
        subscribe: Callable[[], Awaitable[AsyncConsumer]],
        handle: Callable[[Message], Awaitable[object]],
        options: WorkerOptions,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._subscribe = subscribe
        self._handle = handle
        self._options = options
        self._clock = clock
        self._tasks = tasks
        self._free = asyncio.Semaphore(options.concurrency)
        self._running: dict[asyncio.Task[None], Message] = {}
        self._consumer: AsyncConsumer | None = None
        self._own: list[asyncio.Task[None]] = []
        """Receives, and extends the time of what is worked on."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._over = asyncio.Event()
        self._failure: PulsarishError | None = None
        self.handled_count = 0
        """How many messages the function has handled."""
        self.failed_count = 0
        """How often the function has raised."""

    async def __call__(self, message: Message) -> object:
        return await self._handle(message)

    async def start(self) -> Self:
        """Subscribe and begin to work.

        Raises what ``Client.subscribe`` raises, and ``NotAllowedError`` when it was started before.
        """
        if self._consumer is not None:
            raise NotAllowedError(f"{self!r} was started before: make another worker")
        self._consumer = consumer = await self._subscribe()
        for name, work in (("receive", self._receive), ("extend", self._extend)):
            self._own.append(self._tasks.spawn(work(consumer), name=f"worker {name}"))
        return self

    async def stop(self, timeout_seconds: float | None = None) -> bool:
        """Take no more messages, wait for those that are worked on, and close the consumer.

        What is not done in time is cancelled and delivered again. A second call does nothing.
        Called by the function itself, it only begins: ``run``, or the end of ``async with``, does
        the rest.

        Args:
            timeout_seconds: how long to wait; ``None``: as long as it takes.

        Returns whether all was done in time.
        """
        self._over.set()
        if asyncio.current_task() in self._running:
            return False
        consumer = self._consumer
        if consumer is None or not self._own:
            return True
        receiving, extending = self._own
        self._own = []
        receiving.cancel()
        in_time = True
        try:
            # What it took in this turn of the loop is worked on, too.
            _ = await asyncio.gather(receiving, return_exceptions=True)
            async with self._clock.timeout(timeout_seconds):
                await self._idle.wait()
        except TimeoutError:
            in_time = False
        finally:
            undone = list(self._running)
            for task in undone:
                task.cancel()
            extending.cancel()
        if not in_time:
            _ = await asyncio.gather(*undone, return_exceptions=True)
        await consumer.close()
        return in_time

    async def run(self) -> None:
        """Start, and work until ``stop`` is called or the task is cancelled; then finish what is
        worked on.

        Raises what ``start`` raises, and why the consumer receives no more: the broker refuses it,
        or it was closed.
        """
        await self.start()
        try:
            await self._over.wait()
        finally:
            await self.stop()
        if self._failure is not None:
            raise self._failure

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __repr__(self) -> str:
        options = self._options
        return (
            f"Worker({options.topic}, {options.subscription_name}, {len(self._running)} of "
            f"{options.concurrency} at work, {self.handled_count} handled)"
        )

    # -- in tasks of its own

    async def _receive(self, consumer: AsyncConsumer) -> None:
        try:
            while True:
                await self._free.acquire()
                try:
                    message = await consumer.receive()
                except CryptoError as error:
                    _log.error("message not given to the worker", worker=self, reason=error)
                    self._free.release()
                    continue
                task = self._tasks.spawn(self._work(consumer, message), name="worker message")
                self._running[task] = message
                self._idle.clear()
                task.add_done_callback(self._done)
        except PulsarishError as error:
            # Closed or finally refused.
            _log.error("worker ended", worker=self, reason=error)
            self._failure = error
        finally:
            self._over.set()

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._free.release()
        if not self._running:
            self._idle.set()

    async def _work(self, consumer: AsyncConsumer, message: Message) -> None:
        try:
            await self._handle(message)
        except asyncio.CancelledError:
            await consumer.negative_acknowledge(message)
            raise
        except Exception as error:  # noqa: BLE001 - the program's own code: logged, and tried again
            self.failed_count += 1
            _log.error(
                "message not handled",
                topic=message.topic_name(),
                message=message.message_id(),
                outcome=self._options.outcome(message),
                exception=error,
            )
            await consumer.negative_acknowledge(message)
            return
        self.handled_count += 1
        try:
            await consumer.acknowledge(message)
        except PulsarishError as error:
            # It is delivered again: to another consumer, or after the connection is back.
            _log.warning("message not acknowledged", message=message.message_id(), reason=error)

    async def _extend(self, consumer: AsyncConsumer) -> None:
        while True:
            await self._clock.sleep(EXTEND_SECONDS)
            try:
                for message in list(self._running.values()):
                    await consumer.ack_extend(message)
            except PulsarishError as error:
                _log.warning("work on messages not extended", worker=self, reason=error)
