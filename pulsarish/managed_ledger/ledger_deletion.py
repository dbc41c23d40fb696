"""Delete the ledgers that a topic's record lists as being deleted.

Deletion has two phases: a commit moves a ledger from the topic's list to ``deleting``; then the
ledger is deleted, and another commit forgets it. What fails here is repeated by the next trim or
the next owner.
"""

from __future__ import annotations

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.chain_core import ChainCore, Phase
from pulsarish.managed_ledger.owned_topic_record import Change, OwnedTopicRecord
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.log import get_logger

__all__ = ["LedgerDeletion"]

_log = get_logger("managed_ledger")


class LedgerDeletion:
    """The second phase of deletion, for one topic.

    Args:
        change: changes the record, and ends this owner when another one has changed it.
    """

    __slots__ = (
        "_change",
        "_core",
        "_ledgers",
        "_topic",
        "being_made",
    )

    def __init__(
        self, topic: OwnedTopicRecord, core: ChainCore, ledgers: LedgerClient, change: Change
    ) -> None:
        self.being_made = -1
        """A ledger that is listed for deletion while it is being made, and is kept."""
        self._topic = topic
        self._core = core
        self._ledgers = ledgers
        self._change = change

    @property
    def has_work(self) -> bool:
        """Whether the record lists ledgers for deletion."""
        return bool(self._topic.record.deleting)

    async def delete_listed(self) -> None:
        """Delete the listed ledgers, and forget those that are gone.

        Raises ``TopicFenced``, ``MetadataUnavailable``.
        """
        finished = await self._delete()
        if finished and self._core.phase is not Phase.STOPPED:
            await self._change(self._topic.forget_deleted(finished))

    async def delete_at_end(self) -> None:
        """Delete the listed ledgers of a log that is closed.

        Raises ``TopicFenced``, ``MetadataUnavailable``.
        """
        finished = await self._delete()
        if finished:
            await self._topic.change(self._topic.forget_deleted(finished))

    async def _delete(self) -> list[int]:
        """Delete the listed ledgers. Return those that are deleted now."""
        if self._topic.lost:
            return []  # another owner may use a ledger that is named here
        if not self._topic.settled:
            # A write with an unknown outcome may have made one of them the compacted view. This
            # write undoes it.
            await self._change(lambda record: record, always=True)
        finished: list[int] = []
        for ledger_id in self._topic.record.deleting:
            # Checked again for each ledger, because deleting takes time.
            if not self._may_delete(ledger_id):
                continue
            try:
                await self._ledgers.delete(ledger_id)
            except PulsarishError as error:
                _log.warning(
                    "ledger not deleted yet", topic=self._topic.name, ledger=ledger_id, error=error
                )
            else:
                finished.append(ledger_id)
        return finished

    def _may_delete(self, ledger_id: int) -> bool:
        """Whether a ledger that was listed for deletion still is.

        A ledger that was being made may be the compacted view by now. It may also become the view
        of this owner or another by a write whose outcome is not known.
        """
        topic = self._topic
        return (
            not topic.lost
            and topic.settled
            and ledger_id != self.being_made
            and ledger_id in topic.record.deleting
        )
