"""Every path in the metadata tree.

The map is in ``docs/formats.md``; the chroot comes from the metadata URL.

A topic's persistent state is one subtree under its ``topics`` node, so that it is created and
deleted in one commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from pulsarish.model.errors import NotAllowedError
from pulsarish.model.position import ID_MAX
from pulsarish.model.topic_name import TopicName, encode_segment

__all__ = [
    "AGE",
    "AUTORECOVERY",
    "BOOKIES",
    "BOOKIE_RACKS",
    "BROKERS",
    "CLUSTER",
    "COOKIES",
    "CORDONED_VOLUMES",
    "DYNAMIC_OPTIONS",
    "LEADER",
    "LEDGERS",
    "LEDGER_IDS",
    "NAMESPACES",
    "NON_PERSISTENT",
    "OF_SESSIONS",
    "OWNERS",
    "PARTITIONED",
    "PLACEMENT",
    "READ_ONLY_BOOKIES",
    "RESOURCE_GROUPS",
    "RESTORED",
    "ROOTS",
    "SCHEDULES",
    "TENANTS",
    "TOPICS",
    "UNDERREPLICATED",
    "auditor",
    "autorecovery_switch",
    "bookie",
    "broker",
    "bundle_owner",
    "cookie",
    "cordoned_volumes",
    "cursor",
    "cursors",
    "given_up",
    "given_up_bookies",
    "ledger",
    "ledger_id_of",
    "namespace",
    "namespace_owners",
    "namespace_topics",
    "namespaces",
    "parents",
    "partitioned_namespace",
    "partitioned_topic",
    "read_only_bookie",
    "rebalance",
    "repair_lock",
    "resource_group",
    "resource_group_user",
    "schemas",
    "tenant",
    "tenant_topics",
    "topic",
    "topic_deletion",
    "topic_incarnation",
    "topic_policies",
    "topic_schedules",
    "underreplicated",
    "underreplicated_ids",
]

CLUSTER: Final = "/cluster"  # the cluster's instance id: a bookie of another cluster does not start
LEDGERS: Final = "/ledgers"  # /ledgers/00/0000/L0001
LEDGER_IDS: Final = "/ledger-ids"  # the end of the last block of ids given out
UNDERREPLICATED: Final = "/underreplicated"
# /autorecovery/auditor, .../switch, .../rebalance, .../locks/L0000000101,
# .../given-up/bookie~0a1b2c3d
AUTORECOVERY: Final = "/autorecovery"
BOOKIES: Final = "/bookies"  # ephemeral registrations
BOOKIE_RACKS: Final = "/bookie-racks"  # racks and groups of bookies, as operators set them
READ_ONLY_BOOKIES: Final = "/read-only-bookies"  # by instance id: as operators ask
CORDONED_VOLUMES: Final = "/cordoned-volumes"  # by instance id: as operators ask
COOKIES: Final = "/cookies"
BROKERS: Final = "/brokers"  # ephemeral registrations
LEADER: Final = "/leader"  # ephemeral: the leader broker
TENANTS: Final = "/tenants"
NAMESPACES: Final = "/namespaces"  # /namespaces/tenant/namespace: policies
PLACEMENT: Final = "/placement"  # which brokers serve which bundles; missing: any broker any
# /resource-groups/group: its limits; /resource-groups/group/user: a namespace or topic in it
RESOURCE_GROUPS: Final = "/resource-groups"
OWNERS: Final = "/owners"  # /owners/tenant/namespace/bundle
# /topics/tenant/namespace/topic/cursors/subscription, .../policies, .../schemas/version,
# .../schedules, .../incarnation-token, .../deletion-token
TOPICS: Final = "/topics"
# /partitioned/tenant/namespace/topic, .../topic/policies, .../topic/schemas/version
PARTITIONED: Final = "/partitioned"
# the same for non-persistent topics: the metadata have nothing else of them
NON_PERSISTENT: Final = "/non-persistent"
RESTORED: Final = (
    # only after a restore, or on a tree that came back older: nothing is deleted because of the
    # tree until it is confirmed
    "/restored"
)
DYNAMIC_OPTIONS: Final = "/dynamic-options"  # options that brokers change while they run
SCHEDULES: Final = "/schedules"  # which topics have schedules
# how often nodes have noted that the tree changed, so that they can recognise an older one
AGE: Final = "/age"

OF_SESSIONS: Final = (BOOKIES, BROKERS, LEADER)
"""The parents of nodes that end with a session."""

# Any process that reaches the store can make other nodes there.
_LEDGER: Final = re.compile(f"{LEDGERS}/([0-9]{{2,11}})/([0-9]{{4}})/L([0-9]{{4}})")
_UNDERREPLICATED: Final = re.compile("L[0-9]{10,19}")

# Nearly every path of a topic begins with that of its namespace.
_CACHED_MAX: Final = 1024

ROOTS: Final = (
    LEDGERS,
    UNDERREPLICATED,
    BOOKIES,
    COOKIES,
    BROKERS,
    TENANTS,
    NAMESPACES,
    OWNERS,
    TOPICS,
    PARTITIONED,
)


def parents(path: str) -> list[str]:
    """Return the nodes above a path, topmost first, without the root."""
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


def ledger(ledger_id: int) -> str:
    """Return the path of a ledger: ten digits as 2, 4, 4, so that no node has more than 10,000
    children.
    """
    digits = f"{ledger_id:010d}"
    return f"{LEDGERS}/{digits[:-8]}/{digits[-8:-4]}/L{digits[-4:]}"


def ledger_id_of(path: str) -> int | None:
    """Return the ledger of a node below ``LEDGERS``; None when the node is not a ledger's."""
    found = _LEDGER.fullmatch(path)
    return None if found is None else _bounded("".join(found.groups()))


