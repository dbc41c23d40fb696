"""Map ledger errors to the errors that clients of a topic see.

Clients know topics, not ledgers. When a ledger is fenced, closed or gone, the topic usually has a
newer owner. So the client looks the topic up again. When data are gone for good, the client waits
for an operator (rule 20), as long as its own timeouts allow.
"""

from __future__ import annotations

from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import (
    LedgerClosed,
    LedgerFenced,
    NoSuchLedger,
    PulsarishError,
    ServiceNotReady,
    TopicFenced,
)
from pulsarish.model.topic_name import TopicName

__all__ = ["TopicMoved", "to_client_error", "topic_leaves"]


class TopicMoved(TopicFenced):
    """The topic goes to the broker ``to``, which lets clients wait that come before it has it."""

    def __init__(self, message: str, to: BrokerRegistration) -> None:
        super().__init__(message)
        self.to = to


def topic_leaves(name: TopicName, reason: str, to: BrokerRegistration | None) -> TopicFenced:
    """Return the error for clients of a topic that leaves this broker, for ``to`` if it is
    known.
    """
    text = f"topic {name} leaves this broker: {reason}"
    if to is None:
        return TopicFenced(f"{text}; look it up again")
    return TopicMoved(f"{text}; it goes to {to.broker_id}", to)


def to_client_error(error: PulsarishError) -> PulsarishError:
    """Return the error to send to a client. Errors that are not about ledgers pass unchanged."""
    if isinstance(error, LedgerFenced | LedgerClosed):
        return TopicFenced(f"the topic has another owner, or will have: {error}")
    if isinstance(error, NoSuchLedger):
        return ServiceNotReady(
            f"what this broker knows of the topic is old, or data are lost: {error}"
        )
    return error
