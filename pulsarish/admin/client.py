"""A blocking client of the brokers' HTTP administration. It imports only the standard library, since the command line waits for it."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, Final

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

__all__ = ["Admin"]

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
    429: TooManyRequests,
    501: UnsupportedFeature,
    503: ServiceNotReady,
    504: Timeout,
}


class Admin:
    """Administration through any broker; a broker that does not own what is asked for redirects to the owner, which is followed.

    Args:
        url: ``http://host:8080[,host2:8080]``: brokers, any of them; the next is asked when one cannot be reached.
        timeout_seconds: for one request and its answer.

    Raises ``InvalidConfiguration`` for an url of another form.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", *, timeout_seconds: float = 35.0) -> None:
        scheme, separator, rest = url.partition("://")
        if not separator:
            scheme, rest = "http", url
        self._addresses = [_address(part, url) for part in rest.rstrip("/").split(",")]
        if scheme != "http":
            raise _bad_url(url)
        self._timeout_seconds = timeout_seconds

    # -- tenants and namespaces

    def tenants(self) -> list[str]:
        return self._list("GET", "tenants")

    def tenant(self, name: str) -> dict[str, Any]:
        return self._record("GET", "tenants", name)

    def create_tenant(self, name: str) -> None:
        self.request("PUT", ["tenants", name], body={"adminRoles": [], "allowedClusters": []})

    def delete_tenant(self, name: str) -> None:
        self.request("DELETE", ["tenants", name])

    def namespaces(self, tenant: str) -> list[str]:
        return self._list("GET", "namespaces", tenant)

    def namespace(self, namespace: str) -> dict[str, Any]:
        return self._record("GET", "namespaces", *_namespace(namespace))

    def create_namespace(self, namespace: str, *, bundles: int | None = None) -> None:
        body = None if bundles is None else {"bundles": {"numBundles": bundles}}
        self.request("PUT", ["namespaces", *_namespace(namespace)], body=body)

    def delete_namespace(self, namespace: str) -> None:
        self.request("DELETE", ["namespaces", *_namespace(namespace)])

    # -- topics

    def topics(self, namespace: str = "public/default") -> list[str]:
        """Full names, partitions one by one, sorted."""
        return self._list("GET", "persistent", *_namespace(namespace))

    def partitioned_topics(self, namespace: str = "public/default") -> list[str]:
        return self._list("GET", "persistent", *_namespace(namespace), "partitioned")

    def create_topic(self, topic: str, *, partitions: int = 0) -> None:
        """``partitions`` 0 makes a topic without partitions."""
        if partitions:
            self.request("PUT", [*_topic(topic), "partitions"], body=partitions)
        else:
            self.request("PUT", _topic(topic))

    def delete_topic(self, topic: str, *, force: bool = False) -> None:
        """Deletes a partitioned topic with its partitions, or a topic. Without ``force`` it must have no connected users."""
        query = {"force": "true"} if force else {}
        if self.partitions(topic):
            self.request("DELETE", [*_topic(topic), "partitions"], query=query)
        else:
            self.request("DELETE", _topic(topic), query=query)

    def partitions(self, topic: str) -> int:
        """How many partitions; 0 for a topic without."""
        return int(self._record("GET", *_topic(topic), "partitions").get("partitions", 0))

    def stats(self, topic: str) -> dict[str, Any]:
        return self._record("GET", *_topic(topic), "stats")

    def internal_stats(self, topic: str) -> dict[str, Any]:
        return self._record("GET", *_topic(topic), "internalStats")

    def unload(self, topic: str) -> None:
        self.request("PUT", [*_topic(topic), "unload"])

    def lookup(self, topic: str) -> dict[str, Any]:
        """Who serves a topic now."""
        name = TopicName.parse(topic)
        parts = ["persistent", name.tenant, name.namespace, name.local]
        return _as_record(self.request("GET", parts, root="/lookup/v2/topic"))

    def last_message_id(self, topic: str) -> dict[str, Any]:
        return self._record("GET", *_topic(topic), "lastMessageId")

    # -- subscriptions

    def subscriptions(self, topic: str) -> list[str]:
        return self._list("GET", *_topic(topic), "subscriptions")

    def create_subscription(self, topic: str, subscription: str, *, position: str = "latest") -> None:
        """``position``: earliest, latest, or ``LEDGER:ENTRY`` as the first to be delivered."""
        self.request("PUT", [*_topic(topic), "subscription", subscription], body=_position(position))

    def delete_subscription(self, topic: str, subscription: str, *, force: bool = False) -> None:
        self.request("DELETE", [*_topic(topic), "subscription", subscription], query={"force": "true"} if force else {})

    def skip(self, topic: str, subscription: str, count: int) -> None:
        self.request("POST", [*_topic(topic), "subscription", subscription, "skip", str(count)])

    def skip_all(self, topic: str, subscription: str) -> None:
        self.request("POST", [*_topic(topic), "subscription", subscription, "skip_all"])

    def reset_cursor(self, topic: str, subscription: str, *, timestamp_ms: int | None = None, position: str | None = None) -> None:
        """Move a subscription to a publish time (milliseconds since the epoch) or a position."""
        base = [*_topic(topic), "subscription", subscription, "resetcursor"]
        if timestamp_ms is not None:
            self.request("POST", [*base, str(timestamp_ms)])
        else:
            self.request("POST", base, body=_position(position or "latest"))

    def peek(self, topic: str, subscription: str, position: int = 1) -> tuple[dict[str, str], bytes]:
        """The ``position``-th message (from 1) that is not acknowledged: its headers and payload."""
        path = [*_topic(topic), "subscription", subscription, "position", str(position)]
        headers, body = self._exchange("GET", path, {}, None, "/admin/v2")
        return headers, body

    # -- the cluster

    def brokers(self) -> list[dict[str, Any]]:
        return self._records("GET", "brokers")

    def leader_broker(self) -> dict[str, Any]:
        return self._record("GET", "brokers", "leaderBroker")

    def bookies(self) -> list[dict[str, Any]]:
        return self._records("GET", "bookies")

    def ledgers(self, *, after: int = -1, limit: int = 1000) -> list[int]:
        """Ledger ids above ``after``, ascending, at most ``limit``."""
        answer = self.request("GET", ["ledgers"], query={"after": str(after), "limit": str(limit)})
        return [int(item) for item in answer]

    def ledger(self, ledger_id: int) -> dict[str, Any]:
        return self._record("GET", "ledgers", str(ledger_id))

    # -- the exchange

    def request(
        self, method: str, path: Sequence[str], *, query: Mapping[str, str] | None = None, body: object = None, root: str = "/admin/v2"
    ) -> Any:
        """One request, redirects followed; the decoded JSON answer, or ``None`` for an empty one.

        Raises the error class that fits the HTTP status, with the server's reason; ``ConnectError`` when nobody answers.
        """
        _, payload = self._exchange(method, path, query or {}, body, root)
        return json.loads(payload) if payload else None

    def _exchange(
        self, method: str, path: Sequence[str], query: Mapping[str, str], body: object, root: str
    ) -> tuple[dict[str, str], bytes]:
        target = root + "/" + "/".join(urllib.parse.quote(part, safe="") for part in path)
        if query:
            target += "?" + urllib.parse.urlencode(query)
        data = None if body is None else json.dumps(body).encode()
        status, headers, payload = self._first(method, target, data)
        host, port = self._addresses[0]
        redirects = 0
        while status in (302, 307):
            if redirects == _REDIRECTS_MAX:
                raise ServiceNotReady(f"{method} {target} was redirected {redirects} times; the topic is on the move, try again")
            redirects += 1
            parts = urllib.parse.urlsplit(headers.get("location", ""))
            host, port = parts.hostname or host, parts.port or port
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            status, headers, payload = self._once(host, port, method, target, data)
        if status >= 300:
            raise _error(status, headers, _reason(payload, status, method, target))
        return headers, payload

    def _first(self, method: str, target: str, data: bytes | None) -> tuple[int, dict[str, str], bytes]:
        """The answer of the first broker that can be reached; it is asked first the next time."""
        failures: list[str] = []
        for index, (host, port) in enumerate(self._addresses):
            try:
                answer = self._once(host, port, method, target, data)
            except ConnectError as error:
                failures.append(str(error))
                continue
            self._addresses.insert(0, self._addresses.pop(index))
            return answer
        raise ConnectError(f"{'; '.join(failures)}; is a broker running there, is --admin-url (PULSARISH_ADMIN_URL) right?")

    def _once(self, host: str, port: int, method: str, target: str, data: bytes | None) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(host, port, timeout=self._timeout_seconds)
        try:
            connection.connect()
        except OSError as error:
            raise ConnectError(f"no broker answers at http://{host}:{port}: {error}") from None
        try:
            connection.request(method, target, data, {"Content-Type": "application/json"} if data is not None else {})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        except TimeoutError:
            raise Timeout(f"http://{host}:{port} did not answer {method} {target} within {self._timeout_seconds:.0f} s") from None
        except http.client.HTTPException as error:
            if isinstance(error, OSError):
                raise ServiceNotReady(f"http://{host}:{port} hung up before it answered {method} {target}; try again") from None
            raise ConnectError(
                f"what listens at {host}:{port} does not speak HTTP; give a broker's HTTP address, port 8080 or its like"
            ) from None
        except OSError as error:
            # Not to be sent to another broker: whether this one has done it is not known.
            raise ServiceNotReady(f"http://{host}:{port} broke off while it answered {method} {target} ({error}); try again") from None
        finally:
            connection.close()

    def _record(self, method: str, *path: str) -> dict[str, Any]:
        return _as_record(self.request(method, path))

    def _list(self, method: str, *path: str) -> list[str]:
        return [str(item) for item in self.request(method, path)]

    def _records(self, method: str, *path: str) -> list[dict[str, Any]]:
        return [_as_record(item) for item in self.request(method, path)]


