"""Who may do what by the own streams and calls of a broker.

Each caller of ``rights_cases`` opens the streams and makes the calls of a simulated broker, and
sends every command. The commands are the fields of the protocol's messages, so one without a row
here is an anomaly. Denied ones come first, and must leave the metadata as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from pulsarish.broker.clients.authorization import CLUSTER, Permission, Resource
from pulsarish.model.errors import (
    AlreadyClosed,
    AuthenticationError,
    AuthorizationError,
    ServiceNotReady,
)
from pulsarish.runtime.seams import Stream, StreamBroken, World
from pulsarish.security.credentials import NO_CREDENTIALS
from pulsarish.sim.workloads.binary_rights import ASKED, LISTED, an_entry
from pulsarish.sim.workloads.rights_cases import TOPIC, Case, Matrix
from pulsarish.sim.workloads.rights_site import OWN, RightsSite, in_site
from pulsarish.sim.world.connections import SimConnections
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.framing import join_records, split_records

__all__ = ["run_stream_rights"]

_OPENED: Final = Permission.OPENED
_CLOSED: Final = AlreadyClosed.code
_SCHEMA: Final = pb.Schema(name="s", type=1)


@dataclass(frozen=True, slots=True)
class _Row:
    """A command of a stream, or a call.

    Args:
        code_of: returns the code in its answer, and ``None`` for another message. A command
            without it has no answer.
        unopened: the code where the client has opened nothing.
    """

    request: Message
    code_of: Callable[[Any], int | None] | None = None
    permission: Permission = _OPENED
    resource: Resource = CLUSTER
    unopened: int = 0


def _outcome(answer: Any) -> int | None:
    return answer.outcomes[0].code if answer.outcomes else None


def _publish(**fields: Any) -> pb.PublishRequest:
    return pb.PublishRequest(**fields)


def _consume(**fields: Any) -> pb.ConsumeRequest:
    return pb.ConsumeRequest(**fields)


_PUBLISH: Final[Mapping[str, _Row]] = {
    "open": _Row(
        _publish(open=[pb.OpenProducer(request_id=1, producer_id=1, topic=TOPIC)]),
        lambda answer: answer.opened[0].outcome.code if answer.opened else None,
        Permission.PRODUCE,
        ASKED,
    ),
    "close": _Row(_publish(close=[pb.CloseProducer(request_id=1, producer_id=1)]), _outcome),
    "credentials": _Row(_publish(credentials=pb.Credentials(method="token", data=b"x"))),
}
_CONSUME: Final[Mapping[str, _Row]] = {
    "subscribe": _Row(
        _consume(
            subscribe=[
                pb.Subscribe(
                    request_id=1, consumer_id=1, topic=TOPIC, subscription="mine", durable=True
                )
            ]
        ),
        lambda answer: answer.subscribed[0].outcome.code if answer.subscribed else None,
        Permission.CONSUME,
        ASKED,
    ),
    "flow_consumers": _Row(_consume(flow_consumers=[1], flow_permits=[1])),
    "acks": _Row(
        _consume(acks=[pb.Ack(consumer_id=1, request_id=1, ledgers=[0], entries=[0])]),
        _outcome,
        unopened=_CLOSED,
    ),
    "redeliver": _Row(_consume(redeliver=[pb.Redeliver(consumer_id=1)])),
    "extend": _Row(_consume(extend=[pb.ExtendAck(consumer_id=1, ledgers=[0], entries=[0])])),
    "last_message_id": _Row(
        _consume(last_message_id=[pb.GetLastMessageId(request_id=1, consumer_id=1)]),
        lambda answer: answer.last_message_id[0].outcome.code if answer.last_message_id else None,
        unopened=_CLOSED,
    ),
    "seek": _Row(
        _consume(seek=[pb.Seek(request_id=1, consumer_id=1, publish_time_ms=1)]),
        _outcome,
        unopened=_CLOSED,
    ),
    "unsubscribe": _Row(
        _consume(unsubscribe=[pb.Unsubscribe(request_id=1, consumer_id=1)]),
        _outcome,
        unopened=_CLOSED,
    ),
    "close": _Row(_consume(close=[pb.CloseConsumer(request_id=1, consumer_id=1)]), _outcome),
    "credentials": _Row(_consume(credentials=pb.Credentials(method="token", data=b"x"))),
}
_STREAMS: Final[Mapping[str, tuple[Mapping[str, _Row], Any, Any]]] = {
    "broker.publish": (_PUBLISH, pb.PublishRequest, pb.PublishResponse),
    "broker.consume": (_CONSUME, pb.ConsumeRequest, pb.ConsumeResponse),
}
_NO_COMMANDS: Final = frozenset(
    # Columns of entries and permits, and what only paces the stream.
    {"producer_ids", "sizes", "counted", "entries", "heartbeat", "taken", "flow_permits"}
)
_LOOKUP: Final = pb.LookupsRequest(lookups=[pb.LookupRequest(topic=TOPIC)])
_FOUND: Final = pb.AdminRequest(method="GET", segments=["admin", "v2", "tenants"])
_CALLS: Final[Mapping[str, tuple[str, Message, Any]]] = {
    "look up": ("broker.lookup", _LOOKUP, pb.LookupsResponse),
    "list topics": ("broker.topics", pb.TopicsRequest(namespace="acme/orders"), pb.TopicsResponse),
    "list topics of a pattern": (
        "broker.topics",
        pb.TopicsRequest(namespace="acme/orders", pattern="acme/orders/.*", known_hash="none"),
        pb.TopicsResponse,
    ),
    "create a schema": (
        "broker.schema",
        pb.SchemaRequest(topic=TOPIC, create=_SCHEMA),
        pb.SchemaResponse,
    ),
    "read a schema": ("broker.schema", pb.SchemaRequest(topic=TOPIC), pb.SchemaResponse),
    "ping": ("broker.ping", pb.PingRequest(), pb.PingResponse),
    "guess the key in a ping": (
        "broker.ping",
        pb.PingRequest(admin_key="guess"),
        pb.PingResponse,
    ),
    "pass a request on": ("broker.admin", _FOUND, pb.AdminResponse),
    "give a bundle": (
        "broker.take",
        pb.TakeRequest(tenant="acme", namespace="orders", range="0x00000000_0xffffffff"),
        pb.TakeResponse,
    ),
    "store captured messages": (
        "broker.capture",
        pb.CaptureRequest(into=TOPIC, rule="acme/orders/r", range="0x00000000_0xffffffff"),
        pb.CaptureResponse,
    ),
}
_NEEDS: Final[Mapping[str, tuple[Permission, Resource]]] = {
    "look up": (Permission.LOOKUP, ASKED),
    "list topics": (Permission.READ_NAMESPACE, LISTED),
    "list topics of a pattern": (Permission.READ_NAMESPACE, LISTED),
    "create a schema": (Permission.PRODUCE, ASKED),
    "read a schema": (Permission.LOOKUP, ASKED),
    "ping": (Permission.ANY_ROLE, CLUSTER),
}
"""What is not here needs the key of the broker's registration."""


