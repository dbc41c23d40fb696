"""The names of the providers of authentication."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pulsarish.model.errors import ConfigError

__all__ = ["BASIC", "BUILT_IN", "OAUTH2", "TLS", "TOKEN", "provider_names"]

TOKEN: Final = "token"  # noqa: S105
BASIC: Final = "basic"
TLS: Final = "tls"
OAUTH2: Final = "oauth2"
BUILT_IN: Final = (TOKEN, BASIC, TLS, OAUTH2)

_JAVA: Final = "org.apache.pulsar.broker.authentication."
_ALIASES: Final[Mapping[str, str]] = {
    f"{_JAVA}AuthenticationProviderToken": TOKEN,
    f"{_JAVA}AuthenticationProviderBasic": BASIC,
    f"{_JAVA}AuthenticationProviderTls": TLS,
    f"{_JAVA}oidc.AuthenticationProviderOpenID": OAUTH2,
}
_REFUSED: Final[Mapping[str, str]] = {
    "athenz": "athenz",
    f"{_JAVA}AuthenticationProviderAthenz": "athenz",
    "sasl": "sasl",
    f"{_JAVA}AuthenticationProviderSasl": "sasl",
}


def provider_names(given: Iterable[str]) -> list[str]:
    """Return the short name of each provider, or its ``module:Class``, in the given order.

    Raises ``ConfigError`` for a name that is unknown, not supported, or there twice.
    """
    names: list[str] = []
    for each in given:
        name = _ALIASES.get(each, each)
        if name in _REFUSED:
            raise ConfigError(
                f"authentication_providers has {each}: {_REFUSED[name]} is not supported; use "
                f"{', '.join(BUILT_IN)} or module:Class of your own"
            )
        if name not in BUILT_IN and not _is_class(name):
            raise ConfigError(
                f"authentication_providers has {each!r}, which is unknown; use "
                f"{', '.join(BUILT_IN)} or module:Class of your own"
            )
        if name in names:
            raise ConfigError(f"authentication_providers has {name} twice; name each once")
        names.append(name)
    return names


def _is_class(name: str) -> bool:
    module, colon, attribute = name.partition(":")
    return (
        bool(colon)
        and attribute.isidentifier()
        and all(part.isidentifier() for part in module.split("."))
    )
