"""kazoo's connection with many requests a turn: nothing is lost, reordered or held back, however
the bytes come.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, ConnectionLoss, NoNodeError
from kazoo.protocol.serialization import Sync
from kazoo.protocol.states import KeeperState

from pulsarish.metadata.daemon.zkwire import (
    ErrorCode,
    encode_connect_reply,
    encode_event,
    encode_reply,
    encode_string,
    encode_strings,
)
from pulsarish.metadata.tree.nodes import Event, EventKind
from pulsarish.metadata.zookeeper import kazoo_connection
from pulsarish.metadata.zookeeper.kazoo_connection import Client, MissingInternals, check_internals
from pulsarish.metadata.zookeeper.kazoo_requests import (
    children_request,
    exists_request,
)

TIMEOUT = 10.0
PING_TURN = -2


class Asked:
    """A request; what it hears is written down."""

    def __init__(self, name: str, heard: list[tuple[str, Any]]) -> None:
        self.name = name
        self.heard = heard
        self.connection = -1

    def set(self, value: Any) -> None:
        self.heard.append((self.name, value))

    def set_exception(self, error: Exception) -> None:
        self.heard.append((self.name, type(error)))


class Wire:
    """A client that is connected to ``far``. Its connection's thread is the test's."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.client = Client(
            "127.0.0.1:1",
            TIMEOUT,
            reconnect_max_seconds=1.0,
            logger=logging.getLogger("test"),
            came=lambda: self.heard.append(("came", None)),
            connected=lambda _seconds: None,
        )
        self.connection = self.client._connection
        self.connection._read_sock, self.connection._write_sock = (
            self.client.handler.create_socket_pair()
        )
        self.client._stopped.clear()
        self.far = self.shake_hands()
        self.client.follow(1)

    def shake_hands(self) -> socket.socket:
        """A new connection; the server's end of it, which has answered the handshake."""
        near, far = socket.socketpair()
        far.sendall(encode_connect_reply(10_000, 7, bytes(16), with_read_only=True))
        self.client.handler.create_connection = lambda **_how: near
        self.connection._xid = 0
        self.connection._connect("server", "server", 1)
        assert far.recv(1 << 16), "the handshake"
        return far

    def ask(self, *names: str) -> None:
        self.client.ask((Sync(f"/{name}"), Asked(name, self.heard)) for name in names)

    def turn(self) -> None:
        """What kazoo's loop does when requests wait."""
        sleeper = self.connection._read_sock
        assert self.client.handler.select([self.connection._socket, sleeper], [], [], TIMEOUT)[
            0
        ] == [sleeper]
        self.connection._send_request(TIMEOUT, TIMEOUT)

    def come(self, data: bytes) -> None:
        self.far.sendall(data)
        self.connection._read_socket(TIMEOUT)

    def lose(self) -> None:
        """The server goes away, and kazoo notices."""
        self.far.close()
        with pytest.raises(ConnectionDropped):
            self.connection._read_socket(TIMEOUT)
        self.connection._socket.close()
        self.client._session_callback(KeeperState.CONNECTING)

    def close(self) -> None:
        for end in (
            self.connection._socket,
            self.far,
            self.connection._read_sock,
            self.connection._write_sock,
        ):
            end.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Wire()
    yield made
    made.close()


def turns(data: bytes) -> list[int]:
    """The numbers of the requests in what was written."""
    found = []
    while data:
        size, turn = struct.unpack_from(">ii", data)
        assert len(data) >= size + 4
        found.append(turn)
        data = data[size + 4 :]
    return found


def answer(turn: int, path: str) -> bytes:
    return encode_reply(turn, turn, 0, encode_string(path))


def test_what_is_asked_together_leaves_in_one_write_and_wakes_once(wire: Wire) -> None:
    wire.ask("a", "b", "c")
    wire.ask("d")
    wire.turn()
    assert turns(wire.far.recv(1 << 16)) == [1, 2, 3, 4]
    sleeper = wire.connection._read_sock
    assert wire.client.handler.select([sleeper], [], [], 0.0)[0] == []
    wire.ask("e")
    wire.turn()
    assert turns(wire.far.recv(1 << 16)) == [5]


