"""Errors that only clients raise, and those of Apache Pulsar's Python client that nothing here
raises. They cross no wire, so they are not in ``model.errors``.
"""

from __future__ import annotations

from pulsarish.model.errors import (
    InvalidArgument,
    InvalidConfiguration,
    InvalidType,
    NotAllowedError,
    PulsarishError,
)
from pulsarish.model.result import Result

__all__ = [
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CumulativeAcknowledgementNotAllowedError",
    "InvalidMessage",
    "InvalidTxnStatusError",
    "InvalidType",
    "InvalidUrl",
    "LookupError",
    "MemoryBufferIsFull",
    "NotConnected",
    "ProducerNotInitialized",
    "ReadError",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnsupportedVersionError",
]


class InvalidUrl(InvalidConfiguration):
    """The service URL cannot be used; the text shows the accepted form."""

    result = Result.InvalidUrl


class CumulativeAcknowledgementNotAllowedError(NotAllowedError):
    """The consumers of the subscription share its messages, so each is acknowledged by itself."""

    result = Result.CumulativeAcknowledgementNotAllowedError


# What programs may name in ``except``. Nothing raises it: the client waits and connects again, has
# no transactions and no limit on its memory, and opens what it returns.


class ConsumerNotFound(PulsarishError):
    result = Result.ConsumerNotFound


class ConsumerNotInitialized(PulsarishError):
    result = Result.ConsumerNotInitialized


class InvalidMessage(InvalidArgument):
    result = Result.InvalidMessage


class InvalidTxnStatusError(PulsarishError):
    result = Result.InvalidTxnStatusError


class LookupError(PulsarishError):  # noqa: A001  # the name in Apache Pulsar's client
    result = Result.LookupError


class MemoryBufferIsFull(PulsarishError):
    result = Result.MemoryBufferIsFull


class NotConnected(PulsarishError):
    result = Result.NotConnected


class ProducerNotInitialized(PulsarishError):
    result = Result.ProducerNotInitialized


class ReadError(PulsarishError):
    result = Result.ReadError


class TransactionConflict(PulsarishError):
    result = Result.TransactionConflict


class TransactionCoordinatorNotFoundError(PulsarishError):
    result = Result.TransactionCoordinatorNotFoundError


class TransactionNotFound(PulsarishError):
    result = Result.TransactionNotFound


class UnsupportedVersionError(PulsarishError):
    result = Result.UnsupportedVersionError
