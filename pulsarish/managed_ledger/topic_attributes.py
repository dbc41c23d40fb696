"""The properties of a topic, its epoch, and since when it is unused: its record without ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pulsarish.managed_ledger.owned_topic_record import Change, OwnedTopicRecord
from pulsarish.metadata.records import LostRange, ScheduleMarks
from pulsarish.model.position import Position
from pulsarish.runtime.seams import Op

__all__ = ["TopicAttributes"]


class TopicAttributes:
    """The attributes of one topic, as its owner reads and changes them.

    Changes are durable on return. They raise ``TopicFenced`` and ``MetadataUnavailable``.
    """

    __slots__ = ("_change", "_topic")

    def __init__(self, topic: OwnedTopicRecord, change: Change) -> None:
        self._topic = topic
        self._change = change

    @property
    def lost(self) -> Sequence[LostRange]:
        """The ranges of lost entries that an operator's command has skipped."""
        return self._topic.record.lost

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._topic.record.properties)

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the topic's own properties."""
        await self._change(
            lambda record: msgspec.structs.replace(record, properties=dict(properties))
        )

    @property
    def created_ms(self) -> int:
        """The wall clock time at which the topic was created, in milliseconds, by its creator's
        clock.
        """
        return self._topic.record.created_ms

    @property
    def inactive_since_ms(self) -> int:
        """The recorded wall clock time since which the topic is unused, in milliseconds; 0: none is
        recorded.
        """
        return self._topic.record.inactive_since_ms

    async def note_inactive(self, since_ms: int) -> None:
        """Record since when the topic is unused; 0: it is used."""
        await self._change(
            lambda record: msgspec.structs.replace(record, inactive_since_ms=since_ms)
        )

    @property
    def producer_epoch(self) -> int:
        """The epoch of the last exclusive producer; -1: there was none."""
        return self._topic.record.producer_epoch

    async def set_producer_epoch(self, epoch: int) -> None:
        """Record that an exclusive producer has this epoch."""
        if epoch != self.producer_epoch:
            await self._change(lambda record: msgspec.structs.replace(record, producer_epoch=epoch))

    @property
    def schedule_marks(self) -> ScheduleMarks | None:
        """What is decided of the topic's schedules; ``None`` without schedules."""
        return self._topic.record.schedules

    @property
    def unsettled_after(self) -> Position | None:
        """The entry behind which messages of schedules may be that are not noted yet.

        What is behind it is not trimmed: only the log can tell what was published.
        """
        marks = self._topic.record.schedules
        return None if marks is None or marks.after is None else Position(*marks.after)

    async def set_schedule_marks(
        self, marks: ScheduleMarks | None, with_ops: Sequence[Op] = ()
    ) -> None:
        """Record what is decided of the schedules, in one commit with ``with_ops``.

        Raises ``Conflict`` when those are refused.
        """
        await self._change(
            lambda record: msgspec.structs.replace(record, schedules=marks),
            always=bool(with_ops),
            with_ops=with_ops,
        )