def test_what_is_too_much_for_one_write_leaves_in_the_next(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kazoo_connection, "_GATHERED_BYTES_MAX", 40)
    wire.ask("a", "b", "c", "d", "e")
    sent = []
    while wire.client._queue:
        wire.turn()
        sent.append(turns(wire.far.recv(1 << 16)))
    assert sent == [[1, 2, 3], [4, 5]]


def test_answers_watches_and_refusals_keep_their_order_wherever_the_stream_is_cut(
    wire: Wire,
) -> None:
    def watched(_event: object) -> None:
        wire.heard.append(("watch", None))

    told = [("a", "/a"), ("x", None), ("watch", None), ("b", NoNodeError), ("c", "/c")]
    turn, length = 0, 1
    cut = 0
    while cut <= length:
        wire.heard.clear()
        wire.ask("a")
        wire.client.ask([(exists_request("/x", watched), Asked("x", wire.heard))])
        wire.ask("b", "c")
        wire.turn()
        assert turns(wire.far.recv(1 << 16)) == [turn + 1, turn + 2, turn + 3, turn + 4]
        stream = b"".join(
            (
                answer(turn + 1, "/a"),
                encode_reply(turn + 2, 1, ErrorCode.NO_NODE),
                encode_event(Event(1, EventKind.CREATED, "/x")),
                encode_reply(turn + 3, 1, ErrorCode.NO_NODE),
                encode_reply(PING_TURN, 1, 0),
                answer(turn + 4, "/c"),
            )
        )
        turn, length = turn + 4, len(stream)
        wire.connection.ping_outstanding.set()
        for piece in (stream[:cut], stream[cut:]):
            if piece:
                wire.come(piece)
                assert wire.heard[-1] == ("came", None), (
                    "the loop hears of what came before the thread sleeps"
                )
        assert [heard for heard in wire.heard if heard[0] != "came"] == told, f"cut at {cut}"
        assert not wire.connection.ping_outstanding.is_set()
        cut += 1
    for byte in answer(turn + 1, "/never asked")[:-1]:
        wire.come(bytes([byte]))
    assert wire.heard[-1] == ("came", None)


def test_all_whole_messages_of_a_read_are_handled_at_once(wire: Wire) -> None:
    wire.ask("a", "b", "c")
    wire.turn()
    wire.come(answer(1, "/a") + answer(2, "/b") + answer(3, "/c")[:5])
    assert wire.heard == [("a", "/a"), ("b", "/b"), ("came", None)]
    wire.come(answer(3, "/c")[5:])
    assert wire.heard[3:] == [("c", "/c"), ("came", None)]


def test_a_message_longer_than_a_read_is_put_together(wire: Wire) -> None:
    wire.ask("a", "b")
    wire.turn()
    long = "/" + "a" * 300_000
    stream = answer(1, long) + answer(2, "/b")
    for start in range(0, len(stream), 50_000):
        wire.come(stream[start : start + 50_000])
    assert [heard for heard in wire.heard if heard[0] != "came"] == [("a", long), ("b", "/b")]


def test_an_answer_out_of_turn_ends_the_connection_after_those_before_it(wire: Wire) -> None:
    wire.ask("a", "b", "c")
    wire.turn()
    # Not with another error: kazoo's thread would end.
    with pytest.raises(ConnectionDropped):
        wire.come(answer(1, "/a") + answer(3, "/c") + answer(2, "/b"))
    assert wire.heard == [("a", "/a"), ("came", None)]
    wire.client._session_callback(KeeperState.CONNECTING)
    assert wire.heard[2:] == [("b", ConnectionLoss), ("c", ConnectionLoss)]


def test_an_answer_to_nothing_ends_the_connection(wire: Wire) -> None:
    with pytest.raises(ConnectionDropped):
        wire.come(answer(1, "/a"))


@pytest.mark.parametrize("size", [-5, 0, 15])
def test_a_size_that_no_message_has_ends_the_connection(wire: Wire, size: int) -> None:
    wire.ask("a")
    wire.turn()
    with pytest.raises(ConnectionDropped, match=f"a message of {size} bytes"):
        wire.come(answer(1, "/a") + struct.pack(">i", size))
    assert wire.heard == [("a", "/a"), ("came", None)]


