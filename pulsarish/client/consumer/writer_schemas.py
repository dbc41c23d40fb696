"""The schemas with which messages were written, fetched once for each version.

A message with an unknown version stays in the queue, with everything behind it, until a broker has
answered; so reading its value never waits. A version that the topic no longer has is not requested
again: reading the values of its messages raises an error.
"""

from __future__ import annotations

from pulsarish.client.connection.context import ClientContext
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.messages.message import Entry
from pulsarish.client.schemas.schema import Decode, Schema, reader_for
from pulsarish.model.errors import (
    ChecksumError,
    InvalidArgument,
    PulsarishError,
    UnknownError,
)
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import parse_metadata

__all__ = ["WriterSchemas"]

_log = get_logger("client.schema")

_Version = tuple[str, bytes]
"""a topic, without its partition, and a version as message metadata carry it"""


class WriterSchemas:
    """The schemas of one consumer and all its topics.

    ``fetch`` is called in the loop, the rest under the queue's lock.
    """

    def __init__(
        self,
        schema: Schema,
        parts: ClientContext,
        inbox: MessageQueue,
    ) -> None:
        self._decode: Decode = schema.decode
        self._reader_for = reader_for(schema)
        self._parts = parts
        self._inbox = inbox
        self._known: dict[_Version, Decode] = {}
        self._wanted: dict[_Version, None] = {}
        self._fetching: dict[_Version, None] = {}

    def know(self, topic: str, entry: Entry) -> bool:
        """Return whether the entry's schema is known. If not, the next ``fetch`` requests it."""
        if self._reader_for is None:
            return True
        try:
            version = parse_metadata(entry.data).schema_version
        except ChecksumError:
            return True  # opening the entry reports what is wrong
        if not version or (topic, version) in self._known:
            return True
        if (topic, version) not in self._fetching:
            self._wanted[topic, version] = None
        return False

    def decode_of(self, topic: str, metadata: MessageMetadata | None) -> Decode:
        """Return the decoder for an entry whose schema is known; without a version, the consumer's
        own.
        """
        if metadata is None:
            return self._decode
        if self._reader_for is None or not metadata.schema_version:
            return self._decode
        found = self._known.get((topic, metadata.schema_version))
        assert found is not None, "an entry was opened before it was known how it was written"
        return found

    def fetch(self) -> None:
        """Request unknown schemas; the queue is notified when they have arrived."""
        if not self._wanted:
            return
        with self._inbox.lock:
            wanted, self._wanted = self._wanted, {}
            self._fetching.update(wanted)
        for topic, version in wanted:
            _ = self._parts.tasks.spawn(self._fetch(topic, version), name=f"schema of {topic}")

    async def _fetch(self, topic: str, version: bytes) -> None:
        assert self._reader_for is not None
        backoff = Backoff(0.1, 1.0, jitter=self._parts.random)
        decode: Decode | None = None
        while decode is None and self._inbox.failure is None:
            try:
                decode = self._reader_for(await self._parts.lookup.schema(topic, version))
            except PulsarishError as error:
                if not error.retryable:
                    decode = _refusing(version, error)
                    break
                _log.warning("the schema of messages is asked for again", topic=topic, reason=error)
                await self._parts.clock.sleep(backoff.next_seconds())
            except Exception as error:  # noqa: BLE001
                # Whatever it is, the messages must not wait forever for their schema.
                scope = Scope(ScopeKind.TOPIC, topic)
                self._parts.tasks.contain(f"schema of {topic}", error, scope)
                decode = _refusing(version, UnknownError(repr(error)))
        with self._inbox.lock:
            self._fetching.pop((topic, version), None)
            if decode is not None:
                self._known[topic, version] = decode
        self._inbox.arrived()


def _refusing(version: bytes, error: PulsarishError) -> Decode:
    number = int.from_bytes(version, "big")

    def refuse(_data: bytes) -> object:
        raise InvalidArgument(
            f"the message was written with version {number} of the schema, and it cannot be read "
            f"by that: {error}"
        )

    return refuse
