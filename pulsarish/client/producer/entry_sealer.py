"""Seals batches and messages: makes the entries that a producer sends, compressed, encrypted and in
chunks where that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pulsarish.client.enums import CompressionType
from pulsarish.client.messages.entry_encoder import (
    NO_EXTRAS,
    Extras,
    chunk_fields,
    encode_head,
    encode_plain_head,
    producer_prefix,
    publish_time_field,
    schema_version_field,
)
from pulsarish.client.messages.pending_entries import Callback, Chunked, PendingEntry
from pulsarish.wire.payload import compress

if TYPE_CHECKING:
    from pulsarish.client.producer.encryption import Encryption

__all__ = ["EntrySealer"]

_NEVER: Final = float("inf")


class EntrySealer:
    """Gives each entry that it makes to ``put``, in the order in which they are to be sent.

    Args:
        timeout_seconds: how long a message may wait for its receipt; 0: no limit.
        stamp: returns the monotonic time in seconds and the wall clock in milliseconds.
        encryption: of each entry's payload, after its compression.
    """

    def __init__(
        self,
        put: Callable[[PendingEntry], None],
        *,
        compression: CompressionType,
        chunking: bool,
        timeout_seconds: float,
        stamp: Callable[[], tuple[float, int]],
        encryption: Encryption | None,
    ) -> None:
        self._put = put
        self._compression: Final = compression
        self._chunking: Final = chunking
        self._timeout_seconds: Final = timeout_seconds or _NEVER
        self._stamp = stamp
        self._encryption: Final = encryption
        self.overhead_bytes: Final = 0 if encryption is None else encryption.overhead_bytes
        """How much longer encryption makes a payload."""
        self._name = ""
        self._prefix = b""
        self._schema_field = b""
        self._time_ms = -1
        self._time_field = b""

    def use_name(self, name: str) -> None:
        """Set the producer's name, before the first entry."""
        self._name = name
        self._prefix = producer_prefix(name)

    def use_schema(self, version: bytes) -> None:
        """Set the schema version for later entries; empty: no schema."""
        self._schema_field = schema_version_field(version)
        self._time_ms = -1

    def seal_batch(
        self,
        raw: bytes,
        count: int,
        first: int,
        last: int,
        callbacks: Sequence[Callback],
        of_all: Extras,
    ) -> None:
        """Make an entry of an encoded batch. ``of_all``: what the metadata of the entry carries."""
        now, wall_ms = self._stamp()
        kind = self._compression
        payload, late_fields = self._encrypted(compress(kind, raw) if kind else raw)
        head = encode_head(
            self._prefix,
            sequence_id=first,
            publish_time_ms=wall_ms,
            payload=payload,
            compression=kind,
            uncompressed_size=len(raw),
            messages_count=count,
            highest_sequence_id=last,
            extras=of_all,
            schema_field=late_fields,
        )
        deadline = now + self._timeout_seconds
        self._put(PendingEntry(first, last, callbacks, (head, payload), deadline))

    def seal_one(
        self,
        payload: bytes,
        callback: Callback,
        extras: Extras | None,
        sequence_id: int,
        *,
        bytes_max: int,
    ) -> None:
        """Make an entry of one message, or several chunks if it is above ``bytes_max``."""
        now, wall_ms = self._stamp()
        kind = self._compression
        raw = payload
        payload = compress(kind, raw) if kind else raw
        if self._chunking and len(payload) > bytes_max - self.overhead_bytes:
            self._seal_chunks(
                payload, len(raw), callback, extras or NO_EXTRAS, sequence_id, bytes_max
            )
            return
        if extras is None and not kind and self._encryption is None:
            # Every unbatched message passes here.
            if wall_ms != self._time_ms:
                self._time_ms, self._time_field = (
                    wall_ms,
                    publish_time_field(wall_ms) + self._schema_field,
                )
            head = encode_plain_head(self._prefix, sequence_id, self._time_field, payload)
        else:
            payload, late_fields = self._encrypted(payload)
            head = encode_head(
                self._prefix,
                sequence_id=sequence_id,
                publish_time_ms=wall_ms,
                payload=payload,
                compression=kind,
                uncompressed_size=len(raw),
                extras=extras or NO_EXTRAS,
                schema_field=late_fields,
            )
        deadline = now + self._timeout_seconds
        self._put(PendingEntry(sequence_id, sequence_id, (callback,), (head, payload), deadline))

    def _seal_chunks(
        self,
        payload: bytes,
        uncompressed_size: int,
        callback: Callback,
        extras: Extras,
        sequence_id: int,
        bytes_max: int,
    ) -> None:
        """Make several entries of one message; the last one has the callback."""
        now, wall_ms = self._stamp()
        uuid = f"{self._name}-{sequence_id}"

        def head(chunk_id: int, count: int, part: bytes, late_fields: bytes) -> bytes:
            return encode_head(
                self._prefix,
                sequence_id=sequence_id,
                publish_time_ms=wall_ms,
                payload=part,
                compression=self._compression,
                uncompressed_size=uncompressed_size,
                extras=extras,
                schema_field=late_fields,
                chunk_field=chunk_fields(uuid, chunk_id, count, len(payload)),
            )

        # A chunk count cannot have more digits than the byte count.
        tag, late_fields = self._encrypted(b"")
        size = bytes_max - len(head(len(payload), len(payload), b"", late_fields) + tag)
        if size <= 0:
            # Metadata leave no room for content: treat it as an entry above the limit.
            size = len(payload)
        starts = range(0, len(payload), size)
        chunked = Chunked(len(starts))
        deadline = now + self._timeout_seconds
        for chunk_id, start in enumerate(starts):
            part, late_fields = self._encrypted(payload[start : start + size])
            is_last = chunk_id == len(starts) - 1
            callbacks = (callback,) if is_last else ()
            entry = PendingEntry(
                sequence_id,
                sequence_id if is_last else -1,
                callbacks,
                (head(chunk_id, len(starts), part, late_fields), part),
                deadline,
            )
            entry.chunked = chunked
            chunked.last = entry
            self._put(entry)

    def _encrypted(self, payload: bytes) -> tuple[bytes, bytes]:
        """Return the payload as it is sent, and the fields of its encryption and its schema."""
        if self._encryption is None:
            return payload, self._schema_field
        fields, payload = self._encryption.encrypt(payload)
        return payload, fields + self._schema_field
