"""Namespaces, which have policies and bundles. Brokers own bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulsarish.admin.policies import NAMESPACE, PolicyCalls
from pulsarish.admin.transport import Names, Record, Transport, namespace_path
from pulsarish.model.policy_words import CaptureAcknowledged, CaptureSyntax, CaptureWhenFull

__all__ = ["Namespaces"]


class Namespaces(PolicyCalls):
    """``Admin.namespaces``.

    A namespace is written ``tenant/namespace``; another form raises ``InvalidArgument``.
    """

    _level = NAMESPACE

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _path(self, resource: str) -> Names:
        return namespace_path(resource)

    def list(self, tenant: str, *, after: str = "", limit: int | None = None) -> Names:
        """Return full names, sorted, in pages like those of tenants.

        Raises ``NotFound`` for an unknown tenant.
        """
        return self._transport.pages("namespaces", tenant, after=after, limit=limit)

    def get_policies(self, namespace: str) -> Record:
        """Return everything that is set for a namespace, its bundles included."""
        return self._transport.record("GET", *namespace_path(namespace))

    def create(self, namespace: str, *, bundles: int | None = None) -> None:
        """Create a namespace.

        ``bundles``: the number of parts that its topics hash to. Brokers own each part separately.
        Default: the broker's default.
        """
        body = None if bundles is None else {"bundles": {"numBundles": bundles}}
        self._transport.request("PUT", namespace_path(namespace), body=body)

    def delete(self, namespace: str, *, force: bool = False) -> None:
        """Delete a namespace.

        ``force`` deletes its topics too; otherwise topics cause ``NotEmpty``.
        """
        self._transport.request(
            "DELETE", namespace_path(namespace), query={"force": "true"} if force else None
        )

    def bundles(self, namespace: str) -> Record:
        """Return ``numBundles`` and ``boundaries``, hexadecimal: bundle i is
        ``boundaries[i]_boundaries[i + 1]``.
        """
        return self._transport.record("GET", *namespace_path(namespace), "bundles")

    def unload(self, namespace: str, *, bundle: str = "", destination: str = "") -> None:
        """Close the topics of a bundle, or of the whole namespace, on their brokers.

        Their clients reconnect by themselves.

        ``bundle``: such as ``0x00000000_0x40000000``. ``destination``: the id or HTTP address of
        the broker that serves the topics next. Raises ``NotFound``, ``NotAllowedError`` with the
        rule of placement when that broker may not have the topics, and ``ServiceNotReady`` when it
        takes no bundles.
        """
        self._transport.request(
            "PUT",
            [*namespace_path(namespace), *([bundle] if bundle else []), "unload"],
            query={"destinationBroker": destination} if destination else {},
        )

    def split_bundle(
        self,
        namespace: str,
        bundle: str,
        *,
        algorithm: str = "",
        boundaries: Sequence[int] = (),
        unload: bool = False,
    ) -> None:
        """Split a bundle. Its owner keeps the parts, unless ``unload`` gives them to any broker.

        ``bundle``: such as ``0x00000000_0x40000000``. ``algorithm``: ``range_equally_divide``,
        ``topic_count_equally_divide``, or ``specified_positions_divide`` with ``boundaries``, the
        hashes at which parts begin. Default: what the broker is configured for.

        Raises ``NotFound``, ``InvalidArgument``, and ``LimitReached`` for too many bundles.
        """
        self._transport.request(
            "PUT",
            [*namespace_path(namespace), bundle, "split"],
            query={"splitAlgorithmName": algorithm, "unload": "true" if unload else "false"},
            body=[*boundaries] or None,
        )

    def topic_positions(self, namespace: str, bundle: str, topics: Sequence[str] = ()) -> Record:
        """Return the hashes of a bundle's open topics, or of those given: where to split it.

        ``bundle``: such as ``0x00000000_0x40000000``. The answer has ``topicHashPositions``, by
        name. Raises ``NotFound``.
        """
        return self._transport.record(
            "GET",
            *namespace_path(namespace),
            bundle,
            "topicHashPositions",
            query={"topics": ",".join(topics)},
        )

    def clear_backlog(self, namespace: str, *, subscription: str = "", bundle: str = "") -> None:
        """Acknowledge the whole backlog of all subscriptions, or those of one name, in all topics,
        or those of one bundle.
        """
        self._transport.request("POST", _each(namespace, bundle, "clearBacklog", subscription))

    def unsubscribe(self, namespace: str, subscription: str, *, bundle: str = "") -> None:
        """Delete a subscription from every topic, or from those of one bundle.

        Raises ``SubscriptionBusy`` if it has consumers.
        """
        self._transport.request("POST", _each(namespace, bundle, "unsubscribe", subscription))

    def anti_affinity_group(self, namespace: str) -> str:
        """Return the anti-affinity group of a namespace; empty: it is in none."""
        return self._transport.text(*namespace_path(namespace), "antiAffinity")

    def set_anti_affinity_group(self, namespace: str, group: str) -> None:
        """Put a namespace into a group. The bundles of all namespaces of a group are spread over
        failure domains first, then over brokers.
        """
        self._transport.request("POST", [*namespace_path(namespace), "antiAffinity"], body=group)

    def remove_anti_affinity_group(self, namespace: str) -> None:
        self._transport.request("DELETE", [*namespace_path(namespace), "antiAffinity"])

    def anti_affinity_namespaces(self, cluster: str, group: str, *, tenant: str = "") -> Names:
        """Return the namespaces of a group, or those of one tenant."""
        found: Names = self._transport.request(
            "GET",
            ["namespaces", cluster, "antiAffinity", group],
            query={"tenant": tenant} if tenant else {},
        )
        return found

    def captures(self, namespace: str) -> dict[str, Record]:
        """Return the rules that capture non-persistent topics into persistent ones, by name."""
        return self._transport.record("GET", *namespace_path(namespace), "captures")

    def capture(self, namespace: str, rule: str) -> Record:
        """Return a rule of capture. Raises ``NotFound``."""
        return self._transport.record("GET", *namespace_path(namespace), "captures", rule)

    def set_capture(
        self,
        namespace: str,
        rule: str,
        pattern: str,
        into: str,
        *,
        syntax: CaptureSyntax = "wildcard",
        acknowledged: CaptureAcknowledged = "received",
        when_full: CaptureWhenFull = "pause",
        pending_bytes_max: int | None = None,
    ) -> None:
        """Store what is published to non-persistent topics of the namespace in a persistent topic,
        too. Creates or replaces the rule.

        Args:
            pattern: what a topic's name matches after the namespace; a wildcard such as
                ``sensors.*.temperature``, or with ``syntax`` ``regex`` a regular expression.
            into: the persistent topic, in full and without partitions.
            acknowledged: ``stored``: publishers get their receipts once the message is stored.
            when_full: ``pause`` publishers while too much waits to be stored, or ``drop``.
            pending_bytes_max: how many bytes that is, on each broker. Default: 8 MiB.

        Raises ``InvalidArgument``, ``NotFound`` (a namespace), ``LimitReached`` for too many rules.
        """
        body = {
            "pattern": pattern,
            "into": into,
            "syntax": syntax,
            "acknowledged": acknowledged,
            "whenFull": when_full,
            **({} if pending_bytes_max is None else {"pendingMaxBytes": pending_bytes_max}),
        }
        self._transport.request("POST", [*namespace_path(namespace), "captures", rule], body=body)

    def remove_capture(self, namespace: str, rule: str) -> None:
        """Capture nothing more by a rule. What is stored stays. Raises ``NotFound``."""
        self._transport.request("DELETE", [*namespace_path(namespace), "captures", rule])

    def permissions(self, namespace: str) -> dict[str, Names]:
        """Return the actions of each role on the namespace."""
        return self._transport.record("GET", *namespace_path(namespace), "permissions")

    def grant_permission(self, namespace: str, role: str, actions: Sequence[str]) -> None:
        """Grant a role exactly these actions on all topics of the namespace.

        ``actions``: ``produce``, ``consume``, ``functions``, ``sources``, ``sinks``, ``packages``.
        """
        path = [*namespace_path(namespace), "permissions", role]
        self._transport.request("POST", path, body=[*actions])

    def revoke_permission(self, namespace: str, role: str) -> None:
        """Revoke the actions of a role on the namespace; grants on its topics stay."""
        self._transport.request("DELETE", [*namespace_path(namespace), "permissions", role])

    def subscription_permissions(self, namespace: str) -> dict[str, Names]:
        """Return the roles of each subscription that is only for some."""
        path = (*namespace_path(namespace), "permissions", "subscription")
        return self._transport.record("GET", *path)

    def grant_subscription_permission(
        self, namespace: str, subscription: str, roles: Sequence[str]
    ) -> None:
        """Let these roles use a subscription, next to those that already may; others cannot."""
        path = [*namespace_path(namespace), "permissions", "subscription", subscription]
        self._transport.request("POST", path, body=[*roles])

    def revoke_subscription_permission(self, namespace: str, subscription: str, role: str) -> None:
        """Remove a role from those that may use a subscription.

        After the last one, every role that may consume can use it. Raises ``InvalidArgument`` when
        the role is not among them.
        """
        path = [*namespace_path(namespace), "permissions", subscription, role]
        self._transport.request("DELETE", path)

    def properties(self, namespace: str) -> dict[str, str]:
        """Return the namespace's properties."""
        return {
            name: str(value)
            for name, value in self._transport.record(
                "GET", *namespace_path(namespace), "properties"
            ).items()
        }

    def update_properties(self, namespace: str, properties: Mapping[str, str]) -> None:
        """Set these properties; other properties stay."""
        self._transport.request(
            "PUT", [*namespace_path(namespace), "properties"], body=dict(properties)
        )

    def remove_property(self, namespace: str, name: str) -> None:
        self._transport.exchange("DELETE", [*namespace_path(namespace), "property", name])


def _each(namespace: str, bundle: str, words: str, subscription: str) -> Names:
    return [
        *namespace_path(namespace),
        *([bundle] if bundle else []),
        words,
        *([subscription] if subscription else []),
    ]
