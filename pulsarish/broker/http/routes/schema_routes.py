"""The schemas of topics over HTTP, with Apache Pulsar's paths and JSON.

Any broker answers from metadata.

A definition is text. For KEY_VALUE it is an object with the definitions of key and value, empty
texts for types without one.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.json_bodies import (
    CompatibilityBody,
    SchemaBody,
    SchemaPayloadBody,
    SchemasBody,
    SchemaVersionBody,
    UploadedSchemaBody,
)
from pulsarish.broker.http.route import AUTHORITATIVE, Call, Parameter, Route, answer
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import Effective
from pulsarish.broker.schemas.registry import SchemaRegistry
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.model.errors import AlreadyExists, IncompatibleSchema, InvalidSchema, TopicNotFound
from pulsarish.model.policies import SCHEMA_COMPATIBILITY_STRATEGY
from pulsarish.model.policy_words import SchemaStrategy
from pulsarish.model.schema import Schema, SchemaType, VersionedSchema, split_key_value
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse

__all__ = ["SchemaRoutes"]

_TOPIC: Final = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_VERSION: Final = Parameter("version", "Counted from 0.", int, minimum=0)
_FORCE: Final = Parameter(
    "force", "Forget that there were any: versions begin at 0 again.", bool, default=False
)
_NO_VERSION: Final = -1


class SchemaRoutes:
    def __init__(
        self, registry: SchemaRegistry, namespaces: Namespaces, topics: LoadedTopics
    ) -> None:
        self._registry = registry
        self._namespaces = namespaces
        self._topics = topics

    def routes(self) -> list[Route]:
        read, anywhere = Permission.READ_TOPIC, (AUTHORITATIVE,)
        payload: dict[str, Any] = {"body": SchemaPayloadBody, "body_required": True}
        one, deletion = f"{_TOPIC}/schema", (_FORCE, AUTHORITATIVE)
        which = (_VERSION, AUTHORITATIVE)
        return [
            Route(
                "GET",
                one,
                self._newest,
                read,
                "Show the newest schema of a topic.",
                anywhere,
                answers=SchemaBody,
            ),
            Route(
                "GET",
                one + "/{version}",
                self._version,
                read,
                "Show a version of a topic's schema.",
                which,
                answers=SchemaBody,
            ),
            Route(
                "GET",
                f"{_TOPIC}/schemas",
                self._all,
                read,
                "List all versions of a topic's schema since the last deletion.",
                anywhere,
                answers=SchemasBody,
            ),
            Route(
                "POST",
                one,
                self._upload,
                Permission.PRODUCE,
                "Give a topic a schema, if it is compatible; a topic that is made on first use is "
                "made.",
                anywhere,
                **payload,
                answers=UploadedSchemaBody,
                statuses=(409, 422),
            ),
            Route(
                "DELETE",
                one,
                self._delete,
                Permission.PURGE,
                "Delete all versions of a topic's schema.",
                deletion,
                answers=SchemaVersionBody,
            ),
            Route(
                "POST",
                f"{_TOPIC}/compatibility",
                self._compatibility,
                read,
                "Return whether a schema is compatible with those of a topic.",
                anywhere,
                **payload,
                answers=CompatibilityBody,
                statuses=(422,),
            ),
            Route(
                "POST",
                f"{_TOPIC}/version",
                self._version_of,
                read,
                "Return which version of a topic's schema the given schema is.",
                anywhere,
                **payload,
                answers=SchemaVersionBody,
                statuses=(422,),
            ),
        ]

    async def _newest(self, call: Call) -> HttpResponse:
        return answer(_body(await self._registry.get(call.topic(), None)))

    async def _version(self, call: Call) -> HttpResponse:
        return answer(_body(await self._registry.get(call.topic(), call.number("version"))))

    async def _all(self, call: Call) -> HttpResponse:
        return answer(
            SchemasBody([_body(each) for each in await self._registry.versions(call.topic())])
        )

    async def _upload(self, call: Call) -> HttpResponse:
        name, schema = call.topic(), _schema(call)
        await self._make_sure_of(name)
        version = await self._registry.get_or_create(
            name, schema, await self._strategy(name), may_create=True
        )
        return answer(UploadedSchemaBody(SchemaVersionBody(version)))

    async def _delete(self, call: Call) -> HttpResponse:
        return answer(
            SchemaVersionBody(await self._registry.delete(call.topic(), force=call.flag("force")))
        )

    async def _compatibility(self, call: Call) -> HttpResponse:
        name, schema = call.topic(), _schema(call)
        strategy = await self._strategy(name)
        try:
            await self._registry.check(name, schema, strategy)
        except IncompatibleSchema as error:
            return answer(CompatibilityBody(False, strategy, str(error)))
        return answer(CompatibilityBody(True, strategy))

    async def _version_of(self, call: Call) -> HttpResponse:
        found = await self._registry.version_of(call.topic(), _schema(call))
        return answer(SchemaVersionBody(_NO_VERSION if found is None else found))

    async def _make_sure_of(self, name: TopicName) -> None:
        """Create the topic if it does not exist, as its first client would: Apache Pulsar accepts
        schemas for missing topics.
        """
        try:
            await self._registry.home(name)
        except TopicNotFound:
            if await self._namespaces.auto_partitions(name) is not None:
                return
            await self._namespaces.auto_creation(name)
            try:
                await self._topics.create(name)
            except AlreadyExists:
                return

    async def _strategy(self, name: TopicName) -> SchemaStrategy:
        space = await self._namespaces.effective(name.tenant, name.namespace)
        own = await self._namespaces.store.shown_topic(name)
        return Effective(space.defaults, space.namespace, own)[SCHEMA_COMPATIBILITY_STRATEGY]


def _schema(call: Call) -> Schema:
    """Return the schema of a request. Raises ``InvalidSchema``."""
    body: SchemaPayloadBody = call.body
    try:
        kind = SchemaType[body.type]
    except KeyError:
        raise InvalidSchema(
            f"type: {body.type!r} is no type of schema; there are "
            f"{', '.join(each.name for each in SchemaType)}"
        ) from None
    data = _key_value_data(body.schema) if kind is SchemaType.KEY_VALUE else body.schema.encode()
    return Schema(kind, data, call["topic"], body.properties or {})


def _key_value_data(text: str) -> bytes:
    try:
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        definitions = [
            b"" if bytes(parts[part]) == b'""' else bytes(parts[part]) for part in ("key", "value")
        ]
    except (msgspec.MsgspecError, KeyError, RecursionError) as error:
        raise InvalidSchema(
            f"schema: that of KEY_VALUE is a JSON object with key and value ({error})"
        ) from None
    return b"".join([len(each).to_bytes(4, "big") + each for each in definitions])


def _body(found: VersionedSchema) -> SchemaBody:
    schema = found.schema
    return SchemaBody(
        found.version, schema.type.name, found.created_ms, _text(schema), dict(schema.properties)
    )


def _text(schema: Schema) -> str:
    if schema.type is not SchemaType.KEY_VALUE:
        return schema.data.decode(errors="replace")
    parts = zip(("key", "value"), split_key_value(schema), strict=True)
    return msgspec.json.encode(
        {part: msgspec.Raw(each.data or b'""') for part, each in parts}
    ).decode(errors="replace")
