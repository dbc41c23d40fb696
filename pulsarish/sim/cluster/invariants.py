"""Invariants inside a cluster at every moment, with the names of the published BookKeeper
specification.

``Invariants`` gets each commit of the simulated metadata service and checks what it changed.
``look`` adds what only the memory of the nodes shows. ``disk_audit.py`` reads at the end of the run
what bookies really store.

* ``NoDivergence``: a ledger is closed once, and no writer has confirmed anything beyond its end.
* ``AllNonEmptyLedgersInLedgerList``: a topic's closed ledger with entries is or was in its list.
* ``EntryOrderMaintained``: ids grow along a topic's list, and a ledger joins the list at the end
  only.
* ``OnlyOneLedgerOpenAtATime``: all ledgers of a topic's list but the last are closed.

Whenever a client gets a message, the owners are checked, and ``above-LAC``: a reader got an entry
that no writer has confirmed.

The other checks:

* ``segment-changed``: an earlier segment says something else of confirmed entries. Only repair may
  change it, one member at a time.
* ``deleted-in-use``: a ledger is deleted that a topic or a cursor uses.
* ``two-owners``: more than one broker holds a topic's record.
* ``two-active``: an exclusive or failover subscription has more than one active consumer.
* ``overdue``: a broker serves although its metadata session is lost by its own clock and another
  broker reaches the metadata service, or has another owner for longer than a session lasts.
* ``check``: a core says that it is not sound.
* ``limit``: a queue or cache is beyond its configured size.
* ``no-progress``: a subscription has a backlog, permits and no reason to wait, and neither reads
  nor delivers. The check judges as the watchdog of production, but long before the watchdog repairs
  it.
* ``forgotten``: a shared or key-shared subscription has read an entry that is not acknowledged, and
  no consumer has it and nothing will deliver it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

from pulsarish.broker.clients.stall import Stall
from pulsarish.broker.progress.collect import progress_mark, snapshot_of
from pulsarish.broker.progress.explain import must_move
from pulsarish.metadata import paths
from pulsarish.metadata.records import CursorRecord, TopicRecord
from pulsarish.metadata.tree.tree import Tree
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState, PurposeKind, Segment
from pulsarish.model.position import Position
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import SessionState
from pulsarish.sim.cluster.core_checks import check_cores
from pulsarish.sim.world.metadata_service import SESSION_TIMEOUT_SECONDS
from pulsarish.sim.world.metadata_store import SimMetadata
from pulsarish.wire.json_record import decode_record

if TYPE_CHECKING:
    from pulsarish.broker.topics.topic import Topic
    from pulsarish.sim.cluster.cluster import SimCluster

__all__ = ["Invariants"]

_LOOKS: Final = 3
_DELAYED_LOOKS: Final = 12

Report = Callable[[str, str], None]

_PING_SECONDS: Final = 3.0
"""Within which a broker asks each other one, and has its answer or none."""
_BOUND_SECONDS: Final = SESSION_TIMEOUT_SECONDS + _PING_SECONDS
"""How long two brokers may deliver messages of a topic."""


class Invariants:
    """Watches one cluster from its boot on.

    ``report(name, what)`` is called with each violation.
    """

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self.checks_count = 0
        self.ledgers: dict[int, LedgerMetadata] = {}
        """The last record of each ledger that ever existed, also of deleted ones."""
        self._cluster = cluster
        self._service = cluster.sim.metadata
        self._report = report
        self._lists: dict[str, TopicRecord] = {}
        self._listed: dict[int, str] = {}
        """Each ledger that ever was in a topic's list, and the topic's path."""
        self._stalls: dict[str, Stall] = {}
        # by topic and broker: since when another broker has loaded the topic, too
        self._served_twice: dict[tuple[str, str], float] = {}
        self._gone: set[int] = set()
        """Ledgers that left a list again: they were trimmed or their topic was deleted."""
        cluster.sim.metadata.committed = self._committed

    @property
    def _tree(self) -> Tree:
        return self._service.truth

    # -- at every commit

    def _committed(self, touched: Iterable[str]) -> None:
        for path in touched:
            node = self._tree.get(path)
            if node is None:
                self._gone.update(_ids(self._lists.pop(path, None)))
                ledger_id = paths.ledger_id_of(path)
                if ledger_id in self.ledgers:
                    self._ledger_gone(self.ledgers[ledger_id])
                continue
            if not node.data:
                continue
            if path.startswith(paths.LEDGERS + "/") and path.rpartition("/")[2].startswith("L"):
                self._ledger_written(decode_record(node.data, LedgerMetadata, path))
            elif path.startswith(paths.TOPICS + "/") and path.count("/") == 4:
                self._list_written(path, decode_record(node.data, TopicRecord, path))

    def _ledger_gone(self, was: LedgerMetadata) -> None:
        """Check that the topic or cursor for which a ledger was made does not use it."""
        if was.purpose.kind is PurposeKind.DIAGNOSTIC:
            return
        full, _, subscription = was.purpose.owner.partition("#")
        name = TopicName.parse(full)
        path = paths.topic(name)
        topic = self._tree.get(path)
        if topic is None:
            return
        record = decode_record(topic.data, TopicRecord, path)
        if record.deleted:
            return  # its ledgers go one after another, and its nodes last
        used = [*_ids(record), -1 if record.compacted is None else record.compacted.ledger_id]
        if was.purpose.kind is PurposeKind.CURSOR:
            path = paths.cursor(name, subscription)
            cursor = self._tree.get(path)
            used = (
                []
                if cursor is None
                else [*decode_record(cursor.data, CursorRecord, path).ledgers_in_use]
            )
        if was.ledger_id in used:
            self._report("deleted-in-use", f"ledger {was.ledger_id} is gone, and {path} uses it")

    def _ledger_written(self, now: LedgerMetadata) -> None:
        now.check()
        was = self.ledgers.get(now.ledger_id)
        self.ledgers[now.ledger_id] = now
        if now.state is LedgerState.CLOSED:
            self._no_divergence(now, was)
        if was is None:
            return
        if was.state is LedgerState.IN_RECOVERY and now.state is LedgerState.OPEN:
            self._report(
                "NoDivergence", f"ledger {now.ledger_id} is open again after its recovery began"
            )
        kept = (
            was.segments[:-1]
            if now.state is LedgerState.OPEN
            else [s for s in was.segments if s.first_entry <= max(now.last_entry, 0)]
        )
        changed = (
            0
            if now.state is LedgerState.CLOSED
            else _members_changed(kept, now.segments[: len(kept)])
        )
        if changed > self._cluster.settings.repair:
            self._report(
                "segment-changed", f"ledger {now.ledger_id} had {was.segments}, then {now.segments}"
            )

    def _no_divergence(self, now: LedgerMetadata, was: LedgerMetadata | None) -> None:
        ledger_id, end = now.ledger_id, (now.last_entry, now.length_bytes)
        if (
            was is not None
            and was.state is LedgerState.CLOSED
            and (was.last_entry, was.length_bytes) != end
        ):
            self._report(
                "NoDivergence",
                f"ledger {ledger_id} was closed at {was.last_entry} and again at {now.last_entry}",
            )
        for name, client in self._cluster.ledger_clients():
            writer = client._writers.get(ledger_id)
            if writer is not None and writer.last_add_confirmed > now.last_entry:
                what = (
                    f"ledger {ledger_id} is closed at {now.last_entry}, its writer on {name} "
                    f"confirmed {writer.last_add_confirmed}"
                )
                self._report("NoDivergence", what)

    def _list_written(self, path: str, now: TopicRecord) -> None:
        was = self._lists.get(path)
        self._lists[path] = now
        ids = [entry.ledger_id for entry in now.ledgers]
        self._gone.update(ledger_id for ledger_id in _ids(was) if ledger_id not in ids)
        if back := [ledger_id for ledger_id in ids if ledger_id in self._gone]:
            self._report(
                "EntryOrderMaintained", f"{path} lists {back} again, which had left a list"
            )
        for one, next_one in pairwise(ids):
            if one >= next_one:
                self._report("EntryOrderMaintained", f"{path} lists {one} before {next_one}")
        fresh = [
            ledger_id
            for ledger_id in ids
            if self._listed.setdefault(ledger_id, path) is path and ledger_id not in _ids(was)
        ]
        if fresh and ids[-len(fresh) :] != fresh:
            self._report("EntryOrderMaintained", f"{path} took {fresh} into the middle of {ids}")
        for entry in now.ledgers[:-1]:
            record = self.ledgers.get(entry.ledger_id)
            if record is not None and record.state is not LedgerState.CLOSED:
                self._report(
                    "OnlyOneLedgerOpenAtATime",
                    f"{path} lists ledger {entry.ledger_id}, {record.state}, before its last",
                )
        for entry in now.ledgers:
            record = self.ledgers.get(entry.ledger_id)
            if entry.closed_ms and record is not None and entry.entries != record.last_entry + 1:
                what = (
                    f"{path} has ledger {entry.ledger_id} with {entry.entries} entries, it is "
                    f"closed at {record.last_entry}"
                )
                self._report("NoDivergence", what)

    # -- whenever a client gets a message

    def seen(self, ledger_id: int, entry_id: int, who: str) -> None:
        """Check that an entry that a client got is confirmed: by its ledger's end, or by its writer
        as long as the writer lives.
        """
        self._one_owner()
        record = self.ledgers.get(ledger_id)
        if record is None:
            self._report(
                "above-LAC", f"{who} has entry {entry_id} of ledger {ledger_id}, which never was"
            )
            return
        confirmed = record.last_entry
        if record.state is not LedgerState.CLOSED:
            writers = [
                client._writers[ledger_id]
                for _, client in self._cluster.ledger_clients()
                if ledger_id in client._writers
            ]
            if not writers:
                return  # the writer is gone, and so is the position that it had confirmed
            confirmed = max(writer.last_add_confirmed for writer in writers)
        if entry_id > confirmed:
            self._report(
                "above-LAC",
                f"{who} has entry {entry_id} of ledger {ledger_id}, which is {record.state} at "
                f"{confirmed}",
            )

    def _held_at(self, topic: Topic) -> int | None:
        """Return the version of a topic's record if this broker could commit now, as far as the
        broker and the metadata know.
        """
        cell = topic.log._topic
        if topic.log.fenced or not cell.settled:
            return None
        for guard in cell.guards():
            node = self._tree.get(guard.path)
            if node is None or guard.version not in (-1, node.version):
                return None
        return cell.version

    # -- whenever a client gets the receipt of an acknowledgement

    def acknowledged(
        self, topic_name: str, subscription: str, position: Position, in_batch: int
    ) -> None:
        """Check that the broker that holds the topic knows of the acknowledgement: no former owner
        has accepted it.
        """
        for name, topic in self._cluster.loaded_topics():
            if (
                topic.name.full != topic_name
                or self._held_at(topic) is None
                or subscription not in topic.subscriptions
            ):
                continue
            cursor = topic.subscriptions[subscription].cursor
            left = cursor.ack_set(position)
            if not cursor.is_acknowledged(position) and (left is None or left >> in_batch & 1):
                what = (
                    f"{position}[{in_batch}] of {topic_name} has a receipt, and {name} knows "
                    f"of no acknowledgement for {subscription}"
                )
                self._report("ack-lost", what)

    def look_at_progress(self) -> None:
        """Check every loaded subscription for progress. Called each second."""
        stalls: dict[str, Stall] = {}
        for name, topic in self._cluster.loaded_topics():
            node = self._cluster.sim.nodes[name]
            if node.paused or topic.closed is not None or node.world is None:
                continue
            now_ms = node.world.clock.wall_ms()
            for subscription in topic.subscriptions.values():
                # A subscription that was loaded again is another one.
                key = f"{node.process} {topic.name} {subscription.name} {topic.loaded_ms}"
                stall = stalls[key] = self._stalls.get(key) or Stall()
                mark, snapshot = progress_mark(subscription), snapshot_of(subscription, now_ms)
                looks = stall.look(
                    mark, now_ms, must_move=bool(subscription.consumers) and must_move(snapshot)
                )
                if subscription.consumers and (
                    left := subscription.dispatcher.forgotten(subscription.cursor.holes)
                ):
                    self._report(
                        "forgotten",
                        f"{subscription.name} of {topic.name} on {name}: no consumer has "
                        f"{', '.join(map(str, left))}, and nothing delivers them",
                    )
                # Where a calendar was moved, the broker looks at delayed messages again after ten
                # seconds.
                if looks == (_DELAYED_LOOKS if snapshot.delayed else _LOOKS):
                    self._report(
                        "no-progress",
                        f"{subscription.name} of {topic.name} on {name} does not move: "
                        f"{snapshot.shown()}",
                    )
        self._stalls = stalls
        for name, broker in self._cluster.brokers_up():
            if broker.stalls_count:
                self._report(
                    "no-progress",
                    f"the watchdog of {name} has restarted {broker.stalls_count} dispatchers",
                )

    # -- now and then

    def look(self) -> None:
        """Check the memory of all nodes."""
        self._tree.check()
        for ledger_id, record in self.ledgers.items():
            if record.state is LedgerState.CLOSED:
                self._no_divergence(record, None)
            assert ledger_id == record.ledger_id
        try:
            self.checks_count += check_cores(self._cluster.roots())
        except AssertionError as error:
            self._report("check", f"{error!r} {'; '.join(getattr(error, '__notes__', []))}")
        self._one_owner()
        for what in self._cluster.beyond_limits():
            self._report("limit", what)

    def _one_owner(self) -> None:
        """Check that the broker with the newest version of a topic's record is its owner.

        Only what that broker confirms counts.
        """
        owners: dict[str, str] = {}
        active: dict[tuple[str, str], str] = {}
        for name, topic in self._cluster.loaded_topics():
            if self._cluster.is_lost(name) and not topic.log.fenced:
                if other := self._reaching(name):
                    self._report(
                        "overdue",
                        f"{topic.name} is served by {name}, whose metadata session is lost, "
                        f"although {other} reaches the metadata service",
                    )
                self._one_server(name, topic)
            version = self._held_at(topic)
            if version is None:
                continue
            other = owners.setdefault(topic.name.full, name)
            if other != name:
                self._report(
                    "two-owners", f"{topic.name} is held by {other} and {name} at version {version}"
                )
            for subscription in topic.subscriptions.values():
                consumers = len(subscription.consumers)
                if subscription.type is SubscriptionType.EXCLUSIVE and consumers > 1:
                    self._report(
                        "two-active",
                        f"{subscription.name} of {topic.name} is exclusive and has {consumers} "
                        f"consumers on {name}",
                    )
                if getattr(subscription.dispatcher, "active", None) is None:
                    continue
                other = active.setdefault((topic.name.full, subscription.name), name)
                if other != name:
                    self._report(
                        "two-active",
                        f"{subscription.name} of {topic.name} has an active consumer on {other} "
                        f"and on {name}",
                    )

    def _reaching(self, name: str) -> str:
        """Return a broker that a broker without a session knows, and that has reached the metadata
        service for so long that it cannot have said otherwise; empty: there is none.
        """
        brokers = dict(self._cluster.brokers_up())
        nodes, now = self._cluster.sim.nodes, self._cluster.sim.loop.time()
        store, known = self._store(name), brokers[name]._ownership.registry.alive
        for other, broker in brokers.items():
            theirs = self._store(other)
            if (
                other != name
                and not nodes[name].paused
                and not nodes[other].paused
                and broker._ownership.registry.instance_id in known
                and theirs.state is SessionState.CONNECTED
                and not theirs.is_silent
                and (
                    theirs.reached_since < store.changed_at - _PING_SECONDS
                    or theirs.reached_since < now - _BOUND_SECONDS
                )
            ):
                return other
        return ""

    def _store(self, name: str) -> SimMetadata:
        world = self._cluster.sim.nodes[name].world
        assert world is not None
        assert isinstance(world.metadata, SimMetadata)
        return world.metadata

    def _one_server(self, name: str, topic: Topic) -> None:
        """Check that a broker without a session ends soon when another one has the topic."""
        full, now = topic.name.full, self._cluster.sim.loop.time()
        others = [
            other
            for other, theirs in self._cluster.loaded_topics()
            if other != name and theirs.name.full == full and not theirs.log.fenced
        ]
        if not others:
            self._served_twice.pop((full, name), None)
        elif now - self._served_twice.setdefault((full, name), now) > _BOUND_SECONDS:
            self._report(
                "overdue",
                f"{full} is served by {name}, whose metadata session is lost, and by {others[0]}",
            )

    # -- at the end of the run

    def look_at_lists(self) -> None:
        """Check ``AllNonEmptyLedgersInLedgerList`` for the topics that exist."""
        for ledger_id, record in self.ledgers.items():
            if record.purpose.kind is not PurposeKind.TOPIC or ledger_id in self._listed:
                continue
            if self._tree.get(paths.topic(TopicName.parse(record.purpose.owner))) is None:
                continue
            if record.state is LedgerState.CLOSED and record.last_entry >= 0:
                what = (
                    f"ledger {ledger_id} of {record.purpose.owner} is closed at "
                    f"{record.last_entry} and was never in its list"
                )
                self._report("AllNonEmptyLedgersInLedgerList", what)

    def look_at_nodes(self, subscriptions: Sequence[str], *, besides: Sequence[str] = ()) -> None:
        """Report ``leaked-node``: cursors of readers that left, ephemeral nodes of dead processes.

        Args:
            subscriptions: the names that cursors may have.
            besides: prefixes of the local names of topics whose cursors may have any name.
        """
        tree = self._tree
        for path, node in tree.nodes.items():
            parts = path.split("/")
            is_cursor = (
                path.startswith(paths.TOPICS + "/")
                and parts[5:6] == ["cursors"]
                and len(parts) == 7
            )
            if (
                is_cursor
                and parts[6] not in subscriptions
                and not parts[4].startswith(tuple(besides))
            ):
                self._report("leaked-node", f"{path} belongs to no subscription")
            elif node.session_id and node.session_id not in self._cluster.sessions():
                self._report(
                    "leaked-node", f"{path} is of session {node.session_id}, which no process has"
                )

    def left_of(self, topic: TopicName) -> list[str]:
        """Return what is left of a deleted topic: its nodes, and ledgers that were in its list."""
        path = paths.topic(topic)
        nodes = [node for node in self._tree.nodes if node == path or node.startswith(path + "/")]
        ledgers = [ledger_id for ledger_id, owner in self._listed.items() if owner == path]
        return [
            *nodes,
            *(
                f"ledger {ledger_id}"
                for ledger_id in ledgers
                if self._tree.get(paths.ledger(ledger_id)) is not None
            ),
        ]

    def forgotten(self, topic: TopicName) -> list[int]:
        """Return ledgers that were in the list of a topic of this name, exist, and belong to
        nothing that is still to be deleted.
        """
        path = paths.topic(topic)
        orphans = {record.ledger_id for record in self.orphans()}
        return [
            ledger_id
            for ledger_id, owner in self._listed.items()
            if owner == path and ledger_id in orphans
        ]

    def listed(self, topic: TopicName) -> list[int]:
        """Return every ledger that was in the list of a topic of this name at any time."""
        path = paths.topic(topic)
        return [ledger_id for ledger_id, owner in self._listed.items() if owner == path]

    def missing_copies(self, gone: Sequence[str]) -> list[str]:
        """Return the nodes of ledgers that are known to be under-replicated and can be repaired.

        These are closed ledgers that a living member can be read from. The end of an open ledger is
        repaired once it is closed. ``gone`` are ids of bookies that will never come back.
        """
        found = []
        for path in self._tree.nodes:
            if not path.startswith(paths.UNDERREPLICATED + "/"):
                continue
            (ledger_id,) = paths.underreplicated_ids([path.rpartition("/")[2]])
            record = self.ledgers[ledger_id]
            most = max(
                sum(member.partition("~")[0] in gone for member in segment.members)
                for segment in record.segments
            )
            if record.state is LedgerState.CLOSED and most < record.write_quorum:
                found.append(path)
        return found

    def known(self) -> list[LedgerMetadata]:
        """Return the ledgers that exist, each with the last entry that is known to be confirmed."""
        found = []
        writers = [client._writers for _, client in self._cluster.ledger_clients()]
        for record in self.ledgers.values():
            if self._tree.get(paths.ledger(record.ledger_id)) is None:
                continue
            confirmed = [
                mine[record.ledger_id].last_add_confirmed
                for mine in writers
                if record.ledger_id in mine
            ]
            if record.state is LedgerState.CLOSED:
                found.append(record)
            elif confirmed:
                found.append(msgspec.structs.replace(record, last_entry=max(confirmed)))
        return found

    def is_there(self, ledger_id: int) -> bool:
        """Return whether the metadata know a ledger now."""
        return self._tree.get(paths.ledger(ledger_id)) is not None

    def orphans(self) -> list[LedgerMetadata]:
        """Return ledgers that nothing refers to: neither a topic's list, nor a cursor, nor the
        deletion of either.
        """
        used: set[int] = set()  # only for membership tests
        for path, node in self._tree.nodes.items():
            if not path.startswith(paths.TOPICS + "/") or not node.data:
                continue
            if path.count("/") == 4:
                topic = decode_record(node.data, TopicRecord, path)
                used.update(_ids(topic), topic.deleting)
                if topic.compacted is not None:
                    used.add(topic.compacted.ledger_id)
            elif path.split("/")[5:6] == ["cursors"] and path.count("/") == 6:
                cursor = decode_record(node.data, CursorRecord, path)
                used.update((*cursor.ledgers_in_use, *cursor.deleting))
        there = [
            record
            for ledger_id, record in self.ledgers.items()
            if self._tree.get(paths.ledger(ledger_id)) is not None
        ]
        return [record for record in there if record.ledger_id not in used]


def _ids(record: TopicRecord | None) -> list[int]:
    return [] if record is None else [entry.ledger_id for entry in record.ledgers]


def _members_changed(was: Sequence[Segment], now: Sequence[Segment]) -> int:
    """Return how many places have another member now.

    The number is very large when the segments themselves changed.
    """
    if [(each.first_entry, len(each.members)) for each in was] != [
        (each.first_entry, len(each.members)) for each in now
    ]:
        return 1_000
    return sum(
        old != new
        for before, after in zip(was, now, strict=True)
        for old, new in zip(before.members, after.members, strict=True)
    )