def underreplicated(ledger_id: int) -> str:
    return f"{UNDERREPLICATED}/L{ledger_id:010d}"


def underreplicated_ids(names: Iterable[str]) -> list[int]:
    """Return the ledgers of the children of ``UNDERREPLICATED``.

    Nodes that are not ledgers' are left out.
    """
    found = [_bounded(name[1:]) for name in names if _UNDERREPLICATED.fullmatch(name)]
    return [ledger_id for ledger_id in found if ledger_id is not None]


def _bounded(digits: str) -> int | None:
    number = int(digits)
    return number if number <= ID_MAX else None


def auditor() -> str:
    """Return the path of the ephemeral node of the auditor, which watches for lost bookies."""
    return f"{AUTORECOVERY}/auditor"


def autorecovery_switch() -> str:
    """Return the path of what operators have asked of auto-recovery."""
    return f"{AUTORECOVERY}/switch"


def rebalance() -> str:
    """Return the path of the move of old copies to emptier bookies, as an operator asked for it."""
    return f"{AUTORECOVERY}/rebalance"


def repair_lock(ledger_id: int) -> str:
    """Return the path of an ephemeral node: one replication worker repairs a ledger at a time."""
    return f"{AUTORECOVERY}/locks/L{ledger_id:010d}"


def given_up_bookies() -> str:
    return f"{AUTORECOVERY}/given-up"


def given_up(instance_id: str) -> str:
    return f"{given_up_bookies()}/{encode_segment(instance_id)}"


def bookie(bookie_id: str) -> str:
    return f"{BOOKIES}/{encode_segment(bookie_id)}"


def cookie(bookie_id: str) -> str:
    return f"{COOKIES}/{encode_segment(bookie_id)}"


def read_only_bookie(instance_id: str) -> str:
    return f"{READ_ONLY_BOOKIES}/{encode_segment(instance_id)}"


def cordoned_volumes(instance_id: str) -> str:
    return f"{CORDONED_VOLUMES}/{encode_segment(instance_id)}"


def broker(instance_id: str) -> str:
    return f"{BROKERS}/{encode_segment(instance_id)}"


def tenant(name: str) -> str:
    return f"{TENANTS}/{encode_segment(name)}"


def namespaces(tenant_name: str) -> str:
    return f"{NAMESPACES}/{encode_segment(tenant_name)}"


@lru_cache(_CACHED_MAX)
def namespace(tenant_name: str, namespace_name: str) -> str:
    return f"{namespaces(tenant_name)}/{encode_segment(namespace_name)}"


def resource_group(name: str) -> str:
    return f"{RESOURCE_GROUPS}/{encode_segment(name)}"


def resource_group_user(name: str, user: str) -> str:
    """Return the path of the node that keeps a group from being deleted while a user has it."""
    return f"{resource_group(name)}/{encode_segment(user)}"


def namespace_owners(tenant_name: str, namespace_name: str) -> str:
    return f"{OWNERS}/{encode_segment(tenant_name)}/{encode_segment(namespace_name)}"


def bundle_owner(tenant_name: str, namespace_name: str, bundle: str) -> str:
    return f"{namespace_owners(tenant_name, namespace_name)}/{bundle}"


def tenant_topics(tenant_name: str) -> str:
    return f"{TOPICS}/{encode_segment(tenant_name)}"


@lru_cache(_CACHED_MAX)
def namespace_topics(tenant_name: str, namespace_name: str) -> str:
    return f"{tenant_topics(tenant_name)}/{encode_segment(namespace_name)}"


def topic(name: TopicName) -> str:
    """Return the path of a topic.

    Raises ``NotAllowedError`` for a non-persistent topic, which has none.
    """
    if not name.persistent:
        raise NotAllowedError(
            f"topic {name} keeps no messages, so metadata has no log of it; use a persistent "
            "topic for that"
        )
    return f"{namespace_topics(name.tenant, name.namespace)}/{encode_segment(name.local)}"


def cursors(name: TopicName) -> str:
    return f"{topic(name)}/cursors"


def cursor(name: TopicName, subscription: str) -> str:
    return f"{cursors(name)}/{encode_segment(subscription)}"


def topic_deletion(name: TopicName, token: str) -> str:
    """Return the path of the node that exists while this topic is being deleted.

    Each deletion has a ``token`` of its own, so a later topic of that name never has this node.
    """
    return f"{topic(name)}/deletion-{token}"


def topic_incarnation(name: TopicName, token: str) -> str:
    """Return the path of the node that exists as long as this topic does.

    Each topic has a ``token`` of its own, so a later topic of that name never has this node.
    """
    return f"{topic(name)}/incarnation-{token}"


def topic_policies(topic_path: str) -> str:
    """Return the path of the policies, below a topic's node, or below a partitioned topic's for all
    its partitions.
    """
    return f"{topic_path}/policies"


def topic_schedules(name: TopicName) -> str:
    return f"{topic(name)}/schedules"


def schemas(topic_path: str) -> str:
    """Return the path of the schemas, below the same node as ``topic_policies``."""
    return f"{topic_path}/schemas"


@lru_cache(_CACHED_MAX)
def partitioned_namespace(tenant_name: str, namespace_name: str, *, persistent: bool = True) -> str:
    root = PARTITIONED if persistent else NON_PERSISTENT
    return f"{root}/{encode_segment(tenant_name)}/{encode_segment(namespace_name)}"


def partitioned_topic(name: TopicName) -> str:
    namespace = partitioned_namespace(name.tenant, name.namespace, persistent=name.persistent)
    return f"{namespace}/{encode_segment(name.local)}"
