"""The reasons why a part of a topic waits: one word for scripts, its meaning, and the command that
helps.

Statistics, ``explain``, the watchdog and the invariant of the simulator all use these words.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

__all__ = [
    "ACTIVE",
    "IDLE",
    "REASONS",
    "Reason",
    "State",
    "Waiting",
    "counted",
    "duration",
    "help_command",
    "shown_rate",
    "waiting_row",
]

State = Literal["active", "idle", "waiting"]


class Reason(NamedTuple):
    """What a reason means.

    ``help``: a command, with {topic}, {whole} (the topic without its partition), {subscription} and
    fields of the data in it.
    """

    meaning: str
    help: str


_CONSUMERS: Final = "pulsarish subscriptions get {topic} {subscription}"
_FIRST_MESSAGE: Final = "pulsarish subscriptions peek {topic} {subscription}"
_STATS: Final = "pulsarish topics stats {topic} -o json"
_BOOKIES: Final = "pulsarish bookies list"
_LEDGER: Final = "pulsarish ledgers get {ledgerId}"

REASONS: Final[Mapping[str, Reason]] = {
    # A subscription.
    "no_consumers": Reason("there are messages and no consumer is connected", _FIRST_MESSAGE),
    "no_permits": Reason(
        "there are messages and no consumer has asked for more; its program does not receive, or "
        "has paused it",
        _CONSUMERS,
    ),
    "connection_full": Reason("a consumer's client does not read what was sent to it", _CONSUMERS),
    "blocked_on_unacked_messages": Reason(
        "too many messages are delivered and not acknowledged",
        "pulsarish topics {limitCommand} {whole} --applied",
    ),
    "too_many_holes": Reason(
        "too many ranges are acknowledged behind messages that are not", _FIRST_MESSAGE
    ),
    "rate_limited": Reason(
        "a rate that policies set is reached", "pulsarish topics {rateCommand} {whole} --applied"
    ),
    "broker_rate_limited": Reason(
        "a rate of the whole broker is reached", "pulsarish brokers config --name throttling"
    ),
    "read_failed": Reason("messages cannot be read; the broker tries again", _LEDGER),
    "reading": Reason("messages are being read from the bookies", _LEDGER),
    "seeking": Reason("the subscription is being moved to another position", _CONSUMERS),
    "handing_over": Reason(
        "another consumer has become the active one, and the former may still acknowledge",
        _CONSUMERS,
    ),
    "keys_draining": Reason(
        "keys have moved to other consumers while their former consumers hold unacknowledged "
        "messages",
        _CONSUMERS,
    ),
    "keys_held": Reason(
        "the messages left have keys of consumers that cannot take them now", _CONSUMERS
    ),
    "keys_unassigned": Reason(
        "messages have keys that are in no connected consumer's hash ranges", _CONSUMERS
    ),
    "chunks_held": Reason(
        "the rest of a message in chunks is for the consumer that has its first chunks", _CONSUMERS
    ),
    "delayed": Reason("all other messages are to be delivered at a later time", _FIRST_MESSAGE),
    "too_many_delayed": Reason(
        "too many messages are to be delivered at a later time; nothing new is read", _CONSUMERS
    ),
    "unacknowledged": Reason(
        "everything is delivered and acknowledgements are awaited", _CONSUMERS
    ),
    "stalled": Reason(
        "the broker should read or deliver and does not: a defect of the broker, which repairs it "
        "by restarting the dispatcher",
        "pulsarish topics unload {topic}",
    ),
    # Publishing.
    "backlog_quota": Reason(
        "nothing may be published, because the backlog is beyond its quota",
        "pulsarish topics get-backlog-quota {whole}",
    ),
    "too_few_bookies": Reason("there are fewer bookies than copies that must be on disk", _BOOKIES),
    "metadata_away": Reason("the metadata service does not answer", "pulsarish brokers health"),
    "ledger_change": Reason(
        "the next ledger is being made, or the current one ended or recovered", _STATS
    ),
    "ensemble_change": Reason("a bookie of the ledger is being replaced", _BOOKIES),
    "slow_bookies": Reason("bookies have not confirmed the oldest entry", _BOOKIES),
    "terminated": Reason(
        "the topic was terminated; nothing can be published to it any more",
        "pulsarish topics internal-info {topic}",
    ),
    "deduplication_starts": Reason(
        "deduplication is being switched on, and producers wait for its marks", _STATS
    ),
    "exclusive_producer": Reason("producers wait until an exclusive one has left", _STATS),
    "predecessor": Reason(
        "entries of an earlier connection of the same producer have no outcome yet", _STATS
    ),
    # The topic.
    "loading": Reason("the topic is being opened", "pulsarish topics lookup {topic}"),
    "load_failed": Reason(
        "the topic cannot be opened; the broker tries again for each client that asks", _BOOKIES
    ),
    # A subscription of a non-persistent topic.
    "dropped_no_consumers": Reason(
        "no consumer is connected, so that each message is dropped", _STATS
    ),
    "dropped_no_permits": Reason(
        "no consumer has asked for messages, so that each message is dropped", _STATS
    ),
}


@dataclass(frozen=True, slots=True)
class Waiting:
    """The state of one part of a topic: whether, why and since when it waits.

    Args:
        explanation: a sentence with the numbers of the case.
        since_ms: since when it waits (wall clock); 0: not known.
        retry_at_ms: when it is tried again; 0: when something happens.
        data: the numbers of the sentence, for scripts.
    """

    state: State
    reason: str = ""
    explanation: str = ""
    since_ms: int = 0
    retry_at_ms: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert not self.reason or self.reason in REASONS, self.reason


IDLE: Final = Waiting("idle")
ACTIVE: Final = Waiting("active")


def counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def shown_rate(messages: int, size_bytes: int) -> str:
    """Return a rate as ``5 messages and 100 bytes``; 0 or less: no limit."""
    shown = [counted(messages, "message", "messages")] if messages > 0 else []
    return (
        " and ".join([*shown, *([counted(size_bytes, "byte", "bytes")] if size_bytes > 0 else [])])
        or "no limit"
    )


def help_command(waiting: Waiting, topic: str, subscription: str = "") -> str:
    """Return the command that helps, quoted for a shell; empty when nothing waits."""
    if not waiting.reason:
        return ""
    template = REASONS[waiting.reason].help
    if "{ledgerId}" in template and "ledgerId" not in waiting.data:
        template = _BOOKIES
    whole, part, number = topic.rpartition("-partition-")
    names = {
        "topic": topic,
        "whole": whole if part and number.isdecimal() else topic,
        "subscription": subscription,
    }
    return template.format(
        **waiting.data, **{name: shlex.quote(text) for name, text in names.items()}
    )


def waiting_row(waiting: Waiting, topic: str, subscription: str = "") -> dict[str, Any]:
    """Return the state as a JSON object."""
    return {
        "state": waiting.state,
        "reason": waiting.reason,
        "explanation": waiting.explanation,
        "help": help_command(waiting, topic, subscription),
        "sinceMs": waiting.since_ms,
        "retryAtMs": waiting.retry_at_ms,
        "data": dict(waiting.data),
    }


_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def duration(milliseconds: int) -> str:
    """Return a duration in at most two units: ``850 ms``, ``12 s``, ``3 min 20 s``, ``2 h 5 min``,
    ``4 d 1 h``.
    """
    seconds = milliseconds // 1000
    if seconds < 1:
        return f"{max(milliseconds, 0)} ms"
    for size, unit, part_size, part in _UNITS:
        if seconds >= size:
            rest = seconds % size // part_size
            return f"{seconds // size} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{seconds} s"
