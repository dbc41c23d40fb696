"""What a client of a topic is told when one of the topic's ledgers fails.

Ledgers are the brokers' affair. One that is fenced, closed or gone under an owner means as a rule that there is a newer owner, and to a
client that the topic cannot be used here now: it looks it up again. What is gone for good waits for an operator (rule 20), and so does the
client, as long as its own clock lets it.
"""

from __future__ import annotations

from pulsarish.model.errors import LedgerClosed, LedgerFenced, NoSuchLedger, PulsarishError, ServiceNotReady, TopicFenced

__all__ = ["to_client_error"]


def to_client_error(error: PulsarishError) -> PulsarishError:
    if isinstance(error, LedgerFenced | LedgerClosed):
        return TopicFenced(f"the topic has another owner, or will have: {error}")
    if isinstance(error, NoSuchLedger):
        return ServiceNotReady(f"what this broker knows of the topic is old, or data are lost: {error}")
    return error
