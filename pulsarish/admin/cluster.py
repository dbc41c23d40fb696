"""What a cluster consists of: brokers, bookies and ledgers. Any broker answers from metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pulsarish.admin.transport import Ids, Names, Record, Records, Transport

__all__ = ["AutoRecovery", "Bookies", "Brokers", "Clusters", "Ledgers"]

_LEDGERS_MAX: Final = 200
"""Ledgers that one request may name."""


class Clusters:
    """``Admin.clusters``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Names:
        """Return the cluster that the brokers belong to."""
        return self._transport.pages("clusters")


class Brokers:
    """``Admin.brokers``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Records:
        """Return the registrations of the brokers that are alive."""
        return self._transport.records("brokers", "registrations")

    def leader(self) -> Record:
        """Return ``brokerId`` and ``serviceUrl`` of the leader, the broker that removes leftovers
        of topics.

        Raises ``NotFound`` while a leader is elected.
        """
        return self._transport.record("GET", "brokers", "leaderBroker")

    def owned_namespaces(self, cluster: str, broker: str) -> Record:
        """Return the bundles that a broker owns, by name.

        ``broker``: its id or its HTTP address. Raises ``NotFound``.
        """
        return self._transport.record("GET", "brokers", cluster, broker, "ownedNamespaces")

    def health(self) -> str:
        """Return ``ok`` of the broker that answers.

        Raises ``ServiceNotReady`` with the reason why it cannot serve.
        """
        return self._transport.text("brokers", "health")

    def warnings(self) -> Names:
        """Return the problems of the broker that answers which do not stop it, such as a metadata
        service that no broker reaches.

        Raises as ``health``.
        """
        found = self._transport.request("GET", ["health"], root="")
        return [str(each) for each in found.get("warnings", [])]

    def version(self) -> str:
        """Return the version of the broker that answers."""
        return self._transport.text("brokers", "version")

    def configuration(self) -> dict[str, str]:
        """Return all options in force at the broker that answers, by name."""
        return {
            name: str(value)
            for name, value in self._transport.record(
                "GET", "brokers", "configuration", "runtime"
            ).items()
        }

    def dynamic_option_names(self) -> Names:
        """Return the options that can change while brokers run."""
        return self._transport.pages("brokers", "configuration")

    def dynamic_options(self) -> dict[str, str]:
        """Return the options that were set while brokers ran, by name."""
        found = self._transport.record("GET", "brokers", "configuration", "values")
        return {name: str(value) for name, value in found.items()}

    def set_dynamic_option(self, name: str, value: str) -> None:
        """Set an option of all brokers while they run.

        It stays set for brokers that start later, whatever their files say, until
        ``delete_dynamic_option``.

        Raises ``InvalidArgument`` for an option that does not exist or cannot change while a broker
        runs, and for a value that is refused.
        """
        self._transport.request("POST", ["brokers", "configuration", name, value])

    def delete_dynamic_option(self, name: str) -> None:
        """Have all brokers use what they were started with for an option.

        Raises ``InvalidArgument`` for an option that cannot change while a broker runs.
        """
        self._transport.request("DELETE", ["brokers", "configuration", name])

    def drain(self, broker: str, *, destination: str = "") -> Record:
        """Have a broker hand all of its bundles over to others and take no more, until
        ``undrain`` or until its process ends.

        Args:
            broker: its id or its HTTP address.
            destination: the broker that gets all of them. Empty: each goes to the broker with the
                fewest bundles that may have it.

        Returns at once what ``drain_state`` returns. Raises ``NotFound``, ``InvalidArgument`` for a
        destination that is the broker itself, and ``NotAllowedError`` when no other broker takes
        bundles, or the destination takes none or may not have one of them.
        """
        query = {"destinationBroker": destination} if destination else {}
        return self._transport.record("PUT", "brokers", broker, "drain", query=query)

    def undrain(self, broker: str) -> Record:
        """End the drain of a broker. Bundles that moved stay where they are.

        Raises ``NotFound``.
        """
        return self._transport.record("DELETE", "brokers", broker, "drain")

    def drain_state(self, broker: str) -> Record:
        """Return ``draining``, ``bundlesLeft``, the bundles that the broker serves, and
        ``destinationBroker``, the one that gets them all, or an empty text.

        Raises ``NotFound``.
        """
        return self._transport.record("GET", "brokers", broker, "drain")

    def load_report(self, broker: str = "") -> Record:
        """Return the load of a broker: its bundles and topics, producers, consumers and rates a
        second, of all and of each bundle; CPU time and memory.

        ``broker``: its id; empty: the one that answers. Raises ``NotFound``.
        """
        query = {"brokerId": broker} if broker else None
        return self._transport.record("GET", "broker-stats", "load-report", query=query)


class Bookies:
    """``Admin.bookies``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Records:
        """Return the registrations of the bookies that are alive."""
        return self._transport.records("bookies")

    def racks(self) -> Record:
        """Return by group, and by bookie, the ``rack`` and the ``hostname``."""
        return self._transport.record("GET", "bookies", "racks-info")

    def rack(self, bookie: str) -> Record:
        """Return the ``rack`` and the ``hostname`` of a bookie. Raises ``NotFound``."""
        return self._transport.record("GET", "bookies", "racks-info", bookie)

    def set_rack(self, bookie: str, *, rack: str = "", group: str = "default") -> None:
        """Set the rack of a bookie, instead of its option, and its group.

        Args:
            bookie: its id. It need not run.
            rack: empty: the rack that the bookie says itself.
            group: of bookies for namespaces that have bookies of their own.
        """
        self._transport.request(
            "POST",
            ["bookies", "racks-info", bookie],
            query={"group": group},
            body={"rack": rack},
        )

    def delete_rack(self, bookie: str) -> None:
        """Take ``set_rack`` back. Raises ``NotFound``."""
        self._transport.request("DELETE", ["bookies", "racks-info", bookie])

    def under_replicated(self, *, after: int = -1, limit: int = 1000) -> Records:
        """Return under-replicated ledgers above ``after``, at most ``limit``.

        Each row has the bookies whose replicas are missing, since when, and why they are not
        repaired yet.
        """
        found: Records = self._transport.request(
            "GET", ["bookies", "underreplicated"], query={"after": str(after), "limit": str(limit)}
        )
        return found

    def trash(self, *, after: int = -1, limit: int = 1000) -> Records:
        """List deleted ledgers above ``after`` whose space is not freed yet, at most ``limit``.

        Returns one row for each ledger and bookie, and one with ``error`` for a bookie that does
        not answer.
        """
        found: Records = self._transport.request(
            "GET", ["bookies", "trash"], query={"after": str(after), "limit": str(limit)}
        )
        return found

    def restore_trash(self, ledgers: Sequence[int]) -> Record:
        """Take these ledgers out of the trash of all bookies.

        Returns the ``ledgers`` that were there, and ``errors``, by bookie.
        """
        return self._transport.record(
            "POST", "bookies", "trash", "restore", body={"ledgers": list(ledgers)}
        )

    def empty_trash(self, ledgers: Sequence[int] = ()) -> Record:
        """Permanently delete these ledgers, or all, in the trash of all bookies.

        Returns what ``restore_trash`` returns.
        """
        return self._transport.record(
            "POST", "bookies", "trash", "empty", body={"ledgers": list(ledgers)}
        )

    def collect_garbage(self, bookie: str) -> Record:
        """Have a bookie begin a round of garbage collection at once, with major compaction.

        Deleted ledgers wait as long as otherwise; ``empty_trash`` ends the wait of those in the
        trash. Returns what ``garbage_state`` returns, at once; the round is over when ``ended`` is
        at least the ``wanted`` of this answer. Raises ``NotFound``, ``ServiceNotReady``.
        """
        return self._transport.record("PUT", "bookies", "garbage", bookie)

    def garbage_state(self, bookie: str) -> Record:
        """Return what the last round of a bookie's garbage collection did (``ledgersDeleted``,
        ``strayBytes``, ``logsDeleted``, ``freedBytes``, of which ``copiedBytes`` were copied to
        other logs, ``failure``), and what waits (``missingLedgers``, ``trashLedgers``,
        ``strayLedgers``, ``postponedLogs``).

        Raises ``NotFound``, ``ServiceNotReady``.
        """
        return self._transport.record("GET", "bookies", "garbage", bookie)

    def set_read_only(self, bookie: str, *, reason: str = "", force: bool = False) -> Record:
        """Have a bookie refuse what writers add, until ``set_writable``. They replace it in their
        ensembles; it serves reads.

        Args:
            bookie: its id, or the id of one of its instances. It need not run.
            reason: shown with the bookie, at most 500 characters.
            force: also when fewer writable bookies are left than hold each entry.

        Returns what ``read_only_state`` returns. Raises ``NotFound``, and ``NotAllowedError``
        without ``force`` when too few would be left.
        """
        query = {"reason": reason} if reason else {}
        if force:
            query["force"] = "true"
        return self._transport.record("PUT", "bookies", "read-only", bookie, query=query)

    def set_writable(self, bookie: str) -> Record:
        """Take ``set_read_only`` back. Raises ``NotFound``."""
        return self._transport.record("DELETE", "bookies", "read-only", bookie)

    def read_only_state(self, bookie: str) -> Record:
        """Return whether an operator ``asked`` for a bookie to be read-only, whether it is
        ``alive``, and whether and for what ``reason`` it is ``readOnly``.

        Raises ``NotFound``.
        """
        return self._transport.record("GET", "bookies", "read-only", bookie)

    def cordon(
        self, bookie: str, directory: str, *, reason: str = "", force: bool = False
    ) -> Record:
        """Have one of several volumes of a bookie take no new ledgers, until ``uncordon``. Those
        that lie there go on.

        Args:
            bookie: its id, or the id of one of its instances. It need not run.
            directory: the ledger directory of the volume.
            reason: shown with the bookie, at most 500 characters.
            force: also when no volume is left, so that the bookie is read-only, and fewer writable
                bookies are left than hold each entry.

        Returns what ``cordoned`` returns. Raises ``NotFound``, and ``NotAllowedError`` for a bookie
        with one volume, and without ``force`` when too few bookies would be left.
        """
        query = {"directory": directory}
        if reason:
            query["reason"] = reason
        if force:
            query["force"] = "true"
        return self._transport.record("PUT", "bookies", "cordoned", bookie, query=query)

    def uncordon(self, bookie: str, directory: str) -> Record:
        """Take ``cordon`` back. Raises ``NotFound``."""
        query = {"directory": directory}
        return self._transport.record("DELETE", "bookies", "cordoned", bookie, query=query)

    def cordoned(self, bookie: str) -> Record:
        """Return which volumes of a bookie are ``asked`` to be cordoned (reasons by ledger
        directory), whether it is ``alive``, and which are ``cordoned``.

        Raises ``NotFound``.
        """
        return self._transport.record("GET", "bookies", "cordoned", bookie)

    def drain_volume(
        self, bookie: str, directory: str, *, reason: str = "", force: bool = False
    ) -> Record:
        """Cordon a volume, and have auto-recovery make the copies that lie there on other bookies,
        until ``uncordon``.

        Returns what ``volume_drain`` returns, at once. Takes and raises what ``cordon`` does.
        """
        query = {"directory": directory}
        if reason:
            query["reason"] = reason
        if force:
            query["force"] = "true"
        return self._transport.record("PUT", "bookies", "drained-volumes", bookie, query=query)

    def volume_drain(self, bookie: str, directory: str) -> Record:
        """Return how far the drain of a volume is: whether it is ``asked`` for, whether the bookie
        is ``alive`` and is ``draining``, and whether the volume is ``drained``: no ledger that
        lives needs it. ``closedLedgers`` and ``openLedgers`` are left; ``waiting`` has some, each
        with the ``reason``, and ``failure`` says why nothing newer is known.

        Raises ``NotFound``.
        """
        query = {"directory": directory}
        return self._transport.record("GET", "bookies", "drained-volumes", bookie, query=query)

    def remove_volume(self, bookie: str, directory: str) -> Record:
        """Have a bookie that runs go on without a drained volume. It proves first that nothing
        needs the volume.

        Returns what ``volume_removal`` returns, at once. Raises ``NotFound``, ``ServiceNotReady``.
        """
        query = {"directory": directory}
        return self._transport.record("PUT", "bookies", "removed-volumes", bookie, query=query)

    def volume_removal(self, bookie: str, directory: str) -> Record:
        """Return whether a volume is ``removing`` or ``removed``, and the ``refusal`` of the last
        attempt.

        Raises ``NotFound``, ``ServiceNotReady``.
        """
        query = {"directory": directory}
        return self._transport.record("GET", "bookies", "removed-volumes", bookie, query=query)

    def add_volume(
        self, bookie: str, *, journal_directory: str, ledger_directory: str, index_directory: str
    ) -> Record:
        """Have a bookie that runs take one more volume: three empty directories, which it makes
        where they are missing. It checks them first.

        Returns what ``volume_addition`` returns, at once. Raises ``NotFound``, ``ServiceNotReady``.
        """
        query = {
            "directory": ledger_directory,
            "journalDirectory": journal_directory,
            "indexDirectory": index_directory,
        }
        return self._transport.record("PUT", "bookies", "added-volumes", bookie, query=query)

    def volume_addition(self, bookie: str, directory: str) -> Record:
        """Return whether the volume with a ledger ``directory`` is ``adding`` or ``added``, and the
        ``refusal`` of the last attempt.

        Raises ``NotFound``, ``ServiceNotReady``.
        """
        query = {"directory": directory}
        return self._transport.record("GET", "bookies", "added-volumes", bookie, query=query)

    def ledgers(self, bookie: str, *, after: int = -1, only: Sequence[int] = ()) -> Record:
        """Return a page of the ledgers that name a bookie: those above ``after``, or those of
        ``only``, at most 200, without a look at all others.

        ``ledgers`` has for each its state, the ``entries`` that the bookie should hold of it,
        whether it ``isLeaving``, and the ``reason`` why it has not left. ``next`` is ``after`` of
        the next page; ``None``: this is the last. Raises ``NotFound``.
        """
        query = {"ledgers": ",".join(map(str, only))} if only else {"after": str(after)}
        return self._transport.record("GET", "bookies", "ledgers", bookie, query=query)

    def all_ledgers(self, bookie: str, only: Sequence[int] = ()) -> Records:
        """Return all ledgers that name a bookie, or those of ``only`` that do, as ``ledgers`` does.

        Raises ``NotFound``.
        """
        found: Records = []
        for start in range(0, len(only), _LEDGERS_MAX):
            found += self.ledgers(bookie, only=only[start : start + _LEDGERS_MAX])["ledgers"]
        after: int | None = None if only else -1
        while after is not None:
            page = self.ledgers(bookie, after=after)
            found += page["ledgers"]
            after = page["next"]
        return found

    def recover(self, bookie: str, ledgers: Sequence[int]) -> Record:
        """Have auto-recovery make the copies that a bookie holds of ledgers on other bookies, and
        then name those instead.

        The bookie may run. ``ledgers``: at most 200. Returns the ``ledgers`` that name the bookie.
        Raises ``NotFound``, ``InvalidArgument``.
        """
        return self._transport.record(
            "PUT", "bookies", "recover", bookie, body={"ledgers": list(ledgers)}
        )

    def rebalance(
        self,
        *,
        dry_run: bool = False,
        rate_bytes: int = 0,
        max_ledgers: int = 0,
        tolerance_percent: int = 0,
    ) -> Record:
        """Have copies of closed ledgers move from fuller bookies to emptier ones. The process of
        the auditor does it; ``rebalance_state`` says how far it is.

        Args:
            dry_run: only plan it.
            rate_bytes: bytes that are copied in a second. 0: 16 MiB.
            max_ledgers: end once copies of this many ledgers have moved. 0: no limit.
            tolerance_percent: end once bookies differ by at most this, in percent of their average.
                0: 10.

        Returns what ``rebalance_state`` returns. Raises ``NotAllowedError`` while another one runs.
        """
        query = {
            name: str(value)
            for name, value in (
                ("rateBytes", rate_bytes),
                ("maxLedgers", max_ledgers),
                ("tolerancePercent", tolerance_percent),
            )
            if value
        }
        if dry_run:
            query["dryRun"] = "true"
        return self._transport.record("PUT", "bookies", "rebalance", query=query)

    def audit_placement(
        self, *, repair: bool = False, rate_bytes: int = 0, max_ledgers: int = 0
    ) -> Record:
        """Have the auditor look for closed ledgers whose copies share a domain although a
        better choice of bookies is there.

        Args:
            repair: move the copies that it finds. Otherwise they are counted (``ledgersPlanned``).
            rate_bytes, max_ledgers: as of ``rebalance``.

        Returns what ``rebalance_state`` returns. Raises ``NotAllowedError`` while another one runs,
        or a rebalance.
        """
        query = {"rateBytes": str(rate_bytes)} if rate_bytes else {}
        if max_ledgers:
            query["maxLedgers"] = str(max_ledgers)
        if repair:
            query["repair"] = "true"
        return self._transport.record("PUT", "bookies", "placement-audit", query=query)

    def rebalance_state(self) -> Record:
        """Return whether copies are moved now (``running``), how many ledgers and bytes have moved
        and are planned, what each of the ``bookies`` holds, and the ``reason`` of the end: of the
        last ``rebalance`` or ``audit_placement``, which is ``placement``.
        """
        return self._transport.record("GET", "bookies", "rebalance")

    def stop_rebalance(self) -> Record:
        """Stop it. Copies that were moved stay where they are.

        Returns what ``rebalance_state`` returns.
        """
        return self._transport.record("DELETE", "bookies", "rebalance")

    def decommission(self, bookie: str) -> Record:
        """Permanently give up a stopped bookie: its replicas are created again on other bookies at
        once.

        ``bookie``: its id, or the id of one of its instances. Returns what
        ``decommission_progress`` returns. Raises ``NotAllowedError`` while it is alive,
        ``NotFound``.
        """
        return self._transport.record("PUT", "bookies", "decommission", bookie)

    def decommission_progress(self, bookie: str) -> Record:
        """Return ``givenUp``, true while replicas of the bookie are still needed, and the number of
        under-replicated ledgers, for any reason.

        Raises ``NotFound`` when the decommission is complete.
        """
        return self._transport.record("GET", "bookies", "decommission", bookie)


