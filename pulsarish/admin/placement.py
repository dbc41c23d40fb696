"""Rules of placement: which brokers serve which namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pulsarish.admin.transport import Names, Record, Records, Transport

__all__ = ["FailureDomains", "IsolationPolicies"]

_POLICIES: Final = "namespaceIsolationPolicies"
_DOMAINS: Final = "failureDomains"


class IsolationPolicies:
    """``Admin.isolation_policies``: namespaces that only some brokers serve.

    ``cluster`` is the name that ``Admin.clusters.list`` returns.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, cluster: str) -> dict[str, Record]:
        """Return all policies, by name."""
        return self._transport.record("GET", "clusters", cluster, _POLICIES)

    def get(self, cluster: str, name: str) -> Record:
        """Return ``namespaces``, ``primary``, ``secondary`` and ``auto_failover_policy``.

        Raises ``NotFound``.
        """
        return self._transport.record("GET", "clusters", cluster, _POLICIES, name)

    def set(
        self,
        cluster: str,
        name: str,
        namespaces: Sequence[str],
        primary: Sequence[str],
        *,
        secondary: Sequence[str] = (),
        min_limit: int = 1,
        usage_threshold: int = 100,
    ) -> None:
        """Create or replace a policy. Bundles that stand on a wrong broker move within a minute.

        Args:
            namespaces: regular expressions of whole names, ``tenant/namespace``.
            primary: regular expressions of whole ids or addresses (``host:port``) of brokers.
                These serve no other namespaces, unless there is no other broker.
            secondary: the same for brokers that serve, too, while too few primary ones are
                available.
            min_limit: how many available primary brokers are enough.
            usage_threshold: a primary broker that uses this many percent of one core, or more, does
                not count as available.

        Raises ``InvalidArgument`` for a wrong or costly expression, ``AlreadyExists`` when a
        namespace would have two policies, ``LimitReached``.
        """
        body = {
            "namespaces": [*namespaces],
            "primary": [*primary],
            "secondary": [*secondary],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {
                    "min_limit": str(min_limit),
                    "usage_threshold": str(usage_threshold),
                },
            },
        }
        self._transport.request("POST", ["clusters", cluster, _POLICIES, name], body=body)

    def delete(self, cluster: str, name: str) -> None:
        """Delete a policy. Raises ``NotFound``."""
        self._transport.request("DELETE", ["clusters", cluster, _POLICIES, name])

    def brokers(self, cluster: str) -> Records:
        """Return ``brokerName``, ``policyName``, ``primary`` and ``namespaceRegex`` for each broker
        that is alive and each of its policies.
        """
        return self._transport.records("clusters", cluster, _POLICIES, "brokers")

    def broker(self, cluster: str, broker: str) -> Record:
        """Return the first of these rows of a broker. ``broker``: its id or its HTTP address.

        Raises ``NotFound``, also when the broker has no policy.
        """
        return self._transport.record("GET", "clusters", cluster, _POLICIES, "brokers", broker)


class FailureDomains:
    """``Admin.failure_domains``: brokers that fail together, over which the bundles of an
    anti-affinity group are spread.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, cluster: str) -> dict[str, Record]:
        """Return all failure domains, by name."""
        return self._transport.record("GET", "clusters", cluster, _DOMAINS)

    def get(self, cluster: str, name: str) -> Names:
        """Return the brokers of a failure domain. Raises ``NotFound``."""
        found = self._transport.record("GET", "clusters", cluster, _DOMAINS, name)
        return [str(broker) for broker in found["brokers"]]

    def set(self, cluster: str, name: str, brokers: Sequence[str]) -> None:
        """Create or replace a failure domain.

        ``brokers``: ids or addresses (``host:port``). Raises ``AlreadyExists`` when one of them is
        in another domain.
        """
        self._transport.request(
            "POST", ["clusters", cluster, _DOMAINS, name], body={"brokers": [*brokers]}
        )

    def delete(self, cluster: str, name: str) -> None:
        """Delete a failure domain. Raises ``NotFound``."""
        self._transport.request("DELETE", ["clusters", cluster, _DOMAINS, name])
