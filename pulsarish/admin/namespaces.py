"""Namespaces: what policies and the ownership of bundles are attached to."""

from __future__ import annotations

from collections.abc import Mapping

from pulsarish.admin.policies import NAMESPACE, PolicyCalls
from pulsarish.admin.transport import Names, Record, Transport, namespace_path

__all__ = ["Namespaces"]


class Namespaces(PolicyCalls):
    """``Admin.namespaces``. A namespace is written ``tenant/namespace``; another form raises ``InvalidArgument``."""

    _level = NAMESPACE

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _path(self, resource: str) -> Names:
        return namespace_path(resource)

    def list(self, tenant: str, *, after: str = "", limit: int | None = None) -> Names:
        """Full names, sorted, in pages as those of tenants. Raises ``NotFound`` for an unknown tenant."""
        return self._transport.pages("namespaces", tenant, after=after, limit=limit)

    def get_policies(self, namespace: str) -> Record:
        """Everything that is set for a namespace, its bundles included."""
        return self._transport.record("GET", *namespace_path(namespace))

    def create(self, namespace: str, *, bundles: int | None = None) -> None:
        """``bundles``: how many parts its topics hash to, which brokers own one by one; the broker's default without."""
        body = None if bundles is None else {"bundles": {"numBundles": bundles}}
        self._transport.request("PUT", namespace_path(namespace), body=body)

    def delete(self, namespace: str, *, force: bool = False) -> None:
        """Without ``force`` it must have no topics, or ``NotEmpty`` is raised; with it they are deleted too."""
        self._transport.request("DELETE", namespace_path(namespace), query={"force": "true"} if force else None)

    def bundles(self, namespace: str) -> Record:
        """``numBundles`` and ``boundaries``, hexadecimal: bundle i is ``boundaries[i]_boundaries[i + 1]``."""
        return self._transport.record("GET", *namespace_path(namespace), "bundles")

    def unload(self, namespace: str, *, bundle: str = "") -> None:
        """Close the topics of a bundle, or of the whole namespace, on their brokers; their users reconnect by themselves.

        ``bundle``: as ``0x00000000_0x40000000``.
        """
        self._transport.request("PUT", [*namespace_path(namespace), *([bundle] if bundle else []), "unload"])

    def clear_backlog(self, namespace: str, *, subscription: str = "", bundle: str = "") -> None:
        """Acknowledge the whole backlog of every subscription, or of those of one name, of every topic, or of those of one bundle."""
        self._transport.request("POST", _each(namespace, bundle, "clearBacklog", subscription))

    def unsubscribe(self, namespace: str, subscription: str, *, bundle: str = "") -> None:
        """Delete a subscription from every topic, or from those of one bundle. Raises ``SubscriptionBusy`` if it has consumers."""
        self._transport.request("POST", _each(namespace, bundle, "unsubscribe", subscription))

    def properties(self, namespace: str) -> dict[str, str]:
        """What people have noted about a namespace."""
        return {name: str(value) for name, value in self._transport.record("GET", *namespace_path(namespace), "properties").items()}

    def update_properties(self, namespace: str, properties: Mapping[str, str]) -> None:
        """Others stay as they are."""
        self._transport.request("PUT", [*namespace_path(namespace), "properties"], body=dict(properties))

    def remove_property(self, namespace: str, name: str) -> None:
        self._transport.exchange("DELETE", [*namespace_path(namespace), "property", name])


def _each(namespace: str, bundle: str, words: str, subscription: str) -> Names:
    return [*namespace_path(namespace), *([bundle] if bundle else []), words, *([subscription] if subscription else [])]
