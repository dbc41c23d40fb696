"""The file of a backup: what is written is read, and nothing that is damaged or cut is taken for a
backup.
"""

from __future__ import annotations

import pytest

from pulsarish.metadata.backup.file_format import BackupWriter, read_backup
from pulsarish.model.errors import CorruptData


def written() -> list[bytes]:
    lines: list[bytes] = []
    writer = BackupWriter(lines.append, source="zk://there", started_ms=5)
    writer.node("/a", b"")
    writer.node("/a/text", '{"name":"Zoë"}'.encode())
    writer.node("/a/bytes", b"\xff\x00\xfe")
    writer.node("/b", b"first")
    writer.node("/c", b"lost")
    writer.node("/b", b"second")
    writer.gone("/c")
    writer.finish(ephemeral_left_out=2, finished_ms=9)
    return lines


def test_what_was_written_is_read_and_the_later_line_counts() -> None:
    backup = read_backup(written(), "f")
    assert backup.nodes == {
        "/a": b"",
        "/a/text": '{"name":"Zoë"}'.encode(),
        "/a/bytes": b"\xff\x00\xfe",
        "/b": b"second",
    }
    assert (backup.header.source, backup.header.started_ms) == ("zk://there", 5)
    assert (backup.footer.lines, backup.footer.ephemeral_left_out) == (7, 2)


def test_every_cut_and_every_changed_byte_is_found() -> None:
    lines = written()
    for count in range(len(lines)):
        with pytest.raises(CorruptData):
            read_backup(lines[:count], "f")
    whole = b"".join(lines)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x04
        try:
            found = read_backup(bytes(damaged).splitlines(keepends=True), "f")
        except CorruptData:
            continue
        # Only what the checksum cannot cover: numbers of the last line that say nothing of the
        # nodes.
        assert found.nodes == read_backup(lines, "f").nodes


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]], "version 2"),
        (lambda lines: [b'{"some":"json"}\n', *lines[1:]], "line 1"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "damaged"),
        (lambda lines: [], "not a complete backup"),
    ],
)
def test_errors_say_what_is_wrong(damage: object, text: str) -> None:
    with pytest.raises(CorruptData, match=text):
        read_backup(damage(written()), "f")  # type: ignore[operator]
