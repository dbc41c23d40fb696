"""The one tree of errors.

Every error that can reach a user or cross the wire is a class here with its own code. The class
states whether the same request may be tried again (``retryable``), and its HTTP status and Pulsar
``ServerError`` number. All protocols translate errors by this table only. Names are those of Apache
Pulsar's Python client where it has one.
"""

from __future__ import annotations

from typing import ClassVar, Final

from pulsarish.model.result import Result

__all__ = [
    "AlreadyClosed",
    "AlreadyExists",
    "AuthenticationError",
    "AuthorizationError",
    "BookieIOError",
    "BookieReadOnly",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConfigError",
    "ConnectError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "CorruptData",
    "CryptoError",
    "DeduplicationUncertain",
    "EntryUnknown",
    "ErrorGettingAuthenticationData",
    "ForkedProcess",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidArgument",
    "InvalidConfiguration",
    "InvalidPosition",
    "InvalidSchema",
    "InvalidTopicName",
    "InvalidType",
    "LedgerClosed",
    "LedgerFenced",
    "LimitReached",
    "Malformed",
    "MessageTooBig",
    "MetadataUnavailable",
    "NoSuchEntry",
    "NoSuchLedger",
    "NotAllowedError",
    "NotEmpty",
    "NotEnoughBookies",
    "NotEnoughDomains",
    "NotFound",
    "NotOwner",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerQueueIsFull",
    "PulsarishError",
    "SchemaNotFound",
    "ServiceNotReady",
    "ServiceUnitNotReady",
    "SubscriptionBusy",
    "SubscriptionNotFound",
    "Timeout",
    "TooManyLookupRequestException",
    "TooManyRequests",
    "TopicFenced",
    "TopicNotFound",
    "TopicTerminated",
    "UnknownError",
    "WrongBookie",
    "error_from_code",
]


class PulsarishError(Exception):
    """Base of all errors of Pulsarish.

    ``str(error)`` is a sentence for the user that says what to do.
    """

    code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    server_error: ClassVar[int] = 0  # Apache Pulsar's ServerError
    result: ClassVar[Result] = Result.UnknownError  # of Apache Pulsar's clients

    def error(self) -> Result:
        """Return the error's number, as exceptions of ``pulsar.asyncio`` do."""
        return self.result


class UnknownError(PulsarishError):
    """A defect, or an error of an unknown kind on the other side."""


# Bad input: the caller must change the request. A retry never helps.


class InvalidArgument(PulsarishError, ValueError):
    """An argument is outside what is allowed; the text names the field, the value and the allowed
    range.

    A ``ValueError``, which is what Apache Pulsar's Python client raises for most of these.
    """

    code = 10
    result = Result.InvalidMessage
    http_status = 412
    server_error = 22


class InvalidType(InvalidArgument, TypeError):
    """An argument is of a type that the call does not accept."""

    code = 85


class Malformed(InvalidArgument):
    """A request or value with the wrong form.

    A well-formed one that exceeds a limit is an ``InvalidArgument``.
    """

    code = 54
    http_status = 400


class InvalidTopicName(InvalidArgument):
    code = 11
    result = Result.InvalidTopicName
    http_status = 412
    server_error = 17


class InvalidConfiguration(InvalidArgument):
    code = 12
    result = Result.InvalidConfiguration


class ConfigError(InvalidConfiguration):
    """A process's configuration was rejected at start; the text names key, value, limit and
    source.
    """

    code = 13


class InvalidPosition(InvalidArgument):
    """A ledger and entry id that do not belong to the topic."""

    code = 14


class InvalidSchema(InvalidArgument):
    """The definition of a schema is not valid for its type."""

    code = 56
    http_status = 422
    server_error = 18


class IncompatibleSchema(PulsarishError):
    """The topic's strategy does not allow this schema after its existing ones; the text names the
    version and the place.
    """

    code = 55
    result = Result.IncompatibleSchema
    http_status = 409
    server_error = 18


class MessageTooBig(InvalidArgument):
    code = 15
    result = Result.MessageTooBig
    http_status = 413
    server_error = 22


class OperationNotSupported(PulsarishError):
    """The request needs a feature that this version does not have.

    It is rejected rather than ignored.
    """

    code = 16
    result = Result.OperationNotSupported
    http_status = 501
    server_error = 22


class CryptoError(OperationNotSupported):
    """A received message is encrypted and this client cannot decrypt it, or a producer's key cannot
    be used.

    The message stays unacknowledged.
    """

    code = 66
    result = Result.CryptoError


