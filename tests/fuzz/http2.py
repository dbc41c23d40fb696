"""Bytes for gRPC ports beneath the calls: frames of HTTP/2 in wrong order, size and number."""

from __future__ import annotations

import random
import struct
from typing import Final

__all__ = ["http2_bytes"]

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
(
    _DATA,
    _HEADERS,
    _PRIORITY,
    _RST_STREAM,
    _SETTINGS,
    _PING,
    _GOAWAY,
    _WINDOW_UPDATE,
    _CONTINUATION,
) = 0, 1, 2, 3, 4, 6, 7, 8, 9
_END_STREAM, _END_HEADERS = 1, 4
_NUMBERS: Final = (0, 1, 2, 16_384, 65_535, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1)
_MANY: Final = 2_000


def http2_bytes(rng: random.Random, path: str) -> bytes:
    """Return what one connection sends. ``path``: of a call that the port serves."""
    pieces = [_PREFACE if rng.random() < 0.95 else rng.randbytes(24), _frame(_SETTINGS)]
    for stream in range(1, 2 * rng.randint(1, 6), 2):
        pieces.append(_opening(rng, stream, path))
        pieces += [rng.choice(_PIECES)(rng, stream) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.2:
        rng.shuffle(pieces)
    sent = b"".join(pieces)
    return sent[: rng.randrange(1, len(sent))] if rng.random() < 0.2 else sent


def _frame(
    kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0, size: int | None = None
) -> bytes:
    return (
        (len(payload) if size is None else size).to_bytes(3, "big")
        + bytes((kind, flags))
        + struct.pack(">I", stream)
        + payload
    )


def _text(text: bytes) -> bytes:
    """A literal of HPACK with a length of one byte."""
    return bytes((len(text[:126]),)) + text[:126]


def _opening(rng: random.Random, stream: int, path: str) -> bytes:
    # POST and http are in the static table; the others are literals that are not indexed.
    block = b"\x83\x86\x04" + _text(path.encode()) + b"\x01" + _text(b"localhost")
    block += b"\x0f\x10" + _text(b"application/grpc") + b"\x00" + _text(b"te") + _text(b"trailers")
    if rng.random() < 0.3:
        block += (
            b"\x00"
            + _text(b"grpc-encoding")
            + _text(rng.choice((b"gzip", b"deflate", b"\xff", b"")))
        )
    if rng.random() < 0.3:
        block += (
            b"\x00"
            + _text(b"grpc-timeout")
            + _text(rng.choice((b"99999999H", b"-1S", b"0n", b"x")))
        )
    if rng.random() < 0.2:
        block = rng.choice((rng.randbytes(50), b"\x80", b"\xff" * 20, block * 100))
    flags = _END_HEADERS if rng.random() < 0.9 else rng.randrange(256)
    return _frame(_HEADERS, block, flags=flags, stream=stream)


def _data(rng: random.Random, stream: int) -> bytes:
    """A message of gRPC whose announced length may be another one."""
    body = rng.randbytes(rng.choice((0, 1, 100, 10_000)))
    announced = len(body) if rng.random() < 0.5 else rng.choice(_NUMBERS)
    return _frame(
        _DATA,
        struct.pack(">BI", rng.choice((0, 0, 1, 255)), announced) + body,
        flags=rng.choice((0, _END_STREAM)),
        stream=stream,
    )


def _settings(rng: random.Random, _stream: int) -> bytes:
    values = b"".join(
        struct.pack(">HI", rng.randrange(8), rng.choice(_NUMBERS))
        for _ in range(rng.choice((1, 3, 500)))
    )
    return _frame(
        _SETTINGS, values[: rng.choice((len(values), len(values) - 1))], flags=rng.choice((0, 0, 1))
    )


def _many(rng: random.Random, stream: int) -> bytes:
    """Small frames that each ask for an answer or for memory."""
    frame = rng.choice(
        (
            _frame(_PING, bytes(8)),
            _frame(_SETTINGS),
            _frame(_RST_STREAM, bytes(4), stream=stream),
            _frame(_DATA, stream=stream),
            _frame(_CONTINUATION, b"\x00" + _text(b"x") + _text(b"y" * 100), stream=stream),
            _frame(_PRIORITY, struct.pack(">IB", stream, 0), stream=stream),
        )
    )
    return frame * rng.choice((2, 100, _MANY))


def _streams_reset(rng: random.Random, stream: int) -> bytes:
    """Open many streams and reset each at once."""
    first = stream + 100
    return b"".join(
        _frame(_HEADERS, b"\x83\x86\x84", flags=_END_HEADERS, stream=each)
        + _frame(_RST_STREAM, bytes(4), stream=each)
        for each in range(first, first + 2 * rng.choice((10, _MANY)), 2)
    )


def _wild(rng: random.Random, stream: int) -> bytes:
    payload = rng.randbytes(rng.choice((0, 4, 8, 9, 100)))
    size = len(payload) if rng.random() < 0.5 else rng.choice(_NUMBERS) % 2**24
    return _frame(
        rng.randrange(16),
        payload,
        flags=rng.randrange(256),
        stream=rng.choice((stream, *_NUMBERS)),
        size=size,
    )


def _window(rng: random.Random, stream: int) -> bytes:
    return _frame(
        _WINDOW_UPDATE, struct.pack(">I", rng.choice(_NUMBERS)), stream=rng.choice((0, stream))
    )


def _goaway(rng: random.Random, _stream: int) -> bytes:
    return _frame(
        _GOAWAY, struct.pack(">II", rng.choice(_NUMBERS), 0) + rng.randbytes(rng.choice((0, 1_000)))
    )


_PIECES: Final = (_data, _data, _settings, _many, _streams_reset, _wild, _window, _goaway)
