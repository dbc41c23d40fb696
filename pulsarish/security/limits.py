"""What a token limits itself to, whatever its role may do: topics, actions, networks.

A limit only takes rights away. The claim ``pulsarish_limits`` of a token is a JSON object::

    {
        "topics": ["persistent://acme/orders/eu-*"],
        "actions": ["consume"],
        "networks": ["10.0.0.0/8"],
    }

Each part is optional. A part that this version does not know refuses the token, because what is
not understood cannot be kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from pulsarish.model.errors import AuthenticationError, InvalidArgument

__all__ = ["LIMITS_CLAIM", "Limits", "limits_claim", "limits_of", "read_limits"]

LIMITS_CLAIM: Final = "pulsarish_limits"
_PARTS: Final = ("topics", "actions", "networks")
_VALUES_MAX: Final = 64
_VALUE_CHARS_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one token. An empty part limits nothing."""

    topics: tuple[str, ...] = ()
    """Full names of topics; a ``*`` at the end stands for any rest."""
    actions: tuple[str, ...] = ()
    """Names of permissions, such as ``produce``."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Where the client's connection may come from."""

    def shown(self) -> dict[str, list[str]]:
        """Return the limits as their claim has them, without empty parts."""
        parts = self.topics, self.actions, tuple(map(str, self.networks))
        return {name: list(values) for name, values in zip(_PARTS, parts, strict=True) if values}

    def permit_topic(self, full_name: str) -> bool:
        """Return whether a topic, by the full name without its partition, is within the limits."""
        return not self.topics or any(
            full_name.startswith(each[:-1]) if each.endswith("*") else full_name == each
            for each in self.topics
        )

    def permit_address(self, host: str) -> bool:
        """Return whether a connection from a host's address is within the limits."""
        if not self.networks:
            return True
        try:
            address = ip_address(host.strip("[]").partition("%")[0])
        except ValueError:
            return False  # a Unix socket or no address at all
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.networks)


def limits_claim(
    topics: Sequence[str], actions: Sequence[str], networks: Sequence[str]
) -> dict[str, list[str]]:
    """Return the claim for these limits, without empty parts. Raises ``InvalidArgument``."""
    claim = {
        name: list(values)
        for name, values in zip(_PARTS, (topics, actions, networks), strict=True)
        if values
    }
    try:
        read_limits(claim)
    except AuthenticationError as error:
        raise InvalidArgument(str(error)) from None
    return claim


def limits_of(claims: Mapping[str, object]) -> tuple[Limits, ...]:
    """Return the limits in a token's claims, if it has any. Raises as ``read_limits``."""
    return (read_limits(claims[LIMITS_CLAIM]),) if LIMITS_CLAIM in claims else ()


def read_limits(claim: object) -> Limits:
    """Return the limits of a token's claim.

    Raises ``AuthenticationError`` unless all of it is understood.
    """
    if not isinstance(claim, dict):
        raise AuthenticationError("the token's pulsarish_limits must be a JSON object")
    if unknown := set(claim) - set(_PARTS):
        raise AuthenticationError(
            f"the token's pulsarish_limits has {min(map(repr, unknown))[:64]}, which this "
            f"server does not know; it knows {', '.join(_PARTS)}"
        )
    parts = {name: _texts(name, claim[name]) if name in claim else () for name in _PARTS}
    for topic in parts["topics"]:
        if "://" not in topic or "*" in topic[:-1]:
            raise AuthenticationError(
                "a topic of the token's pulsarish_limits must be a full name, such as "
                "persistent://tenant/namespace/topic, with * at most at its end"
            )
    try:
        networks = tuple(ip_network(each) for each in parts["networks"])
    except ValueError:
        raise AuthenticationError(
            "a network of the token's pulsarish_limits must look like 10.0.0.0/8 or fd00::/8, "
            "without bits of a host"
        ) from None
    return Limits(parts["topics"], parts["actions"], networks)


def _texts(name: str, value: object) -> tuple[str, ...]:
    if (
        not isinstance(value, list)
        or not 0 < len(value) <= _VALUES_MAX
        or not all(isinstance(each, str) and 0 < len(each) <= _VALUE_CHARS_MAX for each in value)
    ):
        raise AuthenticationError(
            f"{name} of the token's pulsarish_limits must be a list of 1 to {_VALUES_MAX} texts "
            f"of at most {_VALUE_CHARS_MAX} characters"
        )
    return tuple(value)
