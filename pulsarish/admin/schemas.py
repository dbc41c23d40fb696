"""The schemas of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pulsarish.admin.transport import Record, Records, Transport
from pulsarish.model.topic_name import TopicName

__all__ = ["Compatibility", "Schemas"]


class Compatibility(NamedTuple):
    """Whether a schema could follow those of a topic, by which strategy, and why not."""

    is_compatible: bool
    strategy: str
    reason: str


class Schemas:
    """``Admin.schemas``. Those of a partitioned topic are one for all its partitions.

    A type is named as in Apache Pulsar: ``AVRO``, ``JSON``, ``STRING``, ``INT32``, ``KEY_VALUE`` ... A definition is text; that of
    ``KEY_VALUE`` is a JSON object with the definitions of ``key`` and ``value``.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, topic: str, version: int | None = None) -> Record:
        """``version``, ``type``, ``timestamp``, ``data`` (the definition) and ``properties``; the newest without a version.

        Raises ``TopicNotFound``, ``SchemaNotFound``.
        """
        words = ["schema"] if version is None else ["schema", str(version)]
        return self._transport.record("GET", *_path(topic), *words)

    def list(self, topic: str) -> Records:
        """All versions since the last deletion, oldest first, as :meth:`get` answers them. Raises ``TopicNotFound``."""
        found: Records = self._transport.record("GET", *_path(topic), "schemas")["getSchemaResponses"]
        return found

    def upload(self, topic: str, type: str, definition: str = "", properties: Mapping[str, str] | None = None) -> int:  # noqa: A002
        """Give a topic a schema; returns its version, an old one for a schema that is there already. A topic that is not there is made
        where topics are made on first use.

        Raises ``IncompatibleSchema``, ``InvalidSchema``, ``TopicNotFound``, ``LimitReached``.
        """
        version: int = self._transport.record("POST", *_path(topic), "schema", body=_body(type, definition, properties))["version"][
            "version"
        ]
        return version

    def delete(self, topic: str, *, force: bool = False) -> int:
        """Delete all versions; the next one gets the number after the one returned. ``force``: numbers begin at 0 again.

        Raises ``TopicNotFound``, ``SchemaNotFound``.
        """
        query = {"force": "true"} if force else None
        version: int = self._transport.record("DELETE", *_path(topic), "schema", query=query)["version"]
        return version

    def compatibility(
        self,
        topic: str,
        type: str,  # noqa: A002
        definition: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> Compatibility:
        """Whether the schema could be uploaded; nothing is changed. Raises ``InvalidSchema``, ``TopicNotFound``."""
        found = self._transport.record("POST", *_path(topic), "compatibility", body=_body(type, definition, properties))
        return Compatibility(found["compatibility"], found["schemaCompatibilityStrategy"], found.get("reason", ""))

    def version_of(
        self,
        topic: str,
        type: str,  # noqa: A002
        definition: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> int | None:
        """The version that the schema is, ``None`` when it is none of the topic's. Raises ``InvalidSchema``, ``TopicNotFound``."""
        version: int = self._transport.record("POST", *_path(topic), "version", body=_body(type, definition, properties))["version"]
        return None if version < 0 else version


def _path(topic: str) -> list[str]:
    name = TopicName.parse(topic)
    return ["schemas", name.tenant, name.namespace, name.local]


def _body(kind: str, definition: str, properties: Mapping[str, str] | None) -> dict[str, Any]:
    return {"type": kind, "schema": definition, "properties": dict(properties or {})}
