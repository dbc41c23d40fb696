"""Tokens of an OAuth 2.0 server, for a client's id and secret (RFC 6749, section 4.4).

The server's token endpoint is found by its OpenID configuration. All requests are HTTPS, and
redirects are refused: the secret goes to the issuer that the program named, and to no other host.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final

from pulsarish.model.errors import AuthenticationError, ConnectError, InvalidArgument
from pulsarish.runtime.authentication_parameters import take_parameters
from pulsarish.runtime.secret_references import SecretReference, is_reference
from pulsarish.security.client_security import HttpScheme
from pulsarish.security.credentials import Credentials, Secret

__all__ = ["OAuth2Client"]

_TIMEOUT_SECONDS: Final = 10.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_LIFE_SECONDS: Final = 3600.0
"""Of a token whose server does not say."""
_EARLY_SECONDS_MAX: Final = 60.0
"""A token is replaced this long before its end, or in the last tenth of its life."""
_SHOWN_CHARACTERS: Final = 60

_NAMES: Final = {
    "type": "type",
    "issuer_url": "issuer_url",
    "issuerUrl": "issuer_url",
    "private_key": "private_key",
    "privateKey": "private_key",
    "client_id": "client_id",
    "clientId": "client_id",
    "client_secret": "client_secret",
    "clientSecret": "client_secret",
    "audience": "audience",
    "scope": "scope",
    "trust_certs_file_path": "trust_certs_file_path",
    "trustCertsFilePath": "trust_certs_file_path",
}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the answer becomes an error."""


