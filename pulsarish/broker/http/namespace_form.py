"""A new namespace in the form of Apache Pulsar's Policies: its clients send every field that they
know.

A field of a missing feature is accepted if its value is in force without the feature. Otherwise it
is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from pulsarish.broker.http.route import checked
from pulsarish.model.errors import InvalidArgument, Malformed, OperationNotSupported
from pulsarish.model.policies import CAPTURES, STORED_POLICIES

__all__ = ["NewNamespace", "new_namespace"]

# Fields of missing features in Policies, and their accepted values: nothing, or what is in force
# anyway.
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "clusterDispatchRate": (),
    "clusterSubscribeRate": (),
    "replicatorDispatchRate": (),
    "latency_stats_sample_rate": (),
    "publishMaxMessageRate": (),
    "topicDispatchRate": (),
    "subscriptionDispatchRate": (),
    "backlog_quota_map": (),
    "subscription_types_enabled": (),
    "deleted": (False,),
    "migrated": (False,),
    "offload_threshold": (-1,),
    "offload_threshold_in_seconds": (-1,),
    "offload_deletion_lag_ms": (),
    "offload_policies": (),
    "schema_auto_update_compatibility_strategy": ("Full",),
    "entryFilters": (),
    # dispatch always stops at that limit
    "dispatcherPauseOnAckStatePersistentEnabled": (False, True),
}
_OF_ONE_CLUSTER: Final = (
    "replication_clusters",
    "allowed_clusters",
    "clusterThatCanDeleteNamespace",
)


class _Bundles(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    num_bundles: int
    boundaries: list[str] | None = None


@dataclass(frozen=True, slots=True)
class NewNamespace:
    """A new namespace. ``bundles`` ``None``: the broker's default number."""

    bundles: int | None
    policies: dict[str, Any]
    properties: dict[str, str]


def new_namespace(body: Mapping[str, Any], cluster: str) -> NewNamespace:
    """Parse the body of a new namespace.

    Raises ``Malformed``, ``InvalidArgument`` (a value out of range), ``OperationNotSupported``;
    each names the field.
    """
    bundles: int | None = None
    policies: dict[str, Any] = {}
    properties: dict[str, str] = {}
    by_field = {policy.field: policy for policy in STORED_POLICIES if policy.field}
    for name, value in body.items():
        if value is None or value in ({}, []):
            if (
                name not in by_field
                and name not in _NEUTRAL
                and name not in ("bundles", "properties", *_OF_ONE_CLUSTER)
            ):
                raise Malformed(f"a namespace has no field {name!r}")
        elif name == CAPTURES.field:
            raise OperationNotSupported(
                f"{name} of a new namespace: create it without, then set each rule, which needs "
                "the right to publish to its topic"
            )
        elif name == "bundles":
            bundles = _count(checked(_Bundles, value, "bundles"))
        elif name == "properties":
            properties = checked(dict[str, str], value, "properties")
        elif name in _OF_ONE_CLUSTER:
            named = [value] if isinstance(value, str) else checked(list[str], value, name)
            others = [each for each in named if each != cluster]
            if others:
                raise OperationNotSupported(
                    f"{name} names {others[0]!r}: topics are not replicated beyond {cluster!r} yet"
                )
        elif name in by_field:
            policy = by_field[name]
            raw = checked(dict[str, Any], value, name) if policy.by_cluster else value
            if policy.by_cluster and list(raw) != [cluster]:
                raise InvalidArgument(
                    f"{name} is by cluster, and there is one, {cluster!r}; it names "
                    f"{', '.join(raw)}"
                )
            wanted = policy.value(raw[cluster] if policy.by_cluster else value)
            if policy.says_nothing is None or wanted != policy.says_nothing:
                policies[policy.name] = msgspec.to_builtins(wanted)
        elif name not in _NEUTRAL:
            raise Malformed(f"a namespace has no field {name!r}")
        elif not _is_neutral(name, value):
            raise OperationNotSupported(
                f"this version does not have {name} yet; create the namespace without it"
            )
    return NewNamespace(bundles, policies, properties)


def _is_neutral(name: str, value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(each is None or each in ({}, [], "") for each in value.values())
    return any(type(value) is type(each) and value == each for each in _NEUTRAL[name])


def _count(bundles: _Bundles) -> int | None:
    """Return the number of bundles; Apache Pulsar's clients send 0 for the default.

    Raises ``OperationNotSupported`` for bundles of unequal size.
    """
    count = bundles.num_bundles
    if bundles.boundaries is not None and count > 0:
        low = [f"0x{index * (1 << 32) // count:08x}" for index in range(count)]
        if [each.lower() for each in bundles.boundaries] not in ([*low, "0xffffffff"], []):
            raise OperationNotSupported(
                "bundles.boundaries: bundles are of equal size; give only numBundles"
            )
    return count or None
