"""The schemas that messages were written with, fetched once for each version that a consumer meets.

A message whose version is not known yet stays in the queue, and all behind it, until a broker has answered; so whoever reads its value
never waits. A version that the topic does not have any more is not asked for again: the values of its messages say so.
"""

from __future__ import annotations

from pulsarish.client.backoff import Backoff
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.messages.message import Entry
from pulsarish.client.schemas.schema import Decode, Schema, reader_for
from pulsarish.model.errors import ChecksumError, CryptoError, InvalidArgument, PulsarishError
from pulsarish.runtime.log import get_logger
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import parse_metadata

__all__ = ["WriterSchemas"]

_log = get_logger("client.schema")

_ENCRYPTED = (
    "the message is encrypted and this client cannot decrypt it: consume it with Apache Pulsar's client and its keys, or set"
    " crypto_failure_action to DISCARD or CONSUME"
)

_Version = tuple[str, bytes]
"""A topic, without its partition, and a version as the metadata of messages carry it."""


class WriterSchemas:
    """For one consumer with all its topics. ``fetch`` is called in the loop, the others under the inbox's lock."""

    def __init__(self, schema: Schema, parts: ClientContext, inbox: MessageQueue, *, takes_encrypted: bool = False) -> None:
        self._takes_encrypted = takes_encrypted
        self._decode: Decode = schema.decode
        self._reader_for = reader_for(schema)
        self._parts = parts
        self._inbox = inbox
        self._known: dict[_Version, Decode] = {}
        self._wanted: dict[_Version, None] = {}
        self._fetching: dict[_Version, None] = {}

    def know(self, topic: str, entry: Entry) -> bool:
        """Whether it is known how an entry was written. If it is not, that is wanted from now on: ``fetch`` finds out."""
        if self._reader_for is None:
            return True
        try:
            version = parse_metadata(entry.data).schema_version
        except ChecksumError:
            return True  # opening it says what is wrong
        if not version or (topic, version) in self._known:
            return True
        if (topic, version) not in self._fetching:
            self._wanted[topic, version] = None
        return False

    def decode_of(self, topic: str, metadata: MessageMetadata) -> Decode:
        """How to read the messages of an entry of which that is known; without a version they are read as the schema is.

        Raises ``CryptoError`` for an encrypted entry, unless the consumer takes such entries as they are.
        """
        if metadata.encryption_keys:
            if self._takes_encrypted:
                return _refuse_encrypted
            raise CryptoError(_ENCRYPTED)
        if self._reader_for is None or not metadata.schema_version:
            return self._decode
        found = self._known.get((topic, metadata.schema_version))
        assert found is not None, "an entry was opened before it was known how it was written"
        return found

    def fetch(self) -> None:
        """Ask for what is wanted; the inbox is told when it has come."""
        if not self._wanted:
            return
        with self._inbox.lock:
            wanted, self._wanted = self._wanted, {}
            self._fetching.update(wanted)
        for topic, version in wanted:
            _ = self._parts.tasks.spawn(self._fetch(topic, version), name=f"schema of {topic}")

    async def _fetch(self, topic: str, version: bytes) -> None:
        assert self._reader_for is not None
        backoff = Backoff(self._parts.random)
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
        with self._inbox.lock:
            self._fetching.pop((topic, version), None)
            if decode is not None:
                self._known[topic, version] = decode
        self._inbox.arrived()


def _refuse_encrypted(_data: bytes) -> object:
    raise CryptoError(_ENCRYPTED)


def _refusing(version: bytes, error: PulsarishError) -> Decode:
    number = int.from_bytes(version, "big")

    def refuse(_data: bytes) -> object:
        raise InvalidArgument(f"the message was written with version {number} of the schema, and it cannot be read by that: {error}")

    return refuse
