"""The holes of a subscription: entries that are not acknowledged below the highest acknowledged
one. How many there are, which is the oldest, and who has the entries of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from pulsarish.broker.clients.wait_reasons import counted, duration
from pulsarish.broker.dispatchers.dispatcher import Place
from pulsarish.broker.http.json_bodies import HolderBody, HoleBody, HolesBody, OldestHoleBody
from pulsarish.managed_ledger.cursors.holes import Hole
from pulsarish.model.errors import PulsarishError
from pulsarish.model.position import EARLIEST, Position
from pulsarish.runtime.seams import Clock

if TYPE_CHECKING:
    from pulsarish.broker.subscriptions.subscription import Subscription

__all__ = ["holders", "hole_report"]

_EXAMINED_MAX: Final = 20_000  # entries of one report that are looked for
_EXAMINED_OF_HOLE_MAX: Final = 1_000


async def hole_report(
    subscription: Subscription, clock: Clock, start: Position, limit: int, *, wait_seconds: float
) -> HolesBody:
    """Return the numbers of all holes, and up to ``limit`` of them from a position on.

    Args:
        wait_seconds: how long to wait for the oldest entry to be read.
    """
    published_ms: int | None = None
    try:
        async with clock.timeout(wait_seconds):
            published_ms = await subscription.oldest_publish_ms()
    except (PulsarishError, TimeoutError):
        published_ms = None  # shown as not known
    cursor, now_ms = subscription.cursor, clock.wall_ms()
    highest = cursor.highest_acknowledged
    found = list(islice(cursor.holes(start, highest), limit + 1))
    examined_max = min(_EXAMINED_OF_HOLE_MAX, max(1, _EXAMINED_MAX // limit))
    first = list(islice(cursor.holes(EARLIEST, highest), 1))
    bodies = _bodies(subscription, clock, [*first, *found[:limit]], examined_max)
    oldest = (
        OldestHoleBody(
            bodies[0],
            published_ms,
            None if published_ms is None else max(0, now_ms - published_ms),
            subscription.marks.mark_delete_advanced_ms,
        )
        if first
        else None
    )
    holes, entries = cursor.count_holes(), cursor.entries_in_holes()
    return HolesBody(
        subscription.topic,
        subscription.name,
        holes,
        entries,
        cursor.hole_count,
        cursor.holes_bytes,
        str(cursor.mark_delete),
        str(highest),
        oldest,
        _explanation(holes, entries, str(highest), oldest, now_ms),
        bodies[len(first) :],
        f"{found[limit].ledger_id}:{found[limit].first_entry}" if len(found) > limit else None,
    )


def _bodies(
    subscription: Subscription, clock: Clock, holes: Sequence[Hole], examined_max: int
) -> list[HoleBody]:
    """Describe holes. Of each, up to ``examined_max`` entries are looked for."""
    examined = [
        [
            Position(hole.ledger_id, entry)
            for entry in range(
                hole.first_entry, min(hole.first_entry + examined_max, hole.last_entry + 1)
            )
        ]
        for hole in holes
    ]
    places = iter(subscription.dispatcher.places([each for one in examined for each in one]))
    return [
        HoleBody(
            f"{hole.ledger_id}:{hole.first_entry}",
            f"{hole.ledger_id}:{hole.last_entry}",
            hole.last_entry - hole.first_entry + 1,
            len(one),
            holders(list(islice(places, len(one))), clock),
        )
        for hole, one in zip(holes, examined, strict=True)
    ]


def holders(places: Sequence[Place], clock: Clock) -> list[HolderBody]:
    """Count unacknowledged entries by where they are, in the order of the log."""
    now, now_ms = clock.monotonic(), clock.wall_ms()
    found: dict[tuple[str, int], HolderBody] = {}
    for place in places:
        consumer = place.consumer
        key = (place.state, -1 if consumer is None else consumer.order)
        holder = found.get(key)
        if holder is None:
            name = None if consumer is None else consumer.name
            since_ms = 0 if consumer is None else consumer.last_delivered_ms
            holder = found[key] = HolderBody(place.state, 0, name, since_ms)
        holder.entries += 1
        if place.since is not None:
            holder.since_ms = min(holder.since_ms, now_ms - int((now - place.since) * 1000))
        if place.due_ms:
            holder.due_ms = min(holder.due_ms or place.due_ms, place.due_ms)
    return list(found.values())


def _explanation(
    holes: int, entries: int, highest: str, oldest: OldestHoleBody | None, now_ms: int
) -> str:
    if oldest is None:
        return f"There is no hole: everything up to {highest} is acknowledged."
    hole = oldest.hole
    age = (
        "the publish time of its first entry is not known now"
        if oldest.age_ms is None
        else f"its first entry was published {duration(oldest.age_ms)} ago, so it is not older"
    )
    shown = "; ".join(_shown(each, now_ms) for each in hole.holders)
    if hole.examined < hole.entries:
        shown = f"Of its first {hole.examined} entries: {shown}"
    return (
        f"{counted(holes, 'hole lies', 'holes lie')} below {highest}, the highest acknowledged "
        f"entry, with {counted(entries, 'entry', 'entries')}. The oldest is {hole.first} to "
        f"{hole.last}; {age}. {shown[0].upper()}{shown[1:]}."
    )


def _shown(holder: HolderBody, now_ms: int) -> str:
    count = holder.entries
    match holder.state:
        case "consumer":
            since = (
                f", for at least {duration(now_ms - holder.since_ms)}" if holder.since_ms else ""
            )
            return f"consumer {holder.consumer_name} has {count}{since}"
        case "waiting":
            return counted(count, "waits to be delivered", "wait to be delivered")
        case "delayed":
            until = f", at least for {duration(holder.due_ms - now_ms)}" if holder.due_ms else ""
            return counted(count, "is delayed", "are delayed") + until
        case "unread":
            return counted(count, "is not read yet", "are not read yet") + ", no consumer has them"
        case _:
            what = counted(count, "is with no consumer", "are with no consumer")
            return f"{what}, and nothing delivers them, which is a defect of the broker"