class OAuth2Client:
    """Asks for a token, and uses it until shortly before it expires. For any thread.

    Args:
        key: refers to a JSON object with ``client_id`` and ``client_secret``, and perhaps
            ``issuer_url``.
        trust_file: authorities of the issuer's certificate, PEM; empty: the system's.
        now: seconds of a clock that never goes back.
    """

    is_immediate = False
    http_scheme: HttpScheme = "Bearer"

    def __init__(
        self,
        issuer_url: str,
        key: SecretReference,
        *,
        audience: str = "",
        scope: str = "",
        trust_file: str = "",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer_url = issuer_url and _checked_url("issuer_url", issuer_url)
        self._key = key
        self.holds_secret = key.holds_secret
        self.secret_file = key.path
        self._audience = audience
        self._scope = scope
        self._trust_file = trust_file
        self._now = now
        self._token: Secret | None = None
        self._replace_at = self._ends_at = 0.0
        self._lock = threading.Lock()
        _clients.add(self)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> OAuth2Client:
        """Return the client of parameters with Apache Pulsar's names.

        Raises ``InvalidArgument``.
        """
        given = take_parameters("auth_params_string", parameters, _NAMES)
        if given.get("type", "client_credentials") != "client_credentials":
            raise InvalidArgument("type must be client_credentials, the only flow for programs")
        if "client_secret" in given or "client_id" in given:
            text = json.dumps(
                {name: given.get(name, "") for name in ("client_id", "client_secret")}
            )
            reference = "data:," + urllib.parse.quote(text)
        else:
            reference = given.get("private_key", "")
        if not reference:
            raise InvalidArgument(
                "private_key is missing: give the path of a JSON file with client_id and "
                "client_secret"
            )
        if not is_reference(reference):
            reference = "file:" + urllib.parse.quote(reference)
        return cls(
            given.get("issuer_url", ""),
            SecretReference("private_key", reference),
            audience=given.get("audience", ""),
            scope=given.get("scope", ""),
            trust_file=given.get("trust_certs_file_path", ""),
        )

    def after_fork(self) -> None:
        """Replace the lock: another thread of the parent may have held it."""
        self._lock = threading.Lock()

    def credentials(self) -> Credentials:
        with self._lock:
            if self._token is None or self._now() >= self._replace_at:
                self._renew()
            assert self._token is not None
            return Credentials("token", self._token)

    def _renew(self) -> None:
        """Get a new token. A failure counts only when the old one has expired."""
        asked_at = self._now()
        try:
            token, life_seconds = self._ask()
        except (AuthenticationError, ConnectError):
            if self._token is None or asked_at >= self._ends_at:
                self._token = None
                raise
            return
        self._token = token
        self._ends_at = asked_at + life_seconds
        self._replace_at = self._ends_at - min(_EARLY_SECONDS_MAX, life_seconds / 10)

    def _ask(self) -> tuple[Secret, float]:
        """Return a token and its life in seconds."""
        client_id, client_secret, issuer = self._read_key()
        context = self._context()
        endpoint = self._endpoint(context, issuer)
        form = {
            "grant_type": "client_credentials",
            "client_id": client_id,
            "client_secret": client_secret,
            "audience": self._audience,
            "scope": self._scope,
        }
        body = urllib.parse.urlencode({name: text for name, text in form.items() if text}).encode()
        answer = _exchange(context, endpoint, body)
        token = answer.get("access_token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise AuthenticationError(f"{endpoint} answered without an access_token")
        return Secret(token), _life_seconds(answer.get("expires_in"))

    def _read_key(self) -> tuple[str, str, str]:
        """Return the client's id, its secret, and the issuer's URL."""
        try:
            found = json.loads(self._key.read().reveal())
            client_id, client_secret = found["client_id"], found["client_secret"]
            issuer = self._issuer_url or found.get("issuer_url", "")
        except (ValueError, KeyError, TypeError, AttributeError):
            client_id = client_secret = issuer = None
        if not (isinstance(client_id, str) and client_id and isinstance(client_secret, str)):
            raise AuthenticationError(
                f"private_key: {self._key} is no JSON object with client_id and client_secret"
            )
        if not issuer or not isinstance(issuer, str):
            raise AuthenticationError("issuer_url is missing: give the URL of the OAuth 2.0 server")
        return client_id, client_secret, _checked_url("issuer_url", issuer)

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._trust_file or None)
        except OSError as error:
            raise AuthenticationError(
                f"trust_certs_file_path: {self._trust_file} holds no certificates that can be "
                f"read: {error.strerror or type(error).__name__}"
            ) from None

    def _endpoint(self, context: ssl.SSLContext, issuer: str) -> str:
        url = issuer.rstrip("/") + "/.well-known/openid-configuration"
        endpoint = _exchange(context, url, None).get("token_endpoint")
        if not isinstance(endpoint, str) or not endpoint.startswith("https://"):
            raise AuthenticationError(f"{url} names no token_endpoint that begins with https://")
        return endpoint


def _exchange(context: ssl.SSLContext, url: str, body: bytes | None) -> dict[str, Any]:
    """Send a request and return the JSON object of its answer.

    Raises ``AuthenticationError`` for a refusal, ``ConnectError`` when there is no answer.
    """
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=context), _NoRedirects()
    )
    headers = {"Accept": "application/json"}
    try:
        request = urllib.request.Request(url, body, headers)  # noqa: S310 - it is https
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            data = response.read(_ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            status, data = error.code, error.read(_ANSWER_BYTES_MAX)
        if status >= 500 or status == 429:
            raise ConnectError(f"{url} answered with status {status}; try again") from None
        raise AuthenticationError(
            f"{url} refused with status {status}{_reason(data)}: check issuer_url, client_id, "
            "client_secret and audience"
        ) from None
    except (OSError, ValueError, HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ConnectError(f"{url} cannot be reached: {reason}") from None
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise AuthenticationError(f"{url} did not answer with a JSON object: check issuer_url")
    return answer


def _reason(data: bytes) -> str:
    """Return the short name of the error, such as ``invalid_client``."""
    try:
        name = json.loads(data)["error"]
    except (ValueError, KeyError, TypeError):
        return ""
    is_word = isinstance(name, str) and name.isascii() and name.isidentifier()
    return f" ({name[:_SHOWN_CHARACTERS]})" if is_word else ""


def _life_seconds(given: object) -> float:
    if isinstance(given, (int, float)) and not isinstance(given, bool) and given > 0:
        return float(given)
    return _LIFE_SECONDS


def _checked_url(name: str, url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        is_good = parts.scheme == "https" and bool(parts.hostname) and parts.username is None
    except ValueError:
        is_good = False
    if not is_good:
        raise InvalidArgument(f"{name} must be a URL that begins with https:// and names a host")
    return url


_clients: weakref.WeakSet[OAuth2Client] = weakref.WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client.after_fork()


os.register_at_fork(after_in_child=_after_fork)
