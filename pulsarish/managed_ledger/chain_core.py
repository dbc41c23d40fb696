"""The decisions about a topic's appends, without I/O: which wait, which are in the current ledger,
when the ledger is replaced, and which are sent again after a writer has stopped.

Promises: entries are confirmed in the order they were accepted, each once. When a writer stops, the
outcome of some entries in its ledger is unknown. Such an entry is neither confirmed nor sent again
before that ledger has been recovered and closed (the duplicates of Pulsar's #7490 come from
guessing). It is confirmed only if the ledger holds its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from pulsarish.managed_ledger.chain import Chain
from pulsarish.model.errors import CorruptData

__all__ = ["ChainCore", "Confirmed", "Phase", "RollLimits"]


class Phase(Enum):
    """Where appends go.

    WRITING -> DRAINING (roll-over decided) -> REPLACING (no writer) -> WRITING, or straight to
    REPLACING when the writer stops by itself. SEALED and STOPPED are final.
    """

    WRITING = "writing"  # to the current ledger, at once
    DRAINING = "draining"  # they wait until the entries in the current ledger are confirmed
    REPLACING = "replacing"  # they wait for another ledger
    SEALED = "sealed"  # refused: the topic was terminated
    STOPPED = "stopped"  # refused: fenced or closed on this broker


class RollLimits(NamedTuple):
    """The limits of a full ledger. Ages are in seconds of the node's monotonic clock."""

    entries_max: int
    bytes_max: int
    age_min: float
    age_max: float


class Confirmed(NamedTuple):
    """Consecutive entries that are in the log now."""

    ledger_id: int
    first_entry: int
    payloads: list[bytes]
    contexts: list[object]