def _bad_url(url: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"admin url {url!r} must look like http://host:8080 or http://host1:8080,host2:8080")


def _address(text: str, url: str) -> tuple[str, int]:
    try:
        parts = urllib.parse.urlsplit(f"//{text}")
        port = parts.port or _DEFAULT_PORT
    except ValueError:
        raise _bad_url(url) from None
    if not parts.hostname or parts.path or parts.query or parts.username:
        raise _bad_url(url)
    return parts.hostname, port


def _as_record(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnknownError(f"the broker answered {type(value).__name__} where a record was expected")
    return value


def _error(status: int, headers: Mapping[str, str], reason: str) -> PulsarishError:
    """The very error that the broker named, or the class that fits the status best."""
    code = headers.get(_ERROR_CODE_HEADER, "")
    return error_from_code(int(code), reason) if code.isdecimal() else _ERRORS.get(status, UnknownError)(reason)


def _reason(payload: bytes, status: int, method: str, target: str) -> str:
    try:
        return str(json.loads(payload)["reason"])
    except (ValueError, KeyError, TypeError):
        return f"{method} {target} answered with status {status}"


def _namespace(namespace: str) -> tuple[str, str]:
    tenant, separator, name = namespace.partition("/")
    if not separator or not tenant or not name or "/" in name:
        raise InvalidArgument(f"namespace {namespace!r} must look like tenant/namespace")
    return tenant, name


def _topic(topic: str) -> list[str]:
    name = TopicName.parse(topic)
    return ["persistent", name.tenant, name.namespace, name.local]


def _position(text: str) -> object:
    if text in ("earliest", "latest"):
        return text
    ledger, separator, entry = text.partition(":")
    try:
        if separator:
            return {"ledgerId": int(ledger), "entryId": int(entry)}
    except ValueError:
        pass
    raise InvalidArgument(f"position {text!r} must be earliest, latest or LEDGER:ENTRY")
