"""Routing of HTTP requests: one table of routes, each through the authorization point, errors by the one tree of errors."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from pulsarish.broker.authorization import ANYBODY, Gate
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpRequest, HttpResponse

__all__ = ["Call", "HttpFace", "Moved", "Route", "answer", "health_routes", "no_content"]


class Moved(Exception):
    """Another broker has to act; the client is sent there."""

    def __init__(self, http_address: str) -> None:
        super().__init__(http_address)
        self.http_address = http_address


@dataclass(frozen=True, slots=True)
class Call:
    """A request whose route is known."""

    request: HttpRequest
    values: dict[str, str] = field(default_factory=dict)  # what stood in the route's braces

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def topic(self) -> TopicName:
        """Raises ``InvalidTopicName``."""
        return TopicName.parse(f"persistent://{self['tenant']}/{self['namespace']}/{self['topic']}")

    def flag(self, name: str) -> bool:
        return self.request.query.get(name, "false").lower() == "true"

    def number(self, name: str) -> int:
        """A whole number from the path or the query. Raises ``InvalidArgument``."""
        text = self.values.get(name) or self.request.query.get(name, "")
        try:
            return int(text)
        except ValueError:
            raise InvalidArgument(f"{name} must be a whole number, not {text!r}") from None

    def body(self) -> Any:
        """The body's JSON, ``None`` when there is none. Raises ``InvalidArgument``."""
        if not self.request.body:
            return None
        try:
            return json.loads(self.request.body)
        except ValueError as error:
            raise InvalidArgument(f"the body is not JSON: {error}") from None


ERROR_CODE_HEADER: Final = "X-Pulsarish-Error-Code"

Handler = Callable[[Call], Awaitable[HttpResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """``pattern`` is a path with names in braces; together with the method it is the name in the table of permissions."""

    method: str
    pattern: str
    handler: Handler

    @property
    def name(self) -> str:
        return f"{self.method} {self.pattern}"


def answer(value: Any) -> HttpResponse:
    return HttpResponse(200, json.dumps(value).encode())


def no_content() -> HttpResponse:
    return HttpResponse(204)


def _refusal(status: int, reason: str, code: int | None = None) -> HttpResponse:
    """Apache Pulsar's body of an error; the code of the error tree goes in a header beside it."""
    headers = {} if code is None else {ERROR_CODE_HEADER: str(code)}
    return HttpResponse(status, json.dumps({"reason": reason}).encode(), headers=headers)


class HttpFace:
    """Answers the requests of one broker's HTTP port."""

    def __init__(self, gate: Gate, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        self._gate = gate
        self._parts = [(route, route.pattern.strip("/").split("/")) for route in self.routes]

    async def handle(self, request: HttpRequest) -> HttpResponse:
        found = self._find(request)
        if isinstance(found, HttpResponse):
            return found
        route, call = found
        try:
            resource = "/".join(call.values[name] for name in ("tenant", "namespace", "topic") if name in call.values)
            self._gate.check(route.name, ANYBODY, resource)
            return await route.handler(call)
        except Moved as moved:
            query = urlencode({**request.query, "authoritative": "true"})
            path = "/".join(quote(segment, safe="") for segment in request.segments)
            return HttpResponse(307, headers={"Location": f"http://{moved.http_address}/{path}?{query}"})
        except PulsarishError as error:
            status = 503 if error.http_status == 307 else error.http_status
            return _refusal(status, str(error), error.code)

    def _find(self, request: HttpRequest) -> tuple[Route, Call] | HttpResponse:
        other_methods: list[str] = []
        method = "GET" if request.method == "HEAD" else request.method  # the listener leaves the body out
        for route, parts in self._parts:
            if len(parts) != len(request.segments):
                continue
            values: dict[str, str] = {}
            for part, segment in zip(parts, request.segments, strict=True):
                if part.startswith("{"):
                    values[part[1:-1]] = segment
                elif part != segment:
                    break
            else:
                if route.method == method:
                    return route, Call(request, values)
                other_methods.append(route.method)
        if other_methods:
            return _refusal(405, f"{request.path} takes {', '.join(sorted(set(other_methods)))}, not {request.method}")
        return _refusal(404, f"there is nothing at {request.path}")


def health_routes(unready_reason: Callable[[], str], metrics: Callable[[], bytes]) -> list[Route]:
    """``/health`` says ready only when this broker can serve."""

    async def health(call: Call) -> HttpResponse:
        reason = unready_reason()
        return _refusal(503, reason) if reason else HttpResponse(200, b'{"status": "ok"}')

    async def scrape(call: Call) -> HttpResponse:
        return HttpResponse(200, metrics(), "text/plain; version=0.0.4")

    return [Route("GET", "/health", health), Route("GET", "/metrics", scrape), Route("GET", "/admin/v2/brokers/health", health)]