class ChainCore:
    """The appends of one topic.

    The shell calls in the order of events; ``check`` asserts the invariants.
    """

    __slots__ = (
        "_contexts",
        "_payloads",
        "chain",
        "opened_at",
        "pending_bytes",
        "phase",
        "pushed",
        "pushed_bytes",
    )

    def __init__(self, chain: Chain, opened_at: float) -> None:
        self.chain = chain
        self.phase = Phase.WRITING
        self.opened_at = opened_at  # when the current ledger was made
        self.pending_bytes = 0
        self.pushed = 0  # waiting entries that are in the current ledger, unconfirmed
        self.pushed_bytes = 0  # their size
        # Lists, consumed in runs: an empty deque would be a tenth of the memory of an idle topic.
        self._payloads: list[bytes] = []
        self._contexts: list[object] = []

    @property
    def pending(self) -> int:
        return len(self._payloads)

    def oldest_context(self) -> object | None:
        """The context of the append that has waited longest; ``None`` when none waits."""
        return self._contexts[0] if self._contexts else None

    def contexts(self) -> Iterator[object]:
        """Iterate over the contexts of all appends that wait, the oldest first."""
        return iter(self._contexts)

    @property
    def drained(self) -> bool:
        return self.pushed == 0

    @property
    def next_entry(self) -> int:
        """The id that the next entry gets in the current ledger."""
        return self.chain.links[-1].entries + self.pushed

    def accept(self, payload: bytes, context: object) -> bool:
        """Queue an entry. Return whether it must be pushed to the current ledger now."""
        assert self.phase in (Phase.WRITING, Phase.DRAINING, Phase.REPLACING)
        self._payloads.append(payload)
        self._contexts.append(context)
        self.pending_bytes += len(payload)
        return self.phase is Phase.WRITING and self.pushed == len(self._payloads) - 1

    def note_pushed(self, entry_id: int, size_bytes: int) -> None:
        """Note that the writer took the oldest entry that was not pushed yet."""
        assert entry_id == self.next_entry, (
            f"the ledger numbered an entry {entry_id}, expected {self.next_entry}"
        )
        self.pushed += 1
        self.pushed_bytes += size_bytes
        assert self.pushed <= len(self._payloads)

    def unpushed(self) -> Iterator[bytes]:
        """Iterate in order over the payloads for a new writer. The caller notes each as pushed."""
        yield from self._payloads[self.pushed :]

    def confirm(self, last_entry: int) -> Confirmed | None:
        """Note that the current ledger has confirmed everything up to ``last_entry``.

        Return ``None`` when that is nothing new.
        """
        link = self.chain.links[-1]
        first = link.entries
        count = last_entry + 1 - first
        if count <= 0:
            return None
        assert count <= self.pushed, "an entry was confirmed that was never pushed"
        payloads, contexts = self._payloads[:count], self._contexts[:count]
        del self._payloads[:count], self._contexts[:count]
        size = sum(map(len, payloads))
        self.pending_bytes -= size
        self.pushed -= count
        self.pushed_bytes -= size
        self.chain.grow(count, size)
        return Confirmed(link.ledger_id, first, payloads, contexts)

    def roll_due(self, now: float, limits: RollLimits) -> bool:
        """Whether the current ledger is full. An empty one never is, whatever its age."""
        link = self.chain.current
        if link is None or self.phase is not Phase.WRITING:
            return False
        entries = link.entries + self.pushed
        if entries == 0:
            return False
        age = now - self.opened_at
        if age >= limits.age_max:
            return True
        full = (
            entries >= limits.entries_max or link.size_bytes + self.pushed_bytes >= limits.bytes_max
        )
        return full and age >= limits.age_min

    def drain(self) -> None:
        assert self.phase is Phase.WRITING
        self.phase = Phase.DRAINING

    def writer_stopped(self) -> None:
        """Note that the writer ended by itself. The outcome of the pushed entries is unknown."""
        if self.phase in (Phase.WRITING, Phase.DRAINING):
            self.phase = Phase.REPLACING

    def recovered(
        self, last_entry: int, payloads: Sequence[bytes | memoryview]
    ) -> tuple[Confirmed | None, int]:
        """Settle the stopped ledger, which is closed for good.

        An entry id alone does not prove that the ledger holds our entry: any peer can add entries
        to an open ledger. Only entries with our own bytes are confirmed. From the first foreign one
        on, our entries go to the next ledger, in their order. A copy of a later one may then be in
        the log twice.

        Args:
            last_entry: the ledger's last entry.
            payloads: the ledger's entries from the first unconfirmed one on.

        Returns:
            The entries confirmed by this, and how many entries of the ledger are not ours.

        Raises ``CorruptData`` when the ledger ends before an entry that was confirmed.
        """
        link = self.chain.links[-1]
        if last_entry + 1 < link.entries:
            raise CorruptData(
                f"ledger {link.ledger_id} was closed at entry {last_entry}, though entry "
                f"{link.entries - 1} had been confirmed"
            )
        assert last_entry + 1 - link.entries == len(payloads), (
            "every entry of the ledger must be compared"
        )
        own = 0
        for mine, stored in zip(self._payloads[: self.pushed], payloads, strict=False):
            if mine != stored:
                break
            own += 1
        confirmed = self.confirm(link.entries + own - 1)
        foreign = payloads[own:]
        if foreign:
            self.chain.grow(len(foreign), sum(map(len, foreign)))
            link.own_times_ms = -1
        self.pushed = 0
        self.pushed_bytes = 0
        return confirmed, len(foreign)

    def swing(self, ledger_id: int, closed_ms: int, now: float) -> None:
        """Note that metadata holds the chain with the current ledger closed and the new one at its
        end.
        """
        assert self.drained
        assert self.phase in (Phase.DRAINING, Phase.REPLACING)
        self.chain.close_current(closed_ms)
        before = self.chain.links[-1]
        if before.entries == 0:
            self.chain.drop_last()
        # What was accepted meanwhile was noted at the ledger before.
        self.chain.open_ledger(ledger_id, before.own_times_ms if self._payloads else 0)
        self.opened_at = now
        self.phase = Phase.WRITING

    def seal(self, closed_ms: int) -> None:
        """Note that metadata holds the chain, closed and terminated."""
        assert self.drained
        self.chain.close_current(closed_ms)
        self.phase = Phase.SEALED

    def fail_unpushed(self) -> list[object]:
        """Give up the entries that are in no ledger.

        Return their contexts. Call it only once the stopped ledger has been recovered.
        """
        assert self.pushed == 0
        return self.fail_all()

    def fail_all(self) -> list[object]:
        contexts, self._contexts, self._payloads = self._contexts, [], []
        self.pending_bytes = self.pushed = self.pushed_bytes = 0
        return contexts

    def stop(self) -> list[object]:
        """Accept no more appends. Return the contexts of the unconfirmed ones."""
        self.phase = Phase.STOPPED
        return self.fail_all()

    def check(self) -> None:
        assert len(self._payloads) == len(self._contexts)
        assert 0 <= self.pushed <= len(self._payloads)
        assert self.pending_bytes == sum(map(len, self._payloads))
        assert self.pushed_bytes == sum(map(len, self._payloads[: self.pushed]))
        if self.phase is Phase.WRITING:
            assert self.pushed == len(self._payloads), "a writer is there and something waits"
            assert self.chain.current is not None
        if self.phase in (Phase.SEALED, Phase.STOPPED):
            assert not self._payloads
        self.chain.check()