def test_a_connection_that_ends_in_the_middle_fails_all_that_was_sent_or_queued(wire: Wire) -> None:
    wire.ask("a", "b")
    wire.turn()
    wire.ask("c")
    wire.come(answer(1, "/a") + answer(2, "/b")[:-1])
    wire.far.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionDropped, match="broken"):
        wire.connection._read_socket(TIMEOUT)
    wire.client._session_callback(KeeperState.CONNECTING)
    assert wire.heard == [("a", "/a"), ("came", None), ("b", ConnectionLoss), ("c", ConnectionLoss)]


def test_what_was_asked_of_an_ended_connection_does_not_go_over_the_next(wire: Wire) -> None:
    """The loop has not heard yet that the service went away: what it knew of the tree need not be
    true behind the next connection.
    """
    wire.ask("a")
    wire.turn()
    wire.lose()
    wire.ask("b", "c")
    wire.far = wire.shake_hands()
    wire.ask("d")
    wire.turn()
    assert wire.heard == [
        ("a", ConnectionLoss),
        ("b", ConnectionLoss),
        ("c", ConnectionLoss),
        ("d", ConnectionLoss),
    ]
    wire.client.follow(2)
    wire.ask("e")
    wire.turn()
    assert turns(wire.far.recv(1 << 16)) == [1], "and nothing before"
    wire.come(answer(1, "/e"))
    assert wire.heard[-2:] == [("e", "/e"), ("came", None)]


def test_what_a_connection_showed_last_is_known_until_the_loop_hears_of_the_next(
    wire: Wire,
) -> None:
    wire.ask("a")
    wire.turn()
    wire.come(encode_reply(1, 170, 0, encode_string("/a")))
    assert wire.client.seen_zxid == 170
    wire.lose()
    assert wire.client.seen_zxid == 170
    wire.far = wire.shake_hands()
    assert (wire.client.last_zxid, wire.client.seen_zxid) == (0, 170)
    wire.client.follow(2)
    assert wire.client.seen_zxid == 0
    wire.ask("b")
    wire.turn()
    wire.come(encode_reply(1, 83, 0, encode_string("/b")))
    assert wire.client.seen_zxid == 83


def test_a_write_that_fails_leaves_nothing_unanswered(wire: Wire) -> None:
    wire.far.close()
    wire.ask("a", "b")
    with pytest.raises(ConnectionDropped):
        wire.connection._send_request(TIMEOUT, TIMEOUT)
    wire.client._session_callback(KeeperState.CONNECTING)
    assert wire.heard == [("a", ConnectionLoss), ("b", ConnectionLoss)]


def test_no_request_sleeps_through_and_no_stale_byte_is_a_busy_loop(wire: Wire) -> None:
    """A writer and the thread that sends race many times; each post wakes, and a sleep with time
    ends only because of one.
    """
    reader, writer = wire.client.handler.create_socket_pair()
    count, posted, taken = 20_000, [0], 0

    def post() -> None:
        for _ in range(count):
            posted[0] += 1
            writer.send(b"\0")

    posting = threading.Thread(target=post)
    posting.start()
    while taken < count:
        assert wire.client.handler.select([reader], [], [], 60.0)[0] == [reader]
        reader.drain()
        taken = posted[0]
    posting.join()
    # At most the byte of the last post is left.
    if wire.client.handler.select([reader], [], [], 0.0)[0]:
        reader.drain()
    assert wire.client.handler.select([reader], [], [], 0.05)[0] == []
    reader.close()
    writer.close()


def test_another_kazoo_is_refused_by_the_name_of_what_it_lacks() -> None:
    check_internals()
    with pytest.raises(MissingInternals, match=r"no KazooClient\._send_many\(self, requests\)"):
        check_internals(
            [
                (KazooClient, "_call", ("self", "request", "async_object")),
                (KazooClient, "_send_many", ("self", "requests")),
            ]
        )
    with pytest.raises(MissingInternals, match=r"no KazooClient\._call\(self, request\)"):
        check_internals([(KazooClient, "_call", ("self", "request"))])


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["a"],
        ["b", "a" * 127, "c"],
        ["a" * 128, "b" * 255],
        ["a" * 256, "b"],
        ["a" * 600, "b" * 65_536],
        ["ä" * 3, "b"],
        ["b", "€" * 70],
        ["\x01\x02", "\x7f"],
    ],
)
def test_a_list_of_names_is_taken_apart_as_it_was_put_together(names: list[str]) -> None:
    assert children_request("/a", None).deserialize(b"head" + encode_strings(names), 4) == names
