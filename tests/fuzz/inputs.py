"""What the fuzzers send: conversations as clients have them, with fields, sizes and order changed.

The same seed gives the same input.

An input is made of steps. A step of a byte port is what is written at once; a step of a gRPC port
is one call, or one stream with its messages, or bytes to the port. Nothing here names a topic or a
ledger of others: what a peer may do before there is a login must not be taken for a defect.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from google.protobuf.message import Message

from pulsarish.runtime.framed.frames import Kind, Opening, encode_opening
from pulsarish.runtime.network.endpoints import method_path
from pulsarish.sim.programs.hostile_frames import (
    SUBSCRIPTION,
    TOPICS,
    WILD_IDS,
    changed,
    entry,
    frame,
    garbage,
    send_frame,
)
from pulsarish.sim.programs.hostile_peers import _LEDGERS, _bookie_calls, _conversation, _producer
from pulsarish.wire._pb import bookie_pb2, broker_pb2
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.pulsar_frames import command_frame
from tests.fuzz.http2 import http2_bytes
from tests.support.hostile_zookeeper import hostile_bytes

__all__ = [
    "INSTANCE_ID",
    "TLS_PORTS",
    "Step",
    "binary_input",
    "bookie_input",
    "broker_input",
    "connect_input",
    "http_input",
    "tls_input",
    "zookeeper_input",
]

Step = tuple[str, list[bytes]]
"""``("", writes)`` for bytes to the port of the target, ``(role, writes)`` to the HTTP port of a
node, or ``(role:port, writes)`` to a port by name; else a method and messages.
"""
INSTANCE_ID: Final = b"bookie-1~instance"
"""Stands for the id of the bookie's data, which differs in each cluster."""
_WINDOWS: Final = (0, 1, 4 << 20, 1 << 26, (1 << 32) - 1)
_ROLES: Final = ("bookie", "metadata", "proxy")
TLS_PORTS: Final = (
    "broker:grpc",
    "broker:framed",
    "broker:pulsar",
    "broker:http",
    "bookie:grpc",
    "bookie:framed",
    "proxy:pulsar",
    "proxy:connect",
)
_BYTES_SHARE: Final = 0.15
"""Of the inputs to gRPC ports, those that are no calls."""

_HELLO: Final = command_frame(
    pb.Command(type=2, connect=pb.Connect(client_version="fuzz", protocol_version=19))
)
_PARAMETERS: Final = ("limit", "after", "force", "authoritative", "x")
_WORDS: Final = (
    *TOPICS,
    SUBSCRIPTION,
    "",
    "..",
    "%2F",
    "a" * 3_000,
    "\x00",
    "\u202e",
    "-1",
    "1e999",
    "[",
    '"',
    "*",
    "persistent://x",
)


def binary_input(rng: random.Random) -> list[Step]:
    """Frames of Apache Pulsar's protocol, in one write or several."""
    topic = rng.choice(TOPICS)
    writes = [_HELLO] if rng.random() < 0.9 else []
    commands = _conversation(topic)
    for command in [*commands[:3], *rng.choices(commands, k=rng.randint(1, 30))]:
        writes.append(frame(changed(rng, command, most=0 if rng.random() < 0.4 else 3)))
        if rng.random() < 0.4:
            writes.append(
                send_frame(
                    rng.choice((1, 1, 2)),
                    rng.choice((1, 2, *WILD_IDS)),
                    rng.choice((None, b"", rng.randbytes(30))),
                )
            )
        if rng.random() < 0.1:
            writes.append(_producer(topic, 1, rng.randrange(100), epoch=rng.choice(WILD_IDS)))
        if rng.random() < 0.05:
            writes.append(garbage(rng, writes[-1]))
    if rng.random() < 0.5:
        rng.shuffle(writes)
    return [("", [b"".join(writes)] if rng.random() < 0.6 else writes)]


def connect_input(rng: random.Random) -> list[Step]:
    """CONNECT of HTTP to a proxy."""
    target = rng.choice(
        (
            "bookie:3181",
            "169.254.169.254:80",
            "[::1]:1",
            ":",
            "a" * 5_000 + ":1",
            "127.0.0.1:99999",
            "127.0.0.1:1",
        )
    )
    method = rng.choice(("CONNECT", "CONNECT", "GET", "connect", "CONNECT  "))
    head = (
        f"{method} {target} HTTP/{rng.choice(('1.1', '1.0', '2', '9' * 50))}\r\nHost: "
        f"{rng.choice(_WORDS)}\r\n"
    ).encode(errors="replace")
    return [("", [_damaged(rng, head + rng.choice((b"\r\n", b"", b"\n\n", b"x: y\r\n" * 5_000)))])]


