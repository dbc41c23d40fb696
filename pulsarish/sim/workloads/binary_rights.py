"""Who may do what in Apache Pulsar's binary protocol.

Each caller of ``rights_cases`` sends every command to a simulated broker. The commands are those of
the protocol's message, so one without a row here is an anomaly. Denied commands come first. They
must leave the metadata, and what another client has open, as they were.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pulsarish.broker.clients.authorization import CLUSTER, Permission, Resource
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.rights_cases import TOPIC, Case, Matrix
from pulsarish.sim.workloads.rights_site import (
    BINARY,
    DENIED,
    DONE,
    LOST,
    STRANGE,
    RightsSite,
    Wire,
    in_site,
)
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry

__all__ = [
    "ASKED",
    "COMMANDS",
    "LISTED",
    "QUESTIONS",
    "Row",
    "an_entry",
    "command_numbers",
    "run_binary_rights",
]

ASKED: Final = Resource.of_topic(TopicName.parse(TOPIC), "mine")
LISTED: Final = Resource("acme", "orders")
_VICTIM: Final = "persistent://acme/orders/victim"
_SEND: Final = 6
_UNKNOWN: Final = "UNKNOWN_ERROR"
"""Consumers that are not connected have no number of their own."""
_PLACE: Final = {"ledger_id": 0, "entry_id": 0}
_SCHEMA: Final = {"name": "s", "schema_data": b"", "type": 1}


@dataclass(frozen=True, slots=True)
class Row:
    """A command, and what it needs.

    Args:
        answer: the number of its answer; 0: it has none.
        unopened: the verdict on it where the client has opened nothing.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    answer: int = 0
    permission: Permission = Permission.OPENED
    resource: Resource = CLUSTER
    unopened: str = DONE


QUESTIONS: Final[Mapping[str, Row]] = {
    "lookup": Row({"topic": TOPIC, "request_id": 1}, 24, Permission.LOOKUP, ASKED),
    "partitioned_metadata": Row({"topic": TOPIC, "request_id": 1}, 22, Permission.LOOKUP, ASKED),
    "get_or_create_schema": Row(
        {"topic": TOPIC, "request_id": 1, "schema": _SCHEMA}, 40, Permission.PRODUCE, ASKED
    ),
    "get_schema": Row({"topic": TOPIC, "request_id": 1}, 35, Permission.LOOKUP, ASKED),
    "get_topics_of_namespace": Row(
        {"namespace": "acme/orders", "request_id": 1}, 33, Permission.READ_NAMESPACE, LISTED
    ),
}
"""Commands that need nothing open, and that a proxy asks brokers for its clients."""
_OPENINGS: Final[Mapping[str, Row]] = {
    "watch_topic_list": Row(
        {"namespace": "acme/orders", "request_id": 1, "watcher_id": 1, "topics_pattern": ".*"},
        65,
        Permission.READ_NAMESPACE,
        LISTED,
    ),
    "watch_topic_list_close": Row({"request_id": 1, "watcher_id": 1}, 13),
    "producer": Row(
        {"topic": TOPIC, "producer_id": 1, "request_id": 1}, 17, Permission.PRODUCE, ASKED
    ),
    "subscribe": Row(
        {
            "topic": TOPIC,
            "subscription": "mine",
            "sub_type": 0,
            "consumer_id": 1,
            "request_id": 1,
            "initial_position": pb.EARLIEST,
        },
        13,
        Permission.CONSUME,
        ASKED,
    ),
}
_OPENED: Final[Mapping[str, Row]] = {
    "flow": Row({"consumer_id": 1, "message_permits": 10}),
    "consumer_stats": Row({"consumer_id": 1, "request_id": 1}, 26, unopened="CONSUMER_NOT_FOUND"),
    "ack": Row(
        {"consumer_id": 1, "ack_type": 0, "message_id": [_PLACE], "request_id": 1},
        38,
        unopened=_UNKNOWN,
    ),
    "redeliver": Row({"consumer_id": 1}),
    "get_last_message_id": Row({"consumer_id": 1, "request_id": 1}, 30, unopened=_UNKNOWN),
    "seek": Row(
        {"consumer_id": 1, "request_id": 1, "message_publish_time": 1}, 13, unopened=_UNKNOWN
    ),
    "unsubscribe": Row({"consumer_id": 1, "request_id": 1}, 13, unopened=_UNKNOWN),
    "close_producer": Row({"producer_id": 1, "request_id": 1}, 13),
    "close_consumer": Row({"consumer_id": 1, "request_id": 1}, 13),
}
COMMANDS: Final[Mapping[str, Row]] = {**QUESTIONS, **_OPENINGS, **_OPENED}
_FREE: Final = ("connect", "auth_response", "ping", "pong", "send")
"""Commands with cases of their own."""
_TRANSACTIONS: Final = (
    "new_txn",
    "add_partition_to_txn",
    "add_subscription_to_txn",
    "end_txn",
    "end_txn_on_partition",
    "end_txn_on_subscription",
    "tc_client_connect",
)


