"""Which nodes below a topic name ledgers: a backup must not take a schema for a cursor."""

from __future__ import annotations

import pytest

from pulsarish.metadata.backup.backup import ledgers_named
from pulsarish.metadata.records import (
    CursorRecord,
    SchemaRecord,
    SchemasRecord,
    TopicLedger,
    TopicPolicies,
    TopicRecord,
)
from pulsarish.wire.json_record import encode_record

TOPIC = "/topics/public/default/t"


@pytest.mark.parametrize(
    ("path", "record", "ledgers"),
    [
        (TOPIC, TopicRecord((TopicLedger(3), TopicLedger(7))), (3, 7)),
        (f"{TOPIC}/cursors/me", CursorRecord(3, cursor_ledger=9), (9,)),
        (f"{TOPIC}/cursors/me", CursorRecord(3, cursor_ledger=9, delayed=(7, 8)), (9, 7, 8)),
        (f"{TOPIC}/cursors/me", CursorRecord(3), ()),
        (f"{TOPIC}/policies", TopicPolicies(), ()),
        (f"{TOPIC}/schemas", SchemasRecord(1), ()),
        (f"{TOPIC}/schemas/0000000000-00", SchemaRecord(4), ()),
        ("/partitioned/public/default/t/schemas/0000000000-00", SchemaRecord(4), ()),
    ],
)
def test_ledgers_named(
    path: str, record: TopicRecord | CursorRecord, ledgers: tuple[int, ...]
) -> None:
    assert ledgers_named(path, encode_record(record)) == ledgers
