"""The life of each message in the client, as debug lines of the log ``pulsarish.client.message``.

Whether it is written is decided when a producer or consumer is made, so it costs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pulsarish.client.message_id import MessageId
from pulsarish.runtime.log import get_logger

__all__ = ["LoggedEntry", "MessageLog", "message_log"]

_log = get_logger("client.message")


class LoggedEntry(Protocol):
    """What is logged of an entry that is sent."""

    sequence_id: int
    highest_sequence_id: int
    size_bytes: int


class MessageLog:
    """Lines about the messages of one topic. Made by ``message_log``."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def queued(self, sequence_id: int, size_bytes: int) -> None:
        _log.debug("message queued", topic=self._topic, sequence=sequence_id, bytes=size_bytes)

    def batched(self, entry: LoggedEntry) -> None:
        self._of_entry("messages batched", entry)

    def sent(self, entries: Iterable[LoggedEntry]) -> None:
        for entry in entries:
            self._of_entry("messages sent", entry)

    def stored(self, entry: LoggedEntry, ledger_id: int, entry_id: int) -> None:
        self._of_entry("messages stored", entry, id=f"{ledger_id}:{entry_id}")

    def failed(self, entry: LoggedEntry, error: BaseException) -> None:
        self._of_entry("messages failed", entry, reason=error)

    def _of_entry(self, event: str, entry: LoggedEntry, **more: object) -> None:
        last = max(entry.sequence_id, entry.highest_sequence_id)
        _log.debug(
            event,
            topic=self._topic,
            sequence=entry.sequence_id,
            last_sequence=last,
            bytes=entry.size_bytes,
            **more,
        )

    def received(self, ledger_id: int, entry_id: int, redelivery_count: int) -> None:
        _log.debug(
            "messages received",
            topic=self._topic,
            id=f"{ledger_id}:{entry_id}",
            redeliveries=redelivery_count,
        )

    def handed_out(self, message_id: MessageId, sequence_id: int, producer: str) -> None:
        _log.debug(
            "message handed out",
            topic=self._topic,
            id=_text(_place(message_id)),
            sequence=sequence_id,
            producer=producer,
        )

    def acknowledged(
        self,
        ids: Iterable[tuple[int, int, int]],
        cumulative: tuple[int, int, int] | None,
    ) -> None:
        for each in ids:
            _log.debug("message acknowledged", topic=self._topic, id=_text(each))
        if cumulative is not None:
            _log.debug("messages acknowledged up to", topic=self._topic, id=_text(cumulative))

    def refused(self, message_id: MessageId) -> None:
        _log.debug("message refused", topic=self._topic, id=_text(_place(message_id)))


def message_log(topic: str) -> MessageLog | None:
    """Return where lines about the topic's messages go; ``None`` unless debug lines are written."""
    return MessageLog(topic) if _log.writes_debug else None


def _place(message_id: MessageId) -> tuple[int, int, int]:
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def _text(place: tuple[int, int, int]) -> str:
    ledger, entry, index = place
    return f"{ledger}:{entry}" if index < 0 else f"{ledger}:{entry}:{index}"
