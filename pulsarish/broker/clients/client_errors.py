"""Map ledger errors to the errors that clients of a topic see.

Clients know topics, not ledgers. When a ledger is fenced, closed or gone, the topic usually has a
newer owner. So the client looks the topic up again. When data are gone for good, the client waits
for an operator (rule 20), as long as its own timeouts allow.
"""

from __future__ import annotations

from pulsarish.model.errors import (
    LedgerClosed,
    LedgerFenced,
    NoSuchLedger,
    PulsarishError,
    ServiceNotReady,
    TopicFenced,
)

__all__ = ["to_client_error"]


def to_client_error(error: PulsarishError) -> PulsarishError:
    """Return the error to send to a client. Errors that are not about ledgers pass unchanged."""
    if isinstance(error, LedgerFenced | LedgerClosed):
        return TopicFenced(f"the topic has another owner, or will have: {error}")
    if isinstance(error, NoSuchLedger):
        return ServiceNotReady(
            f"what this broker knows of the topic is old, or data are lost: {error}"
        )
    return error
