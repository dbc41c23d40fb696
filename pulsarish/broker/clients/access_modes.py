"""Who may publish to a topic beside whom: access modes, the queue of those who wait to be alone, and the epoch that fences the others.

An exclusive producer is alone on its topic. Each that comes anew raises the topic's epoch, which is durable before the producer is open;
one that comes back brings the epoch it had, and is fenced when another was there in between. Source: Apache Pulsar's PIP-68.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Final, assert_never

from pulsarish.broker.clients.commands import NO_EPOCH, AccessMode, OpenProducer
from pulsarish.broker.clients.producer import Producer
from pulsarish.model.errors import AlreadyClosed, ProducerBusy, ProducerFenced, PulsarishError

__all__ = ["Access", "Admission", "Turn"]


_EPOCH_MAX: Final = (1 << 62) - 1
"""More than any topic ever has exclusive producers."""


def _given_out(epoch: int) -> int:
    """The stored epoch. One beyond ``_EPOCH_MAX`` was named by a client, to a broker that did not check it; the topic begins again."""
    return epoch if epoch <= _EPOCH_MAX else NO_EPOCH


class Admission(Enum):
    NOW = "now"
    AFTER_CLOSING_ALL = "after closing all"
    IN_TURN = "in turn"


class Turn:
    """A producer's place in the queue."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._error: PulsarishError | None = None
        self._over = asyncio.Event()

    def end(self, error: PulsarishError | None) -> None:
        if not self._over.is_set():
            self._error = error
            self._over.set()

    async def come(self) -> None:
        """Until it is this one's turn. Raises why it never will be."""
        await self._over.wait()
        if self._error is not None:
            raise self._error


class Access:
    """The rules of one topic, and its queue. No I/O."""

    __slots__ = ("_topic", "_turns")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        # A list, as an empty deque takes more memory than all else here. The first stays until it is connected or has failed, so that
        # nobody overtakes it.
        self._turns: list[Turn] = []

    @property
    def waiting_count(self) -> int:
        return len(self._turns)

    @property
    def waiting_names(self) -> list[str]:
        return [turn.name for turn in self._turns]

    def judge(self, command: OpenProducer, others: Sequence[Producer], epoch: int, *, comes_back: bool) -> Admission:
        """How a producer may connect beside ``others``; ``epoch`` is the topic's. ``comes_back``: it takes the place of its own former
        connection, so that it is no newcomer to whom those who wait come first.

        Raises ``ProducerBusy``, ``ProducerFenced``.
        """
        self.check_epoch(command, epoch)
        if comes_back:
            return Admission.NOW
        exclusive = next((other for other in others if other.exclusive), None)
        if command.access_mode is AccessMode.SHARED:
            if exclusive is not None:
                raise ProducerBusy(f"topic {self._topic} has the exclusive producer {exclusive.name!r}")
            if self._turns:
                raise ProducerBusy(f"producer {self._turns[0].name!r} waits to be alone on topic {self._topic}")
            return Admission.NOW
        match command.access_mode:
            case AccessMode.EXCLUSIVE:
                if others:
                    raise ProducerFenced(f"topic {self._topic} has {len(others)} producers already, {others[0].name!r} among them")
                if self._turns:
                    raise ProducerFenced(f"producer {self._turns[0].name!r} waits to be alone on topic {self._topic}")
                return Admission.NOW
            case AccessMode.WAIT_FOR_EXCLUSIVE:
                return Admission.IN_TURN if others or self._turns else Admission.NOW
            case AccessMode.EXCLUSIVE_WITH_FENCING:
                return Admission.AFTER_CLOSING_ALL
            case _:
                assert_never(command.access_mode)

    def check_epoch(self, command: OpenProducer, epoch: int) -> None:
        """Raises ``ProducerFenced`` for an exclusive producer that was away while another was there, or that names an epoch which this
        topic never gave out."""
        epoch = _given_out(epoch)
        if command.access_mode is AccessMode.SHARED or NO_EPOCH in (epoch, command.topic_epoch):
            return
        if command.topic_epoch < epoch:
            raise ProducerFenced(
                f"another exclusive producer was on topic {self._topic} meanwhile: it is at epoch {epoch}, this producer at"
                f" {command.topic_epoch}"
            )
        if command.topic_epoch > epoch + 1:
            raise ProducerFenced(
                f"topic {self._topic} is at epoch {epoch} and never gave out epoch {command.topic_epoch}, which this producer names:"
                " close it and make a new one"
            )

    def next_epoch(self, command: OpenProducer, epoch: int) -> int:
        """The topic's epoch once this exclusive producer is connected: the one it comes back with, or the next.

        One that comes back to a topic without an epoch is new there: the topic was deleted and made again.
        """
        epoch = _given_out(epoch)
        return epoch + 1 if NO_EPOCH in (epoch, command.topic_epoch) else command.topic_epoch

    def enqueue(self, name: str) -> Turn:
        turn = Turn(name)
        self._turns.append(turn)
        return turn

    def leave(self, turn: Turn) -> None:
        """It is connected, or does not want to be any more."""
        if turn in self._turns:
            self._turns.remove(turn)
        turn.end(AlreadyClosed(f"producer {turn.name!r} does not wait any more"))

    def next_turn(self) -> None:
        """Nobody is connected: the first in the queue may."""
        if self._turns:
            self._turns[0].end(None)

    def end(self, error: PulsarishError) -> None:
        """Nobody who waits has a turn any more."""
        while self._turns:
            self._turns.pop(0).end(error)
