"""Commands that show messages, or move them to be received again."""

from __future__ import annotations

import json
import re
import struct

import pytest

from pulsarish.model.errors import TopicNotFound
from pulsarish.wire._pb.message_pb2 import KeyValue, SingleMessageMetadata
from tests.support.admin_server import NEW, AdminServer, run


def batch(*messages: tuple[bytes, str, dict[str, str]]) -> bytes:
    """A batch's payload: content, key and properties of each message."""
    payload = b""
    for content, key, properties in messages:
        own = SingleMessageMetadata(payload_size=len(content), partition_key=key)
        own.properties.extend(KeyValue(key=name, value=value) for name, value in properties.items())
        head = own.SerializeToString()
        payload += struct.pack(">I", len(head)) + head + content
    return payload


ENTRY = "/admin/v2/persistent/acme/orders/new/ledger/3/entry/7"
BATCH_HEADERS = {
    "X-Pulsar-Message-ID": "3:7",
    "X-Pulsar-num-batch-message": "2",
    "X-Pulsar-publish-time": "2026-01-01T00:00:00.000+00:00",
}


def test_a_batch_is_shown_message_by_message(server: AdminServer) -> None:
    server.answer(
        f"GET {ENTRY}", 200, batch((b"one", "k", {"a": "1"}), (b"\xfftwo", "", {})), BATCH_HEADERS
    )
    shown = run(server, "topics", "message", "acme/orders/new", "3:7")
    assert shown.stdout_bytes == b"one\n\xfftwo\n"
    first, second = shown.stderr.splitlines()
    assert first == "3:7:0  key=k  published=2026-01-01T00:00:00.000+00:00  a=1"
    assert second == "3:7:1  key=-  published=2026-01-01T00:00:00.000+00:00"
    assert (
        run(server, "topics", "message", "acme/orders/new", "3:7", "--format", "hex").stdout
        == "6f 6e 65\nff 74 77 6f\n"
    )
    rows = json.loads(
        run(server, "topics", "message", "acme/orders/new", "3:7", "-o", "json").stdout
    )
    assert [(row["id"], row["key"], row["properties"], row["value"]) for row in rows] == [
        ("3:7:0", "k", {"a": "1"}, "one"),
        ("3:7:1", None, {}, "\ufffdtwo"),
    ]


def test_what_cannot_be_taken_apart_is_said_to_be_so(server: AdminServer) -> None:
    server.answer(
        f"GET {ENTRY}", 200, b"secret", {**BATCH_HEADERS, "X-Pulsar-Is-Encrypted": "true"}
    )
    shown = run(server, "topics", "message", "acme/orders/new", "3:7")
    assert shown.stdout == "secret\n"
    assert "encrypted: shown as stored" in shown.stderr
    server.answer(f"GET {ENTRY}", 200, b"\0\0\0\x09short", BATCH_HEADERS)
    cut = run(server, "topics", "message", "acme/orders/new", "3:7")
    assert (
        cut.exit_code,
        "a batch is cut or damaged" in cut.stderr,
        "Traceback" in cut.stderr,
    ) == (1, True, False)


def test_peeked_messages_have_ids_that_read_takes(server: AdminServer) -> None:
    for number, message_id in enumerate(["3:0:1", "3:1:-1"], start=1):
        server.answer(
            f"GET {NEW}/subscription/s/position/{number}",
            200,
            b"payload",
            {"X-Pulsar-Message-ID": message_id},
        )
    done = run(server, "subscriptions", "peek", "acme/orders/new", "s", "-n", "2", "-o", "json")
    assert [row["id"] for row in json.loads(done.stdout)] == ["3:0:1", "3:1"]


_DEAD = "/admin/v2/persistent/acme/orders/new-s-DLQ/subscriptions"
_RETRY = "/admin/v2/persistent/acme/orders/new-s-RETRY/subscriptions"


@pytest.mark.parametrize(
    ("dead", "arguments", "said"),
    [
        (None, (), "there is no dead letter topic .*/new-s-DLQ: .*--dead-letter-topic"),
        ([], (), "no subscription to take from: .*subscriptions create .*new-s-DLQ redrive"),
        (["a", "b"], (), "give one of a, b as --dead-letter-subscription"),
        (["a"], ("--dead-letter-subscription", "c"), "has no subscription 'c'; it has: a"),
        (["a"], (), "new-s-RETRY has no subscription 's'; .*retry_enabled.* --to topic gives"),
        (["a"], ("--to", "topic"), "orders/new has no subscription 's'$"),
    ],
)
def test_a_redrive_that_cannot_be_meant(
    server: AdminServer, dead: list[str] | None, arguments: tuple[str, ...], said: str
) -> None:
    if dead is None:
        server.otherwise = lambda _method, _path: (404, {"reason": "none"}, {})
        code = {"X-Pulsarish-Error-Code": str(TopicNotFound.code)}
        server.answer(f"GET {_DEAD}", 404, {"reason": "none"}, code)
    else:
        server.answer(f"GET {_DEAD}", body=dead)
    server.answer(f"GET {_RETRY}", body=["other"])
    server.answer(f"GET {NEW}/subscriptions", body=["other"])
    done = run(server, "subscriptions", "redrive", "acme/orders/new", "s", *arguments)
    assert done.exit_code != 0
    assert re.search(said, done.stderr.replace("\n", " ").strip()), done.stderr


