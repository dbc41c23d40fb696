"""Topics: created and listed by any broker, everything else done by their owner, to which the client is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pulsarish.admin.policies import TOPIC, PolicyCalls
from pulsarish.admin.transport import Answer, Names, Record, Transport, namespace_path, topic_path
from pulsarish.model.topic_name import TopicName

__all__ = ["Topics"]

_DOMAINS: Final = {True: "persistent", False: "non-persistent"}


class Topics(PolicyCalls):
    """``Admin.topics``. A topic is ``persistent://tenant/namespace/topic``, or shorter, or ``non-persistent://tenant/namespace/topic``;
    another form raises ``InvalidTopicName``."""

    _level = TOPIC

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _path(self, resource: str) -> Names:
        return topic_path(resource)

    def list(
        self, namespace: str = "public/default", *, bundle: str = "", after: str = "", limit: int | None = None, persistent: bool = True
    ) -> Names:
        """Full names, partitions one by one. A page goes on ``after`` the last name of the one before, in the order of the list.

        ``bundle``: only its topics. Of topics that are not ``persistent`` those are listed that brokers have now.
        """
        query = {"bundle": bundle} if bundle else None
        return self._transport.pages(_DOMAINS[persistent], *namespace_path(namespace)[1:], after=after, limit=limit, query=query)

    def list_partitioned(
        self, namespace: str = "public/default", *, after: str = "", limit: int | None = None, persistent: bool = True
    ) -> Names:
        """Full names of partitioned topics, without their partitions."""
        return self._transport.pages(_DOMAINS[persistent], *namespace_path(namespace)[1:], "partitioned", after=after, limit=limit)

    def create(self, topic: str, *, partitions: int = 0, properties: Mapping[str, str] | None = None) -> None:
        """``partitions`` 0 makes a topic without partitions. Raises ``AlreadyExists``."""
        path, noted = topic_path(topic), dict(properties or {})
        if partitions:
            body = {"partitions": partitions, "properties": noted} if noted else partitions
            self._transport.request("PUT", [*path, "partitions"], body=body)
        else:
            self._transport.request("PUT", path, body=noted or None)

    def delete(self, topic: str, *, force: bool = False) -> None:
        """Delete a topic, a partitioned one with all its partitions.

        Without ``force`` it must have no connected users; with it they are disconnected. Raises ``Timeout`` when there are more partitions
        than a broker deletes in 30 s: deleting again goes on from there.
        """
        partitions = ["partitions"] if self.partitions(topic) else []
        self._transport.request("DELETE", [*topic_path(topic), *partitions], query={"force": "true"} if force else None)

    def partitions(self, topic: str) -> int:
        """How many partitions; 0 for a topic without. Raises ``TopicNotFound``."""
        return int(self._transport.record("GET", *topic_path(topic), "partitions").get("partitions", 0))

    def update_partitions(self, topic: str, partitions: int) -> None:
        """Let a partitioned topic have more partitions. Raises ``InvalidArgument`` for fewer than it has: they cannot be taken away."""
        self._transport.request("POST", [*topic_path(topic), "partitions"], body=partitions)

    def create_missed_partitions(self, topic: str) -> None:
        """Make the partitions that should be there and are not, since making or growing the topic was interrupted."""
        self._transport.request("POST", [*topic_path(topic), "createMissedPartitions"])

    def properties(self, topic: str) -> dict[str, str]:
        """What people have noted about a topic."""
        return {name: str(value) for name, value in self._transport.record("GET", *topic_path(topic), "properties").items()}

    def update_properties(self, topic: str, properties: Mapping[str, str]) -> None:
        """Others stay as they are."""
        self._transport.request("PUT", [*topic_path(topic), "properties"], body=dict(properties))

    def remove_property(self, topic: str, name: str) -> None:
        self._transport.request("DELETE", [*topic_path(topic), "properties"], query={"key": name})

    # -- what is known of a topic

    def stats(self, topic: str) -> Record:
        """Rates, sizes, producers and subscriptions of a topic that is not partitioned, or of a partition. Raises ``TopicNotFound``."""
        return self._transport.record("GET", *topic_path(topic), "stats")

    def partitioned_stats(self, topic: str, *, per_partition: bool = False) -> Record:
        """The sum over a partitioned topic's partitions; with ``per_partition`` their own in ``partitions``."""
        query = {"perPartition": "true" if per_partition else "false"}
        return self._transport.record("GET", *topic_path(topic), "partitioned-stats", query=query)

    def explain(self, topic: str) -> Record:
        """Why publishing does not move, of the topic and of each producer, and the same of its subscriptions; see
        ``Subscriptions.explain``. Of a partitioned topic each of ``partitions`` says so. Raises ``TopicNotFound``."""
        return self._transport.record("GET", *topic_path(topic), "explain")

    def internal_stats(self, topic: str, *, metadata: bool = False) -> Record:
        """The log of a topic that is not partitioned, or of a partition: its ledgers and cursors.

        ``metadata``: with each ledger's record, as JSON in a text, ``creationDate`` of the topic (milliseconds since the epoch), and
        ``trimmedPosition``, the last entry that was taken off.
        """
        return self._transport.record("GET", *topic_path(topic), "internalStats", query={"metadata": "true"} if metadata else None)

    def partitioned_internal_stats(self, topic: str) -> Record:
        """The logs of a partitioned topic's partitions, in ``partitions``."""
        return self._transport.record("GET", *topic_path(topic), "partitioned-internalStats")

    def internal_info(self, topic: str) -> Record:
        """A topic's ledgers and cursors as metadata has them, without a broker that has it open."""
        return self._transport.record("GET", *topic_path(topic), "internal-info")

    def lookup(self, topic: str) -> Record:
        """Who serves a topic: ``brokerId``, ``bundle``, ``nativeUrl``, ``brokerUrl``, ``httpUrl``."""
        name = TopicName.parse(topic)
        path = [name.domain, name.tenant, name.namespace, name.local]
        found = self._transport.request("GET", path, root="/lookup/v2/topic")
        assert isinstance(found, dict)
        return found

    # -- what is in a topic

    def last_message_id(self, topic: str) -> Record:
        """``ledgerId``, ``entryId`` and ``partitionIndex`` of the last message that is confirmed."""
        return self._transport.record("GET", *topic_path(topic), "lastMessageId")

    def message_id_by_timestamp(self, topic: str, timestamp_ms: int) -> Record:
        """The id of the first message that was published at this time (milliseconds since the epoch) or later, else of the last one."""
        return self._transport.record("GET", *topic_path(topic), "messageid", str(timestamp_ms))

    def get_message(self, topic: str, ledger_id: int, entry_id: int) -> Answer:
        """An entry: one message or a batch, unpacked. Headers as of ``Subscriptions.peek_message``. Raises ``NoSuchEntry``."""
        return self._transport.exchange("GET", [*topic_path(topic), "ledger", str(ledger_id), "entry", str(entry_id)])

    def examine_message(self, topic: str, *, initial_position: str = "latest", number: int = 1) -> Answer:
        """The ``number``-th entry (from 1) from the ``earliest`` or the ``latest`` on, whatever is acknowledged."""
        query = {"initialPosition": initial_position, "messagePosition": str(number)}
        return self._transport.exchange("GET", [*topic_path(topic), "examinemessage"], query=query)

    def remove_policies(self, topic: str) -> None:
        """Then the topic has all of its namespace's policies."""
        self._transport.request("DELETE", [*topic_path(topic), "policies"])

    # -- what is done to a topic

    def unload(self, topic: str) -> None:
        """Close a topic on its broker; its users reconnect by themselves."""
        self._transport.request("PUT", [*topic_path(topic), "unload"])

    def skip_lost(
        self, topic: str, ledger_id: int, *, first_entry: int = 0, last_entry: int | None = None, given_up_bookies: Sequence[str] = ()
    ) -> Record:
        """Move a topic past entries of a closed ledger that are gone for good; without ``last_entry``, to the ledger's end.

        ``given_up_bookies`` (instance ids) are taken to have nothing of it, although they do not say so. Returns what was recorded. Raises
        ``NotAllowed`` when an entry can be read, ``EntryUnknown`` naming bookies that may have one.
        """
        body = {"ledgerId": ledger_id, "firstEntry": first_entry, "lastEntry": last_entry, "givenUpBookies": list(given_up_bookies)}
        return self._transport.record("POST", *topic_path(topic), "skipLost", body=body)

    def terminate(self, topic: str) -> Record:
        """Let nothing more be published, for good. Returns the id of the last message."""
        return self._transport.record("POST", *topic_path(topic), "terminate")

    def terminate_partitions(self, topic: str) -> Record:
        """The same for every partition of a partitioned topic. Returns the ids of their last messages by partition."""
        return self._transport.record("POST", *topic_path(topic), "terminate", "partitions")

    def truncate(self, topic: str) -> None:
        """Acknowledge everything for every subscription, and delete all messages."""
        self._transport.request("DELETE", [*topic_path(topic), "truncate"])

    def compact(self, topic: str) -> None:
        """Begin to compact a topic, of a partitioned one each partition: for each key the newest message is kept beside the log. Raises
        ``AlreadyExists`` when that is under way."""
        self._transport.request("PUT", [*topic_path(topic), "compaction"])

    def compaction_status(self, topic: str) -> Record:
        """``status`` (NOT_RUN, RUNNING, SUCCESS or ERROR) and ``lastError`` of a topic's last compaction since it was loaded."""
        return self._transport.record("GET", *topic_path(topic), "compaction")

    def drop_compacted(self, topic: str) -> None:
        """Give a topic's compacted view up: what the log holds no more is gone, and nothing is held back for compaction."""
        self._transport.request("DELETE", [*topic_path(topic), "subscription", "__compaction"])

    def trim(self, topic: str) -> None:
        """Delete the ledgers that nobody needs and no retention keeps now, instead of in their own time."""
        self._transport.request("POST", [*topic_path(topic), "trim"])
