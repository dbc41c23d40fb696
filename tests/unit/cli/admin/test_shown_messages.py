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
