"""Frames are whole and in order however the bytes arrive, and a peer that breaks the rules is
noticed before its bytes cost memory.
"""

from __future__ import annotations

import random

import pytest

from pulsarish.runtime.framed.frames import (
    HEADER,
    NUMBER,
    SCRATCH_BYTES,
    FrameDecoder,
    FrameError,
    Kind,
    Opening,
    decode_opening,
    encode_opening,
    frame,
)

SCRATCH = memoryview(bytearray(SCRATCH_BYTES))


def feed(decoder: FrameDecoder, data: bytes, rng: random.Random) -> None:
    """Put bytes in as a kernel does: any number at a time, at most as many as there is room."""
    at = 0
    while at < len(data):
        room = decoder.buffer()
        size = min(len(room), len(data) - at, rng.choice((1, 3, 100, 5_000, SCRATCH_BYTES)))
        room[:size] = data[at : at + size]
        decoder.filled(size)
        decoder.check()
        at += size


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_whole_and_in_order(seed: int) -> None:
    rng = random.Random(seed)
    found: list[tuple[int, bytes]] = []
    decoder = FrameDecoder(SCRATCH, lambda kind, body: found.append((kind, body)), 1 << 20)
    sent = [
        (
            rng.choice(list(Kind)),
            rng.randbytes(rng.choice((0, 1, 5, 1_000, 32_768, 32_769, 300_000))),
        )
        for _ in range(40)
    ]
    for kind, body in sent:
        feed(decoder, frame(kind, body), rng)
    assert found == sent
    assert all(type(body) is bytes for _, body in found)
    assert decoder.held_bytes == 0


def test_connections_share_the_scratch_between_their_reads() -> None:
    rng = random.Random(3)
    found: dict[int, list[bytes]] = {0: [], 1: []}
    decoders = [
        FrameDecoder(
            SCRATCH, lambda _kind, body, number=number: found[number].append(body), 1 << 20
        )
        for number in (0, 1)
    ]
    sent = [[rng.randbytes(rng.choice((0, 10, 40_000))) for _ in range(30)] for _ in decoders]
    streams = [b"".join(frame(Kind.MESSAGE, body) for body in bodies) for bodies in sent]
    ends = [0, 0]
    while any(end < len(stream) for end, stream in zip(ends, streams, strict=True)):
        for number, decoder in enumerate(decoders):
            piece = streams[number][ends[number] : ends[number] + rng.randrange(1, 3_000)]
            feed(decoder, piece, rng)
            ends[number] += len(piece)
    assert [found[0], found[1]] == sent


def test_a_frame_above_the_limit_is_refused_by_its_header() -> None:
    decoder = FrameDecoder(SCRATCH, lambda _kind, _body: None, 100)
    with pytest.raises(FrameError, match="101 bytes is above the limit of 100"):
        feed(decoder, HEADER.pack(101, Kind.MESSAGE), random.Random(0))


def test_what_is_held_of_an_incomplete_frame_is_counted() -> None:
    decoder = FrameDecoder(SCRATCH, lambda _kind, _body: None, 1 << 20)
    feed(decoder, frame(Kind.MESSAGE, bytes(1_000_000))[:600_005], random.Random(0))
    assert decoder.held_bytes == 600_000
    decoder.stop()
    assert decoder.held_bytes == 0


def test_nothing_is_handed_out_after_the_stop() -> None:
    found: list[bytes] = []

    def on_frame(_kind: int, body: bytes) -> None:
        found.append(body)
        decoder.stop()

    decoder = FrameDecoder(SCRATCH, on_frame, 1 << 20)
    data = frame(Kind.MESSAGE, b"first") + frame(Kind.MESSAGE, b"second") + b"rest"
    decoder.buffer()[: len(data)] = data
    decoder.filled(len(data))
    feed(decoder, frame(Kind.MESSAGE, b"third"), random.Random(0))
    assert found == [b"first"]
    assert decoder.held_bytes == 0


def test_an_opening_says_what_the_client_wants() -> None:
    opening = decode_opening(encode_opening(Opening(4096, "t.echo", "Program-v1")))
    assert (opening.window_bytes, opening.method, opening.program) == (4096, "t.echo", "Program-v1")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        encode_opening(Opening(1, "", ""))[:-4],
        encode_opening(Opening(1, "", "")) + b"\xff",
    ],
)
def test_another_opening_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        decode_opening(body)


def test_a_header_is_five_bytes() -> None:
    assert frame(Kind.CREDIT, NUMBER.pack(7)) == b"\0\0\0\4\4\0\0\0\7"
