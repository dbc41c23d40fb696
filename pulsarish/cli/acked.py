"""A publisher's log of acknowledged messages, for ``pulsarish job verify --acked``: JSON lines, one
for each message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from google_crc32c import extend

if TYPE_CHECKING:
    import pulsarish

__all__ = ["AckedLog", "acked_option"]


acked_option = click.option(
    "--acked",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Log acknowledged messages to this new file, for `pulsarish job verify --acked`.",
)


class AckedLog:
    """The log, written from the client's thread. Without a file it writes nothing."""

    def __init__(self, file: Path | None) -> None:
        self._file = None if file is None else file.open("x")

    def checksum(self, payload: bytes) -> int:
        """Return the checksum of a payload that ``acked`` needs."""
        found: int = extend(0, payload) if self._file is not None else 0
        return found

    def acked(self, topic: str, message_id: pulsarish.MessageId, crc32c: int) -> None:
        if self._file is not None:
            parts = (
                message_id.ledger_id(),
                message_id.entry_id(),
                message_id.partition(),
                message_id.batch_index(),
            )
            line = {"topic": topic, "id": ":".join(map(str, parts)), "crc32c": crc32c}
            _ = self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Close the file. The client must be closed before, so that no acknowledgement follows."""
        if self._file is not None:
            self._file.close()
