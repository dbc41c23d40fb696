"""Fetch the entries of a split in the executor: from bookies, or through the broker, page by page
with one page read ahead.

Memory is bounded by two pages, whatever the ledger's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

import msgspec

from pulsarish.client.consumer.entry_reader import EntryReader
from pulsarish.client.messages.message import Entry
from pulsarish.model.errors import (
    AuthorizationError,
    EntryUnknown,
    NoSuchEntry,
    PulsarishError,
    Timeout,
)
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.security.credentials import Secret
from pulsarish.spark.access import BookieAccess, BrokerAccess
from pulsarish.spark.options import DirectReads
from pulsarish.spark.reading import executor
from pulsarish.spark.reading.planning import DataLoss, Piece
from pulsarish.wire.record import Record

__all__ = ["PAGE_BYTES", "Fetcher"]

PAGE_BYTES: Final = 4 << 20
"""Bytes that one read requests from a bookie."""
_WINDOW_BYTES: Final = 16 << 20
"""Limit of the bytes in flight from a broker."""
_BROKER_SECONDS_MAX: Final = 60.0

_log = get_logger("spark.reading")


class Fetcher:
    """Reads pieces of one topic. Arguments: see ``ReadSpec``."""

    def __init__(
        self,
        brokers: BrokerAccess,
        bookies: BookieAccess,
        topic: str,
        direct: DirectReads,
        addresses: Mapping[str, str],
        tokens: Mapping[int, Secret],
        *,
        fail_on_loss: bool,
        subscription_role_prefix: str,
    ) -> None:
        self._brokers = brokers
        self._bookies = bookies
        self._topic = topic
        self._direct = direct
        self._addresses = addresses
        self._tokens = tokens
        self._role_prefix = subscription_role_prefix
        self._fail_on_loss = fail_on_loss

    def pages(self, pieces: Sequence[Piece]) -> Iterator[list[Entry]]:
        """Yield all entries of the pieces in order, some at a time."""
        at = 0
        while at < len(pieces):
            piece = pieces[at]
            if self._is_direct(piece):
                yield from self._from_bookies(piece)
                at += 1
                continue
            # Consecutive pieces through the broker are one read.
            ahead = at + 1
            while ahead < len(pieces) and not self._is_direct(pieces[ahead]):
                ahead += 1
            yield from self._through_broker(pieces[at:ahead])
            at = ahead

    def _is_direct(self, piece: Piece) -> bool:
        if not piece.record or self._direct is DirectReads.NEVER:
            return False
        if self._direct is DirectReads.ALWAYS:
            return True
        return bool(self._addresses) and not executor.bookies_avoided()

    # -- bookies

    def _from_bookies(self, piece: Piece) -> Iterator[list[Entry]]:
        metadata = msgspec.json.decode(piece.record, type=LedgerMetadata)
        access = self._bookies.for_tasks(self._tokens.get(piece.ledger_id))
        reads = executor.direct_reads(self._addresses, access)
        loop = executor.loop()
        members = metadata.segments[metadata.segment_index(piece.first)].members
        # Tasks on different parts of a ledger begin with different replicas.
        prefer = members[(piece.first // max(1, piece.entries) + piece.ledger_id) % len(members)]

        def ask(first: int) -> Future[list[Record]]:
            return loop.begin(
                reads.read(metadata, first, piece.last, max_bytes=PAGE_BYTES, prefer=prefer)
            )

        pending: Future[list[Record]] | None = ask(piece.first)
        at = piece.first
        while pending is not None:
            try:
                records = pending.result()
            except (EntryUnknown, NoSuchEntry) as error:
                if self._direct is DirectReads.ALWAYS:
                    raise type(error)(
                        f"topic {self._topic}, option 'directReads' = 'always': {error}"
                    ) from None
                self._fall_back(error)
                yield from self._through_broker([piece.part(at, piece.last)])
                return
            at = records[-1].entry_id + 1
            pending = ask(at) if at <= piece.last else None
            yield [
                Entry(record.ledger_id, record.entry_id, 0, record.payload) for record in records
            ]

    def _fall_back(self, error: PulsarishError) -> None:
        if not executor.bookies_avoided():
            executor.avoid_bookies()
            text = (
                f"reading topic {self._topic} through its broker, since bookies cannot be "
                f"read from here: {error}"
            )
            _log.warning(text)

    # -- the broker

    def _through_broker(self, pieces: Sequence[Piece]) -> Iterator[list[Entry]]:
        loop = executor.loop()
        client = executor.broker_client(self._brokers)
        first = pieces[0]
        opening = client._read_entries(
            TopicName.parse(self._topic),
            Position(first.ledger_id, first.first),
            window_bytes=_WINDOW_BYTES,
            subscription_role_prefix=self._role_prefix,
        )
        try:
            reader: EntryReader = loop.run(opening)
        except AuthorizationError as error:
            if self._role_prefix:
                raise
            raise AuthorizationError(
                f"{error}; if its namespace has subscription-auth-mode Prefix, set option "
                "'subscriptionRolePrefix' to the role"
            ) from None
        try:
            wanted = _Wanted(self._topic, pieces, fail_on_loss=self._fail_on_loss)
            while not wanted.is_done:
                entries = loop.run(reader.take(_BROKER_SECONDS_MAX))
                if not entries:
                    raise Timeout(
                        f"the broker delivered nothing of topic {self._topic} from {wanted.next} "
                        f"on in {_BROKER_SECONDS_MAX} s"
                    )
                taken = wanted.take(entries)
                if taken:
                    yield taken
        finally:
            loop.run(reader.close())


class _Wanted:
    """Selects the wanted entries of those received, and checks that none is missing."""

    def __init__(self, topic: str, pieces: Sequence[Piece], *, fail_on_loss: bool) -> None:
        self._topic = topic
        self._fail_on_loss = fail_on_loss
        self._pieces = list(pieces)
        self._at = pieces[0].first

    @property
    def is_done(self) -> bool:
        return not self._pieces

    @property
    def next(self) -> Position:
        return Position(self._pieces[0].ledger_id, self._at)

    def take(self, entries: Sequence[Entry]) -> list[Entry]:
        taken: list[Entry] = []
        for entry in entries:
            here = Position(entry.ledger_id, entry.entry_id)
            if self._pieces and here > self.next:
                self._miss(here)
            if not self._pieces:
                break
            if here < self.next:
                continue
            taken.append(entry)
            self._go_to(self._at + 1)
        return taken

    def _go_to(self, at: int) -> None:
        self._at = at
        if at > self._pieces[0].last:
            del self._pieces[0]
            if self._pieces:
                self._at = self._pieces[0].first

    def _miss(self, here: Position) -> None:
        """Handle a missing entry: a later one has arrived."""
        text = (
            f"topic {self._topic} has no entry {self.next} any more, what comes next is "
            f"{here}: it was deleted while it was read"
        )
        if self._fail_on_loss:
            raise DataLoss(f"{text}; set option 'failOnDataLoss' to 'false' to read what is there")
        _log.warning(text)
        while self._pieces and (self._pieces[0].ledger_id, self._pieces[0].last) < here:
            self._go_to(self._pieces[0].last + 1)
        if self._pieces and self._pieces[0].ledger_id == here.ledger_id:
            self._at = max(self._at, here.entry_id)
