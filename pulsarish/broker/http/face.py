"""The HTTP port: find the route of a request, check the request against it, check permissions, and
run it in its lane.

Promises: every answer comes within ``http_request_timeout_seconds``; a timeout says what the
request waited for. A request in the prompt lane waits for no other. Admin requests take no more
than their share while messages flow. Every refusal names what it refuses: an unknown parameter or
field is never ignored. Errors have the codes of the common error tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from pulsarish.broker.clients.authorization import BROKER_ITSELF, Gate, Permission
from pulsarish.broker.clients.client_errors import to_client_error
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.admission import Admission, LoopShare
from pulsarish.broker.http.browser_guard import BrowserGuard
from pulsarish.broker.http.json_bodies import ErrorBody, HealthBody
from pulsarish.broker.http.missing_features import missing_api
from pulsarish.broker.http.owner_calls import ERROR_CODE_HEADER
from pulsarish.broker.http.route import Call, Lane, Moved, Parameter, Route, resource_of
from pulsarish.broker.http.router import RouteTable
from pulsarish.broker.listeners import INTERNAL
from pulsarish.model.errors import (
    AuthenticationError,
    Malformed,
    OperationNotSupported,
    PulsarishError,
    ServiceNotReady,
    Timeout,
)
from pulsarish.model.values import value_of
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.metrics import TEXT_TYPE
from pulsarish.runtime.seams import HttpRequest, HttpResponse, World
from pulsarish.runtime.version import program_version
from pulsarish.security.audit import NO_AUDIT, AuditClass, AuditEvent, Auditor, Disposition
from pulsarish.security.callers import Callers
from pulsarish.security.identity import UNCHECKED, Identity

__all__ = ["HttpFace", "health_routes"]

_log = get_logger("broker.http")

_RETRY_AFTER_SECONDS: Final = "1"
_BODY_BYTES_MAX: Final = 2 << 20
"""The largest body of a route that takes one.

Its content is stored in metadata nodes, which have at most 1 MiB.
"""
_NO_BODY_BYTES_MAX: Final = 4 << 10
"""The largest body of other routes: some clients send an empty object."""
_JSON_BEGINS: Final = (b'"', b"{", b"[")
_LARGE_ANSWERS_MAX: Final = 2
"""Number of answers of ``large`` routes that are made at the same time."""


def _refusal(status: int, reason: str, code: int | None = None) -> HttpResponse:
    """Return Apache Pulsar's error body; the code of the error tree is added as a header."""
    headers = {} if code is None else {ERROR_CODE_HEADER: str(code)}
    if status in (429, 503):
        headers["Retry-After"] = _RETRY_AFTER_SECONDS
    return HttpResponse(status, msgspec.json.encode(ErrorBody(reason)), headers=headers)


def _failed(error: PulsarishError) -> HttpResponse:
    # 307 needs an address; without one the client should retry.
    return _refusal(503 if error.http_status == 307 else error.http_status, str(error), error.code)


def _moved(request: HttpRequest, moved: Moved) -> HttpResponse:
    query = urlencode({**request.query, "authoritative": "true"})
    path = "/".join(quote(segment, safe="") for segment in request.segments)
    return HttpResponse(307, headers={"Location": f"{moved.url}/{path}?{query}"})


def _with_challenge(response: HttpResponse) -> HttpResponse:
    """Return the answer 401 with the header that HTTP wants in it."""
    return replace(response, headers={**response.headers, "WWW-Authenticate": "Bearer, Basic"})