def zookeeper_input(rng: random.Random) -> list[Step]:
    """Frames of ZooKeeper's protocol."""
    return [("", [hostile_bytes(rng)])]


def tls_input(rng: random.Random) -> list[Step]:
    """TLS records to one of the ports with TLS: a first message as clients send it, mostly changed,
    or records of any kind, with true lengths and false ones.
    """
    writes = [_damaged(rng, _client_hello(rng))] if rng.random() < 0.7 else []
    writes += [_tls_record(rng) for _ in range(rng.randrange(4))]
    return [(rng.choice(TLS_PORTS), writes or [_client_hello(rng)])]


def _client_hello(rng: random.Random) -> bytes:
    key_share = b"\x00\x1d\x00\x20" + rng.randbytes(32)
    extensions = b"".join(
        number.to_bytes(2) + len(content).to_bytes(2) + content
        for number, content in (
            (0, b"\x00\x0c\x00\x00\x09localhost"),
            (10, b"\x00\x02\x00\x1d"),
            (13, b"\x00\x06\x04\x03\x08\x04\x08\x07"),
            (16, b"\x00\x03\x02h2"),
            (43, b"\x02\x03\x04"),
            (51, len(key_share).to_bytes(2) + key_share),
        )
        if rng.random() < 0.95
    )
    body = b"".join(
        (
            b"\x03\x03" + rng.randbytes(32),
            b"\x20" + rng.randbytes(32),
            b"\x00\x06\x13\x01\x13\x02\x13\x03",
            b"\x01\x00",
            len(extensions).to_bytes(2) + extensions,
        )
    )
    message = b"\x01" + len(body).to_bytes(3) + body
    return b"\x16\x03\x01" + len(message).to_bytes(2) + message


def _tls_record(rng: random.Random) -> bytes:
    content = rng.randbytes(rng.choice((0, 1, 5, 64, 1_000, 1 << 14)))
    kind = rng.choice((20, 21, 22, 23, 24, rng.randrange(256)))
    length = len(content) if rng.random() < 0.7 else rng.randrange(1 << 16)
    return bytes((kind, 3, rng.randrange(5))) + length.to_bytes(2) + content


def http_input(rng: random.Random, paths: Mapping[str, Mapping[str, Any]]) -> list[Step]:
    """Requests about topics, a tenant and a namespace of the fuzzer, by the routes that the broker
    describes; some to other nodes.
    """
    role = rng.choice(_ROLES) if rng.random() < 0.2 else ""
    requests = [_request(rng, paths, plain=bool(role)) for _ in range(rng.choice((1, 1, 2, 20)))]
    return [(role, [b"".join(requests)] if rng.random() < 0.7 else requests)]


def _request(rng: random.Random, paths: Mapping[str, Mapping[str, Any]], *, plain: bool) -> bytes:
    """``plain``: only the paths that every node has."""
    common = ("/health", "/metrics")
    path = rng.choice(
        [
            path
            for path in paths
            if path in common or (not plain and ("{topic}" in path or "{namespace}" in path))
        ]
    )
    method = rng.choice((*(each.upper() for each in paths[path]), "GET", "PUT"))
    topic = "{topic}" in path
    path = path.replace("{tenant}", "public" if topic else "fuzz").replace(
        "{namespace}", "default" if topic else "fuzz"
    )
    for name in (
        "topic",
        "subscription",
        "ledger",
        "entry",
        "timestamp",
        "key",
        "policy",
        "bundle",
        "version",
        "partition",
        "position",
    ):
        value = (
            f"hostile{rng.randrange(2)}"
            if name == "topic"
            else rng.choice((SUBSCRIPTION, str(rng.choice(WILD_IDS)), rng.choice(_WORDS)))
        )
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    if rng.random() < 0.3:
        path += "?" + "&".join(
            f"{rng.choice(_PARAMETERS)}={quote(rng.choice(_WORDS))}" for _ in range(2)
        )
    body = rng.choice((b"", b"", _json(rng, 0), b"[" * 50_000, rng.randbytes(50), b"{" * 200))
    headers = ["Host: localhost"] if rng.random() < 0.95 else []
    if rng.random() < 0.7:
        headers.append("Content-Type: application/json")
    chunked = bool(body) and rng.random() < 0.3
    if chunked:
        size = rng.choice((1, 100, len(body)))
        pieces = [body[start : start + size] for start in range(0, len(body), size)][:3_000]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        headers.append("Transfer-Encoding: chunked")
    if body and (not chunked or rng.random() < 0.1):
        headers.append(
            f"Content-Length: {len(body) if rng.random() < 0.9 else rng.choice(WILD_IDS)}"
        )
    if rng.random() < 0.1:
        headers += rng.choices(
            (
                "Expect: 100-continue",
                "Connection: close",
                "Upgrade: websocket",
                "Origin: null",
                "X: " + "y" * 9_000,
            ),
            k=2,
        )
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{line}\r\n" for line in headers) + "\r\n"
    return _damaged(rng, head.encode(errors="replace") + body)


