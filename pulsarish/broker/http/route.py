"""What a route of the HTTP port declares, and what its handler gets.

A route declares its method and path, its permission, its parameters with their ranges, its request
and answer bodies, its statuses and its lane. The HTTP port checks a request against it before the
handler runs. The OpenAPI document is generated from the same declarations, so neither can differ
from the other.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from pulsarish.broker.clients.authorization import CLUSTER, Permission, Resource
from pulsarish.model.errors import InvalidArgument, Malformed
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.seams import HttpRequest, HttpResponse
from pulsarish.security.identity import UNCHECKED, Identity

__all__ = [
    "AFTER",
    "AUTHORITATIVE",
    "LIMIT",
    "NOTHING",
    "Call",
    "Handler",
    "Lane",
    "Moved",
    "Parameter",
    "Route",
    "answer",
    "checked",
    "no_content",
    "resource_of",
]

T = TypeVar("T")

_NON_PERSISTENT: Final = "non-persistent"  # behind /admin/v2: all others are persistent
_SHOWN_MAX: Final = 80
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_FLAGS: Final = {"true": True, "false": False}


class Moved(Exception):
    """Another broker must run the request; the client is redirected to it.

    Args:
        url: of that broker's HTTP port, without a path.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url


class Lane(Enum):
    """Where requests wait.

    ``PROMPT`` requests never wait for another one: health, metrics, lookups. ``ADMIN`` requests
    share a limited number of places.
    """

    PROMPT = "prompt"
    ADMIN = "admin"


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of the path (its name is in braces there) or of the query.

    ``kind`` is ``str``, ``int`` or ``bool``.
    """

    name: str
    meaning: str
    kind: type[str] | type[int] | type[bool] = str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    default: str | int | bool | None = None
    required: bool = False

    def parse(self, text: str) -> str | int | bool:
        """Return the parsed value.

        Raises ``Malformed`` for another type, ``InvalidArgument`` for a value out of range.
        """
        shown = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
        if self.kind is bool:
            flag = _FLAGS.get(text.lower())
            if flag is None:
                raise Malformed(f"{self.name} must be true or false, not {shown!r}")
            return flag
        if self.kind is int:
            if not _WHOLE_NUMBER.fullmatch(text):
                length = " of at most 19 digits" if text.removeprefix("-").isdecimal() else ""
                raise Malformed(f"{self.name} must be a whole number{length}, not {shown!r}")
            number = int(text)
            if (self.minimum is not None and number < self.minimum) or (
                self.maximum is not None and number > self.maximum
            ):
                raise InvalidArgument(f"{self.name} must be {self._range()}, not {number}")
            return number
        if self.choices and text not in self.choices:
            raise InvalidArgument(
                f"{self.name} must be one of {', '.join(self.choices)}, not {shown!r}"
            )
        return text

    def _range(self) -> str:
        if self.minimum is None:
            return f"{self.maximum} or less"
        return (
            f"{self.minimum} or more"
            if self.maximum is None
            else f"{self.minimum} to {self.maximum}"
        )


AUTHORITATIVE: Final = Parameter(
    "authoritative",
    "The broker that is asked should take a bundle without an owner.",
    bool,
    default=False,
)
LIMIT: Final = Parameter(
    "limit", "Greatest number of items; all without it.", int, minimum=1, maximum=100_000
)
AFTER: Final = Parameter(
    "after", "Only items that come after this one, the last of the page before."
)


class Call(msgspec.Struct):
    """A request with its route found and its parameters and body checked."""

    request: HttpRequest
    listener: str
    """The listener that the client connected to: it can reach the addresses of this listener."""
    values: Mapping[str, str | int | bool] = msgspec.field(default_factory=dict)
    body: Any = None
    """The body in the type that the route declares; ``None`` without a body."""
    identity: Identity = UNCHECKED
    """Who makes the request; of a request that a broker passes on, who made it there."""
    waits_for: str = "the metadata store"
    """What a timed-out request was waiting for.

    A handler sets it before it waits for something else.
    """
    change: str = ""
    """What the request changes, for the audit trail; never a secret. A handler may set it."""

    def __getitem__(self, name: str) -> str:
        """Return a text parameter of the path."""
        return str(self.values[name])

    def text(self, name: str) -> str:
        """Return a text parameter of the query; empty when it is missing."""
        return str(self.values.get(name) or "")

    def topic(self) -> TopicName:
        """Return the topic of the path. Raises ``InvalidTopicName``."""
        domain = _NON_PERSISTENT if _NON_PERSISTENT in self.request.segments[:3] else "persistent"
        return TopicName.parse(f"{domain}://{self['tenant']}/{self['namespace']}/{self['topic']}")

    def flag(self, name: str) -> bool:
        return bool(self.values.get(name, False))

    def number(self, name: str) -> int:
        """Return a number of the path, or of the query if it was given or has a default."""
        return int(self.values[name])

    def given(self, name: str) -> int | None:
        """Return a number of the query; ``None`` if it was not given and has no default."""
        value = self.values.get(name)
        return None if value is None else int(value)

    def page(self, items: Iterable[T], name: Callable[[T], str]) -> list[T]:
        """Return the items after ``after``, at most ``limit``, as the query asks; ordered by
        name.
        """
        after, limit = self.text("after"), self.given("limit")
        found = sorted((item for item in items if not after or name(item) > after), key=name)
        return found if limit is None else found[:limit]


Handler = Callable[[Call], Awaitable[HttpResponse]]

NOTHING: Final = object()
"""Answer type of a route whose success is 204 without a body."""


class Route(msgspec.Struct, frozen=True):
    """The declaration of a route.

    ``pattern`` is a path with names in braces. These are texts, unless a parameter of that name
    says more.

    ``body`` and ``answers`` are types for msgspec. ``owner`` marks work that only the owner of a
    topic or bundle can do: another broker redirects. ``statuses`` are those in addition to the
    statuses of the HTTP port itself.
    """

    method: str
    pattern: str
    handler: Handler
    permission: Permission
    summary: str
    parameters: tuple[Parameter, ...] = ()
    body: Any = None
    body_required: bool = False
    answers: Any = NOTHING
    answer_type: str = "application/json"
    statuses: tuple[int, ...] = ()
    owner: bool = False
    lane: Lane = Lane.ADMIN
    described: bool = True
    """Whether the OpenAPI document has it."""
    large: bool = False
    """Its answer may be as large as an uncompressed entry, so few of them are made at a time."""
    any_parameters: bool = False
    """Accept unknown query parameters and any text as a body: the route refuses the request anyway,
    for a better reason.
    """

    @property
    def name(self) -> str:
        return f"{self.method} {self.pattern}"

    @property
    def path_names(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.pattern)

    @property
    def query(self) -> list[Parameter]:
        """Parameters of the query."""
        in_path = self.path_names
        found = [parameter for parameter in self.parameters if parameter.name not in in_path]
        return [*found, AUTHORITATIVE] if self.owner else found


def resource_of(route: Route, texts: Mapping[str, str]) -> Resource:
    """Return what a request is about, for the check of its permission.

    ``texts``: the values of the names in the route's path. Raises ``InvalidTopicName``.
    """
    if "tenant" not in texts:
        return CLUSTER
    tenant = check_name("tenant", texts["tenant"])
    if "namespace" not in texts:
        return Resource(tenant)
    namespace = check_name("namespace", texts["namespace"])
    subscription = texts.get("subscription", "")
    if "topic" not in texts:
        return Resource(tenant, namespace, subscription=subscription)
    domain = texts.get("domain") or (
        _NON_PERSISTENT if _NON_PERSISTENT in route.pattern.split("/")[:4] else "persistent"
    )
    name = TopicName.parse(f"{domain}://{tenant}/{namespace}/{texts['topic']}")
    return Resource.of_topic(name, subscription)


def answer(value: Any) -> HttpResponse:
    """Return status 200 with the value as JSON."""
    return HttpResponse(200, msgspec.json.encode(value))


def no_content() -> HttpResponse:
    return HttpResponse(204)


def checked(kind: type[T], value: Any, where: str) -> T:
    """Convert a value of a body to its type. Raises ``Malformed`` that names the field."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Malformed(f"{where}: {error}") from None
