"""What a hostile client of ZooKeeper's protocol sends: conversations as clients have them, changed
where a server may trip over it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from tests.support.zk_client import acl, multi_body, text

__all__ = ["PATHS", "conversation", "handshake", "hostile_bytes", "request"]

PATHS = (
    "/",
    "/a",
    "/a/b",
    "/none",
    "",
    "a",
    "//",
    "/a/",
    "/a/../b",
    "/./a",
    "/nul\0",
    "/ü",
    "/\ud7ff",
    "/" + "d/" * 2000 + "d",
    "/" + "x" * 17_000,
)
_KINDS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    11,
    12,
    13,
    14,
    15,
    16,
    17,
    18,
    19,
    20,
    21,
    22,
    100,
    101,
    102,
    105,
    106,
    107,
    -10,
    -11,
    -1,
    0,
    2**31 - 1,
)
_NUMBERS = (0, 1, -1, 2, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, -0x80000000, 0xFFFFF, 0x100000, 200_000)


def handshake(
    session_id: int = 0, password: bytes = bytes(16), *, zxid: int = 0, timeout_ms: int = 30_000
) -> bytes:
    return text(struct.pack(">iqiq", 0, zxid, timeout_ms, session_id) + text(password) + b"\0")


def request(kind: int, body: bytes = b"", xid: int = 1) -> bytes:
    return text(struct.pack(">ii", xid, kind) + body)


_REPEATED_BYTES_MAX = 4 << 20


def _number(rng: random.Random) -> bytes:
    return struct.pack(">i", rng.choice(_NUMBERS))


def _path(rng: random.Random) -> bytes:
    return text(rng.choice(PATHS))


def _strings(rng: random.Random) -> bytes:
    count = rng.randrange(5)
    return struct.pack(">i", rng.choice((count, count, -1, *_NUMBERS))) + b"".join(
        _path(rng) for _ in range(count)
    )


def _create(rng: random.Random) -> bytes:
    open_to = rng.choice((acl(), acl(), acl(1), acl(31, "digest", "u:p"), _number(rng)))
    return (
        _path(rng)
        + text(bytes(rng.choice((0, 10, 5000))))
        + open_to
        + struct.pack(">i", rng.choice((0, 1, 2, 3, 4, 9)))
    )


def _multi(rng: random.Random) -> bytes:
    ops = [
        (rng.choice((1, 2, 5, 13, 14, 15, 99)), _BODIES[rng.choice((1, 2, 5, 13))](rng))
        for _ in range(rng.randrange(6))
    ]
    body = multi_body(ops)
    return body if rng.random() < 0.8 else body[:-9]


_BODIES: dict[int, Callable[[random.Random], bytes]] = {
    1: _create,
    15: _create,
    2: lambda rng: _path(rng) + _number(rng),
    13: lambda rng: _path(rng) + _number(rng),
    5: lambda rng: _path(rng) + text(bytes(rng.choice((0, 10, 5000)))) + _number(rng),
    7: lambda rng: _path(rng) + acl() + _number(rng),
    14: _multi,
    100: lambda rng: _number(rng) + text(rng.choice(("digest", "x509", ""))) + text(b"\xff\xfe"),
    101: lambda rng: bytes(8) + _strings(rng) * 3,
    105: lambda rng: bytes(8) + _strings(rng) * 5,
    106: lambda rng: _path(rng) + _number(rng),
    16: lambda rng: text(b"") * 3 + bytes(8),  # reconfig
}


def conversation(rng: random.Random) -> list[bytes]:
    """Frames of a client. Nearly all of them can be decoded."""
    frames = [
        handshake(
            rng.choice((0, 0, 0, 1, -1, 2**62)),
            bytes(16),
            zxid=rng.choice((0, 0, 0, -1, 2**62)),
            timeout_ms=rng.choice(_NUMBERS),
        )
    ]
    for number in range(rng.randrange(1, 12)):
        kind = rng.choice(_KINDS)
        body = _BODIES.get(kind, lambda rng: _path(rng) + rng.choice((b"\0", b"\1", b"")))(rng)
        frames.append(request(kind, body, rng.choice((number, -1, -2, -4, -8, 2**31 - 1))))
    if rng.random() < 0.2:
        frames.insert(rng.randrange(len(frames)), handshake())
    return frames


def _cut(rng: random.Random, frame: bytes) -> bytes:
    return frame[: rng.randrange(len(frame))]


def _flip(rng: random.Random, frame: bytes) -> bytes:
    changed = bytearray(frame)
    for _ in range(rng.randrange(1, 4)):
        changed[rng.randrange(len(changed))] = rng.choice(
            (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))
        )
    return bytes(changed)


def _lie(rng: random.Random, frame: bytes) -> bytes:
    """Another number where a length, a count or a version may be."""
    at = rng.choice((0, rng.randrange(0, max(len(frame) - 3, 1))))
    return frame[:at] + _number(rng) + frame[at + 4 :]


def _repeat(rng: random.Random, frame: bytes) -> bytes:
    # A frame may be repeated several times: in all it stays small enough for this process.
    return frame * min(rng.randrange(2, 200), 1 + _REPEATED_BYTES_MAX // max(1, len(frame)))


def hostile_bytes(rng: random.Random) -> bytes:
    """What one connection sends, in one piece: a conversation with none to three changes."""
    frames = conversation(rng)
    for _ in range(rng.randrange(4)):
        index = rng.randrange(len(frames))
        frames[index] = (
            rng.choice((_cut, _flip, _flip, _lie, _lie, _repeat))(rng, frames[index]) or b"\0"
        )
    if rng.random() < 0.05:
        frames.insert(
            0,
            rng.choice(
                (
                    b"ruok",
                    b"mntr",
                    b"srvr",
                    b"GET / HTTP/1.1\r\n\r\n",
                    b"\x16\x03\x01",
                    rng.randbytes(50),
                )
            ),
        )
    return b"".join(frames)