def _json(rng: random.Random, depth: int) -> bytes:
    def value(depth: int) -> object:
        match rng.randrange(8 if depth < 4 else 6):
            case 0:
                return rng.choice(WILD_IDS)
            case 1:
                return rng.choice(_WORDS)
            case 2:
                return None
            case 3:
                return rng.random() < 0.5
            case 4:
                return -rng.choice(WILD_IDS)
            case 5:
                return 1.5e300
            case 6:
                return [value(depth + 1) for _ in range(rng.randrange(4))]
            case _:
                names = (
                    "type",
                    "schema",
                    "properties",
                    "ledgerId",
                    "entryId",
                    "limit",
                    "policy",
                    "bundles",
                    "adminRoles",
                    rng.choice(_WORDS),
                )
                return {rng.choice(names): value(depth + 1) for _ in range(rng.randrange(5))}

    return json.dumps(value(depth)).encode()


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Mostly as it is; else cut, with a byte changed, or with a part twice."""
    match rng.randrange(12):
        case 0:
            return data[: rng.randrange(len(data) + 1)]
        case 1:
            place = rng.randrange(len(data))
            return data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        case 2:
            return data + data[rng.randrange(len(data)) :]
        case _:
            return data


def broker_input(rng: random.Random) -> list[Step]:
    """Calls and streams of a broker's gRPC port, or bytes beneath them."""
    if rng.random() < _BYTES_SHARE:
        return [
            ("", [http2_bytes(rng, method_path(rng.choice(("broker.lookup", "broker.publish"))))])
        ]
    topic = rng.choice(TOPICS)
    calls: list[tuple[str, Message]] = [
        (
            "broker.lookup",
            broker_pb2.LookupsRequest(lookups=[broker_pb2.LookupRequest(topic=topic)]),
        ),
        ("broker.topics", broker_pb2.TopicsRequest(namespace="public/default", limit=3)),
        ("broker.schema", broker_pb2.SchemaRequest(topic=topic)),
        (
            "broker.admin",
            broker_pb2.AdminRequest(
                method="PUT", segments=["admin", "v2", "tenants", "fuzz"], body=b"{}"
            ),
        ),
    ]
    entries = entry(1)
    opening = broker_pb2.OpenProducer(producer_id=1, topic=topic, producer_name="h")
    sending = broker_pb2.PublishRequest(
        producer_ids=[1], sizes=[len(entries)], counted=True, entries=entries
    )
    publishing: list[Message] = [
        broker_pb2.PublishRequest(open=[opening]),
        sending,
        sending,
        broker_pb2.PublishRequest(heartbeat=True),
    ]
    consuming: list[Message] = [
        broker_pb2.ConsumeRequest(
            subscribe=[broker_pb2.Subscribe(consumer_id=1, topic=topic, subscription=SUBSCRIPTION)]
        ),
        broker_pb2.ConsumeRequest(flow_consumers=[1], flow_permits=[2**32 - 1]),
        broker_pb2.ConsumeRequest(
            acks=[broker_pb2.Ack(consumer_id=1, request_id=9, ledgers=[2**40], entries=[7])]
        ),
        broker_pb2.ConsumeRequest(taken=rng.choice((0, 1, 2**64 - 1))),
    ]
    streams = [("broker.publish", publishing), ("broker.consume", consuming)]
    return _calls_and_streams(rng, calls, streams)


