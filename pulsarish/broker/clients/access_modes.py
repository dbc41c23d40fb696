"""Which producers may be on a topic together: access modes, the queue for exclusive access, and the
epoch that fences other producers.

An exclusive producer is alone on its topic. Each new one raises the topic's epoch, which is durable
before the producer is open. A producer that reconnects names the epoch that it had. It is fenced
when another one was on the topic in between. Source: Apache Pulsar's PIP-68.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Final, assert_never

from pulsarish.broker.clients.commands import NO_EPOCH, AccessMode, OpenProducer
from pulsarish.broker.clients.producer import Producer
from pulsarish.model.errors import AlreadyClosed, ProducerBusy, ProducerFenced, PulsarishError

__all__ = ["Access", "Admission", "Turn"]


_EPOCH_MAX: Final = (1 << 62) - 1
"""More than the number of exclusive producers that any topic ever has."""


def _given_out(epoch: int) -> int:
    """Return the stored epoch, or ``NO_EPOCH`` if it is above ``_EPOCH_MAX``.

    Such an epoch came from a client through a broker that did not check it. The topic starts again.
    """
    return epoch if epoch <= _EPOCH_MAX else NO_EPOCH


class Admission(Enum):
    """When a producer may connect."""

    NOW = "now"
    AFTER_CLOSING_ALL = "after closing all"
    IN_TURN = "in turn"


class Turn:
    """A producer's place in the queue for exclusive access."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._error: PulsarishError | None = None
        self._over = asyncio.Event()

    def end(self, error: PulsarishError | None) -> None:
        if not self._over.is_set():
            self._error = error
            self._over.set()

    async def come(self) -> None:
        """Wait until it is this producer's turn. Raises the error that ended the turn."""
        await self._over.wait()
        if self._error is not None:
            raise self._error


class Access:
    """The access rules of one topic, and its queue. No I/O."""

    __slots__ = ("_topic", "_turns")

    def __init__(self, topic: str) -> None:
        self._topic = topic
        # In order. The first one stays until it is connected or has failed, so that no other
        # overtakes it.
        self._turns: dict[Turn, None] = {}

    @property
    def waiting_count(self) -> int:
        return len(self._turns)

    @property
    def waiting_names(self) -> list[str]:
        return [turn.name for turn in self._turns]

    def judge(
        self,
        command: OpenProducer,
        other: Producer | None,
        others_count: int,
        epoch: int,
        *,
        comes_back: bool,
    ) -> Admission:
        """Decide how a producer may connect. O(1).

        Args:
            other: one of the other connected producers. An exclusive one is alone, so this one
                shows what all of them are.
            others_count: number of other connected producers.
            epoch: the topic's epoch.
            comes_back: it replaces its own former connection, so it goes before waiting producers.

        Raises ``ProducerBusy`` or ``ProducerFenced``.
        """
        self.check_epoch(command, epoch)
        if comes_back:
            return Admission.NOW
        waiting = next(iter(self._turns), None)
        if command.access_mode is AccessMode.SHARED:
            if other is not None and other.exclusive:
                raise ProducerBusy(f"topic {self._topic} has the exclusive producer {other.name!r}")
            if waiting is not None:
                raise ProducerBusy(
                    f"producer {waiting.name!r} waits to be alone on topic {self._topic}"
                )
            return Admission.NOW
        match command.access_mode:
            case AccessMode.EXCLUSIVE:
                if other is not None:
                    raise ProducerFenced(
                        f"topic {self._topic} has {others_count} producers already, "
                        f"{other.name!r} among them"
                    )
                if waiting is not None:
                    raise ProducerFenced(
                        f"producer {waiting.name!r} waits to be alone on topic {self._topic}"
                    )
                return Admission.NOW
            case AccessMode.WAIT_FOR_EXCLUSIVE:
                return Admission.NOW if other is None and waiting is None else Admission.IN_TURN
            case AccessMode.EXCLUSIVE_WITH_FENCING:
                return Admission.AFTER_CLOSING_ALL
            case _:
                assert_never(command.access_mode)

    def check_epoch(self, command: OpenProducer, epoch: int) -> None:
        """Check the epoch that an exclusive producer names.

        Raises ``ProducerFenced`` when another exclusive producer was on the topic in between, or
        when the topic never gave out that epoch.
        """
        epoch = _given_out(epoch)
        if command.access_mode is AccessMode.SHARED or NO_EPOCH in (epoch, command.topic_epoch):
            return
        if command.topic_epoch < epoch:
            raise ProducerFenced(
                f"another exclusive producer was on topic {self._topic} meanwhile: it is at "
                f"epoch {epoch}, this producer at"
                f" {command.topic_epoch}"
            )
        if command.topic_epoch > epoch + 1:
            raise ProducerFenced(
                f"topic {self._topic} is at epoch {epoch} and never gave out epoch "
                f"{command.topic_epoch}, which this producer names:"
                " close it and make a new one"
            )

    def next_epoch(self, command: OpenProducer, epoch: int) -> int:
        """Return the topic's epoch once this exclusive producer is connected: the one it had, or
        the next one.

        A producer that reconnects to a topic without an epoch is new there: the topic was deleted
        and created again.
        """
        epoch = _given_out(epoch)
        return epoch + 1 if NO_EPOCH in (epoch, command.topic_epoch) else command.topic_epoch

    def enqueue(self, name: str) -> Turn:
        turn = Turn(name)
        self._turns[turn] = None
        return turn

    def leave(self, turn: Turn) -> None:
        """Remove a turn from the queue: its producer is connected or has given up."""
        self._turns.pop(turn, None)
        turn.end(AlreadyClosed(f"producer {turn.name!r} does not wait any more"))

    def next_turn(self) -> None:
        """Admit the first waiting producer; the topic has none."""
        if (first := next(iter(self._turns), None)) is not None:
            first.end(None)

    def end(self, error: PulsarishError) -> None:
        """Refuse all waiting producers."""
        turns, self._turns = self._turns, {}
        for turn in turns:
            turn.end(error)
