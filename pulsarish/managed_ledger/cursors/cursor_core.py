"""A cursor's state, and which part of it is not durable yet. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pulsarish.managed_ledger.cursors.cursor_state import CursorImage, bits_of
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.position import Position

__all__ = ["CursorCore"]

# After more changes than this between two writes the next one is a snapshot: sorting them for a
# delta would hold the event loop up for longer.
_TOUCHED_MAX: Final = 20_000


class CursorCore:
    """The state of a cursor.

    Changes are numbered; ``stored`` is the number up to which they are durable.

    ``persisted`` is the mark-delete position in storage. Trimming uses ``safe_mark``, never what is
    only in memory (rule 17).
    """

    __slots__ = (
        "_properties_touched",
        "_rewound_at",
        "_touched",
        "_touched_batches",
        "acks",
        "changes",
        "persisted",
        "properties",
        "stored",
        "whole",
    )

    def __init__(self, acks: AckRanges, properties: Mapping[str, int]) -> None:
        self.acks = acks
        self.properties: dict[str, int] = dict(properties)
        self.persisted = acks.mark
        self.changes = 0
        self.stored = 0
        # the next write must be a full image, because the content of a delta is unknown
        self.whole = False
        # the last change that moved the mark back, which a delta cannot express
        self._rewound_at = 0
        self._touched: list[Position] = []
        self._touched_batches: dict[Position, None] = {}
        self._properties_touched = False

    @property
    def dirty(self) -> bool:
        return self.changes != self.stored

    @property
    def rewound(self) -> bool:
        """Whether a ``reset`` is not durable yet."""
        return self.stored < self._rewound_at

    @property
    def safe_mark(self) -> Position:
        """The position above which nothing may be trimmed."""
        return min(self.persisted, self.acks.mark)

    def acknowledge(self, position: Position) -> bool:
        if not self.acks.add(position):
            return False
        self._touch(position)
        return True

    def _touch(self, position: Position) -> None:
        self.changes += 1
        if not self.whole:
            self._touched.append(position)
            if len(self._touched) > _TOUCHED_MAX:
                self._require_image()

    def acknowledge_cumulative(self, position: Position) -> bool:
        if not self.acks.advance(position):
            return False
        self.changes += 1  # every delta contains the mark
        return True

    def acknowledge_indexes(
        self, position: Position, batch_size: int, indexes: Iterable[int]
    ) -> bool:
        """Acknowledge some messages of a batch. Raises ``InvalidArgument``."""
        if not self.acks.add_indexes(position, batch_size, indexes):
            return False
        if self.acks.remaining(position) is None:
            self._touched_batches.pop(position, None)
            self._touch(position)
            return True
        self.changes += 1
        if not self.whole:
            self._touched_batches[position] = None
            if len(self._touched_batches) > _TOUCHED_MAX:
                self._require_image()
        return True

    def reset(self, mark: Position) -> None:
        """Move the mark-delete position to ``mark``.

        Everything above it will be delivered again.
        """
        self.acks.reset(mark)
        self.changes += 1
        self._rewound_at = self.changes
        self._require_image()

    def set_properties(self, properties: Mapping[str, int]) -> None:
        self.properties = dict(properties)
        self._properties_touched = True
        self.changes += 1

    def _require_image(self) -> None:
        self.whole = True
        self._touched.clear()
        self._touched_batches.clear()

    def take_image(self, ranges_max: int) -> tuple[CursorImage, int]:
        """Return the full state, with sets if there are more than ``ranges_max`` ranges, and the
        number of the last change in it.

        Call ``wrote`` or ``failed`` afterwards.
        """
        self._clear()
        return CursorImage.of(self.acks, self.properties, ranges_max), self.changes

    def take_delta(self) -> tuple[CursorImage, int]:
        """Return the changes since the last image or delta was taken.

        Not allowed when ``whole``.
        """
        assert not self.whole
        acks = self.acks
        mark = acks.mark
        ranges: list[int] = []
        last = Position(-1, -1)
        for position in sorted(self._touched):
            if position <= mark or position == last:
                continue
            if position.ledger_id == last.ledger_id and position.entry_id == last.entry_id + 1:
                ranges[-1] = position.entry_id
            else:
                ranges += (position.ledger_id, position.entry_id, position.entry_id)
            last = position
        batches: list[tuple[int, int, bytes]] = []
        for position in sorted(self._touched_batches):
            remaining = acks.remaining(position)
            if remaining is not None:
                batches.append((position.ledger_id, position.entry_id, bits_of(remaining)))
        properties = dict(self.properties) if self._properties_touched else None
        self._clear()
        return CursorImage(
            mark.ledger_id, mark.entry_id, tuple(ranges), tuple(batches), properties
        ), self.changes

    def _clear(self) -> None:
        self._touched.clear()
        self._touched_batches.clear()
        self._properties_touched = False
        self.whole = False

    def wrote(self, image: CursorImage, number: int) -> None:
        """Note that the image (or delta) is durable, and with it all changes up to ``number``."""
        assert number >= self.stored
        self.stored = number
        self.persisted = image.mark

    def failed(self) -> None:
        """Note that the last image or delta may not be durable. The next write is a full image."""
        self._require_image()
        self._properties_touched = False
