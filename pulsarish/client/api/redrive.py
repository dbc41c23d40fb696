"""Moves the messages of a dead letter topic back, for ``pulsarish subscriptions redrive``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer
from pulsarish.client.consumer.letter_topic import LetterTopic
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.letters import redriven
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import Timeout

__all__ = ["Redrive"]

_IDLE_MS: Final = 5_000


class Redrive:
    """Reads what one subscription of a dead letter topic has not acknowledged, and moves it.

    A message is acknowledged when its copy is stored, so a redrive that dies moves some messages
    twice and loses none, and the next one goes on. Letters that arrive after the start stay: a
    message that dies at once again would go round forever. The consumer is exclusive, so that two
    redrives do not move the same messages.

    Args:
        target: topic that the copies go to.
        for_all: the target is the topic itself, which other subscriptions have, too.
        properties: only messages with all of these are moved.
    """

    def __init__(
        self,
        client: AsyncClient,
        subscription: str,
        target: str,
        *,
        for_all: bool,
        properties: Mapping[str, str],
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._target = target
        self._for_all = for_all
        self._properties = properties

    async def pages(
        self, dead_letter_topic: str, *, count: int | None, size: int, dry_run: bool
    ) -> AsyncIterator[list[Message]]:
        """Move at most ``count`` messages, and yield them in pages of at most ``size``, each when
        it is moved; with ``dry_run`` nothing is moved.

        Raises ``ConsumerBusy`` while the subscription has consumers, and the errors of
        ``AsyncProducer.send``.
        """
        left = count
        for partition in await self._client.get_topic_partitions(dead_letter_topic):
            options = ConsumerOptions(partition, self._subscription, ack_receipt_enabled=True)
            consuming = await self._client._open_consuming(options)
            letters = LetterTopic(self._target, self._client._parts, of=dead_letter_topic)
            consumer = AsyncConsumer(consuming, self._client._parts)
            try:
                last, done_to = await consuming.children[0].seeker.last_message_id()
                end = (last.ledger_id(), last.entry_id())
                if (done_to.ledger_id(), done_to.entry_id()) >= end:
                    continue
                is_over = False
                while not is_over and left != 0:
                    most = size if left is None else min(size, left)
                    page, is_over = await self._page(consumer, end, last.batch_index(), most)
                    if page and not dry_run:
                        await self._move(letters, consumer, page)
                    if page:
                        yield page
                    if left is not None:
                        left -= len(page)
            finally:
                await consumer.close()
                await letters.close()

    async def _page(
        self, consumer: AsyncConsumer, end: tuple[int, int], end_index: int, most: int
    ) -> tuple[list[Message], bool]:
        """Return the next messages, and whether they end at the last message or none came."""
        page: list[Message] = []
        while len(page) < most:
            try:
                message = await consumer.receive(_IDLE_MS)
            except Timeout:
                return page, True  # the last messages were acknowledged before
            where = message.message_id()
            at = (where.ledger_id(), where.entry_id())
            if at > end:
                return page, True
            if self._properties.items() <= message.properties().items():
                page.append(message)
            if at == end and where.batch_index() >= end_index:
                return page, True
        return page, False

    async def _move(
        self, letters: LetterTopic, consumer: AsyncConsumer, page: list[Message]
    ) -> None:
        errors = await letters.store(
            [(message, redriven(message, for_all=self._for_all)) for message in page]
        )
        # What was stored is acknowledged, also when others were not.
        await consumer.acknowledge(
            [message for message, error in zip(page, errors, strict=True) if error is None]
        )
        for error in errors:
            if error is not None:
                raise error