def run_stream_rights() -> Matrix:
    """Open each stream, send each command and make each call, for every caller."""

    async def ask(site: RightsSite, matrix: Matrix) -> None:
        client = site.sim.node("10.0.0.1")
        await client.run(lambda world: _Run(site, world, matrix).run())

    return in_site(ask)


class _Run:
    def __init__(self, site: RightsSite, world: World, matrix: Matrix) -> None:
        assert isinstance(world.connections, SimConnections)
        self._site = site
        self._world = world
        self._connections = world.connections
        self._matrix = matrix

    async def run(self) -> None:
        self._check_rows()
        # The own protocol has no field for the client of a proxy.
        cases = {
            name: case for name, case in self._site.cases.cases().items() if not case.original.role
        }
        await self._make_topic(cases["root"])
        before = self._site.kept()
        for name, case in cases.items():
            await self._try_streams(name, case, is_permitted=False)
            await self._try_calls(name, case, is_permitted=False)
        self._matrix.expect(
            "denied requests change nothing", found=self._site.kept(), wanted=before
        )
        for name, case in cases.items():
            await self._try_streams(name, case, is_permitted=True)
            await self._try_calls(name, case, is_permitted=True)
        await self._try_the_key()

    def _check_rows(self) -> None:
        for method, (rows, request, _) in _STREAMS.items():
            fields = {each.name for each in request.DESCRIPTOR.fields} - _NO_COMMANDS
            self._matrix.expect(f"commands of {method}", found=sorted(rows), wanted=sorted(fields))
        broker = self._site.broker
        reached = sorted({*broker.streams("internal"), *broker.calls.handlers("internal")})
        methods = sorted({*_STREAMS, *(method for method, _, _ in _CALLS.values())})
        self._matrix.expect("streams and calls", found=methods, wanted=reached)

    async def _make_topic(self, root: Case) -> None:
        await self._call("look up", root)  # has the broker take the namespace's only bundle
        opened = await self._opened("broker.publish", root)
        assert await self._sent(opened, "open") == 0
        entry = an_entry()
        head = pb.PublishRequest(producer_ids=[1], sizes=[len(entry)], counted=True)
        await opened[0].send(join_records(head, [entry], len(entry)))
        while not pb.PublishResponse.FromString(await opened[0].receive() or b"").answered:
            continue

    # -- streams

    async def _opened(self, method: str, case: Case) -> tuple[Stream, str]:
        showing = self._connections.showing(lambda: case.shown)
        return await showing.open(OWN, method), method

    async def _sent(self, opened: tuple[Stream, str], command: str) -> int | str | None:
        """Return the code in the answer to a command, or why the stream ended. A command without an
        answer is followed by one that has one.
        """
        stream, method = opened
        rows, _, kind = _STREAMS[method]
        row = rows[command]
        try:
            await stream.send([row.request.SerializeToString()])
            if row.code_of is None:
                return 0
            async with self._world.clock.timeout(20.0):
                while (data := await stream.receive()) is not None:
                    found = row.code_of(kind.FromString(split_records(data)[0]))
                    if found is not None:
                        return found
        except StreamBroken as broken:
            known = AuthenticationError.__name__
            return known if f"{known}: " in str(broken) else str(broken)
        return "finished"

    async def _try_streams(self, name: str, case: Case, *, is_permitted: bool) -> None:
        for method, (rows, _, _) in _STREAMS.items():
            opening = next(iter(rows))
            may = case.may(rows[opening].permission, rows[opening].resource)
            if bool(case.roles) and may is not is_permitted:
                continue
            if not case.roles:
                if not is_permitted:
                    found = await self._sent(await self._opened(method, case), opening)
                    self._expect(name, method, opening, found, AuthenticationError.__name__)
                continue
            stream = await self._opened(method, case)
            for command, row in rows.items():
                if command == opening:
                    wanted = 0 if may else AuthorizationError.code
                else:
                    wanted = 0 if is_permitted else row.unopened
                found = await self._sent(stream, command)
                self._expect(name, method, command, found, wanted)
                if is_permitted and command == "unsubscribe":
                    found = await self._sent(stream, opening)
                    self._expect(name, method, "subscribe again", found, 0)
            stream[0].abort("done")

    def _expect(self, name: str, method: str, command: str, found: object, wanted: object) -> None:
        self._matrix.expect(f"{name} sends {command} by {method}", found=found, wanted=wanted)

    # -- calls

    async def _call(self, what: str, case: Case, **fields: str) -> Any:
        """Return what an answer says: a code, a status, or whom a ping has found."""
        method, request, kind = _CALLS[what]
        if fields:
            asked, request = request, type(request)(**fields)
            request.MergeFrom(asked)
        showing = self._connections.showing(lambda: case.shown)
        data = await showing.call(OWN, method, request.SerializeToString(), timeout_seconds=20.0)
        answer = kind.FromString(data)
        if method == "broker.lookup":
            return answer.answers[0].code
        if method == "broker.ping":
            return answer.broker_id
        return answer.status if method == "broker.admin" else answer.code

    async def _try_calls(self, name: str, case: Case, *, is_permitted: bool) -> None:
        for what, (method, _, _) in _CALLS.items():
            needs = _NEEDS.get(what)
            may = bool(case.roles) and needs is not None and case.may(*needs)
            if may is not is_permitted:
                continue
            wanted: object = AuthorizationError.code if case.roles else AuthenticationError.code
            if method == "broker.ping":
                wanted = "broker0" if may else ""
            elif method == "broker.admin":
                wanted = 403
            elif method in ("broker.take", "broker.capture"):
                wanted = ServiceNotReady.code
            elif may:
                wanted = 0
            found = await self._call(what, case)
            self._matrix.expect(f"{name}: {what}", found=found, wanted=wanted)

    async def _try_the_key(self) -> None:
        """Show the key of the broker's registration, as other brokers do."""
        me = self._site.broker._ownership.registry.me
        assert me is not None
        stranger = Case(NO_CREDENTIALS)
        for what, wanted in (("ping", "broker0"), ("pass a request on", 200)):
            found = await self._call(what, stranger, admin_key=me.admin_key)
            self._matrix.expect(f"a broker: {what}", found=found, wanted=wanted)
