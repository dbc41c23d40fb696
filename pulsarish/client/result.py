"""``Result``: what the callback of ``send_async`` gets, with the names and numbers of Apache
Pulsar's clients.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from pulsarish.model import errors

__all__ = ["Result", "result_of"]


class Result(IntEnum):
    """The outcome of a send."""

    __str__ = Enum.__str__

    Ok = 0
    UnknownError = 1
    InvalidConfiguration = 2
    Timeout = 3
    LookupError = 4
    ConnectError = 5
    ReadError = 6
    AuthenticationError = 7
    AuthorizationError = 8
    BrokerMetadataError = 10
    BrokerPersistenceError = 11
    ChecksumError = 12
    ConsumerBusy = 13
    NotConnected = 14
    AlreadyClosed = 15
    InvalidMessage = 16
    ProducerBusy = 19
    TooManyLookupRequestException = 20
    InvalidTopicName = 21
    InvalidUrl = 22
    ServiceUnitNotReady = 23
    OperationNotSupported = 24
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    SubscriptionNotFound = 30
    TopicTerminated = 33
    CryptoError = 34
    ConsumerAssignError = 36
    CumulativeAcknowledgementNotAllowedError = 37
    NotAllowedError = 40
    ProducerFenced = 43
    Interrupted = 45


# In order: the first class that an error is an instance of.
_RESULTS: Final[tuple[tuple[type[errors.PulsarishError], Result], ...]] = (
    (errors.Timeout, Result.Timeout),
    (errors.ProducerQueueIsFull, Result.ProducerQueueIsFull),
    (errors.AlreadyClosed, Result.AlreadyClosed),
    (errors.MessageTooBig, Result.MessageTooBig),
    (errors.ConnectError, Result.ConnectError),
    (errors.ProducerFenced, Result.ProducerFenced),
    (errors.ProducerBusy, Result.ProducerBusy),
    (errors.TopicTerminated, Result.TopicTerminated),
    (errors.TopicNotFound, Result.TopicNotFound),
    (errors.SubscriptionNotFound, Result.SubscriptionNotFound),
    (errors.AuthenticationError, Result.AuthenticationError),
    (errors.AuthorizationError, Result.AuthorizationError),
    (errors.ChecksumError, Result.ChecksumError),
    (errors.ConsumerBusy, Result.ConsumerBusy),
    (errors.ConsumerAssign, Result.ConsumerAssignError),
    (errors.InvalidTopicName, Result.InvalidTopicName),
    (errors.InvalidConfiguration, Result.InvalidConfiguration),
    (errors.InvalidArgument, Result.InvalidMessage),
    (errors.MetadataUnavailable, Result.BrokerMetadataError),
    (errors.NotEnoughBookies, Result.BrokerPersistenceError),
    (errors.ServiceNotReady, Result.ServiceUnitNotReady),
    (errors.TooManyRequests, Result.TooManyLookupRequestException),
    (errors.CryptoError, Result.CryptoError),
    (errors.UnsupportedFeature, Result.OperationNotSupported),
    (errors.NotAllowed, Result.NotAllowedError),
    (errors.Interrupted, Result.Interrupted),
)


def result_of(error: errors.PulsarishError) -> Result:
    """The ``Result`` that stands for an error of the one tree."""
    for kind, result in _RESULTS:
        if isinstance(error, kind):
            return result
    return Result.UnknownError
