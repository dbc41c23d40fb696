"""The schemas that messages were written with, fetched once for each version that a consumer meets.

A message whose version is not known yet stays in the queue, and all behind it, until a broker has answered; so whoever reads its value
never waits. A version that the topic does not have any more is not asked for again: the values of its messages say so.
"""

from __future__ import annotations

from pulsarish.client.backoff import Backoff
from pulsarish.client.inbox import Inbox
from pulsarish.client.parts import ClientParts
from pulsarish.client.schema import Decode, Schema, reader_for
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.runtime.log import get_logger

__all__ = ["WriterSchemas"]

_log = get_logger("client.schema")

_Version = tuple[str, bytes]
"""A topic, without its partition, and a version as the metadata of messages carry it."""


class WriterSchemas:
    """For one consumer with all its topics. ``decoder`` and ``want`` are called under the inbox's lock, ``fetch`` in the loop."""

    def __init__(self, schema: Schema, parts: ClientParts, inbox: Inbox) -> None:
        self._decode: Decode = schema.decode
        self._reader_for = reader_for(schema)
        self._parts = parts
        self._inbox = inbox
        self._known: dict[_Version, Decode] = {}
        self._wanted: dict[_Version, None] = {}
        self._fetching: dict[_Version, None] = {}

    @property
    def is_needed(self) -> bool:
        """Whether it matters at all how a message was written."""
        return self._reader_for is not None

    def decoder(self, topic: str, version: bytes) -> Decode | None:
        """How to read a message of this version; ``None`` while that is not known. One without a version is read as the schema is."""
        if self._reader_for is None or not version:
            return self._decode
        return self._known.get((topic, version))

    def want(self, topic: str, version: bytes) -> None:
        """``fetch`` is to find out about it."""
        if (topic, version) not in self._fetching:
            self._wanted[topic, version] = None

    def fetch(self) -> None:
        """Ask for what is wanted; the inbox is told when it has come."""
        if not self._wanted:
            return
        with self._inbox.lock:
            wanted, self._wanted = self._wanted, {}
            self._fetching.update(wanted)
        for topic, version in wanted:
            _ = self._parts.tasks.spawn(self._fetch(topic, version), name=f"schema of {topic}", critical=False)

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


def _refusing(version: bytes, error: PulsarishError) -> Decode:
    number = int.from_bytes(version, "big")

    def refuse(_data: bytes) -> object:
        raise InvalidArgument(f"the message was written with version {number} of the schema, and it cannot be read by that: {error}")

    return refuse
