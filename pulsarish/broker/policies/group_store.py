"""Resource groups in metadata: their limits, and which namespaces and topics are in them.

A namespace or topic that is put into a group writes a node below the group's, in the same commit.
So a group that does not exist cannot be named, and one that is used cannot be deleted. The node of
a user that has left, or was deleted, stays until the group is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import ATTEMPTS_MAX, Records
from pulsarish.metadata.records import NamespacePolicies, ResourceGroupRecord, TopicPolicies
from pulsarish.model.errors import MetadataUnavailable, NotEmpty, NotFound
from pulsarish.model.policies import RESOURCE_GROUP, ResourceGroup
from pulsarish.model.topic_name import TopicName, decode_segment
from pulsarish.runtime.seams import Conflict, Op, Versioned
from pulsarish.wire.json_record import decode_record

__all__ = ["GroupStore"]

_NAMED_MAX: Final = 10
"""Users of a group that an error names."""
_DELETED_AT_ONCE: Final = 500

_Kind = type[NamespacePolicies] | type[TopicPolicies]


class GroupStore:
    """Reads and changes resource groups, for one broker."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def names(self) -> list[str]:
        return sorted(map(decode_segment, await self._records.children(paths.RESOURCE_GROUPS)))

    async def find(
        self, name: str, watch: Callable[[str], None] | None = None
    ) -> ResourceGroup | None:
        """Return the limits of a group; ``None``: it does not exist.

        ``watch`` is called once when they may have changed. Raises ``CorruptData``,
        ``MetadataUnavailable``.
        """
        path = paths.resource_group(name)
        node = (await self._records.nodes([path], watch=watch))[0]
        return None if node is None else decode_record(node.data, ResourceGroupRecord, path).limits

    async def set(self, name: str, change: Callable[[ResourceGroup | None], ResourceGroup]) -> None:
        """Create a group, or change its limits. ``change`` gets those that it has."""

        def changed(record: ResourceGroupRecord | None) -> ResourceGroupRecord:
            return ResourceGroupRecord(change(None if record is None else record.limits))

        await self._records.update(paths.resource_group(name), ResourceGroupRecord, changed)

    async def use(self, name: str, user: str) -> Sequence[Op]:
        """Return what is to be committed with the policy that puts a user into a group.

        Nothing for an empty ``name``. ``user``: ``tenant/namespace``, or the full name of a topic.
        The commit raises ``Conflict`` if the group was deleted, or another client deletes it or
        puts the same user into it: then call this again.

        Raises ``NotFound`` (the group), ``MetadataUnavailable``.
        """
        if not name:
            return ()
        path, place = paths.resource_group(name), paths.resource_group_user(name, user)
        await self._records.sync(path)
        group, node = await self._records.nodes([path, place])
        if group is None:
            raise _missing(name)
        # A write: a deletion that has already judged this user is refused then.
        return [Op("create", place) if node is None else Op("put", place, b"", node.version)]

    async def delete(self, name: str) -> None:
        """Delete a group.

        Raises ``NotFound``, ``NotEmpty`` with the names of its users, ``CorruptData``,
        ``MetadataUnavailable``.
        """
        path = paths.resource_group(name)
        for _ in range(ATTEMPTS_MAX):
            await self._records.sync(path)
            if (await self._records.nodes([path]))[0] is None:
                raise _missing(name)
            segments = await self._records.children(path)
            places = [f"{path}/{segment}" for segment in segments]
            # Before their policies: a user that enters the group writes its node again.
            nodes = await self._records.nodes(places)
            users = await self._using(name, [decode_segment(segment) for segment in segments])
            if users:
                raise NotEmpty(_in_use(name, users))
            gone = [
                Op("delete", place, version=node.version)
                for place, node in zip(places, nodes, strict=True)
                if node is not None
            ]
            try:
                while len(gone) > _DELETED_AT_ONCE:
                    await self._records.commit(gone[:_DELETED_AT_ONCE])
                    del gone[:_DELETED_AT_ONCE]
                await self._records.delete(path, before=gone)
            except Conflict:
                continue
            return
        raise MetadataUnavailable(
            f"users of resource group {name} changed {ATTEMPTS_MAX} times while it was deleted"
        )

    async def _using(self, name: str, users: Sequence[str]) -> list[str]:
        """Return those of some users whose policies name the group."""
        places: list[tuple[str, str, _Kind]] = [
            (user, path, kind) for user in users for path, kind in _policies_of(user)
        ]
        nodes = await self._records.nodes([path for _, path, _ in places])
        found = {
            user: None
            for (user, path, kind), node in zip(places, nodes, strict=True)
            if _group_of(node, path, kind) == name
        }
        return list(found)


def _policies_of(user: str) -> list[tuple[str, _Kind]]:
    """Return the nodes that may hold the policies of a user."""
    if "://" not in user:
        tenant, _, namespace = user.partition("/")
        return [(paths.namespace(tenant, namespace), NamespacePolicies)]
    name = TopicName.parse(user)
    return [
        (paths.topic_policies(node), TopicPolicies)
        for node in (paths.partitioned_topic(name), paths.topic(name))
    ]


def _group_of(node: Versioned | None, path: str, kind: _Kind) -> Any:
    if node is None:
        return None
    return decode_record(node.data, kind, path).policies.get(RESOURCE_GROUP.name)


def _missing(name: str) -> NotFound:
    return NotFound(
        f"there is no resource group {name!r}; create it with: pulsarish resourcegroups create "
        f"{name}"
    )


def _in_use(name: str, users: Sequence[str]) -> str:
    more = len(users) - _NAMED_MAX
    shown = ", ".join(users[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return (
        f"resource group {name!r} is used by {shown}; take them out of it first, with "
        "remove-resource-group"
    )
