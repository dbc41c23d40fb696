"""Where a kombu connection leads, and what its queues and exchanges are called there.

Pure: no I/O.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pulsarish.model.errors import InvalidArgument

__all__ = ["Address", "bound_filter", "bound_subscription", "parse_address"]

_NAMESPACE: Final = "public/default"
_EXCHANGE: Final = "exchange:"
ROUTING_KEY: Final = "routing_key"
"""The property with the routing key of a message that was published to an exchange."""


@dataclass(frozen=True, slots=True)
class Address:
    """The service URL of the client, and the namespace of all topics."""

    service_url: str
    namespace: str

    def queue_topic(self, queue: str) -> str:
        """Return the topic of what is published to a queue by its name.

        Raises ``InvalidArgument`` for a name that would be an exchange's topic.
        """
        if not queue or queue.startswith(_EXCHANGE):
            raise InvalidArgument(
                f"queue name {queue!r}: it may not be empty or begin with {_EXCHANGE!r}, which "
                "begins the topics of exchanges"
            )
        return f"persistent://{self.namespace}/{queue}"

    def exchange_topic(self, exchange: str) -> str:
        """Return the topic of what is published to an exchange."""
        return f"persistent://{self.namespace}/{_EXCHANGE}{exchange}"


def parse_address(url: str, *, tls: bool) -> Address:
    """Return where ``pulsarish://HOST:PORT[,HOST:PORT][/TENANT/NAMESPACE]`` leads.

    Args:
        url: of kombu, which cuts ``pulsarish+`` off ``pulsarish+ssl://``.
        tls: whether the connection is to use TLS, whatever the scheme says.

    Raises ``InvalidArgument`` that names the part.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "pulsarish", url
    if scheme == "ssl":
        scheme = "pulsarish+ssl"
    if tls and not scheme.endswith(("+ssl", "https")):
        scheme += "+ssl"
    hosts, _, path = rest.partition("/")
    path = path.strip("/")
    if "@" in hosts:
        raise InvalidArgument(
            "the broker URL holds a user or password: leave them out, and give authentication= in "
            "broker_transport_options['client']"
        )
    if path and not re.fullmatch(r"[^/]+/[^/]+", path):
        raise InvalidArgument(
            f"the broker URL ends with {'/' + path!r}: write /TENANT/NAMESPACE, or nothing for "
            f"/{_NAMESPACE}"
        )
    return Address(f"{scheme}://{hosts}", path or _NAMESPACE)


def bound_subscription(exchange_type: str, queue: str, routing_key: str) -> str:
    """Return the subscription of a queue at an exchange: one for each key, so that programs that
    bind with different keys add to each other.
    """
    return queue if exchange_type == "fanout" else f"{queue}:{routing_key}"


def bound_filter(exchange_type: str, routing_key: str) -> str | None:
    """Return the condition by which brokers sort out messages of a direct exchange."""
    if exchange_type != "direct":
        return None
    return f"{ROUTING_KEY} = '{routing_key.replace(chr(39), chr(39) * 2)}'"
