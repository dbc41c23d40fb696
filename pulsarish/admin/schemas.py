"""The schemas of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pulsarish.admin.transport import Record, Records, Transport
from pulsarish.model.topic_name import TopicName

__all__ = ["Compatibility", "Schemas"]


class Compatibility(NamedTuple):
    """Whether a topic would accept a schema, by which strategy, and why not."""

    is_compatible: bool
    strategy: str
    reason: str


class Schemas:
    """``Admin.schemas``. All partitions of a topic share its schemas.

    A type is named as in Apache Pulsar: ``AVRO``, ``JSON``, ``STRING``, ``INT32``, ``KEY_VALUE``
    ... A definition is text. The definition of ``KEY_VALUE`` is a JSON object with the definitions
    of ``key`` and ``value``.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self, topic: str, version: int | None = None) -> Record:
        """Return ``version``, ``type``, ``timestamp``, ``data`` (the definition) and
        ``properties``; of the newest without a version.

        Raises ``TopicNotFound``, ``SchemaNotFound``.
        """
        words = ["schema"] if version is None else ["schema", str(version)]
        return self._transport.record("GET", *_path(topic), *words)

    def list(self, topic: str) -> Records:
        """Return all versions since the last deletion, oldest first, in the form of :meth:`get`.

        Raises ``TopicNotFound``.
        """
        found: Records = self._transport.record("GET", *_path(topic), "schemas")[
            "getSchemaResponses"
        ]
        return found

    def upload(
        self,
        topic: str,
        type: str,  # noqa: A002
        definition: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Give a topic a schema. Return its version; for an existing schema, the old version.

        Creates a missing topic where first use creates topics.

        Raises ``IncompatibleSchema``, ``InvalidSchema``, ``TopicNotFound``, ``LimitReached``.
        """
        version: int = self._transport.record(
            "POST", *_path(topic), "schema", body=_body(type, definition, properties)
        )["version"]["version"]
        return version

    def delete(self, topic: str, *, force: bool = False) -> int:
        """Delete all versions.

        The next one gets the number after the returned one. ``force``: numbers begin at 0 again.

        Raises ``TopicNotFound``, ``SchemaNotFound``.
        """
        query = {"force": "true"} if force else None
        version: int = self._transport.record("DELETE", *_path(topic), "schema", query=query)[
            "version"
        ]
        return version

    def compatibility(
        self,
        topic: str,
        type: str,  # noqa: A002
        definition: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> Compatibility:
        """Return whether the schema could be uploaded, without a change.

        Raises ``InvalidSchema``, ``TopicNotFound``.
        """
        found = self._transport.record(
            "POST", *_path(topic), "compatibility", body=_body(type, definition, properties)
        )
        return Compatibility(
            found["compatibility"], found["schemaCompatibilityStrategy"], found.get("reason", "")
        )

    def version_of(
        self,
        topic: str,
        type: str,  # noqa: A002
        definition: str = "",
        properties: Mapping[str, str] | None = None,
    ) -> int | None:
        """Return the version of this schema; ``None`` when the topic does not have it.

        Raises ``InvalidSchema``, ``TopicNotFound``.
        """
        version: int = self._transport.record(
            "POST", *_path(topic), "version", body=_body(type, definition, properties)
        )["version"]
        return None if version < 0 else version


def _path(topic: str) -> list[str]:
    name = TopicName.parse(topic)
    return ["schemas", name.tenant, name.namespace, name.local]


def _body(kind: str, definition: str, properties: Mapping[str, str] | None) -> dict[str, Any]:
    return {"type": kind, "schema": definition, "properties": dict(properties or {})}
