"""``Authentication``: how a client proves who it is, with the classes, plugin names and parameters
of Apache Pulsar's clients.

    Client(url, authentication=AuthenticationToken(token))
    Client(url, authentication=Authentication("token", "file:///run/secrets/token"))

An error names the argument and what to give, never what was given: it could be a secret. Imports
only the standard library, since the command line waits for the import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsarish.model.errors import (
    AuthenticationError,
    ErrorGettingAuthenticationData,
    InvalidArgument,
    InvalidType,
    OperationNotSupported,
)
from pulsarish.runtime.authentication_parameters import parse_parameters, take_parameters
from pulsarish.runtime.secret_references import SecretReference, is_reference
from pulsarish.security.client_security import CredentialsProvider, HttpScheme
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.security.tls import TlsClientConfig

__all__ = [
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "authentication_from",
]

_JAVA_PACKAGE: Final = "org.apache.pulsar.client.impl.auth."
_REFUSED: Final = ("athenz", "sasl", "keystoretls")
_KNOWN: Final = "token, basic, tls, oauth2"
_TOKEN_BYTES_MAX: Final = 48 << 10
"""Less than the first frame of a connection may hold."""


def _kind(source: object) -> tuple[bool, bool, str]:
    """Return ``is_immediate``, ``holds_secret`` and ``secret_file`` of a provider."""
    if isinstance(source, SecretReference):
        return source.is_immediate, source.holds_secret, source.path
    is_secret = isinstance(source, Secret)
    return is_secret, is_secret, ""


class _Token:
    """A token: a text, a reference to one, or a function of the program that returns one."""

    http_scheme: HttpScheme = "Bearer"

    def __init__(self, source: Secret | SecretReference | Callable[[], str]) -> None:
        self._source = source
        self.is_immediate, self.holds_secret, self.secret_file = _kind(source)

    def credentials(self) -> Credentials:
        source = self._source
        if isinstance(source, Secret):
            return Credentials("token", source)
        if isinstance(source, SecretReference):
            return Credentials("token", _checked_token(str(source), source.read().reveal()))
        try:
            token: object = source()
        except Exception as error:
            raise ErrorGettingAuthenticationData(
                f"the function that returns the token raised {type(error).__name__}"
            ) from error
        if not isinstance(token, str):
            raise ErrorGettingAuthenticationData(
                f"the function that returns the token returned a {type(token).__name__}: it must "
                "return a str"
            )
        return Credentials("token", _checked_token("the function's token", token.encode()))


class _Basic:
    http_scheme: HttpScheme = "Basic"

    def __init__(self, username: str, password: Secret | SecretReference, method: str) -> None:
        self._username = username
        self._password = password
        self._method = method
        self.is_immediate, self.holds_secret, self.secret_file = _kind(password)

    def credentials(self) -> Credentials:
        password = self._password if isinstance(self._password, Secret) else self._password.read()
        return Credentials(self._method, Secret(self._username.encode() + b":" + password.reveal()))


class _Tls:
    """The certificate says who the client is."""

    is_immediate = True
    holds_secret = False
    http_scheme: HttpScheme = ""

    def __init__(self, key_file: str) -> None:
        self.secret_file = key_file

    def credentials(self) -> Credentials:
        return Credentials("tls")


class Authentication:
    """How a client proves who it is.

    Args:
        dynamicLibPath: ``token``, ``basic``, ``tls`` or ``oauth2``, or the name of Apache Pulsar's
            Java class, such as ``org.apache.pulsar.client.impl.auth.AuthenticationToken``.
        authParamsString: ``name:value,name2:value2`` or a JSON object.

    ``token`` takes ``token:TEXT`` or a reference: ``file:///path`` (read again at each connection),
    ``env:NAME``. ``basic`` takes ``username``, ``password`` (a text or a reference) and ``method``.
    ``tls`` takes ``tlsCertFile`` and ``tlsKeyFile``. ``oauth2``: see ``AuthenticationOauth2``.

    Raises ``InvalidArgument``, ``OperationNotSupported`` for another plugin.
    """

    provider: CredentialsProvider
    certificate: TlsClientConfig | None = None
    """The certificate that the client shows; ``None``: none."""

    def __init__(
        self,
        dynamicLibPath: str,  # noqa: N803 - Apache Pulsar's name
        authParamsString: str,  # noqa: N803
    ) -> None:
        _check_text("dynamicLibPath", dynamicLibPath)
        _check_text("authParamsString", authParamsString)
        made = authentication_from(dynamicLibPath, authParamsString)
        self.provider, self.certificate = made.provider, made.certificate

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class AuthenticationToken(Authentication):
    """Authentication by a token, such as a JSON Web Token.

    Args:
        token: the token, a function that returns it and is called at each connection, or a
            reference to it, such as ``file:///path``.

    Raises ``InvalidArgument``.
    """

    def __init__(self, token: str | Callable[[], str]) -> None:
        if callable(token):
            self.provider = _Token(token)
        elif not isinstance(token, str):
            raise InvalidType(
                f"token is of type {type(token).__name__}: pass a str, or a function that returns "
                "one"
            )
        elif is_reference(token):
            self.provider = _Token(SecretReference("token", token))
        else:
            try:
                self.provider = _Token(_checked_token("token", token.encode()))
            except (AuthenticationError, UnicodeEncodeError) as error:
                raise InvalidArgument(
                    str(error)
                    if isinstance(error, AuthenticationError)
                    else "token is not ASCII: pass the token alone"
                ) from None


class AuthenticationBasic(Authentication):
    """Authentication by a name and a password.

    Args:
        method: the name of the broker's provider.
        auth_params_string: all of them as a JSON object; the others are not looked at then.

    Raises ``InvalidArgument``.
    """

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ) -> None:
        if auth_params_string is not None:
            _check_text("auth_params_string", auth_params_string)
            self.provider = _basic_from(auth_params_string).provider
            return
        name = _check_text("username", username)
        self.provider = _Basic(
            _checked_name(name),
            Secret(_check_text("password", password)),
            _checked_method(_check_text("method", method)),
        )


class AuthenticationTLS(Authentication):
    """Authentication by a certificate. The service URL must be one of TLS.

    Args:
        certificate_path: the client's certificate and its chain, PEM.
        private_key_path: its private key, PEM.

    Raises ``InvalidArgument``.
    """

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        certificate_file = _check_path("certificate_path", certificate_path)
        key_file = _check_path("private_key_path", private_key_path)
        self.provider = _Tls(key_file)
        self.certificate = TlsClientConfig(certificate_file=certificate_file, key_file=key_file)


class AuthenticationOauth2(Authentication):
    """Authentication by a token that an OAuth 2.0 server gives for a client's id and secret.

    Args:
        auth_params_string: a JSON object with ``issuer_url`` (``https://``), ``private_key`` (a
            path or reference to a JSON object with ``client_id`` and ``client_secret``), and
            optionally ``audience``, ``scope`` and ``trust_certs_file_path`` (authorities of the
            issuer's certificate, PEM). Names in Java's style (``issuerUrl``) mean the same.

    A token is used until shortly before it expires. Raises ``InvalidArgument``.
    """

    def __init__(self, auth_params_string: str) -> None:
        # Not needed by a program without it, and slow to import.
        from pulsarish.runtime.oauth2_client import OAuth2Client

        self.provider = OAuth2Client.from_parameters(
            parse_parameters(
                "auth_params_string", _check_text("auth_params_string", auth_params_string)
            )
        )


class AuthenticationAthenz(Authentication):
    """Is not supported: raises ``OperationNotSupported``."""

    def __init__(self, auth_params_string: str) -> None:
        raise _unsupported("athenz")


def authentication_from(plugin: str, parameters: str) -> Authentication:
    """Return the authentication of a plugin, as Apache Pulsar's tools name it.

    Raises ``InvalidArgument``, ``OperationNotSupported``.
    """
    match _short_name(plugin):
        case "token":
            return _token_from(parameters)
        case "basic":
            return _basic_from(parameters)
        case "tls":
            return _tls_from(parameters)
        case "oauth2":
            return AuthenticationOauth2(parameters)
        case name:
            raise _unsupported(name)


def _short_name(plugin: str) -> str:
    name = plugin.strip()
    if name.startswith(_JAVA_PACKAGE):
        name = name.rpartition(".")[2].removeprefix("Authentication")
    return name.lower()


def _unsupported(plugin: str) -> OperationNotSupported:
    if plugin in _REFUSED:
        return OperationNotSupported(
            f"authentication by {plugin} is not supported; use one of {_KNOWN}"
        )
    return OperationNotSupported(f"{plugin[:64]!r} is no known authentication; use one of {_KNOWN}")


def _token_from(text: str) -> AuthenticationToken:
    text = text.strip()
    if text.startswith("{"):
        given = take_parameters(
            "authParamsString", parse_parameters("authParamsString", text), {"token": "token"}
        )
        text = given.get("token", "")
    return AuthenticationToken(text.removeprefix("token:"))


_BASIC: Final = {
    "username": "username",
    "userId": "username",
    "password": "password",
    "method": "method",
}


def _basic_from(text: str) -> AuthenticationBasic:
    given = take_parameters("authParamsString", parse_parameters("authParamsString", text), _BASIC)
    missing = [name for name in ("username", "password") if name not in given]
    if missing:
        raise InvalidArgument(f"authentication by basic needs {' and '.join(missing)}")
    made = AuthenticationBasic(
        given["username"], given["password"], given.get("method", "") or "basic"
    )
    if is_reference(given["password"]):
        made.provider = _Basic(
            given["username"],
            SecretReference("password", given["password"]),
            given.get("method", "") or "basic",
        )
    return made


_TLS: Final = {
    "tlsCertFile": "tlsCertFile",
    "tls_cert_file": "tlsCertFile",
    "tlsKeyFile": "tlsKeyFile",
    "tls_key_file": "tlsKeyFile",
}


def _tls_from(text: str) -> AuthenticationTLS:
    given = take_parameters("authParamsString", parse_parameters("authParamsString", text), _TLS)
    missing = [name for name in ("tlsCertFile", "tlsKeyFile") if not given.get(name)]
    if missing:
        raise InvalidArgument(f"authentication by tls needs {' and '.join(missing)}")
    return AuthenticationTLS(given["tlsCertFile"], given["tlsKeyFile"])


# Checks, whose errors do not show what was given.


def _check_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidType(f"{name} is of type {type(value).__name__}: pass a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(f"{name} cannot be written as UTF-8: pass valid text") from None
    return value


def _check_path(name: str, value: object) -> str:
    path = _check_text(name, value).removeprefix("file://")
    if not path or "\0" in path:
        raise InvalidArgument(f"{name} names no file: pass a path")
    return path


def _checked_token(what: str, token: bytes) -> Secret:
    """Return a token without white space around it.

    Raises ``AuthenticationError`` if it cannot be one: it travels in headers.
    """
    token = token.strip()
    if not token:
        raise AuthenticationError(f"{what} is empty: give the token")
    if any(byte <= 0x20 or byte >= 0x7F for byte in token):
        raise AuthenticationError(
            f"{what} holds white space or what is not ASCII: give the token alone"
        )
    if len(token) > _TOKEN_BYTES_MAX:
        raise AuthenticationError(
            f"{what} has {len(token)} bytes: a token has at most {_TOKEN_BYTES_MAX}"
        )
    return Secret(token)


def _checked_name(name: str) -> str:
    if not name or ":" in name or not name.isprintable():
        raise InvalidArgument(
            "username must not be empty and must hold no colon and no control character"
        )
    return name


def _checked_method(method: str) -> str:
    if not method or not method.isascii() or not method.isprintable() or " " in method:
        raise InvalidArgument("method must be a word in ASCII, such as basic")
    return method
