"""One HTTP request of the admin client and its answer: choice of the broker, redirects, and errors.

It imports only the standard library, since the command line waits for the import.
"""

from __future__ import annotations

import base64
import copy
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from pulsarish.model.errors import (
    AlreadyExists,
    AuthenticationError,
    AuthorizationError,
    ConnectError,
    InvalidArgument,
    InvalidConfiguration,
    MetadataUnavailable,
    NotAllowedError,
    NotFound,
    OperationNotSupported,
    PulsarishError,
    ServiceNotReady,
    Timeout,
    TooManyRequests,
    UnknownError,
    error_from_code,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.security.client_security import PLAIN, ClientSecurity
from pulsarish.security.tls import TlsClientConfig

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
_PORTS: Final = {"http": 8080, "https": 8443}
_ERROR_CODE_HEADER: Final = "x-pulsarish-error-code"
_METADATA_UNAVAILABLE: Final = str(MetadataUnavailable.code)
_ERRORS: Final[dict[int, type[PulsarishError]]] = {
    400: InvalidArgument,
    401: AuthenticationError,
    403: AuthorizationError,
    404: NotFound,
    405: NotAllowedError,
    409: AlreadyExists,
    412: InvalidArgument,
    422: InvalidArgument,
    429: TooManyRequests,
    501: OperationNotSupported,
    503: ServiceNotReady,
    504: Timeout,
}


class Answer(NamedTuple):
    """The answer to a request. Names of headers are in lower case."""

    headers: dict[str, str]
    payload: bytes


class Transport:
    """Sends requests to any broker.

    A broker that is not the owner redirects to the owner; the client follows, with its credentials,
    as long as that is no other scheme: what began with TLS never goes on without.

    Args:
        security: ``tls`` is for a URL of ``https``.

    The other arguments and the errors are those of :class:`pulsarish.admin.Admin`.
    """

    def __init__(self, url: str, timeout_seconds: float, security: ClientSecurity = PLAIN) -> None:
        scheme, separator, rest = url.partition("://")
        if not separator:
            scheme, rest = "http", url
        if scheme not in _PORTS:
            raise _bad_url(url)
        self._scheme = scheme
        self._addresses = [_address(part, scheme, url) for part in rest.rstrip("/").split(",")]
        self._security = security
        self.timeout_seconds = timeout_seconds

    def with_timeout(self, seconds: float) -> Self:
        other = copy.copy(self)
        other.timeout_seconds = seconds
        return other

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
            if parts.scheme not in ("", self._scheme):
                raise ConnectError(
                    f"{self._name(host, port)} redirects {method} {target} to {parts.scheme}, "
                    f"which this client does not follow; use a URL of {parts.scheme}, or correct "
                    "the addresses that brokers advertise"
                )
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

        The next request tries that broker first. A broker that cannot read metadata does not know
        the owner of a topic, and the owner itself may be another one of these: it needs none.
        """
        failures: list[str] = []
        unknown: tuple[int, dict[str, str], bytes] | None = None
        for index, (host, port) in enumerate(self._addresses):
            try:
                answer = self._once(host, port, method, target, data)
            except ConnectError as error:
                failures.append(str(error))
                continue
            if method == "GET" and answer[1].get(_ERROR_CODE_HEADER) == _METADATA_UNAVAILABLE:
                unknown = unknown or answer
                continue
            self._addresses.insert(0, self._addresses.pop(index))
            return answer
        if unknown is not None:
            return unknown
        raise ConnectError(
            f"{'; '.join(failures)}; is a broker running there, is --admin-url "
            "(PULSARISH_ADMIN_URL) right?"
        )

    def _once(
        self, host: str, port: int, method: str, target: str, data: bytes | None
    ) -> tuple[int, dict[str, str], bytes]:
        # Credentials and certificates are read again for each request: they are renewed.
        sent = self._authorization()
        if data is not None:
            sent["Content-Type"] = "application/json"
        name = self._name(host, port)
        connection = self._connection(host, port)
        try:
            connection.connect()
        except OSError as error:
            raise _no_connection(name, error) from None
        try:
            connection.request(method, target, data, sent)
            response = connection.getresponse()
            return (
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )
        except TimeoutError:
            raise Timeout(
                f"{name} did not answer {method} {target} within {self.timeout_seconds:g} s"
            ) from None
        except http.client.HTTPException as error:
            if isinstance(error, OSError):
                raise ServiceNotReady(
                    f"{name} hung up before it answered {method} {target}; try again"
                ) from None
            raise ConnectError(
                f"what listens at {_host(host)}:{port} does not speak HTTP; give a broker's HTTP "
                "address, port 8080 or its like, and https:// where it uses TLS"
            ) from None
        except OSError as error:
            # Do not send it to another broker: it is unknown whether this one has executed it.
            raise ServiceNotReady(
                f"{name} broke off while it answered {method} {target} ({error}); try again"
            ) from None
        finally:
            connection.close()

    def _connection(self, host: str, port: int) -> http.client.HTTPConnection:
        if self._scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self.timeout_seconds)
        context = _tls_context(self._security.tls or TlsClientConfig())
        return http.client.HTTPSConnection(
            host, port, timeout=self.timeout_seconds, context=context
        )

    def _authorization(self) -> dict[str, str]:
        """Return the header that says who the client is, or none."""
        provider = self._security.provider
        if provider is None or not provider.http_scheme:
            return {}
        data = provider.credentials().data.reveal()
        if provider.http_scheme == "Basic":
            data = base64.b64encode(data)
        return {"Authorization": f"{provider.http_scheme} {data.decode('ascii')}"}

    def _name(self, host: str, port: int) -> str:
        return f"{self._scheme}://{_host(host)}:{port}"


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


def _tls_context(config: TlsClientConfig) -> ssl.SSLContext:
    """Return the context of a connection. Raises ``InvalidConfiguration`` naming the file."""
    try:
        context = ssl.create_default_context(cafile=config.trust_file or None)
    except OSError as error:
        raise InvalidConfiguration(
            f"tls_trust_certs_file_path = {config.trust_file!r} has no certificate that can be "
            f"read ({error.strerror or error}); give a file in PEM form"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = config.validates_host_name and not config.allows_insecure
    if config.allows_insecure:
        context.verify_mode = ssl.CERT_NONE
    if config.certificate_file:
        try:
            # A password is never asked for at a terminal.
            context.load_cert_chain(config.certificate_file, config.key_file, lambda: b"")
        except (OSError, ValueError) as error:
            raise InvalidConfiguration(
                f"tls_certificate_file_path = {config.certificate_file!r} and "
                f"tls_private_key_file_path = {config.key_file!r} cannot be used together: {error}"
            ) from None
    return context


def _no_connection(name: str, error: OSError) -> ConnectError:
    refused = getattr(error, "verify_message", "")  # of a certificate
    if refused:
        return ConnectError(
            f"the certificate of {name} is refused: {refused}; give the file of its authority, and "
            "the host that it names"
        )
    return ConnectError(f"no broker answers at {name}: {error}")


def _bad_url(url: str) -> InvalidConfiguration:
    # A URL with a user may hold a password.
    shown = "" if "@" in url else f"{url!r} "
    return InvalidConfiguration(
        f"admin url {shown}must look like http://host:8080, http://host1:8080,host2:8080 or "
        "https://host:8443"
    )


def _address(text: str, scheme: str, url: str) -> tuple[str, int]:
    try:
        parts = urllib.parse.urlsplit(f"//{text}")
        port = parts.port or _PORTS[scheme]
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