def test_a_trace_is_a_sentence_the_message_its_bookies_and_its_subscriptions(
    server: AdminServer,
) -> None:
    def copy(bookie: str, state: str, **more: object) -> dict[str, object]:
        found = {"bookie": bookie, "instanceId": bookie, "isRegistered": state != "silent"}
        return {**found, "state": state, "checksum": "", "reason": "", **more}

    def place(state: str, **more: object) -> dict[str, object]:
        return {
            "type": "shared",
            "state": state,
            "consumerName": None,
            "sinceMs": 0,
            "dueMs": 0,
            "redeliveryCount": 0,
            "remainingMessages": None,
            "isHole": False,
            "matchesFilter": None,
            **more,
        }

    report = {
        "topic": "t",
        "messageId": "3:7:1",
        "state": "stored",
        "explanation": "Stored.",
        "message": {"key": "k", "orderingKey": None, "properties": {"a": "b"}, "chunk": ""},
        "readError": "",
        "expireTimestamp": 1_767_225_600_000,
        "isExpired": False,
        "ledger": {
            "ledgerId": 3,
            "state": "closed",
            "closedMs": 1_767_225_600_000,
            "ensembleSize": 2,
            "writeQuorum": 2,
            "ackQuorum": 2,
            "firstEntry": 5,
            "copies": [
                copy("bookie-1", "held", checksum="0badcafe"),
                copy("bookie-2", "silent", reason="no answer"),
            ],
        },
        "ledgerError": "",
        "subscriptions": {
            "a": place("acknowledged", matchesFilter=False),
            "b": place("consumer", consumerName="c", sinceMs=1, isHole=True, remainingMessages=2),
            "c": place("delayed", dueMs=1 << 50),
        },
    }
    server.answer(f"GET {NEW}/ledger/3/entry/7/trace", 200, report)
    words = ("topics", "trace", "acme/orders/new", "3:7:1", "--copies", "--subscription", "a")
    done = run(server, *words)
    assert server.requests[-1][1].endswith("?batchIndex=1&copies=true&subscription=a")
    lines = done.stdout.splitlines()
    assert lines[0] == "t 3:7:1: Stored."
    assert [line.split()[0] for line in lines[1:4]] == ["key", "properties:", "a"]
    assert lines[4].startswith("expireTimestamp  2026-01-01T00:00:00.000+00:00 (")
    assert lines[5] == (
        "ledger 3: closed at 2026-01-01T00:00:00.000+00:00, 2 copies of each entry, these "
        "bookies from entry 5 on"
    )
    assert lines[6].split() == ["BOOKIE", "REGISTERED", "STATE", "CHECKSUM", "REASON"]
    assert lines[7].split() == ["bookie-1", "yes", "held", "0badcafe", "-"]
    assert lines[8].split() == ["bookie-2", "no", "silent", "-", "no", "answer"]
    assert lines[10].split(None, 5)[-1] == "the filter does not match"
    assert "delivered " in lines[11]
    assert lines[11].endswith("hole, 2 of its batch left")
    assert "delayed for " in lines[12]
    assert json.loads(run(server, *words, "-o", "json").stdout) == report
    run(server, "topics", "trace", "acme/orders/new", "3:7:-1")
    assert server.requests[-1][1].endswith("/entry/7/trace")
    run(server, "topics", "trace", "acme/orders/new", "(3,7,-1,2)")
    assert server.requests[-1][1].endswith("/entry/7/trace?batchIndex=2")
    run(server, "topics", "trace", "acme/orders/new", "(3, 7, 0, -1)")
    assert server.requests[-1][1].endswith("/entry/7/trace")
    for text in ("3:7:x", "x", "3:7:1:2", "(3,7)"):
        for command in ("trace", "message"):
            refused = run(server, "topics", command, "acme/orders/new", text)
            assert refused.exit_code == 2
            assert "must be LEDGER:ENTRY or LEDGER:ENTRY:INDEX" in refused.stderr
