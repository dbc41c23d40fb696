"""Work on every partition of a topic by its owner, and how to combine the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from pulsarish.broker.clients.wait_reasons import State
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.route import Call, answer, no_content
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.progress.report import metadata_away_report
from pulsarish.model.errors import AlreadyExists, MetadataUnavailable, NotFound, PulsarishError
from pulsarish.runtime.seams import HttpResponse

__all__ = ["each_done", "explain_partitions", "explained", "settled"]


def settled(
    answers: Sequence[Any | PulsarishError], *, unless: tuple[type[PulsarishError], ...] = ()
) -> list[Any]:
    """Return the answers if none is an error. Raises the first error that counts.

    An error of a type in ``unless`` counts only when every partition gave one. If some partitions
    are done already, or do not have the object, the others are still done.
    """
    errors = [each for each in answers if isinstance(each, PulsarishError)]
    for error in errors:
        if not isinstance(error, unless) or len(errors) == len(answers):
            raise error
    return [each for each in answers if not isinstance(each, PulsarishError)]


async def each_done(
    call: Call, namespaces: Namespaces, owners: OwnerCalls, errand: OwnerCall
) -> HttpResponse | None:
    """Run a request on every partition of the call's topic; ``None`` when it is not partitioned.

    A partition that was never used need not exist. When repeated, some of the work is done already.
    """
    partitions = await namespaces.partition_names(call.topic())
    if partitions is None:
        return None
    settled(await owners.send_all(call, partitions, errand), unless=(NotFound, AlreadyExists))
    return no_content()


async def explained(
    call: Call, report: Awaitable[HttpResponse], subscription: str = ""
) -> HttpResponse:
    """Answer with the report.

    If it needs metadata and metadata does not answer, report that as the reason.
    """
    try:
        return await report
    except MetadataUnavailable as error:
        return answer(metadata_away_report(call.topic().full, str(error), subscription))


async def explain_partitions(
    call: Call, namespaces: Namespaces, owners: OwnerCalls, words: tuple[str, ...]
) -> HttpResponse | None:
    """Have the owner of each partition explain it; ``None`` when the topic is not partitioned.

    Raises ``NotFound`` when all partitions answer so.
    """
    name = call.topic()
    partitions = await namespaces.partition_names(name)
    if partitions is None:
        return None
    answers = await owners.send_all(call, partitions, OwnerCall("GET", words))
    if all(isinstance(each, NotFound) for each in answers):
        settled(answers)
    rows = {
        partition.full: _explained(each)
        for partition, each in zip(partitions, answers, strict=True)
    }
    waiting = [partition for partition, row in rows.items() if row["state"] == "waiting"]
    state: State = (
        "waiting"
        if waiting
        else "active"
        if any(row["state"] == "active" for row in rows.values())
        else "idle"
    )
    text = (
        f"{len(waiting)} of {len(rows)} partitions wait."
        if waiting
        else f"None of {len(rows)} partitions waits."
    )
    return answer({"topic": name.full, "state": state, "explanation": text, "partitions": rows})


def _explained(found: Mapping[str, Any] | PulsarishError) -> Mapping[str, Any]:
    if isinstance(found, NotFound):
        # Its first client creates it.
        return {
            "state": "idle",
            "reason": "",
            "explanation": f"It was not used yet: {found}.",
            "help": "",
        }
    if isinstance(found, PulsarishError):
        text = f"Its broker did not explain it: {type(found).__name__}: {found}."
        return {
            "state": "waiting",
            "reason": "load_failed",
            "explanation": text,
            "help": "pulsarish brokers health",
        }
    return found