class NotAllowedError(PulsarishError):
    """The operation does not fit the object, such as a cumulative acknowledgement on a shared
    subscription.
    """

    code = 17
    result = Result.NotAllowedError
    http_status = 405
    server_error = 22


class AuthenticationError(PulsarishError):
    """A caller did not prove who it is."""

    code = 67
    result = Result.AuthenticationError
    http_status = 401
    server_error = 3


class ErrorGettingAuthenticationData(AuthenticationError):
    """What gives a client its token failed."""

    code = 84
    result = Result.ErrorGettingAuthenticationData


class AuthorizationError(PulsarishError):
    code = 18
    result = Result.AuthorizationError
    http_status = 403
    server_error = 4


class AlreadyExists(PulsarishError):
    code = 19
    http_status = 409
    server_error = 22


# Not found.


class NotFound(PulsarishError):
    code = 20
    http_status = 404
    server_error = 1


class TopicNotFound(NotFound):
    code = 21
    result = Result.TopicNotFound
    server_error = 11


class SubscriptionNotFound(NotFound):
    code = 22
    result = Result.SubscriptionNotFound
    server_error = 12


class SchemaNotFound(NotFound):
    """The topic has no schema, or none of that version."""

    code = 25
    server_error = 11


class NoSuchLedger(NotFound):
    code = 23
    server_error = 2


class NoSuchEntry(NotFound):
    """An explicit "this entry is not here", never a guess: rule 6 of the guarantees counts it."""

    code = 24
    server_error = 2


# Busy, fenced, gone: the state of the object rejects the request.


class ConsumerBusy(PulsarishError):
    """An exclusive consumer is connected already, or the subscription is in use with another
    type.
    """

    code = 30
    result = Result.ConsumerBusy
    http_status = 409
    server_error = 5


class ConsumerAssignError(PulsarishError):
    """A key-shared consumer cannot get its hash ranges: they are invalid, or another connected
    consumer has some of them.
    """

    code = 58
    result = Result.ConsumerAssignError
    http_status = 409
    server_error = 19


class SubscriptionBusy(ConsumerBusy):
    """The subscription has connected consumers, so it cannot be deleted or moved without force."""

    code = 31
    http_status = 412
    server_error = 5


class ProducerBusy(PulsarishError):
    """A producer with the same name is connected to the topic."""

    code = 32
    result = Result.ProducerBusy
    http_status = 409
    server_error = 16


class ProducerFenced(PulsarishError):
    code = 33
    result = Result.ProducerFenced
    http_status = 409
    server_error = 25


class TopicTerminated(PulsarishError):
    code = 34
    result = Result.TopicTerminated
    http_status = 409
    server_error = 15


class AlreadyClosed(PulsarishError):
    """The client, producer, consumer or reader was closed by its user."""

    code = 35
    result = Result.AlreadyClosed
    http_status = 409


class NotEmpty(PulsarishError):
    """A tenant that has namespaces, or a namespace that has topics, cannot be deleted."""

    code = 38
    http_status = 409
    server_error = 22


class LimitReached(PulsarishError):
    """A policy or limit allows no more of these objects; the text names policy and limit."""

    code = 39
    http_status = 412
    server_error = 22


class ProducerBlockedQuotaExceededException(PulsarishError):
    """The topic's backlog exceeds its quota, and the quota's policy is to fail publishing.

    The name is that of Pulsar's client.
    """

    code = 53
    result = Result.ProducerBlockedQuotaExceededException
    http_status = 412
    server_error = 8


class LedgerFenced(PulsarishError):
    """Another process recovers or has recovered the ledger.

    This writer has ended, and its unconfirmed adds have an unknown outcome.
    """

    code = 36
    server_error = 2


class LedgerClosed(PulsarishError):
    code = 37
    server_error = 2


# Not now: the same request may succeed later, or on another server.


class ServiceUnitNotReady(PulsarishError):
    """A server cannot serve this now; the name for programs."""

    code = 80
    retryable = True
    http_status = 503
    server_error = 6
    result = Result.ServiceUnitNotReady


class BrokerMetadataError(ServiceUnitNotReady):
    """The broker cannot use its metadata store; the name for programs."""

    code = 81
    server_error = 1
    result = Result.BrokerMetadataError


class BrokerPersistenceError(ServiceUnitNotReady):
    """The broker cannot store this; the name for programs."""

    code = 82
    server_error = 2
    result = Result.BrokerPersistenceError


