"""Hand the messages of a subscription to a function, in threads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final, Protocol, Self

from pulsarish.client.api.blocking_consumer import Consumer
from pulsarish.client.api.worker_options import EXTEND_SECONDS, WorkerOptions, worker_options
from pulsarish.client.messages.message import Message
from pulsarish.client.schemas.schema import Schema
from pulsarish.client.type_variables import Chosen
from pulsarish.model.errors import CryptoError, NotAllowedError, PulsarishError, Timeout
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.stop_flag import StopFlag

__all__ = ["MakesWorkers", "Worker"]

_log = get_logger("client.worker")

_LOOK_SECONDS: Final = 0.5
"""How long a stop may go unnoticed by the thread that receives."""


class _Subscribes(Protocol):
    def subscribe(self, *arguments: Any, **named: Any) -> Consumer: ...


class MakesWorkers:
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
    ) -> Callable[[Callable[[Message[Chosen]], object]], Worker]:
        """Make a decorated function the worker of a subscription: it handles each message.

            @client.worker("orders", "billing", concurrency=8, attempts_max=5)
            def bill(message): ...

            bill.run()  # until SIGINT or SIGTERM

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

        def subscribe() -> Consumer:
            return self.subscribe(topic, subscription_name, **chosen.consumer)

        return lambda handle: Worker(subscribe, handle, chosen)


class Worker:
    """A function that handles messages, ``concurrency`` of them at a time, each in a thread.

    A client makes it by ``worker``. ``run`` works until SIGINT or SIGTERM; ``start`` and ``stop``,
    or ``with``, work beside the program. Calling the worker calls the function.

    A message is acknowledged when the function returns. When it raises, the message comes again
    after a delay that grows, or goes to the dead letters. A message may be handled twice: when the
    process or the connection ended before the acknowledgement.
    """

    def __init__(
        self,
        subscribe: Callable[[], Consumer],
        handle: Callable[[Message], object],
        options: WorkerOptions,
    ) -> None:
        self._subscribe = subscribe
        self._handle = handle
        self._options = options
        self._lock = threading.Lock()
        self._local = threading.local()
        self._stopping = StopFlag()
        self._ended = threading.Event()
        self._running: dict[int, Message] = {}
        """What is worked on, by the number of its hand-out."""
        self._numbers_count = 0
        self._free = threading.Semaphore(options.concurrency)
        self._consumer: Consumer | None = None
        self._receiver: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._failure: PulsarishError | None = None
        self.handled_count = 0
        """How many messages the function has handled."""
        self.failed_count = 0
        """How often the function has raised."""

    def __call__(self, message: Message) -> object:
        return self._handle(message)

    def start(self) -> Self:
        """Subscribe and begin to work. Returns at once.

        Raises what ``Client.subscribe`` raises, and ``NotAllowedError`` when it was started before.
        """
        if self._consumer is not None:
            raise NotAllowedError(f"{self!r} was started before: make another worker")
        self._consumer = self._subscribe()
        self._pool = ThreadPoolExecutor(self._options.concurrency, "pulsarish-worker")
        self._receiver = _started("receive", self._receive)
        _started("extend", self._extend)
        return self

    def stop(self, timeout_seconds: float | None = None) -> bool:
        """Take no more messages, wait for those that are worked on, and close the consumer.

        What is not done in time is delivered again to another consumer, though the function may
        still finish it here. A second call does nothing. Called by the function itself, it only
        begins: ``run``, or the end of ``with``, does the rest.

        Args:
            timeout_seconds: how long to wait; ``None``: as long as it takes.

        Returns whether all was done in time.
        """
        self._stopping.set()
        if getattr(self._local, "is_at_work", False):
            return False
        consumer, pool = self._consumer, self._pool
        if consumer is None or pool is None:
            return True
        if self._receiver is not None:
            self._receiver.join()

        def wait() -> None:
            pool.shutdown(wait=True)
            self._ended.set()

        _started("stop", wait)
        in_time = self._ended.wait(timeout_seconds)
        self._ended.set()
        consumer.close()
        return in_time

    def run(self) -> None:
        """Start, and work until SIGINT, SIGTERM or ``stop``; then finish what is worked on.

        A second signal does what it does without a worker. In a thread that is not the main one,
        signals are left to the program.

        Raises what ``start`` raises, and why the consumer receives no more: the broker refuses it,
        or it was closed.
        """
        before: dict[signal.Signals, Any] = {}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def on_signal(*_: object) -> None:
            self._stopping.set()
            restore()

        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, on_signal)
        try:
            self.start()
            while not self._stopping.wait(_LOOK_SECONDS):
                pass
            self.stop()
        finally:
            restore()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        options = self._options
        return (
            f"Worker({options.topic}, {options.subscription_name}, {len(self._running)} of "
            f"{options.concurrency} at work, {self.handled_count} handled)"
        )

    # -- in threads of its own

    def _receive(self) -> None:
        consumer, pool = self._consumer, self._pool
        assert consumer is not None
        assert pool is not None
        try:
            while not self._stopping.is_set():
                if not self._free.acquire(timeout=_LOOK_SECONDS) or self._stopping.is_set():
                    continue
                try:
                    message = consumer.receive(timeout_millis=int(_LOOK_SECONDS * 1000))
                except Timeout:
                    self._free.release()
                except CryptoError as error:
                    _log.error("message not given to the worker", worker=self, reason=error)
                    self._free.release()
                else:
                    with self._lock:
                        self._numbers_count = number = self._numbers_count + 1
                        self._running[number] = message
                    pool.submit(self._work, number, message)
        except PulsarishError as error:
            # Closed or finally refused.
            _log.error("worker ended", worker=self, reason=error)
            self._failure = error
        finally:
            self._stopping.set()

    def _work(self, number: int, message: Message) -> None:
        consumer = self._consumer
        assert consumer is not None
        failure: BaseException | None = None
        self._local.is_at_work = True
        try:
            self._handle(message)
        except BaseException as error:  # noqa: BLE001 - the program's own code: logged, and tried again
            failure = error
        with self._lock:
            del self._running[number]
            if failure is None:
                self.handled_count += 1
            else:
                self.failed_count += 1
        try:
            if failure is None:
                consumer.acknowledge(message)
            else:
                _log.error(
                    "message not handled",
                    topic=message.topic_name(),
                    message=message.message_id(),
                    outcome=self._options.outcome(message),
                    exception=failure,
                )
                consumer.negative_acknowledge(message)
        except PulsarishError as error:
            # It is delivered again: to another consumer, or after the connection is back.
            _log.warning("message not acknowledged", message=message.message_id(), reason=error)
        finally:
            self._free.release()

    def _extend(self) -> None:
        consumer = self._consumer
        assert consumer is not None
        while not self._ended.wait(EXTEND_SECONDS):
            with self._lock:
                running = list(self._running.values())
            try:
                for message in running:
                    consumer.ack_extend(message)
            except PulsarishError as error:
                _log.warning("work on messages not extended", worker=self, reason=error)


def _started(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name=f"pulsarish-worker-{name}", daemon=True)
    thread.start()
    return thread