class HttpFace:
    """Answers the requests of one broker's HTTP port."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        gate: Gate,
        routes: Sequence[Route],
        share: LoopShare,
        callers: Callers,
        audit: Auditor = NO_AUDIT,
    ) -> None:
        """Create the port. ``share``: how much of the event loop admin requests may take.

        ``audit`` gets a record of each change.
        """
        self.routes = tuple(routes)
        self._share = share
        self.admission = Admission(
            config.max_concurrent_admin_requests, config.admin_requests_waiting_max
        )
        self._world = world
        self._gate = gate
        self._timeout_seconds = config.http_request_timeout_seconds
        self._table = RouteTable(routes)
        self._guard = BrowserGuard(_own_addresses(config), config.http_allowed_hosts)
        self._large_answers = asyncio.Semaphore(_LARGE_ANSWERS_MAX)
        self._callers = callers
        self._audit = audit
        self._warned_of_credentials = False

    def body_limit(self, method: str, segments: Sequence[str]) -> int:
        """Return the largest allowed body of a request, in bytes."""
        found = self._table.find(method, segments)
        takes_body = (
            found is not None
            and isinstance(found[0], Route)
            and (found[0].body is not None or found[0].any_parameters)
        )
        return _BODY_BYTES_MAX if takes_body else _NO_BODY_BYTES_MAX

    async def handle(self, request: HttpRequest, came_in_on: str = INTERNAL) -> HttpResponse:
        """Answer a request that came in on the port of a listener."""
        if (
            "authorization" in request.headers
            and not self._callers.are_checked
            and not self._warned_of_credentials
        ):
            self._warned_of_credentials = True
            _log.warning(
                "requests carry an Authorization header, which is not checked, because "
                "authentication_enabled is false",
                path=request.path,
            )
        # The listener leaves out the body of an answer to HEAD.
        method = "GET" if request.method == "HEAD" else request.method
        found = self._table.find(method, request.segments)
        if found is None:
            missing = missing_api(request.segments)
            if missing is not None:
                return _failed(
                    OperationNotSupported(
                        f"this version does not have {missing} yet, so there is nothing at "
                        f"{request.path}"
                    )
                )
            return _refusal(404, f"there is nothing at {request.path}")
        if not isinstance(found[0], Route):
            methods = ", ".join(found[0])
            refusal = _refusal(405, f"{request.path} takes {methods}, not {request.method}")
            return HttpResponse(405, refusal.body, headers={**refusal.headers, "Allow": methods})
        route, texts = found
        refused = None if route.permission is Permission.NONE else self._guard.refusal(request)
        if refused is not None:
            return _refusal(*refused)
        try:
            call = await self._permitted(route, request, texts, came_in_on)
        except AuthenticationError as error:
            _log.warning("request refused", peer=request.peer, path=request.path, reason=error)
            return _with_challenge(_failed(error))
        except PulsarishError as error:
            return _failed(error)
        if route.lane is Lane.ADMIN and self.admission.full:
            return _failed(
                ServiceNotReady(
                    f"{self.admission.running} administration requests run and "
                    f"{self.admission.waiting} wait, the limits"
                    " max_concurrent_admin_requests and admin_requests_waiting_max; try again later"
                )
            )
        if route.permission is Permission.NONE:
            return await self._within_time(route, call)
        changes = route.method != "GET"
        try:
            response = await self._within_time(route, call)
        except Exception as error:
            if changes:
                self._note_change(route, call, 500, f"a defect: {type(error).__name__}")
            raise
        # The broker to which a request is sent records the change. A GET may create a topic.
        if response.status != 307 and (changes or call.change):
            reason = "" if response.status < 400 else _reason_of(response)
            may_happen = response.headers.get(ERROR_CODE_HEADER) == str(Timeout.code)
            self._note_change(route, call, response.status, reason, may_happen=may_happen)
        return response

    def _note_change(
        self, route: Route, call: Call, status: int, reason: str, *, may_happen: bool = False
    ) -> None:
        try:
            resource = str(resource_of(route, {name: call[name] for name in route.path_names}))
        except PulsarishError:
            resource = ""  # the path has a name that is none
        disposition = Disposition.FAILED if status >= 400 else Disposition.ALLOWED
        self._audit.note(
            AuditEvent(
                kind=AuditClass.CHANGE,
                activity="Change",
                identity=call.identity,
                disposition=Disposition.UNKNOWN if may_happen else disposition,
                action=route.name,
                resource=resource,
                reason=reason,
                detail=call.change,
                path=call.request.path,
                status=status,
            )
        )

    async def _permitted(
        self, route: Route, request: HttpRequest, texts: dict[str, str], came_in_on: str
    ) -> Call:
        """Return the call of a request whose caller has the permission of the route.

        Raises ``AuthenticationError``, ``AuthorizationError``, and the errors of what the request
        says.
        """
        if route.permission is Permission.NONE:
            return _call(route, request, texts, came_in_on, UNCHECKED)
        headers = request.headers
        identity = await self._callers.identify_request(
            headers.get("authorization", ""),
            request.certificate,
            headers.get("x-original-principal", ""),
            request.peer,
        )
        if self._gate.checks(identity):
            resource = resource_of(route, texts)
            await self._gate.permit(route.permission, route.name, identity, resource)
        return _call(route, request, texts, came_in_on, identity)

    async def forwarded(self, request: HttpRequest) -> HttpResponse:
        """Run a request for another admin request, of this or another broker.

        The permission for that one covers this: it is part of the same work.

        It needs no place, because the request that waits for it has one. Otherwise requests that
        wait for others could hold all places.
        """
        found = self._table.find(request.method, request.segments)
        if found is None or not isinstance(found[0], Route):
            # It was sent by a broker of another version.
            return _failed(
                OperationNotSupported(
                    f"broker version {program_version()} has no route {request.method} "
                    f"{request.path}"
                )
            )
        route, texts = found
        try:
            return await self._share.run(
                _answered(route, _call(route, request, texts, INTERNAL, BROKER_ITSELF))
            )
        except PulsarishError as error:
            return _failed(error)

    async def _within_time(self, route: Route, call: Call) -> HttpResponse:
        """Return the handler's answer, or a timeout.

        The work is never cancelled halfway: it keeps its place and runs to its end.
        """
        try:
            async with self._world.clock.timeout(self._timeout_seconds):
                if not route.large:
                    return await self._started(route, call)
                # The answer is sent as soon as this returns, before the next one is made.
                async with self._large_answers:
                    return await self._started(route, call)
        except TimeoutError:
            going_on = (
                ""
                if route.method == "GET"
                else "; it was not given up and may still happen: look before you try again"
            )
            return _failed(
                Timeout(
                    f"{route.method} {call.request.path} waited {self._timeout_seconds:g} s for "
                    f"{call.waits_for}{going_on}"
                )
            )

    def _started(self, route: Route, call: Call) -> asyncio.Future[HttpResponse]:
        answered: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        _ = self._world.tasks.spawn(self._run(route, call, answered), name=route.name)
        return answered

    async def _run(self, route: Route, call: Call, answered: asyncio.Future[HttpResponse]) -> None:
        admitted = route.lane is Lane.ADMIN
        if admitted:
            waits_for, call.waits_for = (
                call.waits_for,
                "a place among the administration requests that run",
            )
            await self.admission.enter()
            await self._share.turn()
            call.waits_for = waits_for
        try:
            if answered.done():
                # The caller got a timeout already: do not start the work.
                response = _failed(ServiceNotReady("too late"))
            else:
                response = await (
                    self._share.run(_answered(route, call)) if admitted else _answered(route, call)
                )
        except Exception as error:  # whatever it is, the caller gets it
            # A defect: the listener answers 500 and logs its traceback.
            if answered.done():
                raise
            answered.set_exception(error)
            return
        finally:
            if admitted:
                self.admission.leave()
        if not answered.done():
            answered.set_result(response)


def _reason_of(response: HttpResponse) -> str:
    try:
        return msgspec.json.decode(response.body, type=ErrorBody).reason
    except msgspec.DecodeError:
        return ""


def _own_addresses(config: BrokerConfig) -> list[str]:
    """Return the HTTP addresses at which this broker listens or is advertised."""
    return [
        address
        for plan in config.listener_plans()
        for address in (
            plan.bind_http_address,
            plan.advertised_http,
            plan.advertised,
            plan.bind_http_address_tls,
            plan.advertised_http_tls,
            plan.advertised_tls,
        )
    ]


async def _answered(route: Route, call: Call) -> HttpResponse:
    try:
        return await route.handler(call)
    except Moved as moved:
        return _moved(call.request, moved)
    except PulsarishError as error:
        return _failed(to_client_error(error) if route.owner else error)


def _call(
    route: Route,
    request: HttpRequest,
    texts: dict[str, str],
    listener: str,
    identity: Identity,
) -> Call:
    """Return the request in the form for its route's handler.

    Raises ``InvalidArgument``, ``Malformed``.
    """
    values: dict[str, str | int | bool] = {**texts}
    for parameter in route.parameters:
        if parameter.name in texts:
            values[parameter.name] = parameter.parse(texts[parameter.name])
    query = {parameter.name: parameter for parameter in route.query}
    for name, parameter in query.items():
        if name in request.query:
            values[name] = parameter.parse(request.query[name])
        elif parameter.default is not None:
            values[name] = parameter.default
        elif parameter.required:
            raise Malformed(f"{route.name} needs the parameter {name}: {parameter.meaning}")
    for name in () if route.any_parameters else request.query:
        if name not in query:
            known = f"it takes {', '.join(query)}" if query else "it takes none"
            raise Malformed(f"{route.name} does not know the parameter {name[:80]!r}; {known}")
    return Call(request, listener, values, _body(route, request.body), identity=identity)


def _body(route: Route, data: bytes) -> Any:
    if not data.strip():
        if route.body_required:
            raise Malformed(f"{route.name} needs a body")
        return None
    if route.body is None:
        # Official clients send an empty object, string or null where no body is needed.
        if data.strip() in (b"{}", b'""', b"null"):
            return None
        raise Malformed(f"{route.name} takes no body")
    try:
        raw = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if route.any_parameters:
            return data.decode(errors="replace")
        if route.body is str and data[:1] not in _JSON_BEGINS:
            return data.decode(errors="replace")  # as Apache Pulsar's Java client sends a text
        raise Malformed(f"the body of {route.name} is not JSON: {error}") from None
    return value_of(route.body, raw, f"the body of {route.name} $")


def health_routes(
    unready_reason: Callable[[], str],
    warnings: Callable[[], list[str]],
    metrics: Callable[[], Awaitable[bytes]],
    metrics_of: Callable[[str], Awaitable[bytes]],
    metrics_permission: Permission,
) -> list[Route]:
    """Return the health routes.

    ``/health`` is ready only while this broker can serve; then it adds ``warnings``.
    """

    async def health(call: Call) -> HttpResponse:
        reason = unready_reason()
        return (
            _refusal(503, reason)
            if reason
            else HttpResponse(200, msgspec.json.encode(HealthBody("ok", warnings())))
        )

    async def scrape(call: Call) -> HttpResponse:
        topics = call.values.get("topics")
        text = await (metrics() if topics is None else metrics_of(str(topics)))
        return HttpResponse(200, text, TEXT_TYPE)

    async def status(call: Call) -> HttpResponse:
        reason = unready_reason()
        return _refusal(503, reason) if reason else HttpResponse(200, b"OK", "text/plain")

    return [
        Route(
            "GET",
            "/status.html",
            status,
            Permission.NONE,
            "The same for load balancers.",
            answers=str,
            answer_type="text/plain",
            lane=Lane.PROMPT,
        ),
        Route(
            "GET",
            "/health",
            health,
            Permission.NONE,
            "Whether this broker can serve.",
            answers=HealthBody,
            lane=Lane.PROMPT,
        ),
        Route(
            "GET",
            "/metrics",
            scrape,
            metrics_permission,
            "Metrics in the text form of Prometheus.",
            parameters=(
                Parameter(
                    "topics",
                    "Only the series of these topics of this broker, whether or not they have "
                    "series without it; names and tenant/namespace, with commas between them.",
                ),
            ),
            answers=str,
            answer_type="text/plain",
            lane=Lane.PROMPT,
        ),
    ]