class AutoRecovery:
    """``Admin.autorecovery``. Each method returns the state, as ``status`` does."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def status(self) -> Record:
        """Return whether auto-recovery is ``enabled``, since when it is off and the ``reason``, the
        ``auditor`` (empty: no process with auto-recovery runs), the number of under-replicated
        ledgers, the bookies that are given up, and the delay that was set.

        A look through all ledgers is wanted while ``looksDone`` is below ``looksAsked``.
        """
        return self._transport.record("GET", "bookies", "autorecovery")

    def enable(self) -> Record:
        """Switch auto-recovery on, on all nodes."""
        return self._transport.record("PUT", "bookies", "autorecovery", "enable")

    def disable(self, *, reason: str = "") -> Record:
        """Switch auto-recovery off, on all nodes: no copy is made until ``enable``.

        ``reason``: shown as long as it is off, at most 500 characters.
        """
        query = {"reason": reason} if reason else None
        return self._transport.record("PUT", "bookies", "autorecovery", "disable", query=query)

    def trigger(self, *, ask_bookies: bool = False) -> Record:
        """Have the auditor look through all ledgers now.

        ``ask_bookies``: ask each member of each closed ledger which of its entries it has, too.
        """
        query = {"askBookies": "true"} if ask_bookies else None
        return self._transport.record("PUT", "bookies", "autorecovery", "trigger", query=query)

    def set_lost_bookie_delay(self, seconds: int) -> Record:
        """Set how long a bookie may be away before it is lost, on all nodes.

        Raises ``InvalidArgument`` for less than a second or more than a year.
        """
        return self._transport.record(
            "PUT", "bookies", "autorecovery", "lost-bookie-delay", query={"seconds": str(seconds)}
        )

    def reset_lost_bookie_delay(self) -> Record:
        """Have each node use its option ``lost_bookie_recovery_delay_seconds`` again."""
        return self._transport.record("DELETE", "bookies", "autorecovery", "lost-bookie-delay")


class Ledgers:
    """``Admin.ledgers``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, after: int = -1, limit: int = 1000) -> Ids:
        """Return ledger ids above ``after``, ascending, at most ``limit``."""
        return [
            int(item)
            for item in self._transport.request(
                "GET", ["ledgers"], query={"after": str(after), "limit": str(limit)}
            )
        ]

    def get(self, ledger_id: int) -> Record:
        """Return a ledger's metadata: quorums, members, state, purpose. Raises ``NoSuchLedger``."""
        return self._transport.record("GET", "ledgers", str(ledger_id))

    def orphans(self, *, after: str = "", limit: int = 1000) -> Record:
        """Return what the leader's last search for orphans has found.

        ``searchedMs`` is 0 before the first search, and ``searching`` is true while another one
        runs. ``failure`` says why the search after the last whole one did not come to its end.
        ``orphans`` are ledgers and other nodes that nothing refers to, those whose path comes
        after ``after``, at most ``limit``. Raises ``NotFound`` while a leader is elected.
        """
        return self._transport.record(
            "GET", "ledgers", "orphans", query={"after": after, "limit": str(limit)}
        )

    def search_orphans(self) -> None:
        """Have the leader broker search for orphans at once.

        The search goes on after the return: ``orphans()["searching"]`` is true until it ends. It
        deletes only what each periodic search may, too, after ``orphan_grace_seconds``. Raises
        ``NotFound`` while a leader is elected.
        """
        self._transport.request("POST", ["ledgers", "orphans", "search"])

    def recover(self, ledger_id: int, given_up_bookies: Sequence[str]) -> Record:
        """Close a ledger whose end cannot be decided because bookies are lost, and return its
        record.

        ``given_up_bookies`` (instance ids) count as having no entry of it. Entries at its end that
        only they had are lost. Raises ``InvalidArgument`` for a closed ledger or a bookie that is
        not a member, ``NotAllowedError`` for a registered bookie, ``NotEnoughBookies`` when other
        bookies do not answer either.
        """
        body = {"givenUpBookies": list(given_up_bookies)}
        return self._transport.record("POST", "ledgers", str(ledger_id), "recover", body=body)
