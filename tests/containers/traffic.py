"""A host program's traffic: numbered messages to several topics, and the account of what was
acknowledged and what was received.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pulsarish

__all__ = ["Account", "Traffic", "receive"]

_PAUSE_SECONDS = 0.005
_RECEIVE_MILLIS_MAX = 60_000


@dataclass
class Account:
    """Of one topic."""

    sent_count: int = 0
    acknowledged: list[int] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)


class Traffic:
    """Publishes from a thread of its own until it is stopped."""

    def __init__(self, url: str, topics: list[str]) -> None:
        self.accounts = {topic: Account() for topic in topics}
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def acknowledged_count(self) -> int:
        return sum(len(account.acknowledged) for account in self.accounts.values())

    def has_acknowledged(self, count: int) -> bool:
        return self.acknowledged_count >= count

    def _run(self) -> None:
        with pulsarish.Client(self._url) as client:
            producers = {
                topic: client.create_producer(topic, block_if_queue_full=True)
                for topic in self.accounts
            }
            while not self._stop.wait(_PAUSE_SECONDS):
                for topic, account in self.accounts.items():
                    number = account.sent_count
                    account.sent_count += 1
                    producers[topic].send_async(b"%d" % number, _outcome(account, number))
            for producer in producers.values():
                producer.flush()


def _outcome(
    account: Account, number: int
) -> Callable[[pulsarish.Result, pulsarish.MessageId], None]:
    def called(result: pulsarish.Result, _message_id: pulsarish.MessageId) -> None:
        if result is pulsarish.Result.Ok:
            account.acknowledged.append(number)
        else:
            account.failed.append((number, result.name))

    return called


def receive(client: pulsarish.Client, topic: str, subscription: str, wanted: set[int]) -> list[int]:
    """Numbers in the order of their first arrival, until all that are wanted came; on return they
    are acknowledged, durably.
    """
    earliest = pulsarish.InitialPosition.Earliest
    consumer = client.subscribe(
        topic, subscription, initial_position=earliest, ack_receipt_enabled=True
    )
    first: dict[int, None] = {}
    missing = set(wanted)
    while True:
        message = consumer.receive(timeout_millis=_RECEIVE_MILLIS_MAX)
        number = int(message.data())
        first.setdefault(number)
        missing.discard(number)
        if not missing:
            break
    consumer.acknowledge_cumulative(message)
    consumer.close()
    return list(first)
