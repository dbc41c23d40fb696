"""Frames: four bytes of length, one byte of kind, a body. All numbers are big-endian.

A connection begins with ``OPEN`` of the client. An ``OPEN`` with a method makes it one stream; one
without makes it a connection for calls. docs/formats.md has the bodies.

``FrameDecoder`` is the receiving core. It has no I/O: the caller fills its buffer and gets whole
frames.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from pulsarish.security.credentials import NO_CREDENTIALS, Credentials, Secret

__all__ = [
    "HEADER",
    "NUMBER",
    "OPEN_BYTES_MAX",
    "SCRATCH_BYTES",
    "FrameDecoder",
    "FrameError",
    "Kind",
    "Opening",
    "decode_opening",
    "encode_opening",
    "frame",
]

HEADER: Final = struct.Struct(">IB")
NUMBER: Final = struct.Struct(">I")
SCRATCH_BYTES: Final = 256 << 10
OPEN_BYTES_MAX: Final = 20 << 10
"""The limit of a frame until the server has accepted the connection."""
_PROGRAM_BYTES_MAX: Final = 256
_CREDENTIALS_BYTES_MAX: Final = 16 << 10
_MAGIC: Final = b"pulsarish frames 1\n"
# A larger body is read by the kernel into a buffer of its own, and never moved again.
_OWN_BUFFER_BYTES: Final = 32 << 10


class FrameError(Exception):
    """The peer broke the rules of the transport. Only its connection ends."""


class Kind(IntEnum):
    OPEN = 1  # client: magic, window, method, program, credentials
    ACCEPTED = 2  # server: window
    MESSAGE = 3
    CREDIT = 4  # number of bytes that were taken
    FINISH = 5
    ABORT = 6  # why, in UTF-8
    CALL = 7  # number, size and name of the method, request
    ANSWER = 8  # number, answer
    FAILED = 9  # number, why


class Opening:
    """What a client says first.

    Args:
        window_bytes: what the client takes from the server ahead of its reader.
        method: of the stream; empty for a connection for calls.
        program: what the client calls itself.
        credentials: what the client shows to say who it is.
    """

    __slots__ = ("credentials", "method", "program", "window_bytes")

    def __init__(
        self,
        window_bytes: int,
        method: str,
        program: str,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self.window_bytes = window_bytes
        self.method = method
        self.program = program
        self.credentials = credentials


def encode_opening(opening: Opening) -> bytes:
    text = f"{opening.method}\0{opening.program}".encode()
    shown = opening.credentials
    if shown.method:
        text += f"\0{shown.method}\0".encode() + shown.data.reveal()
    return _MAGIC + NUMBER.pack(opening.window_bytes) + text


def decode_opening(body: bytes) -> Opening:
    """Return what a client says first. Raises ``FrameError``."""
    if not body.startswith(_MAGIC):
        raise FrameError("the peer does not speak this transport, or another version of it")
    at = len(_MAGIC)
    try:
        (window_bytes,) = NUMBER.unpack_from(body, at)
        method, program, auth_method, data = (
            *body[at + NUMBER.size :].split(b"\0", 3),
            *(b"", b"", b""),
        )[:4]
        if len(program) > _PROGRAM_BYTES_MAX or len(data) > _CREDENTIALS_BYTES_MAX:
            raise FrameError(
                f"the first frame has a name above {_PROGRAM_BYTES_MAX} bytes or credentials above "
                f"{_CREDENTIALS_BYTES_MAX}"
            )
        return Opening(
            window_bytes,
            method.decode(),
            program.decode(),
            Credentials(auth_method.decode(), Secret(data))
            if auth_method or data
            else NO_CREDENTIALS,
        )
    except (struct.error, UnicodeDecodeError) as error:
        # Not the error's text: it would show the bytes.
        reason = "it is too short" if isinstance(error, struct.error) else "it is not text"
        raise FrameError(f"the first frame cannot be read: {reason}") from None


def frame(kind: Kind, body: bytes = b"") -> bytes:
    return HEADER.pack(len(body), kind) + body


class FrameDecoder:
    """Cuts received bytes into frames.

    Args:
        scratch: ``SCRATCH_BYTES`` that all decoders of one event loop share. Between ``buffer`` and
            the ``filled`` that belongs to it no other decoder uses it.
        on_frame: gets the kind and the body of each whole frame, in order. After ``stop`` it is not
            called again.
        body_bytes_max: the limit of a body. It can be changed between frames.
    """

    __slots__ = (
        "_body",
        "_filled_bytes",
        "_kind",
        "_on_frame",
        "_scratch",
        "_tail",
        "body_bytes_max",
        "is_stopped",
    )

    def __init__(
        self, scratch: memoryview, on_frame: Callable[[int, bytes], None], body_bytes_max: int
    ) -> None:
        self.body_bytes_max = body_bytes_max
        self._scratch = scratch
        self._on_frame = on_frame
        self._tail = b""  # the beginning of a frame that is not whole yet
        self._body: bytearray | None = None  # a large body that is not whole yet
        self._filled_bytes = 0
        self._kind = 0
        self.is_stopped = False

    @property
    def held_bytes(self) -> int:
        """The bytes of a frame that is not whole yet."""
        return self._filled_bytes if self._body is not None else len(self._tail)

    def stop(self) -> None:
        """Hand out no more frames, and free what is held."""
        self.is_stopped = True
        self._tail = b""
        self._body = None

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._body is not None:
            return memoryview(self._body)[self._filled_bytes :]
        kept = len(self._tail)
        self._scratch[:kept] = self._tail
        return self._scratch[kept:]

    def filled(self, size_bytes: int) -> None:
        """Take ``size_bytes`` that were put into the last buffer. Raises ``FrameError``."""
        if (body := self._body) is not None:
            self._filled_bytes += size_bytes
            if self._filled_bytes == len(body):
                self._body = None
                self._on_frame(self._kind, bytes(body))
            return
        scratch = self._scratch
        end = len(self._tail) + size_bytes
        at = 0
        while not self.is_stopped and end - at >= HEADER.size:
            length, kind = HEADER.unpack_from(scratch, at)
            if length > self.body_bytes_max:
                raise FrameError(
                    f"a frame of {length} bytes is above the limit of {self.body_bytes_max}"
                )
            start = at + HEADER.size
            if start + length > end:
                if length > _OWN_BUFFER_BYTES:
                    self._begin_body(kind, length, scratch[start:end])
                    return
                break
            at = start + length
            self._on_frame(kind, bytes(scratch[start:at]))
        if not self.is_stopped:
            self._tail = bytes(scratch[at:end])

    def _begin_body(self, kind: int, length: int, first: memoryview) -> None:
        # The kernel zeroes a page when it is used: a size that is only announced costs no memory.
        self._body = body = bytearray(length)
        body[: len(first)] = first
        self._filled_bytes = len(first)
        self._kind = kind
        self._tail = b""

    def check(self) -> None:
        """Assert the invariants."""
        assert self._body is None or not self._tail
        assert self._body is None or 0 <= self._filled_bytes < len(self._body)
        assert len(self._tail) <= HEADER.size + _OWN_BUFFER_BYTES