def command_numbers() -> dict[str, int]:
    """Return the number of each command of the protocol, by its name."""
    return {each.name: each.number for each in pb.Command.DESCRIPTOR.fields if each.number > 1}


_ANSWERS: Final = frozenset(
    {
        "connected",
        "send_receipt",
        "send_error",
        "message",
        "success",
        "error",
        "producer_success",
        "partitioned_metadata_response",
        "lookup_response",
        "consumer_stats_response",
        "reached_end_of_topic",
        "get_last_message_id_response",
        "active_consumer_change",
        "get_topics_of_namespace_response",
        "get_schema_response",
        "auth_challenge",
        "ack_response",
        "get_or_create_schema_response",
        "watch_topic_list_success",
        "watch_topic_update",
        "tc_client_connect_response",
        *(f"{name}_response" for name in _TRANSACTIONS),
    }
)
"""What only a broker sends."""


def an_entry() -> bytes:
    """Return an entry with one message."""
    return encode_entry(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"x")


def _send_frame() -> bytes:
    """Return SEND of the producer that has the id 1."""
    entry = an_entry()
    send = pb.Send(producer_id=1, sequence_id=0)
    command = pb.Command(type=_SEND, send=send).SerializeToString()
    sizes = struct.pack(">II", 4 + len(command) + len(entry), len(command))
    return sizes + command + entry


def run_binary_rights() -> Matrix:
    """Send every command for every caller."""

    async def ask(site: RightsSite, matrix: Matrix) -> None:
        client = site.sim.node("10.0.0.1")
        await client.run(lambda world: _Run(site, world, matrix).run())

    return in_site(ask)


