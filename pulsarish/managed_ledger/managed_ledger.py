"""A topic's log on the broker that owns the topic.

Promises (rules 4, 14, 16, 17):
* Nothing is appended before this owner has recovered the last ledger and stored the new list of
  ledgers.
* Entries are confirmed in the order they were appended, each once.
* Once another owner has opened the topic, this one confirms nothing and stores nothing of a cursor.
* An entry is trimmed only after every durable cursor has stored it as acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.appender import Appender, LogListener
from pulsarish.managed_ledger.chain_core import ChainCore, Phase
from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.cursors.cursors import Cursors
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.ledger_deletion import LedgerDeletion
from pulsarish.managed_ledger.log_condition import LogCondition
from pulsarish.managed_ledger.log_reader import LogReader
from pulsarish.managed_ledger.message_counter import MessageCounter
from pulsarish.managed_ledger.message_counts import BlockCounts
from pulsarish.managed_ledger.options import ManagedLedgerOptions, Retention
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.managed_ledger.readable_log import ReadableLog
from pulsarish.managed_ledger.takeover import make, take_over
from pulsarish.managed_ledger.topic_attributes import TopicAttributes
from pulsarish.managed_ledger.trimmer import Trimmer
from pulsarish.managed_ledger.views import Views
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import TopicLedger, TopicRecord
from pulsarish.model.errors import InvalidPosition, PulsarishError, ServiceNotReady, TopicFenced
from pulsarish.model.position import LATEST, Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Op, World

__all__ = ["ManagedLedger"]

_log = get_logger("managed_ledger")


class ManagedLedger(ReadableLog):
    """A topic's log. Made by ``open``, or by ``create`` for a topic that does not exist yet."""

    def __init__(
        self,
        topic: OwnedTopicRecord,
        core: ChainCore,
        ledgers: LedgerClient,
        world: World,
        options: ManagedLedgerOptions,
        listener: LogListener,
        caches: EntryCaches,
        retention: Retention,
        blocks: BlockCounts | None,
    ) -> None:
        self._topic = topic
        self._core = core
        self._world = world
        self._appender = Appender(
            core,
            topic,
            ledgers,
            world,
            options,
            listener,
            caches.tail,
            rolled=self._on_rolled,
            stopped=self._on_stopped,
        )
        reader = LogReader(core.chain, ledgers.open, caches, self._appender.current_reader)
        super().__init__(core.chain, ledgers, reader)
        self.messages = MessageCounter(core.chain, reader, blocks or BlockCounts())
        """The count of the messages in the log."""
        self._cursors = Cursors(topic, core.chain, ledgers, world, options, self._appender.fence)
        change = self._change  # one for all
        self._deletion = LedgerDeletion(topic, core, ledgers, change)
        self.views = Views(topic, ledgers, change, self._deletion)
        """The topic's compacted view."""
        self.attributes = TopicAttributes(topic, change)
        self.trimmer = Trimmer(
            topic.name,
            core,
            self._cursors,
            self.views,
            self._reader,
            self._deletion,
            change,
            world,
            retention,
            self.attributes,
        )

    @classmethod
    async def open(
        cls,
        name: TopicName,
        ledgers: LedgerClient,
        records: Records,
        world: World,
        options: ManagedLedgerOptions,
        listener: LogListener,
        *,
        caches: EntryCaches,
        blocks: BlockCounts | None = None,
        retention: Retention | None = None,
        found: tuple[TopicRecord, int] | None = None,
        lease: Sequence[Op] = (),
    ) -> ManagedLedger:
        """Take the topic over (rule 14): recover its open ledgers, create a ledger, store the list,
        then serve.

        Args:
            caches: shared by all topics of the process.
            blocks: counts of messages, shared too.
            retention: how long data stays that no durable cursor needs; without it, such data is
                trimmed at once.
            found: the topic's record and its version, read or created since this broker owns the
                topic. Without it the record is read. If ``found`` were too old, the write at its
                version would be refused.
            lease: what must hold in the commit that takes the topic over, and in all later ones:
                that this broker is the one that should serve the topic. Without it, the broker that
                should serve the topic would notice the takeover only when it writes.

        Raises ``TopicNotFound``, ``NoSuchLedger`` (data is lost), ``TopicFenced`` when another
        broker opened the topic meanwhile, ``NotOwner`` when ``lease`` does not hold, and the
        retryable ``NotEnoughBookies``, ``MetadataUnavailable``, ``ServiceNotReady``.
        """
        topic, chain, created = await take_over(
            name, ledgers, records, world, options, found, lease
        )
        log = cls(
            topic,
            ChainCore(chain, world.clock.monotonic()),
            ledgers,
            world,
            options,
            listener,
            caches,
            retention or Retention(),
            blocks,
        )
        if created is None:
            log._core.phase = Phase.SEALED
        else:
            log._appender.use(*created)
        try:
            await log._cursors.load()
        except PulsarishError as error:
            log.abandon(TopicFenced(f"topic {name} could not be opened: {error}"))
            raise
        if topic.record.deleting or log._cursors.half_deleted:
            _ = world.tasks.spawn(log._finish_deletions(), name=f"delete-ledgers {name}")
        return log

    @classmethod
    async def create(
        cls,
        name: TopicName,
        ledgers: LedgerClient,
        records: Records,
        world: World,
        options: ManagedLedgerOptions,
        listener: LogListener,
        *,
        caches: EntryCaches,
        blocks: BlockCounts | None = None,
        retention: Retention | None = None,
        lease: Sequence[Op] = (),
    ) -> ManagedLedger:
        """Create the topic and own it from its first commit on.

        The arguments are those of ``open``.

        The commits after the first one check ``lease``. The first one does not: a topic that is
        created has no former owner.

        Raises ``AlreadyExists``, and the retryable ``NotEnoughBookies``, ``ServiceNotReady``, and
        ``MetadataUnavailable`` (the topic may exist).
        """
        topic, chain, created = await make(name, ledgers, records, world, options, lease)
        log = cls(
            topic,
            ChainCore(chain, world.clock.monotonic()),
            ledgers,
            world,
            options,
            listener,
            caches,
            retention or Retention(),
            blocks,
        )
        log._appender.use(*created)
        return log

    def use(self, options: ManagedLedgerOptions, retention: Retention) -> None:
        """Apply new policies.

        Quorums take effect at the next ledger. Data beyond a shorter retention is trimmed soon.
        """
        self._appender.use_options(options)
        self._cursors.use_options(options)
        if retention != self.trimmer.retention:
            self.trimmer.retention = retention
            self.trimmer.trim_soon()

    # -- state

    def renew_lease(self, lease: Sequence[Op]) -> None:
        """Continue under another lease; see ``open``."""
        self._topic.renew_lease(lease)

    @property
    def name(self) -> TopicName:
        return self._topic.name

    @property
    def version(self) -> int:
        """The version of the topic's record. Another owner changes it before it serves."""
        return self._topic.version

    @property
    def highest_ledger(self) -> int:
        return self._topic.record.highest_ledger

    @property
    def fenced(self) -> bool:
        """Whether this owner has ended for good. Its listener has the reason."""
        return self._core.phase is Phase.STOPPED

    @property
    def terminated(self) -> bool:
        return self._core.phase is Phase.SEALED or self._topic.record.terminated

    @property
    def ledgers(self) -> Sequence[TopicLedger]:
        """The chain, with what is confirmed so far in the open ledger."""
        return [
            TopicLedger(
                link.ledger_id, link.entries, link.size_bytes, link.closed_ms, link.own_times_ms
            )
            for link in self._chain.links
        ]

    @property
    def pending_entries(self) -> int:
        """The number of entries that are appended and not confirmed."""
        return self._core.pending

    @property
    def write_quorum(self) -> int:
        """The configured copies of each entry.

        A ledger that was created with too few bookies has fewer.
        """
        return self._appender.write_quorum

    def condition(self) -> LogCondition:
        """The condition of appending to the log, for statistics."""
        return self._appender.condition()

    def pending_contexts(self) -> Iterator[object]:
        """Iterate over the contexts of all appends that are not confirmed, the oldest first."""
        return self._core.contexts()

    # -- writing

    def append(self, payload: bytes, context: object) -> None:
        """Queue an entry.

        The listener is called with ``context`` once the entry is confirmed. Never blocks.

        Raises ``TopicFenced``, ``TopicTerminated``, or the retryable reason why there is no ledger
        to append to now.
        """
        self._appender.append(payload, context)

    def note_own_time(self, time_ms: int) -> None:
        """Note that the next append has a delivery or expiry time of its own (wall clock, ms)."""
        self._chain.note_own_time(time_ms)

    @property
    def has_room(self) -> bool:
        """Whether another append is within the limits.

        More appends are accepted, but the caller should wait.
        """
        return self._appender.has_room

    async def wait_for_room(self) -> None:
        await self._appender.wait_for_room()

    async def settle(self) -> None:
        """Wait until everything that was appended is confirmed or has failed."""
        await self._appender.settle()

    async def roll(self) -> None:
        """Start another ledger now, unless the current one is empty."""
        await self._appender.changes.roll()

    async def terminate(self) -> Position:
        """Seal the log for good. Return its last position."""
        await self._appender.changes.seal()
        return self.last_confirmed

    # -- reading

    async def why_beyond(self, position: Position) -> PulsarishError:
        """Return the error for a position beyond the log.

        Either a client has the position from a later owner, and this broker does not know yet that
        it lost the topic. Then the position is undecided, and the error is retryable (rule 20). Or
        no owner ever used the position. Then it is refused for good, because the client would ask
        forever (rule 18).
        """
        try:
            if not self.fenced and await self._topic.is_newest() and position > self.last_confirmed:
                return InvalidPosition(
                    f"position {position} is beyond the end of topic {self.name}, at "
                    f"{self.last_confirmed}"
                )
        except PulsarishError as unknown:
            return unknown
        return ServiceNotReady(
            f"position {position} is beyond what this broker knows of {self.name}; look the topic "
            "up again"
        )

    @property
    def names_no_times(self) -> bool:
        """Whether no entry of the log has a delivery or expiry time of its own."""
        return not any(link.own_times_ms for link in self._chain.links)

    def learned_own_times(self, ledger_id: int, latest_ms: int) -> None:
        """Note the latest delivery or expiry time that an entry of a closed ledger names; 0: none
        names one. It is stored with the next change of the list.
        """
        link = self._chain.find(ledger_id)
        if link is not None:
            link.own_times_ms = latest_ms

    # -- cursors

    async def open_cursor(
        self,
        name: str,
        *,
        initial: Position = LATEST,
        durable: bool = True,
        properties: Mapping[str, int] | None = None,
        subscription_properties: Mapping[str, str] | None = None,
    ) -> Cursor:
        """Open the cursor of that name.

        Create it when there is none; then delivery begins at ``initial``, inclusive.

        ``EARLIEST`` and ``LATEST`` are positions too. A cursor that is already open is returned
        unchanged. A cursor that is not durable lives until it is deleted.

        Raises ``TopicFenced``, ``MetadataUnavailable``, ``ServiceNotReady`` while the deletion of a
        cursor of that name cannot be finished, and the retryable errors of recovering its ledger.
        """
        return await self._cursors.open(
            name,
            initial=initial,
            durable=durable,
            properties=properties or {},
            subscription_properties=subscription_properties or {},
        )

    async def delete_cursor(self, name: str) -> None:
        """Delete a cursor.

        Raises ``SubscriptionNotFound``, ``TopicFenced``, ``MetadataUnavailable``.
        """
        await self._cursors.delete(name)
        self.trimmer.trim_soon()

    def cursor_names(self) -> list[str]:
        """The durable cursors that metadata holds, sorted, whether they are open here or not."""
        return self._cursors.names()

    def open_cursors(self) -> list[Cursor]:
        return self._cursors.opened()

    # -- upkeep

    async def _change(
        self,
        decide: Callable[[TopicRecord], TopicRecord],
        apply: Callable[[], None] = lambda: None,
        *,
        always: bool = False,
        with_ops: Sequence[Op] = (),
    ) -> None:
        try:
            await self._topic.change(decide, apply, always=always, with_ops=with_ops)
        except TopicFenced as error:
            self._appender.fence(error)
            raise

    async def _finish_deletions(self) -> None:
        try:
            await self._deletion.delete_listed()
            await self._cursors.finish_deletions()
        except PulsarishError as error:
            _log.warning("deletion goes on later", topic=self.name, error=error)

    def _on_rolled(self) -> None:
        self.trimmer.trim_soon()

    async def maintain(self) -> None:
        """Replace a ledger by age, trim, and finish deletions.

        Call it now and then while the topic is loaded. Raises as ``Trimmer.trim``.
        """
        self._appender.changes.roll_if_due()
        await self.trimmer.trim_and_delete()

    # -- the end

    def abandon(self, error: PulsarishError) -> None:
        """Stop at once, without a write, because the session or the ownership was lost.

        The listener's ``fenced`` is called.
        """
        self._appender.fence(error)

    def _on_stopped(self, error: PulsarishError) -> None:
        self._cursors.end(error)
        self._reader.close()

    async def close(self) -> None:
        """Store the acknowledgements and close the ledger, so that the next owner has nothing to
        recover.

        What cannot be done now is left to the next owner's recovery.
        """
        await self._cursors.close()
        self._cursors.end(TopicFenced(f"topic {self.name} was closed on this broker"))
        await self._appender.changes.close()
        self._reader.close()
        # Each close leaves an empty ledger. Without this it could stay for long, as no owner trims
        # the topic.
        try:
            await self._deletion.delete_at_end()
        except PulsarishError as error:
            _log.debug("the next owner forgets the deleted ledgers", topic=self.name, reason=error)
