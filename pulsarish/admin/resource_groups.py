"""Resource groups: namespaces and topics that share rates on all brokers."""

from __future__ import annotations

from typing import Final

from pulsarish.admin.transport import Names, Record, Transport

__all__ = ["ResourceGroups"]

_GROUPS: Final = "resourcegroups"


class ResourceGroups:
    """``Admin.resource_groups``.

    A namespace or topic is put into a group with ``set_policy(name, "resource-group", group)``.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, after: str = "", limit: int | None = None) -> Names:
        """Return the names of the groups.

        ``after``: the last name of the previous page; ``limit``: names in a page, all without it.
        """
        return self._transport.pages(_GROUPS, after=after, limit=limit)

    def get(self, group: str) -> Record:
        """Return ``publishRateInMsgs``, ``publishRateInBytes``, ``dispatchRateInMsgs`` and
        ``dispatchRateInBytes``; -1 or 0: no limit.

        Raises ``NotFound``.
        """
        return self._transport.record("GET", _GROUPS, group)

    def set(
        self,
        group: str,
        *,
        publish_messages: int | None = None,
        publish_bytes: int | None = None,
        dispatch_messages: int | None = None,
        dispatch_bytes: int | None = None,
    ) -> None:
        """Create a group, or change limits of it. Brokers apply a change at once.

        Each is for all topics of the group together, on all brokers, in a second. -1 or 0: no
        limit. ``None``: it stays as it is; a new group has no limit there.

        Raises ``InvalidArgument``.
        """
        limits = {
            "publishRateInMsgs": publish_messages,
            "publishRateInBytes": publish_bytes,
            "dispatchRateInMsgs": dispatch_messages,
            "dispatchRateInBytes": dispatch_bytes,
        }
        body = {key: value for key, value in limits.items() if value is not None}
        self._transport.request("PUT", [_GROUPS, group], body=body)

    def delete(self, group: str) -> None:
        """Delete a group. Raises ``NotFound``, ``NotEmpty`` with the names of those in it."""
        self._transport.request("DELETE", [_GROUPS, group])
