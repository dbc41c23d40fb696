"""A metadata record of which this process believes to be the only writer.

Every write is a compare-and-set on the version that it read.

A refused write means that another process wrote: the belief was wrong, for good. A write with an
unknown outcome is settled before the next one. A version can be used only once, so the record at
the next version is either that write or another process's. Its token tells which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord, TopicRecord
from pulsarish.runtime.seams import Conflict, Op

__all__ = ["OwnedRecord"]

T = TypeVar("T", bound=TopicRecord | CursorRecord)


class OwnedRecord(Generic[T]):
    """One node. ``version`` None: it does not exist yet. The caller makes one write at a time."""

    __slots__ = (
        "_records",
        "_unsettled",
        "path",
        "record",
        "version",
    )

    def __init__(self, records: Records, path: str, record: T, version: int | None) -> None:
        self.path = path
        self.record = record
        self.version = version
        self._records = records
        # writes whose outcome is not known, by the token that each carries
        self._unsettled: dict[str, T] = {}

    @property
    def settled(self) -> bool:
        return not self._unsettled

    async def write(self, wanted: T, *, guards: Callable[[], Sequence[Op]] = tuple) -> None:
        """Replace or create the record, in one commit with ``guards()``.

        Raises ``Conflict`` when another process wrote (or a guard refused), with nothing written,
        and ``MetadataUnavailable`` when the outcome is unknown. The next write settles that.
        """
        while True:
            token = self._records.token()
            self._unsettled[token] = wanted
            try:
                version = await self._records.compare_and_set(
                    self.path, wanted, self.version, with_ops=guards(), parents=False, token=token
                )
            except Conflict:
                # Either this write's predecessor succeeded late, or another writer came first.
                del self._unsettled[token]
                if not await self._adopt():
                    raise
                continue
            self.record = wanted
            self.version = version
            self._unsettled.clear()
            return

    async def _adopt(self) -> bool:
        """Check whether an unsettled write has made our version stale.

        If so, continue from its version.
        """
        if not self._unsettled:
            return False
        found = await self._records.get(self.path, type(self.record))
        if found is None or found[1] != (0 if self.version is None else self.version + 1):
            return False
        # Compare the token: another owner's write may have the same content.
        attempt = self._unsettled.get(found[0].token)
        if attempt is None:
            return False
        self.record = attempt
        self.version = found[1]
        self._unsettled.clear()
        return True
