"""The format of a metadata backup: JSON lines, the last of which proves that the file is complete.

The first line says what the file is. Then comes one line for each node. The last line has their
number and the SHA-256 of every byte before it. A later line about a path replaces an earlier one,
because a backup of a running cluster reads some nodes twice. The caller opens and compresses the
file; the bytes here are those inside.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from pulsarish.metadata.tree.nodes import path_is_valid
from pulsarish.model.errors import CorruptData

__all__ = [
    "BACKUP_VERSION",
    "Backup",
    "BackupFooter",
    "BackupHeader",
    "BackupNode",
    "BackupWriter",
    "read_backup",
]

BACKUP_VERSION: Final = 1
_FORMAT: Final = "pulsarish-metadata-backup"

T = TypeVar("T", bound=msgspec.Struct)


class BackupHeader(msgspec.Struct, frozen=True):
    """The backed-up tree and the time; ``source`` is the metadata URL, for people."""

    format: str
    version: int
    source: str
    started_ms: int


class BackupNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """One persistent node, with its data as text, or in base64 when they are not text.

    ``gone``: the node does not exist any more, and an earlier line about it no longer holds.
    """

    path: str
    text: str = ""
    base64: str = ""
    gone: bool = False


class BackupFooter(msgspec.Struct, frozen=True):
    """The last line. ``lines`` counts those between header and footer."""

    lines: int
    ephemeral_left_out: int
    finished_ms: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Backup:
    """A whole backup in memory. ``nodes`` holds parents before their children."""

    header: BackupHeader
    footer: BackupFooter
    nodes: dict[str, bytes]


class BackupWriter:
    """Encode a backup; ``write`` receives the bytes, in order."""

    def __init__(self, write: Callable[[bytes], None], *, source: str, started_ms: int) -> None:
        self.lines = 0
        self._write = write
        self._sum = hashlib.sha256()
        self._put(BackupHeader(_FORMAT, BACKUP_VERSION, source, started_ms))

    def node(self, path: str, data: bytes) -> None:
        try:
            node = BackupNode(path, text=data.decode())
        except UnicodeDecodeError:
            node = BackupNode(path, base64=base64.b64encode(data).decode())
        self.lines += 1
        self._put(node)

    def gone(self, path: str) -> None:
        self.lines += 1
        self._put(BackupNode(path, gone=True))

    def finish(self, *, ephemeral_left_out: int, finished_ms: int) -> BackupFooter:
        footer = BackupFooter(self.lines, ephemeral_left_out, finished_ms, self._sum.hexdigest())
        self._put(footer)
        return footer

    def _put(self, line: msgspec.Struct) -> None:
        data = msgspec.json.encode(line) + b"\n"
        self._sum.update(data)
        self._write(data)


def read_backup(lines: Iterable[bytes], name: str) -> Backup:
    """Read and check a whole backup.

    Raises ``CorruptData`` naming the file, the line and what is wrong with it.
    """
    checksum = hashlib.sha256()
    header: BackupHeader | None = None
    nodes: dict[str, bytes] = {}
    # the newest line: a node's, unless it proves to be the last one
    last_line: tuple[int, bytes] | None = None
    for number, line in enumerate(lines, start=1):
        if header is None:
            header = _decode(line, BackupHeader, name, number)
            if header.format != _FORMAT or header.version != BACKUP_VERSION:
                raise CorruptData(
                    f"{name} is {header.format!r} version {header.version}; this program reads "
                    f"{_FORMAT!r} {BACKUP_VERSION}"
                )
            checksum.update(line)
            continue
        if last_line is not None:
            checksum.update(last_line[1])
            _take(nodes, _decode(last_line[1], BackupNode, name, last_line[0]), name, last_line[0])
        last_line = (number, line)
    if header is None or last_line is None:
        raise CorruptData(f"{name} is not a complete backup: it has no last line with a checksum")
    footer = _decode(last_line[1], BackupFooter, name, last_line[0])
    if footer.sha256 != checksum.hexdigest() or footer.lines != last_line[0] - 2:
        raise CorruptData(
            f"{name} is damaged: its {last_line[0] - 2} lines do not have the number and checksum "
            "that its last line says"
        )
    return Backup(header, footer, nodes)


def _take(nodes: dict[str, bytes], node: BackupNode, name: str, number: int) -> None:
    if node.path != "/" and not path_is_valid(node.path):
        raise CorruptData(f"{name}, line {number}: {node.path!r} is not a path")
    if node.gone:
        nodes.pop(node.path, None)
        return
    try:
        nodes[node.path] = (
            base64.b64decode(node.base64, validate=True) if node.base64 else node.text.encode()
        )
    except ValueError as error:
        raise CorruptData(
            f"{name}, line {number}: the data of {node.path} are not base64: {error}"
        ) from None


def _decode(line: bytes, kind: type[T], name: str, number: int) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"{name}, line {number}: not a {kind.__name__}: {error}") from None
