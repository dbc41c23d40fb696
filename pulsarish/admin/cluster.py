"""What a cluster consists of: brokers, bookies and ledgers, answered from metadata by any broker."""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.admin.transport import Ids, Names, Record, Records, Transport

__all__ = ["Bookies", "Brokers", "Clusters", "Ledgers"]


class Clusters:
    """``Admin.clusters``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Names:
        """The one that the brokers belong to."""
        return self._transport.pages("clusters")


class Brokers:
    """``Admin.brokers``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Records:
        """The registrations of the brokers that are alive."""
        return self._transport.records("brokers", "registrations")

    def leader(self) -> Record:
        """``brokerId`` and ``serviceUrl`` of the broker that sweeps up what is left of topics. Raises ``NotFound`` while one is elected."""
        return self._transport.record("GET", "brokers", "leaderBroker")

    def owned_namespaces(self, cluster: str, broker: str) -> Record:
        """The bundles that a broker serves, by name. ``broker``: its id or its HTTP address. Raises ``NotFound``."""
        return self._transport.record("GET", "brokers", cluster, broker, "ownedNamespaces")

    def health(self) -> str:
        """``ok`` of the broker that is asked. Raises ``ServiceNotReady`` saying why it cannot serve."""
        return self._transport.text("brokers", "health")

    def version(self) -> str:
        """Of the broker that is asked."""
        return self._transport.text("brokers", "version")

    def configuration(self) -> dict[str, str]:
        """All options in force at the broker that is asked, by name."""
        return {name: str(value) for name, value in self._transport.record("GET", "brokers", "configuration", "runtime").items()}

    def load_report(self) -> Record:
        """What the broker that is asked has to do: its bundles, topics, producers, consumers and rates a second."""
        return self._transport.record("GET", "broker-stats", "load-report")


class Bookies:
    """``Admin.bookies``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Records:
        """The registrations of the bookies that are alive."""
        return self._transport.records("bookies")

    def under_replicated(self, *, after: int = -1, limit: int = 1000) -> Records:
        """Ledgers above ``after`` that lack copies, at most ``limit``: which bookies lack them, since when, and why they still do."""
        found: Records = self._transport.request("GET", ["bookies", "underreplicated"], query={"after": str(after), "limit": str(limit)})
        return found

    def trash(self, *, after: int = -1, limit: int = 1000) -> Records:
        """List deleted ledgers above ``after`` whose space is not freed yet, at most ``limit``.

        Returns one row for each ledger and bookie, and one with ``error`` for a bookie that does not answer.
        """
        found: Records = self._transport.request("GET", ["bookies", "trash"], query={"after": str(after), "limit": str(limit)})
        return found

    def restore_trash(self, ledgers: Sequence[int]) -> Record:
        """Take these ledgers out of the trash of all bookies: ``ledgers`` that were there, and ``errors``, by bookie."""
        return self._transport.record("POST", "bookies", "trash", "restore", body={"ledgers": list(ledgers)})

    def empty_trash(self, ledgers: Sequence[int] = ()) -> Record:
        """Delete these ledgers, or all, in the trash of all bookies for good. Answers as ``restore_trash``."""
        return self._transport.record("POST", "bookies", "trash", "empty", body={"ledgers": list(ledgers)})

    def decommission(self, bookie: str) -> Record:
        """Give up a bookie that is stopped, for good: its copies are created again on others at once. ``bookie``: its id, or the id of one
        instance of it. Answers as ``decommission_progress``. Raises ``NotAllowed`` while it is alive, ``NotFound``."""
        return self._transport.record("PUT", "bookies", "decommission", bookie)

    def decommission_progress(self, bookie: str) -> Record:
        """``givenUp`` until nothing of it is needed any more, and how many ledgers lack copies, for whatever reason. Raises ``NotFound``
        when it is forgotten, which is the end."""
        return self._transport.record("GET", "bookies", "decommission", bookie)


class Ledgers:
    """``Admin.ledgers``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, after: int = -1, limit: int = 1000) -> Ids:
        """Ledger ids above ``after``, ascending, at most ``limit``."""
        return [int(item) for item in self._transport.request("GET", ["ledgers"], query={"after": str(after), "limit": str(limit)})]

    def get(self, ledger_id: int) -> Record:
        """A ledger's metadata: quorums, members, state, purpose. Raises ``NoSuchLedger``."""
        return self._transport.record("GET", "ledgers", str(ledger_id))

    def recover(self, ledger_id: int, given_up_bookies: Sequence[str]) -> Record:
        """Close a ledger whose end cannot be decided because bookies are gone for good, and return its record.

        ``given_up_bookies`` (instance ids) are taken to have nothing of it: what only they had at its end is lost. Raises
        ``InvalidArgument`` for a closed ledger or a bookie that it is not written to, ``NotAllowed`` for one that is registered,
        ``NotEnoughBookies`` when others do not answer either.
        """
        body = {"givenUpBookies": list(given_up_bookies)}
        return self._transport.record("POST", "ledgers", str(ledger_id), "recover", body=body)