def bookie_input(rng: random.Random) -> list[Step]:
    """Calls and streams of a bookie's gRPC port, about ledgers that no client has made, or bytes
    beneath them.
    """
    if rng.random() < _BYTES_SHARE:
        return [
            (
                "",
                [
                    http2_bytes(
                        rng, method_path(rng.choice(("bookie.status", "bookie.read", "bookie.add")))
                    )
                ],
            )
        ]
    instance_id = INSTANCE_ID.decode()
    calls = _bookie_calls(instance_id, rng.choice(_LEDGERS), rng.choice(_LEDGERS))
    # A changed ledger id may be one of a topic; these change what is stored.
    calls = [
        call
        for call in calls
        if call[0] not in ("bookie.fence", "bookie.change_trash", "bookie.clear_limbo")
        or rng.random() < 0.5
    ]
    keep = ("bookie.fence", "bookie.change_trash", "bookie.clear_limbo")
    wild = rng.choice(_LEDGERS)
    reads: list[Message] = [
        bookie_pb2.ReadRequest(
            instance_id=instance_id,
            reads=[bookie_pb2.Read(request_id=1, ledger=wild, spans=[0, wild], max_bytes=2**32 - 1)]
            * many,
        )
        for many in (1, 30)
    ]
    record = rng.randbytes(rng.choice((0, 8, 60)))
    adds: list[Message] = [
        bookie_pb2.AddRequest(instance_id=instance_id, sizes=[len(record)], records=record)
        for _ in range(3)
    ]
    return _calls_and_streams(
        rng, calls, [("bookie.read", reads), ("bookie.add", adds)], unchanged=keep
    )


Calls = list[tuple[str, Message]]
Streams = list[tuple[str, list[Message]]]


def frames_input(rng: random.Random, asked: list[Step]) -> list[Step]:
    """Conversations with a framed port: what is ``asked`` for by gRPC, in frames, some of them
    changed, doubled, cut or out of place.
    """
    steps = [step for step in asked if step[0]] or [("", [b""])]
    method, messages = rng.choice(steps)
    if method.endswith("*"):
        frames = [(Kind.OPEN, encode_opening(Opening(rng.choice(_WINDOWS), method[:-1], "fuzz")))]
        frames += [(Kind.MESSAGE, each) for each in messages]
        frames += [(Kind.CREDIT, struct.pack(">I", rng.choice(_WINDOWS)))]
    else:
        frames = [(Kind.OPEN, encode_opening(Opening(0, "", "fuzz")))]
        for number, (name, bodies) in enumerate(steps):
            if not name.endswith("*"):
                head = struct.pack(">IB", number, len(name)) + name.encode()
                frames += [(Kind.CALL, head + each) for each in bodies]
    if rng.random() < 0.5:
        frames.append((Kind.FINISH, b""))
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(frames))
        match rng.randrange(4):
            case 0:
                frames.insert(at, frames[rng.randrange(len(frames))])
            case 1:
                frames[at] = (rng.randrange(12), frames[at][1])
            case 2:
                frames[at] = (frames[at][0], frames[at][1][: rng.randrange(20)])
            case _:
                del frames[at]
                frames = frames or [(Kind.FINISH, b"")]
    data = bytearray()
    for kind, body in frames:
        size = rng.choice(_WINDOWS) if rng.random() < 0.03 else len(body)
        data += struct.pack(">IB", size, kind) + body
    if rng.random() < 0.3:
        # Only where the connection is opened: another ledger id may be one of a topic.
        data[rng.randrange(len(frames[0][1]) + 5)] = rng.randrange(256)
    end = rng.randrange(1, len(data) + 1) if rng.random() < 0.2 else len(data)
    cut = rng.randrange(1, end + 1)
    return [("", [bytes(data[:cut]), bytes(data[cut:end])][: 1 + (cut < end)])]


def _calls_and_streams(
    rng: random.Random, calls: Calls, streams: Streams, *, unchanged: tuple[str, ...] = ()
) -> list[Step]:
    steps: list[Step] = []
    for _ in range(rng.randint(1, 5)):
        method, message = rng.choice(calls)
        keeps = method in unchanged or rng.random() < 0.3
        steps.append(
            (method, [message.SerializeToString() if keeps else changed(rng, message, most=4)])
        )
    method, messages = rng.choice(streams)

    def made(each: Message) -> bytes:
        return each.SerializeToString() if rng.random() < 0.4 else changed(rng, each, most=3)

    steps.append(
        (
            f"{method}*",
            [
                *(made(each) for each in rng.choices(messages, k=rng.randint(1, 8))),
                rng.randbytes(rng.choice((1, 200))),
            ],
        )
    )
    rng.shuffle(steps)
    return steps
