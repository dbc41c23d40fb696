"""Topics.

Any broker creates and lists them; their owner does everything else, and brokers redirect the client
to it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from pulsarish.admin.policies import TOPIC, PolicyCalls
from pulsarish.admin.transport import Answer, Names, Record, Transport, namespace_path, topic_path
from pulsarish.model.topic_name import TopicName

__all__ = ["Topics"]

_DOMAINS: Final = {True: "persistent", False: "non-persistent"}


class Topics(PolicyCalls):
    """``Admin.topics``.

    A topic is ``persistent://tenant/namespace/topic``, or shorter, or
    ``non-persistent://tenant/namespace/topic``. Another form raises ``InvalidTopicName``.
    """

    _level = TOPIC

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _path(self, resource: str) -> Names:
        return topic_path(resource)

    def list(
        self,
        namespace: str = "public/default",
        *,
        bundle: str = "",
        after: str = "",
        limit: int | None = None,
        persistent: bool = True,
    ) -> Names:
        """Return full names, one for each partition.

        ``after``: the last name of the previous page, in the order of the list.

        ``bundle``: only its topics. Topics that are not ``persistent`` are listed while brokers
        have them loaded.
        """
        query = {"bundle": bundle} if bundle else None
        return self._transport.pages(
            _DOMAINS[persistent],
            *namespace_path(namespace)[1:],
            after=after,
            limit=limit,
            query=query,
        )

    def list_partitioned(
        self,
        namespace: str = "public/default",
        *,
        after: str = "",
        limit: int | None = None,
        persistent: bool = True,
    ) -> Names:
        """Return the full names of partitioned topics, without their partitions."""
        return self._transport.pages(
            _DOMAINS[persistent],
            *namespace_path(namespace)[1:],
            "partitioned",
            after=after,
            limit=limit,
        )

    def create(
        self, topic: str, *, partitions: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic.

        ``partitions`` 0 makes a topic without partitions. Raises ``AlreadyExists``.
        """
        path, noted = topic_path(topic), dict(properties or {})
        if partitions:
            body = {"partitions": partitions, "properties": noted} if noted else partitions
            self._transport.request("PUT", [*path, "partitions"], body=body)
        else:
            self._transport.request("PUT", path, body=noted or None)

    def delete(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic, a partitioned one with all its partitions.

        ``force`` disconnects its users; otherwise it must have none. Raises ``Timeout`` when there
        are more partitions than a broker deletes in 30 s. A second call continues there.
        """
        partitions = ["partitions"] if self.partitions(topic) else []
        self._transport.request(
            "DELETE", [*topic_path(topic), *partitions], query={"force": "true"} if force else None
        )

    def partitions(self, topic: str) -> int:
        """Return the number of partitions; 0 for a topic without partitions.

        Raises ``TopicNotFound``.
        """
        return int(
            self._transport.record("GET", *topic_path(topic), "partitions").get("partitions", 0)
        )

    def update_partitions(self, topic: str, partitions: int) -> None:
        """Add partitions to a partitioned topic.

        Raises ``InvalidArgument`` for fewer than it has: partitions cannot be removed.
        """
        self._transport.request("POST", [*topic_path(topic), "partitions"], body=partitions)

    def create_missed_partitions(self, topic: str) -> None:
        """Create partitions that are missing because creating or growing the topic was
        interrupted.
        """
        self._transport.request("POST", [*topic_path(topic), "createMissedPartitions"])

    def permissions(self, topic: str) -> dict[str, Names]:
        """Return the actions of each role on the topic, those on its namespace included."""
        return self._transport.record("GET", *topic_path(topic), "permissions")

    def grant_permission(self, topic: str, role: str, actions: Sequence[str]) -> None:
        """Grant a role exactly these actions on the topic, which does not need to exist.

        ``actions``: ``produce``, ``consume``, ``functions``, ``sources``, ``sinks``, ``packages``.
        """
        path = [*topic_path(topic), "permissions", role]
        self._transport.request("POST", path, body=[*actions])

    def revoke_permission(self, topic: str, role: str) -> None:
        """Revoke the actions of a role on the topic itself.

        Raises ``InvalidArgument`` when it has none there.
        """
        self._transport.request("DELETE", [*topic_path(topic), "permissions", role])

    def properties(self, topic: str) -> dict[str, str]:
        """Return the topic's properties."""
        return {
            name: str(value)
            for name, value in self._transport.record(
                "GET", *topic_path(topic), "properties"
            ).items()
        }

    def update_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        """Set these properties; other properties stay."""
        self._transport.request("PUT", [*topic_path(topic), "properties"], body=dict(properties))

    def remove_property(self, topic: str, name: str) -> None:
        self._transport.request("DELETE", [*topic_path(topic), "properties"], query={"key": name})

    # -- statistics and lookups

    def stats(self, topic: str, *, precise_backlog: bool = False) -> Record:
        """Return rates, sizes, producers and subscriptions of a topic without partitions, or of a
        partition.

        ``precise_backlog``: have the broker read what it lacks to know the unacknowledged messages
        of each subscription. ``backlogMessagesEstimated`` says if it needs another request.

        Raises ``TopicNotFound``.
        """
        query = {"getPreciseBacklog": "true"} if precise_backlog else {}
        return self._transport.record("GET", *topic_path(topic), "stats", query=query)

    def partitioned_stats(
        self, topic: str, *, per_partition: bool = False, precise_backlog: bool = False
    ) -> Record:
        """Return the sum over a partitioned topic's partitions; with ``per_partition`` also each of
        them in ``partitions``. ``precise_backlog`` as in ``stats``.
        """
        query = {"perPartition": "true" if per_partition else "false"}
        if precise_backlog:
            query["getPreciseBacklog"] = "true"
        return self._transport.record("GET", *topic_path(topic), "partitioned-stats", query=query)

    def explain(self, topic: str) -> Record:
        """Explain why publishing makes no progress, for the topic and each producer, and the same
        for its subscriptions.

        See ``Subscriptions.explain``. For a partitioned topic, each of ``partitions`` has these.
        Raises ``TopicNotFound``.
        """
        return self._transport.record("GET", *topic_path(topic), "explain")

    def internal_stats(self, topic: str, *, metadata: bool = False) -> Record:
        """Return the log of a topic without partitions, or of a partition: its ledgers and cursors.

        ``metadata``: add each ledger's record, as JSON in a text, ``creationDate`` of the topic
        (milliseconds since the epoch), and ``trimmedPosition``, the last entry that was trimmed.
        """
        return self._transport.record(
            "GET",
            *topic_path(topic),
            "internalStats",
            query={"metadata": "true"} if metadata else None,
        )

    def partitioned_internal_stats(self, topic: str) -> Record:
        """Return the logs of a partitioned topic's partitions, in ``partitions``."""
        return self._transport.record("GET", *topic_path(topic), "partitioned-internalStats")

    def internal_info(self, topic: str) -> Record:
        """Return a topic's ledgers and cursors from metadata, without a broker that has it
        loaded.
        """
        return self._transport.record("GET", *topic_path(topic), "internal-info")

    def lookup(self, topic: str) -> Record:
        """Return the owner of a topic: ``brokerId``, ``bundle``, ``nativeUrl``, ``brokerUrl``,
        ``httpUrl``.
        """
        name = TopicName.parse(topic)
        path = [name.domain, name.tenant, name.namespace, name.local]
        found = self._transport.request("GET", path, root="/lookup/v2/topic")
        assert isinstance(found, dict)
        return found

    # -- messages

    def last_message_id(self, topic: str) -> Record:
        """Return ``ledgerId``, ``entryId`` and ``partitionIndex`` of the last confirmed message."""
        return self._transport.record("GET", *topic_path(topic), "lastMessageId")

    def message_id_by_timestamp(self, topic: str, timestamp_ms: int) -> Record:
        """Return the id of the first message published at this time (milliseconds since the epoch)
        or later, else of the last one.
        """
        return self._transport.record("GET", *topic_path(topic), "messageid", str(timestamp_ms))

    def get_message(self, topic: str, ledger_id: int, entry_id: int) -> Answer:
        """Return an entry: one message or a batch, unpacked.

        Headers as in ``Subscriptions.peek_message``. Raises ``NoSuchEntry``.
        """
        return self._transport.exchange(
            "GET", [*topic_path(topic), "ledger", str(ledger_id), "entry", str(entry_id)]
        )

    def trace_message(
        self,
        topic: str,
        ledger_id: int,
        entry_id: int,
        *,
        batch_index: int | None = None,
        copies: bool = False,
        subscription: str = "",
    ) -> Record:
        """Return what the owner knows of a message now: ``state``, ``explanation``, ``message``,
        ``ledger`` with the bookies that should hold it, and where it is for each of
        ``subscriptions``.

        Args:
            batch_index: of one message of a batch; otherwise the whole entry.
            copies: have each of its bookies read the entry.
            subscription: only this one.

        Raises ``InvalidPosition`` for a ledger of another topic, ``NotFound`` for an index that the
        entry does not have, ``SubscriptionNotFound``.
        """
        query: dict[str, str] = {}
        if batch_index is not None:
            query["batchIndex"] = str(batch_index)
        if copies:
            query["copies"] = "true"
        if subscription:
            query["subscription"] = subscription
        path = [*topic_path(topic), "ledger", str(ledger_id), "entry", str(entry_id), "trace"]
        return self._transport.record("GET", *path, query=query)

    def examine_message(
        self, topic: str, *, initial_position: str = "latest", number: int = 1
    ) -> Answer:
        """Return the ``number``-th entry (from 1) from the ``earliest`` or the ``latest`` on,
        acknowledged or not.
        """
        query = {"initialPosition": initial_position, "messagePosition": str(number)}
        return self._transport.exchange("GET", [*topic_path(topic), "examinemessage"], query=query)

    def remove_policies(self, topic: str) -> None:
        """Remove all of the topic's policies; those of its namespace then apply."""
        self._transport.request("DELETE", [*topic_path(topic), "policies"])

    # -- schedules

    def schedules(self, topic: str) -> Record:
        """Return the schedules of a topic by name, as ``schedule`` does."""
        return self._transport.record("GET", *topic_path(topic), "schedules")

    def schedule(self, topic: str, name: str, *, count: int = 5) -> Record:
        """Return a schedule: its fields, the ``payload`` in base64, and ``next``, the next
        ``count`` instants, as text in UTC.
        """
        query = {"count": str(count)}
        return self._transport.record("GET", *topic_path(topic), "schedules", name, query=query)

    def set_schedule(
        self,
        topic: str,
        name: str,
        cron: str,
        *,
        timezone: str = "UTC",
        payload: bytes = b"",
        key: str = "",
        properties: Mapping[str, str] | None = None,
        missed: str = "last",
    ) -> None:
        """Create or replace a schedule: the topic's owner publishes the message whenever ``cron``
        says so.

        Args:
            cron: five fields, or six with the second first.
            missed: what to publish of instants that are more than a minute late: ``last``,
                ``skip`` or ``all``, of which 100.

        Raises ``InvalidArgument``, which names the field, ``LimitReached``, and ``NotAllowedError``
        for a partitioned topic: name one of its partitions.
        """
        body = {
            "cron": cron,
            "timezone": timezone,
            "payload": b64encode(payload).decode(),
            "key": key,
            "properties": dict(properties or {}),
            "missed": missed,
        }
        self._transport.request("PUT", [*topic_path(topic), "schedules", name], body=body)

    def remove_schedule(self, topic: str, name: str) -> None:
        """Remove a schedule. Raises ``NotFound``."""
        self._transport.request("DELETE", [*topic_path(topic), "schedules", name])

    def pause_schedule(self, topic: str, name: str) -> None:
        """Pause a schedule. Raises ``NotFound``."""
        self._transport.request("POST", [*topic_path(topic), "schedules", name, "pause"])

    def resume_schedule(self, topic: str, name: str) -> None:
        """Resume a schedule; what was due in the pause is left out. Raises ``NotFound``."""
        self._transport.request("POST", [*topic_path(topic), "schedules", name, "resume"])

    # -- changes of a topic

    def unload(self, topic: str) -> None:
        """Close a topic on its broker. Its clients reconnect by themselves."""
        self._transport.request("PUT", [*topic_path(topic), "unload"])

    def skip_lost(
        self,
        topic: str,
        ledger_id: int,
        *,
        first_entry: int = 0,
        last_entry: int | None = None,
        given_up_bookies: Sequence[str] = (),
    ) -> Record:
        """Skip entries of a closed ledger that are lost; without ``last_entry``, up to the ledger's
        end.

        ``given_up_bookies`` (instance ids) count as having nothing of it, although they do not
        answer so. Returns what was recorded. Raises ``NotAllowedError`` when an entry can be read,
        ``EntryUnknown`` naming bookies that may have one.
        """
        body = {
            "ledgerId": ledger_id,
            "firstEntry": first_entry,
            "lastEntry": last_entry,
            "givenUpBookies": list(given_up_bookies),
        }
        return self._transport.record("POST", *topic_path(topic), "skipLost", body=body)

    def terminate(self, topic: str) -> Record:
        """Permanently reject further messages. Return the id of the last message."""
        return self._transport.record("POST", *topic_path(topic), "terminate")

    def terminate_partitions(self, topic: str) -> Record:
        """Terminate every partition of a partitioned topic.

        Return the ids of their last messages by partition.
        """
        return self._transport.record("POST", *topic_path(topic), "terminate", "partitions")

    def truncate(self, topic: str) -> None:
        """Acknowledge everything in every subscription, and delete all messages."""
        self._transport.request("DELETE", [*topic_path(topic), "truncate"])

    def compact(self, topic: str) -> None:
        """Start compacting a topic, or each partition of it: the newest message of each key is kept
        next to the log.

        Raises ``AlreadyExists`` while a compaction runs.
        """
        self._transport.request("PUT", [*topic_path(topic), "compaction"])

    def compaction_status(self, topic: str) -> Record:
        """Return ``status`` (NOT_RUN, RUNNING, SUCCESS or ERROR) and ``lastError`` of a topic's
        last compaction since it was loaded.
        """
        return self._transport.record("GET", *topic_path(topic), "compaction")

    def drop_compacted(self, topic: str) -> None:
        """Drop a topic's compacted view.

        Messages that the log no longer holds are lost, and compaction no longer holds back
        trimming.
        """
        self._transport.request("DELETE", [*topic_path(topic), "subscription", "__compaction"])

    def trim(self, topic: str) -> None:
        """Delete now the ledgers that no subscription needs and no retention keeps, instead of at
        the next trim.
        """
        self._transport.request("POST", [*topic_path(topic), "trim"])
