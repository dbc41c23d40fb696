"""Bytes that are no request are refused as such, whatever they are; what is one is read as
ZooKeeper writes it.
"""

from __future__ import annotations

import contextlib
import random
import struct

import pytest

from pulsarish.metadata.daemon.zkwire import (
    AuthRequest,
    ConnectRequest,
    ErrorCode,
    Malformed,
    OpCode,
    ReadRequest,
    SetWatchesRequest,
    SimpleRequest,
    UnsupportedRequest,
    WriteRequest,
    decode_connect,
    decode_request,
    encode_connect_reply,
    encode_event,
    encode_multi_errors,
)
from pulsarish.metadata.tree.nodes import (
    Check,
    Create,
    Delete,
    Event,
    EventKind,
    Put,
    Refusal,
    Refuse,
)
from tests.support.zk_client import acl, multi_body, read_multi, text

CREATE = text("/a") + text(b"data") + acl() + struct.pack(">i", 3)


def request(kind: int, body: bytes = b"", xid: int = 7) -> bytes:
    return struct.pack(">ii", xid, kind) + body


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (
            request(1, CREATE),
            WriteRequest(OpCode.CREATE, [OpCode.CREATE], [Create("/a", b"data", True, True)]),
        ),
        (
            request(2, text("/a") + struct.pack(">i", 5)),
            WriteRequest(OpCode.DELETE, [OpCode.DELETE], [Delete("/a", 5)]),
        ),
        (
            request(5, text("/a") + struct.pack(">ii", -1, 2)),  # null data
            WriteRequest(OpCode.SET_DATA, [OpCode.SET_DATA], [Put("/a", b"", 2)]),
        ),
        (
            request(14, multi_body([(13, text("/c") + struct.pack(">i", 1)), (15, CREATE)])),
            WriteRequest(
                OpCode.MULTI,
                [OpCode.CHECK, OpCode.CREATE2],
                [Check("/c", 1), Create("/a", b"data", True, True)],
            ),
        ),
        (request(14, multi_body([])), WriteRequest(OpCode.MULTI, [], [])),
        (request(3, text("/ü") + b"\1"), ReadRequest(OpCode.EXISTS, "/ü", True)),
        (request(11, xid=7), SimpleRequest(OpCode.PING)),
        (request(-11), SimpleRequest(OpCode.CLOSE)),
        (request(9, text("/s")), SimpleRequest(OpCode.SYNC, "/s")),
        (
            request(7, text("/s") + acl() + struct.pack(">i", 3)),
            SimpleRequest(OpCode.SET_ACL, "/s", 3),
        ),
        (
            request(7, text("/s") + acl(1) + struct.pack(">i", 3)),
            UnsupportedRequest(ErrorCode.INVALID_ACL),
        ),
        (
            request(100, struct.pack(">i", 0) + text("digest") + text(b"u:p")),
            AuthRequest("digest", b"u:p"),
        ),
        (
            request(
                101,
                struct.pack(">q", 9)
                + struct.pack(">i", 1)
                + text("/d")
                + struct.pack(">ii", 0, -1),
            ),
            SetWatchesRequest(9, ["/d"], [], []),
        ),
        (request(19, CREATE), UnsupportedRequest(ErrorCode.UNIMPLEMENTED)),
        (
            request(1, CREATE[:-4] + struct.pack(">i", 4)),
            UnsupportedRequest(ErrorCode.UNIMPLEMENTED),
        ),
        (
            request(1, CREATE[:-4] + struct.pack(">i", 8)),
            UnsupportedRequest(ErrorCode.BAD_ARGUMENTS),
        ),
        (request(14, multi_body([(21, CREATE)])), UnsupportedRequest(ErrorCode.UNIMPLEMENTED)),
        (
            request(1, text("/a") + text(b"") + acl(1, "digest", "u:p") + struct.pack(">i", 0)),
            WriteRequest(OpCode.CREATE, [OpCode.CREATE], [Refuse("/a", Refusal.INVALID_ACL)]),
        ),
    ],
)
def test_requests(frame: bytes, expected: object) -> None:
    assert decode_request(frame) == (7, expected)


def test_handshake() -> None:
    old = struct.pack(">iqiq", 0, 5, 10_000, 77) + text(b"p" * 16)
    assert decode_connect(old) == ConnectRequest(5, 10_000, 77, b"p" * 16, None)
    assert decode_connect(old + b"\0") == ConnectRequest(5, 10_000, 77, b"p" * 16, False)
    assert (
        encode_connect_reply(500, 1, b"x" * 16, with_read_only=False)
        == struct.pack(">iiiqi", 36, 0, 500, 1, 16) + b"x" * 16
    )


def test_events_and_multi_errors() -> None:
    frame = encode_event(Event(1, EventKind.CHILD, "/p"))
    assert frame == struct.pack(">iiqi", len(frame) - 4, -1, -1, 0) + struct.pack(
        ">ii", 4, 3
    ) + text("/p")
    assert read_multi(encode_multi_errors(3, 1, ErrorCode.NO_NODE)) == [
        (-1, 0),
        (-1, -101),
        (-1, -2),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_malformed_or_a_request(seed: int) -> None:
    rng = random.Random(seed)
    frames = [request(kind, CREATE) for kind in (1, 2, 3, 4, 5, 7, 8, 9, 12, 14, 100, 101, 105)]
    frames += [
        request(14, multi_body([(1, CREATE)] * 3)),
        request(101, struct.pack(">q", 9) + struct.pack(">i", 1) + text("/d")),
    ]
    for _ in range(2000):
        frame = bytearray(rng.choice(frames))
        for _ in range(rng.randrange(4)):
            frame[rng.randrange(8, len(frame))] = rng.choice(
                [0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)]
            )
        del frame[rng.randrange(4, len(frame) + 1) :]
        for decode in (decode_request, decode_connect):
            with contextlib.suppress(Malformed):
                decode(bytes(frame))