class TooManyLookupRequestException(PulsarishError):
    """The caller asks for too much; the name for programs."""

    code = 83
    retryable = True
    http_status = 429
    server_error = 14
    result = Result.TooManyLookupRequestException


class ServiceNotReady(ServiceUnitNotReady):
    """The server cannot serve this now and gives the reason. Look up again and retry."""

    code = 40


class NotOwner(ServiceNotReady):
    """This broker does not own the topic any more; look it up again."""

    code = 41
    http_status = 307


class TopicFenced(ServiceNotReady):
    """The topic is being closed, moved or recovered on this broker."""

    code = 42


class MetadataUnavailable(ServiceNotReady, BrokerMetadataError):
    """The metadata store does not answer, or the session is not connected."""

    code = 43
    server_error = 1
    result = Result.BrokerMetadataError


class NotEnoughBookies(ServiceNotReady, BrokerPersistenceError):
    """Fewer bookies than the acknowledgement quorum; the text names how many are needed, available
    and down.
    """

    code = 44
    server_error = 2
    result = Result.BrokerPersistenceError


class NotEnoughDomains(NotEnoughBookies):
    """The writable bookies lie in fewer racks, zones or regions than enforced rules of placement
    ask for; the text names the domain, how many there are and how many are wanted.
    """

    code = 70


class TooManyRequests(TooManyLookupRequestException):
    code = 45


class ProducerBlockedQuotaExceededError(PulsarishError):
    """The topic's backlog exceeds its quota, and the quota's policy is to hold producers until it
    no longer does.
    """

    code = 52
    result = Result.ProducerBlockedQuotaExceededError
    retryable = True
    http_status = 503
    server_error = 7


class DeduplicationUncertain(PulsarishError):
    """The sequence id was pushed and is not persisted yet: neither a duplicate nor new.

    Send it again (rule 15).
    """

    code = 46
    retryable = True
    http_status = 503
    server_error = 2


class Timeout(PulsarishError, TimeoutError):
    code = 47
    result = Result.Timeout
    retryable = True
    http_status = 504


class ConnectError(PulsarishError):
    """No broker could be reached; the text names the addresses that were tried."""

    code = 48
    result = Result.ConnectError
    retryable = True
    http_status = 503


class ProducerQueueIsFull(PulsarishError):
    """``max_pending_messages`` are unacknowledged and ``block_if_queue_full`` is off."""

    code = 49
    result = Result.ProducerQueueIsFull
    retryable = True


class Interrupted(PulsarishError):
    code = 50
    result = Result.Interrupted


class ForkedProcess(PulsarishError):
    """The client was made before this process was forked, and works in the parent only.

    Make a new client in the child.
    """

    code = 51


# Storage.


class ChecksumError(PulsarishError):
    """Bytes do not match their CRC32C."""

    code = 60
    result = Result.ChecksumError
    http_status = 400
    server_error = 9


class BookieIOError(PulsarishError):
    """The bookie could not read what its index points to: the outcome is unknown, never "no such
    entry" (rule 8).
    """

    code = 61
    retryable = True
    http_status = 503
    server_error = 2


class EntryUnknown(PulsarishError):
    """The bookie may once have held the entry and cannot tell (limbo, rule 7)."""

    code = 62
    retryable = True
    http_status = 503
    server_error = 2


class BookieReadOnly(PulsarishError):
    """The bookie's disk is nearly full; it accepts fencing and recovery writes only (rule 13)."""

    code = 63
    retryable = True
    http_status = 503
    server_error = 2


class WrongBookie(PulsarishError):
    """Another bookie answers at this address: its instance id is not the one in the ledger's
    metadata (rule 7).
    """

    code = 64
    retryable = True
    http_status = 503
    server_error = 2


class CorruptData(PulsarishError):
    """A file that must be intact is damaged; the text names the file and the offset.

    The process does not start.
    """

    code = 65
    server_error = 2


def _classes(base: type[PulsarishError]) -> set[type[PulsarishError]]:
    return {base}.union(*map(_classes, base.__subclasses__()))


_BY_CODE: Final[dict[int, type[PulsarishError]]] = {}
for _class in _classes(PulsarishError):
    if _class is not PulsarishError:
        assert _class.code not in _BY_CODE, f"{_class.__name__} repeats code {_class.code}"
        _BY_CODE[_class.code] = _class


def error_from_code(code: int, message: str) -> PulsarishError:
    """Return the error of a wire code. A code from a newer version becomes ``UnknownError``."""
    return _BY_CODE.get(code, UnknownError)(message)
