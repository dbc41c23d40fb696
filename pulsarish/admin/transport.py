"""One HTTP request of the admin client and its answer: choice of the broker, redirects, and errors.

It imports only the standard library, since the command line waits for the import.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pulsarish.model.errors import (
    AlreadyExists,
    AuthorizationError,
    ConnectError,
    InvalidArgument,
    InvalidConfiguration,
    NotAllowed,
    NotFound,
    PulsarishError,
    ServiceNotReady,
    Timeout,
    TooManyRequests,
    UnknownError,
    UnsupportedFeature,
    error_from_code,
)
from pulsarish.model.topic_name import TopicName

__all__ = [
    "Answer",
    "Ids",
    "Names",
    "Record",
    "Records",
    "Transport",
    "namespace_path",
    "topic_path",
]

Record = dict[str, Any]
"""A JSON object as the broker returns it, with Apache Pulsar's names."""
Records = list[Record]
Names = list[str]
Ids = list[int]

_REDIRECTS_MAX: Final = 5
_DEFAULT_PORT: Final = 8080
_ERROR_CODE_HEADER: Final = "x-pulsarish-error-code"
_ERRORS: Final[dict[int, type[PulsarishError]]] = {
    400: InvalidArgument,
    401: AuthorizationError,
    403: AuthorizationError,
    404: NotFound,
    405: NotAllowed,
    409: AlreadyExists,
    412: InvalidArgument,
    422: InvalidArgument,
    429: TooManyRequests,
    501: UnsupportedFeature,
    503: ServiceNotReady,
    504: Timeout,
}


class Answer(NamedTuple):
    """The answer to a request. Names of headers are in lower case."""

    headers: dict[str, str]
    payload: bytes


