"""What is done to every partition of a topic, by its owner: what the answers of many come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulsarish.broker.http.owners import Errand, Owners
from pulsarish.broker.http.routes import Call, no_content
from pulsarish.model.errors import AlreadyExists, NotFound, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import HttpResponse

__all__ = ["each_done", "settled"]


def settled(answers: Sequence[Any | PulsarishError], *, unless: tuple[type[PulsarishError], ...] = ()) -> list[Any]:
    """The answers, if all is well. An error of a kind in ``unless`` counts only when every partition gave one: what some have done
    already, or never had, is no reason not to do it to the others. Raises the first error that counts.
    """
    errors = [each for each in answers if isinstance(each, PulsarishError)]
    for error in errors:
        if not isinstance(error, unless) or len(errors) == len(answers):
            raise error
    return [each for each in answers if not isinstance(each, PulsarishError)]


async def each_done(owners: Owners, call: Call, partitions: Sequence[TopicName], errand: Errand) -> HttpResponse:
    """Have it done to every partition. One that was never used need not exist; a repetition finds some of it done."""
    settled(await owners.send_all(call, partitions, errand), unless=(NotFound, AlreadyExists))
    return no_content()