class _Run:
    def __init__(self, site: RightsSite, world: World, matrix: Matrix) -> None:
        self._site = site
        self._world = world
        self._matrix = matrix
        self._numbers = command_numbers()

    async def run(self) -> None:
        rows = {*COMMANDS, *_FREE, *_TRANSACTIONS, *_ANSWERS}
        self._matrix.expect("commands", found=sorted(rows), wanted=sorted(self._numbers))
        cases = self._site.cases.cases()
        victim = await self._open_victim()
        before = self._site.kept()
        await self._try_without_connect()
        for name, case in cases.items():
            await self._try_denied(name, case)
        self._matrix.expect(
            "denied commands change nothing", found=self._site.kept(), wanted=before
        )
        await self._check_victim(victim)
        for name, case in cases.items():
            await self._try_permitted(name, case)

    async def _connected(self, case: Case) -> Wire | str:
        return await self._site.connected(self._world, case, BINARY)

    async def _verdict(self, wire: Wire, name: str, row: Row) -> str:
        """Send a command, and return what comes of it; for one without an answer, once it was
        handled.
        """
        number = self._numbers[name]
        if row.answer:
            return await wire.ask(self._world, number, row.answer, **row.fields)
        wire.say(number, **row.fields)
        return await wire.ask(self._world, 18, 19)

    # -- another client

    async def _open_victim(self) -> Wire:
        """Open a producer and a consumer that has one message, with the ids that others try."""
        wire = await self._connected(Case(self._site.cases.token("root"), ("root",)))
        assert isinstance(wire, Wire)
        # The lookup has the broker take the namespace's only bundle.
        for name in ("lookup", "producer", "subscribe"):
            row = COMMANDS[name]
            fields = {**row.fields, "topic": _VICTIM}
            assert await wire.ask(self._world, self._numbers[name], row.answer, **fields) == DONE
        wire.write(_send_frame())
        assert await wire.next(self._world, 7)
        wire.say(11, consumer_id=1, message_permits=1)
        assert await wire.next(self._world, 9)
        return wire

    async def _check_victim(self, wire: Wire) -> None:
        """Expect that its consumer has the one message, and that nothing else was published."""
        wire.say(20, consumer_id=1)
        wire.say(11, consumer_id=1, message_permits=1)
        found = await wire.next(self._world, 9)
        self._matrix.expect("it is redelivered", found=found is not None, wanted=True)
        wire.say(29, consumer_id=1, request_id=7)
        last = await wire.next(self._world, 30)
        entry = last.get_last_message_id_response.last_message_id.entry_id if last else -1
        self._matrix.expect("the last entry", found=entry, wanted=0)
        said = sorted({each.type for each in wire.heard} - {18, 31})
        self._matrix.expect("what else the other client hears", found=said, wanted=[])
        wire.close()

    # -- what is denied

    async def _try_without_connect(self) -> None:
        """Send each command before CONNECT: the connection must end without an answer."""
        for name, number in self._numbers.items():
            if name == "connect":
                continue
            wire = await self._site.opened(self._world, BINARY)
            row = COMMANDS.get(name, Row())
            if number == _SEND:
                wire.write(_send_frame())
            else:
                wire.say(number, **row.fields)
            found = await wire.next(self._world, *self._numbers.values())
            self._matrix.expect(f"{name} before CONNECT", found=found, wanted=None)

    async def _try_denied(self, name: str, case: Case) -> None:
        wire = await self._connected(case)
        found = wire if isinstance(wire, str) else DONE
        self._matrix.expect(f"{name} connects", found=found, wanted=DONE if case.roles else STRANGE)
        if isinstance(wire, str):
            return
        for command, row in {**QUESTIONS, **_OPENINGS}.items():
            if not case.may(row.permission, row.resource):
                found = await self._verdict(wire, command, row)
                self._matrix.expect(f"{name} sends {command}", found=found, wanted=DENIED)
        for command, row in _OPENED.items():
            found = await self._verdict(wire, command, row)
            self._matrix.expect(f"{name}: unopened {command}", found=found, wanted=row.unopened)
        for command in (*_TRANSACTIONS, *sorted(_ANSWERS)):
            number = self._numbers[command]
            wire.say(number)
            found = await wire.ask(self._world, 18, 19)
            self._matrix.expect(f"{name} sends {command}", found=found, wanted=DONE)
        await self._try_other_credentials(name, case, wire)
        # Of a producer that was never opened.
        other = await self._connected(case)
        assert isinstance(other, Wire)
        other.write(_send_frame())
        found = await other.ask(self._world, 18, 19)
        self._matrix.expect(f"{name}: unopened send", found=found, wanted=LOST)

    async def _try_other_credentials(self, name: str, case: Case, wire: Wire) -> None:
        """Show those of an administrator on the caller's connection."""
        root = self._site.cases.token("root")
        shown = {"auth_method_name": root.method, "auth_data": root.data.reveal()}
        wire.say(2, client_version="matrix", **shown)
        row = _OPENINGS["producer"]
        if not case.may(row.permission, row.resource):
            found = await self._verdict(wire, "producer", row)
            self._matrix.expect(f"{name} sends a second CONNECT", found=found, wanted=DENIED)
        wire.say(37, response=shown)
        found = await wire.ask(self._world, 18, 19)
        wanted = DONE if name == "root" else STRANGE
        self._matrix.expect(f"{name} becomes an administrator", found=found, wanted=wanted)
        wire.close()

    # -- what is permitted

    async def _try_permitted(self, name: str, case: Case) -> None:
        wire = await self._connected(case)
        if isinstance(wire, str):
            return
        rows = {
            command: row
            for command, row in {**_OPENINGS, **QUESTIONS}.items()
            if case.may(row.permission, row.resource)
        }
        for command, row in rows.items():
            found = await self._verdict(wire, command, row)
            self._matrix.expect(f"{name} sends {command}", found=found, wanted=DONE)
        if "producer" in rows:
            wire.write(_send_frame())
            receipt = await wire.next(self._world, 7)
            self._matrix.expect(f"{name}: send", found=receipt is not None, wanted=True)
        if "subscribe" in rows:
            await self._consume(name, wire)
        wire.close()

    async def _consume(self, name: str, wire: Wire) -> None:
        for command, row in _OPENED.items():
            found = await self._verdict(wire, command, row)
            self._matrix.expect(f"{name}: opened {command}", found=found, wanted=DONE)
            if command == "seek":
                # It ends the consumer of this protocol.
                found = await self._verdict(wire, "subscribe", _OPENINGS["subscribe"])
                self._matrix.expect(f"{name} subscribes again", found=found, wanted=DONE)