class Transport:
    """Sends requests to any broker.

    A broker that is not the owner redirects to the owner; the client follows.

    Args and errors are those of :class:`pulsarish.admin.Admin`.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        scheme, separator, rest = url.partition("://")
        if not separator:
            scheme, rest = "http", url
        self._addresses = [_address(part, url) for part in rest.rstrip("/").split(",")]
        if scheme != "http":
            raise _bad_url(url)
        self.timeout_seconds = timeout_seconds

    def request(
        self,
        method: str,
        path: Sequence[str],
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        root: str = "/admin/v2",
    ) -> Any:
        """Send one request and follow redirects.

        Return the decoded JSON answer, or ``None`` for an empty one.

        Args:
            path: segments below ``root``, not encoded.
            query: values as text.
            body: sent as JSON; ``None``: no body.

        Raises the error class that fits the answer, with the broker's reason; ``ConnectError`` when
        no broker answers.
        """
        payload = self.exchange(method, path, query=query, body=body, root=root).payload
        return json.loads(payload) if payload else None

    def exchange(
        self,
        method: str,
        path: Sequence[str],
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        root: str = "/admin/v2",
    ) -> Answer:
        """Send one request like :meth:`request`, for answers that are not JSON."""
        if "" in path:  # otherwise the path of another resource, which the broker would answer for
            raise InvalidArgument(
                f"the name after {'/'.join(path[: path.index('')])!r} is empty; give one"
            )
        target = root + "/" + "/".join(urllib.parse.quote(part, safe="") for part in path)
        if query:
            target += "?" + urllib.parse.urlencode(query)
        data = None if body is None else json.dumps(body).encode()
        status, headers, payload = self._first(method, target, data)
        host, port = self._addresses[0]
        redirects = 0
        while status in (302, 307):
            if redirects == _REDIRECTS_MAX:
                raise ServiceNotReady(
                    f"{method} {target} was redirected {redirects} times; the topic is on the "
                    "move, try again"
                )
            redirects += 1
            parts = urllib.parse.urlsplit(headers.get("location", ""))
            host, port = parts.hostname or host, parts.port or port
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            status, headers, payload = self._once(host, port, method, target, data)
        if status >= 300:
            raise _error(status, headers, _reason(payload, status, method, target))
        return Answer(headers, payload)

    def pages(
        self,
        *path: str,
        after: str = "",
        limit: int | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Names:
        """Return the names of a list that come after ``after``, at most ``limit``."""
        page = ({"after": after} if after else {}) | (
            {"limit": str(limit)} if limit is not None else {}
        )
        return [str(item) for item in self.request("GET", path, query={**(query or {}), **page})]

    def record(
        self, method: str, *path: str, query: Mapping[str, str] | None = None, body: object = None
    ) -> Record:
        return _as_record(self.request(method, path, query=query, body=body))

    def records(self, *path: str) -> Records:
        return [_as_record(item) for item in self.request("GET", path)]

    def text(self, *path: str) -> str:
        return self.exchange("GET", path).payload.decode()

    def _first(
        self, method: str, target: str, data: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        """Return the answer of the first broker that can be reached.

        The next request tries that broker first.
        """
        failures: list[str] = []
        for index, (host, port) in enumerate(self._addresses):
            try:
                answer = self._once(host, port, method, target, data)
            except ConnectError as error:
                failures.append(str(error))
                continue
            self._addresses.insert(0, self._addresses.pop(index))
            return answer
        raise ConnectError(
            f"{'; '.join(failures)}; is a broker running there, is --admin-url "
            "(PULSARISH_ADMIN_URL) right?"
        )

    def _once(
        self, host: str, port: int, method: str, target: str, data: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(host, port, timeout=self.timeout_seconds)
        try:
            connection.connect()
        except OSError as error:
            raise ConnectError(
                f"no broker answers at http://{_host(host)}:{port}: {error}"
            ) from None
        try:
            connection.request(
                method,
                target,
                data,
                {"Content-Type": "application/json"} if data is not None else {},
            )
            response = connection.getresponse()
            return (
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )
        except TimeoutError:
            raise Timeout(
                f"http://{_host(host)}:{port} did not answer {method} {target} within "
                f"{self.timeout_seconds:g} s"
            ) from None
        except http.client.HTTPException as error:
            if isinstance(error, OSError):
                raise ServiceNotReady(
                    f"http://{_host(host)}:{port} hung up before it answered {method} {target}; "
                    "try again"
                ) from None
            raise ConnectError(
                f"what listens at {_host(host)}:{port} does not speak HTTP; give a broker's HTTP "
                "address, port 8080 or its like"
            ) from None
        except OSError as error:
            # Do not send it to another broker: it is unknown whether this one has executed it.
            raise ServiceNotReady(
                f"http://{_host(host)}:{port} broke off while it answered {method} {target} "
                f"({error}); try again"
            ) from None
        finally:
            connection.close()


def namespace_path(namespace: str) -> list[str]:
    """Return the path of a namespace.

    Raises ``InvalidArgument`` for a text that is not tenant/namespace.
    """
    tenant, separator, name = namespace.partition("/")
    if not separator or not tenant or not name or "/" in name:
        raise InvalidArgument(f"namespace {namespace!r} must look like tenant/namespace")
    return ["namespaces", tenant, name]


def topic_path(topic: str) -> list[str]:
    """Return the path of a topic. Raises ``InvalidTopicName``."""
    name = TopicName.parse(topic)
    return [name.domain, name.tenant, name.namespace, name.local]


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bad_url(url: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"admin url {url!r} must look like http://host:8080 or http://host1:8080,host2:8080"
    )


def _address(text: str, url: str) -> tuple[str, int]:
    try:
        parts = urllib.parse.urlsplit(f"//{text}")
        port = parts.port or _DEFAULT_PORT
    except ValueError:
        raise _bad_url(url) from None
    if not parts.hostname or parts.path or parts.query or parts.username:
        raise _bad_url(url)
    return parts.hostname, port


def _as_record(value: Any) -> Record:
    if not isinstance(value, dict):
        raise UnknownError(
            f"the broker answered {type(value).__name__} where a record was expected"
        )
    return value


def _error(status: int, headers: Mapping[str, str], reason: str) -> PulsarishError:
    """Return the error that the broker named, or the class that fits the status best."""
    code = headers.get(_ERROR_CODE_HEADER, "")
    return (
        error_from_code(int(code), reason)
        if code.isdecimal()
        else _ERRORS.get(status, UnknownError)(reason)
    )


def _reason(payload: bytes, status: int, method: str, target: str) -> str:
    try:
        return str(json.loads(payload)["reason"])
    except (ValueError, KeyError, TypeError):
        return f"{method} {target} answered with status {status}"
