"""The batches of ``bookie.add`` and ``bookie.read``.

The calls of the control lane use the generated messages directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.framing import Buffer, join_encoded, join_records, slice_records, split_records

__all__ = [
    "READS_PER_MESSAGE_MAX",
    "AddBatch",
    "AddResult",
    "ReadAnswer",
    "ReadItem",
    "decode_add",
    "decode_add_response",
    "decode_read",
    "decode_read_response",
    "encode_add",
    "encode_add_encoded",
    "encode_add_response",
    "encode_read",
    "encode_read_response",
    "encode_sizes",
]

READS_PER_MESSAGE_MAX: Final = 4_096
"""Readers send fewer."""


@dataclass(slots=True)
class AddBatch:
    instance_id: str
    recovery: bool
    records: list[memoryview]


@dataclass(slots=True)
class AddResult:
    """The outcome of entries ``first..last`` of a ledger; ``code`` 0: stored and synced."""

    ledger_id: int
    first: int
    last: int
    code: int


def encode_add(
    instance_id: str, *, recovery: bool, sizes: Sequence[int], parts: Sequence[Buffer]
) -> list[Buffer]:
    """Encode a batch.

    ``sizes`` has one size for each record; ``parts`` are the records' bytes in order, in any number
    of pieces.
    """
    return join_records(
        pb.AddRequest(instance_id=instance_id, recovery=recovery, sizes=sizes), parts, sum(sizes)
    )


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Return the ``sizes`` of a batch as bytes that every message with the batch shares.

    Fields of one number are joined by concatenation.
    """
    return pb.AddRequest(sizes=sizes).SerializeToString()


def encode_add_encoded(
    instance_id: str,
    *,
    recovery: bool,
    size_fields: Sequence[bytes],
    parts: Sequence[Buffer],
    size_bytes: int,
) -> list[Buffer]:
    """Encode like ``encode_add``, for batches that were encoded once and go to several bookies.

    No batch at all is a heartbeat.
    """
    head = pb.AddRequest(instance_id=instance_id, recovery=recovery).SerializeToString()
    return join_encoded(b"".join((head, *size_fields)), parts, size_bytes)


def decode_add(data: bytes) -> AddBatch:
    """Decode a batch.

    Raises ``DecodeError`` or ``ChecksumError`` for bytes that are not such a message.
    """
    head, records = split_records(data)
    message = pb.AddRequest.FromString(head)
    return AddBatch(message.instance_id, message.recovery, slice_records(records, message.sizes))


def encode_add_response(answered: int, results: Sequence[AddResult]) -> bytes:
    return pb.AddResponse(
        answered=answered,
        ledgers=[result.ledger_id for result in results],
        firsts=[result.first for result in results],
        lasts=[result.last for result in results],
        codes=[result.code for result in results],
    ).SerializeToString()


def decode_add_response(data: bytes) -> tuple[int, list[AddResult]]:
    message = pb.AddResponse.FromString(data)
    columns = zip(message.ledgers, message.firsts, message.lasts, message.codes, strict=True)
    return message.answered, [AddResult(*row) for row in columns]


@dataclass(slots=True)
class ReadItem:
    """One read: the entries of ``spans`` (pairs first, last, inclusive) in order, until
    ``max_bytes``.
    """

    request_id: int
    ledger_id: int
    spans: list[tuple[int, int]]
    max_bytes: int
    may_cache: bool = False
    """Whether records may come from the bookie's read cache.

    Without it they come from its disk, as a check of its copy needs.
    """


@dataclass(slots=True)
class ReadAnswer:
    """The records found, and why the next one is missing (0: the spans or the bytes ended it)."""

    request_id: int
    code: int
    records: list[bytes | memoryview] = field(default_factory=list)


def encode_read(instance_id: str, reads: Sequence[ReadItem]) -> bytes:
    message = pb.ReadRequest(instance_id=instance_id)
    for item in reads:
        message.reads.add(
            request_id=item.request_id,
            ledger=item.ledger_id,
            spans=[edge for span in item.spans for edge in span],
            max_bytes=item.max_bytes,
            may_cache=item.may_cache,
        )
    return message.SerializeToString()


def decode_read(data: bytes) -> tuple[str, list[ReadItem]]:
    """Decode reads.

    Raises ``DecodeError``, and ``ValueError`` for impossible ids or an impossible number of reads.
    """
    message = pb.ReadRequest.FromString(data)
    if len(message.reads) > READS_PER_MESSAGE_MAX:
        raise ValueError(
            f"{len(message.reads)} reads in one message, above the limit of {READS_PER_MESSAGE_MAX}"
        )
    items: list[ReadItem] = []
    for read in message.reads:
        spans = list(zip(read.spans[::2], read.spans[1::2], strict=True))
        if read.ledger < 0 or (read.spans and min(read.spans) < 0):
            raise ValueError(f"a read of ledger {read.ledger} with a negative ledger or entry id")
        items.append(ReadItem(read.request_id, read.ledger, spans, read.max_bytes, read.may_cache))
    return message.instance_id, items


def encode_read_response(answered: int, answers: Sequence[ReadAnswer]) -> list[Buffer]:
    message = pb.ReadResponse(answered=answered)
    parts: list[Buffer] = []
    for answer in answers:
        message.results.add(
            request_id=answer.request_id, count=len(answer.records), code=answer.code
        )
        parts.extend(answer.records)
    sizes = [len(part) for part in parts]
    message.sizes.extend(sizes)
    return join_records(message, parts, sum(sizes))


def decode_read_response(data: bytes) -> tuple[int, list[ReadAnswer]]:
    head, body = split_records(data)
    message = pb.ReadResponse.FromString(head)
    records = slice_records(body, message.sizes)
    answers: list[ReadAnswer] = []
    at = 0
    for result in message.results:
        answers.append(
            ReadAnswer(result.request_id, result.code, [*records[at : at + result.count]])
        )
        at += result.count
    return message.answered, answers
