"""Who is not known gets nothing on any port of a broker, and rights end when they should."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable

import pytest
from google.protobuf.message import Message

from pulsarish.broker.sessions.grpc_server import _FaceStream
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.enums import InitialPosition
from pulsarish.model.errors import AuthenticationError, InvalidArgument, PulsarishError
from pulsarish.runtime.seams import (
    Buffer,
    CallFailed,
    ClientConnections,
    HttpRequest,
    Stream,
    StreamBroken,
    World,
)
from pulsarish.security.callers import Callers, Original
from pulsarish.security.credentials import NO_CREDENTIALS, Certificate, Credentials
from pulsarish.security.identity import Identity
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as own
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire.framing import split_records
from tests.support.binary_client import BinaryClient, send_frame
from tests.support.brokers import BrokerCluster, entry, find
from tests.support.identities import NamedRoles, shown

TOPIC = "persistent://public/default/t"
BINARY = "broker0:6650"
GRPC = "broker0:6660"
HTTP = "broker0:8080"
FRAMED_ADDRESS = "framed:broker0:6661"


Calendar = Callable[[], int]
"""Returns the broker's time, in milliseconds since the epoch; each machine has its own."""


def run(
    scenario: Callable[[World, Calendar], Awaitable[None]],
    *,
    seconds: float = 600.0,
    expected: tuple[type[Exception], ...] = (),
    roles: NamedRoles | None = None,
    stops: bool = False,
    **settings: object,
) -> None:
    """Run a scenario beside a broker, which stops meanwhile with ``stops``."""
    sim = Simulation(1)
    cluster = BrokerCluster(sim, authenticator=roles or NamedRoles(), **settings)

    async def main() -> None:
        await cluster.start()
        cluster.nodes["broker0"].expected_errors = expected
        calendar = cluster.brokers["broker0"]._world.clock.wall_ms
        if stops:
            _ = cluster.brokers["broker0"]._world.tasks.spawn(
                cluster.brokers["broker0"].stop(), name="stop"
            )
        await sim.node("client").run(lambda world: scenario(world, calendar))

    sim.run(main, seconds)


def show(world: World, credentials: Credentials) -> None:
    assert isinstance(world.connections, SimConnections)
    world.connections.credentials = lambda: credentials


async def connect(world: World, credentials: Credentials, **flags: bool) -> BinaryClient:
    client = await BinaryClient.connect(world, BINARY, shake_hands=False)
    connect = pb.Connect(
        client_version="x",
        protocol_version=19,
        auth_method_name=credentials.method,
        auth_data=credentials.data.reveal(),
        feature_flags=pb.FeatureFlags(**flags),
    )
    client.say(pb.Command(type=2, connect=connect))
    return client


async def is_ended(world: World, client: BinaryClient) -> None:
    while not client.lost:
        await world.clock.sleep(0.01)


@pytest.mark.parametrize("credentials", [NO_CREDENTIALS, shown("wrong")])
def test_the_binary_port_refuses_who_is_not_known(credentials: Credentials) -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        client = await connect(world, credentials)
        # What follows CONNECT in the same write must not be heard.
        client.say(
            pb.Command(
                type=21,
                partitioned_metadata=pb.PartitionedMetadata(topic=TOPIC, request_id=1),
            )
        )
        error = (await client.next(14)).command.error
        assert (error.request_id, error.error) == (2**64 - 1, pb.AUTHENTICATION_ERROR)
        await is_ended(world, client)
        assert [heard.command.type for heard in client.heard] == []

    run(scenario)


@pytest.mark.parametrize("credentials", [NO_CREDENTIALS, shown("wrong")])
def test_streams_calls_and_requests_are_refused(credentials: Credentials) -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        show(world, credentials)
        for method in ("broker.publish", "broker.consume"):
            stream = await world.connections.open(GRPC, method)
            with pytest.raises(StreamBroken, match="AuthenticationError: no token"):
                await stream.receive()
        code = AuthenticationError.code
        lookups = own.LookupsRequest(lookups=[own.LookupRequest(topic=TOPIC)])
        answer = own.LookupsResponse.FromString(await call(world, "broker.lookup", lookups))
        assert [each.code for each in answer.answers] == [code]
        topics = own.TopicsRequest(namespace="public/default")
        answered = await call(world, "broker.topics", topics)
        assert own.TopicsResponse.FromString(answered).code == code
        answered = await call(world, "broker.schema", own.SchemaRequest(topic=TOPIC))
        assert own.SchemaResponse.FromString(answered).code == code
        assert await ask(world, "admin/v2/tenants", "") == 401
        assert await ask(world, "admin/v2/tenants", "Bearer wrong") == 401
        assert await ask(world, "admin/v2/tenants", "Basic !") == 401
        assert await ask(world, "health", "") == 200

    run(scenario)


@pytest.mark.parametrize("is_closed", [False, True])
def test_metrics_are_for_authenticated_roles_only_where_it_is_said(is_closed: bool) -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        assert await ask(world, "metrics", "") == (401 if is_closed else 200)
        assert await ask(world, "metrics", "Bearer ann") == 200
        assert await ask(world, "health", "") == 200

    run(scenario, authenticate_metrics_endpoint=is_closed)


async def call(world: World, method: str, request: Message) -> bytes:
    return await world.connections.call(
        GRPC, method, request.SerializeToString(), timeout_seconds=5.0
    )


async def ask(world: World, path: str, authorization: str) -> int:
    assert isinstance(world.connections, SimConnections)
    headers = {"authorization": authorization} if authorization else {}
    request = HttpRequest("GET", f"/{path}", {}, headers, b"", tuple(path.split("/")))
    return (await world.connections.http(HTTP, request)).status


def test_who_is_known_is_served_on_each_port() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        show(world, shown("ann"))
        assert await ask(world, "admin/v2/tenants", "Bearer ann") == 200
        basic = b64encode(b"ann:secret").decode()
        assert await ask(world, "admin/v2/tenants", f"Basic {basic}") == 401  # no such provider
        client = await connect(world, shown("ann"))
        await client.next(3)
        sdk = own_client(world)
        producer = await sdk.create_producer(TOPIC)
        await producer.send(b"1")
        consumer = await sdk.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        assert (await consumer.receive()).data() == b"1"
        await sdk.close()

    run(scenario)


def own_client(world: World, connections: ClientConnections | None = None) -> AsyncClient:
    return AsyncClient(
        f"pulsarish://{GRPC}",
        clock=world.clock,
        random=world.random,
        tasks=world.tasks,
        connect=lambda _: connections or world.connections,
    )


class TimedRoles(NamedRoles):
    """Refuses credentials that have ended, as providers of tokens do."""

    def __init__(self) -> None:
        super().__init__()
        self.wall_ms: Calendar = lambda: 0

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        found = await super().authenticate(credentials, certificate)
        if found.expires_at_ms and self.wall_ms() >= found.expires_at_ms:
            raise AuthenticationError("the token has expired")
        return found


class Watched:
    """Connections that note when which stream was opened.

    Args:
        is_older: the client does not know how to show new credentials on an open stream.
    """

    def __init__(self, world: World, *, is_older: bool = False) -> None:
        self._world = world
        self._is_older = is_older
        self.call = world.connections.call
        self.opened: list[tuple[str, float]] = []

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        self.opened.append((method, self._world.clock.monotonic()))
        return await self._world.connections.open(address, method, lane=lane)

    async def credentials_now(self) -> Credentials:
        if self._is_older:
            await asyncio.Event().wait()
        return await self._world.connections.credentials_now()

    @property
    def methods(self) -> list[str]:
        return sorted(method for method, _ in self.opened)


BOTH_STREAMS = ["broker.consume", "broker.publish"]


async def exchange(sdk: AsyncClient, world: World, *, seconds: int) -> None:
    """Publish ten messages a second and receive each once, in order."""
    consumer = await sdk.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
    producer = await sdk.create_producer(TOPIC)
    for number in range(10 * seconds):
        await producer.send(str(number).encode())
        message = await consumer.receive()
        assert (message.data(), message.redelivery_count()) == (str(number).encode(), 0)
        await consumer.acknowledge(message)
        await world.clock.sleep(0.1)


def test_a_connection_ends_with_its_credentials() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        start_ms = wall_ms()
        client = await connect(world, shown("ann", start_ms + 10_000))
        await client.next(3)
        error = (await client.next(14)).command.error
        assert error.error == pb.AUTHENTICATION_ERROR
        assert "expired" in error.message
        await is_ended(world, client)
        assert 9_000 < wall_ms() - start_ms < 12_000

    run(scenario)


def test_credentials_end_while_the_broker_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop may take long, and until its end clients are served."""

    async def hand_over_all(topics: LoadedTopics) -> None:
        await topics._world.clock.sleep(30.0)

    monkeypatch.setattr(LoadedTopics, "hand_over_all", hand_over_all)

    async def scenario(world: World, wall_ms: Calendar) -> None:
        start_ms = wall_ms()
        client = await connect(world, shown("ann", start_ms + 10_000))
        await client.next(3)
        assert "expired" in (await client.next(14)).command.error.message
        assert 9_000 < wall_ms() - start_ms < 12_000

    run(scenario, stops=True, broker_shutdown_timeout_seconds=40.0)


def test_a_client_that_can_is_asked_for_new_credentials() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        start_ms = wall_ms()
        client = await connect(world, shown("ann", start_ms + 10_000), supports_auth_refresh=True)
        await client.next(3)
        challenge = (await client.next(36)).command.auth_challenge
        assert challenge.challenge.auth_data == b"PulsarAuthRefresh"
        assert challenge.challenge.auth_method_name == "token"
        assert 4_000 < wall_ms() - start_ms < 7_000
        answer(client, shown("ann", start_ms + 60_000))
        await world.clock.sleep(20.0)
        client.say(pb.Command(type=18, ping=pb.Ping()))
        await client.next(19)
        # the next answer is another role's
        await client.next(36)
        answer(client, shown("ben", start_ms + 90_000))
        assert (await client.next(14)).command.error.error == pb.AUTHENTICATION_ERROR
        await is_ended(world, client)

    run(scenario)


def answer(client: BinaryClient, credentials: Credentials) -> None:
    response = pb.AuthData(auth_method_name=credentials.method, auth_data=credentials.data.reveal())
    client.say(pb.Command(type=37, auth_response=pb.AuthResponse(response=response)))


def test_a_stream_ends_with_its_credentials_and_the_next_one_shows_new_ones() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        asked: list[int] = []

        def current() -> Credentials:
            asked.append(wall_ms())
            return shown("ann", wall_ms() + 5_000)

        assert isinstance(world.connections, SimConnections)
        world.connections.credentials = current
        sdk = own_client(world)
        consumer = await sdk.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        producer = await sdk.create_producer(TOPIC)
        for number in range(20):
            await producer.send(str(number).encode())
            message = await consumer.receive()
            assert message.data() == str(number).encode()
            await consumer.acknowledge(message)
            await world.clock.sleep(1.0)
        assert len(asked) > 6
        await sdk.close()

    run(scenario)


def test_streams_live_on_with_credentials_that_are_replaced_every_few_seconds() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        assert isinstance(world.connections, SimConnections)
        # As a file that is rewritten every four seconds, half a second before the token in it ends.
        world.connections.credentials = lambda: shown("ann", wall_ms() // 4_000 * 4_000 + 4_500)
        watched = Watched(world)
        sdk = own_client(world, watched)
        await exchange(sdk, world, seconds=60)
        assert watched.methods == BOTH_STREAMS
        await sdk.close()

    run(scenario)


def test_an_idle_consumer_lives_on_with_new_credentials() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        assert isinstance(world.connections, SimConnections)
        world.connections.credentials = lambda: shown("ann", wall_ms() + 5_000)
        watched = Watched(world)
        sdk = own_client(world, watched)
        _ = await sdk.subscribe(TOPIC, "s")
        await world.clock.sleep(60.0)
        assert watched.methods == ["broker.consume"]
        await sdk.close()

    run(scenario)


@pytest.mark.parametrize("older", ["client", "broker"])
def test_with_an_older_client_or_broker_streams_are_opened_again(
    older: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if older == "broker":
        monkeypatch.setattr(_FaceStream, "challenge", lambda _: None)

    async def scenario(world: World, wall_ms: Calendar) -> None:
        assert isinstance(world.connections, SimConnections)
        world.connections.credentials = lambda: shown("ann", wall_ms() + 5_000)
        watched = Watched(world, is_older=older == "client")
        sdk = own_client(world, watched)
        consumer = await sdk.subscribe(TOPIC, "s", initial_position=InitialPosition.Earliest)
        producer = await sdk.create_producer(TOPIC)
        received: set[bytes] = set()
        for number in range(20):
            await producer.send(str(number).encode())
            message = await consumer.receive()
            received.add(message.data())
            await consumer.acknowledge(message)
            await world.clock.sleep(1.0)
        assert len(received) == 20
        assert len(watched.opened) >= 6
        await sdk.close()

    run(scenario)


def test_new_credentials_of_another_role_end_the_stream() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        assert isinstance(world.connections, SimConnections)
        start_ms = wall_ms()
        stream = await opened_stream(world, shown("ann", start_ms + 10_000))
        await asked(stream)
        assert wall_ms() - start_ms < 7_000
        await stream.send(showing(shown("ben", start_ms + 60_000)))
        with pytest.raises(StreamBroken, match=r"AuthenticationError: .*role 'ben'.*role 'ann'"):
            await asked(stream)
        assert wall_ms() - start_ms < 7_000

    run(scenario)


def test_what_was_not_asked_for_is_ignored_and_an_answer_moves_the_end() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        start_ms = wall_ms()
        stream = await opened_stream(world, shown("ann", start_ms + 10_000))
        await stream.send(showing(shown("ben", start_ms + 90_000)))
        await asked(stream)
        await stream.send(showing(shown("ann", start_ms + 20_000)))
        # One question has one answer.
        await stream.send(showing(shown("ben", start_ms + 90_000)))
        await asked(stream)
        assert 12_000 < wall_ms() - start_ms < 17_000
        with pytest.raises(StreamBroken, match=r"AuthenticationError: .*expired"):
            await asked(stream)
        assert 19_000 < wall_ms() - start_ms < 22_000

    run(scenario)


def test_credentials_above_the_limit_end_the_stream() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        stream = await opened_stream(world, shown("ann", wall_ms() + 10_000))
        await asked(stream)
        await stream.send(showing(shown("a" * 70_000)))
        with pytest.raises(StreamBroken, match="malformed message: credentials have 70000 bytes"):
            await asked(stream)

    run(scenario)


async def opened_stream(world: World, credentials: Credentials) -> Stream:
    show(world, credentials)
    stream = await world.connections.open(GRPC, "broker.consume")
    await stream.send([own.ConsumeRequest(heartbeat=True).SerializeToString()])
    return stream


def showing(credentials: Credentials) -> list[Buffer]:
    shown_now = own.Credentials(method=credentials.method, data=credentials.data.reveal())
    return [own.ConsumeRequest(credentials=shown_now).SerializeToString()]


async def asked(stream: Stream) -> None:
    """Wait until the broker asks for new credentials. Raises ``StreamBroken``."""
    while True:
        head, _ = split_records(await stream.receive())
        if own.ConsumeResponse.FromString(head).ask_credentials:
            return


def test_revoked_credentials_end_a_stream_that_has_renewed_them() -> None:
    roles = NamedRoles()

    async def scenario(world: World, wall_ms: Calendar) -> None:
        assert isinstance(world.connections, SimConnections)
        world.connections.credentials = lambda: shown("ann", wall_ms() + 5_000)
        watched = Watched(world)
        sdk = own_client(world, watched)
        _ = await sdk.subscribe(TOPIC, "s")
        await world.clock.sleep(20.0)
        assert watched.methods == ["broker.consume"]
        revoked_at = world.clock.monotonic()
        roles.revoked.add("ann")
        await world.clock.sleep(5.0)
        assert watched.opened[1][1] - revoked_at < 2.0
        await sdk.close()

    run(scenario, roles=roles)


def test_a_client_without_newer_credentials_asks_less_and_less_often() -> None:
    roles = TimedRoles()

    async def scenario(world: World, wall_ms: Calendar) -> None:
        roles.wall_ms = wall_ms
        assert isinstance(world.connections, SimConnections)
        end_ms = wall_ms() + 10_000
        current = shown("ann", end_ms)
        world.connections.credentials = lambda: current
        watched = Watched(world)
        sdk = own_client(world, watched)
        consumer = await sdk.subscribe(TOPIC, "s")
        before = len(watched.opened)
        tries: list[float] = []

        async def call(
            address: str, method: str, request: bytes, *, timeout_seconds: float
        ) -> bytes:
            if method == "broker.lookup":
                tries.append(world.clock.monotonic())
            return await world.connections.call(
                address, method, request, timeout_seconds=timeout_seconds
            )

        watched.call = call  # type: ignore[method-assign]
        await world.clock.sleep(250.0)
        tries += [at for _, at in watched.opened[before:]]
        tries.sort()
        assert 5 <= len(tries) <= 25, tries
        assert 20.0 < tries[-1] - tries[-2] <= 31.0
        # And it is open again soon after there are newer ones.
        current = shown("ann", wall_ms() + 300_000)
        await world.clock.sleep(31.0)
        assert consumer.is_connected()
        await sdk.close()

    run(scenario, roles=roles)


def test_only_a_proxy_names_another_role() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        client = await BinaryClient.connect(world, BINARY, shake_hands=False)
        said = pb.Connect(
            client_version="x",
            auth_method_name="token",
            auth_data=b"ann",
            original_principal="ben",
        )
        client.say(pb.Command(type=2, connect=said))
        error = (await client.next(14)).command.error
        assert error.error == pb.AUTHENTICATION_ERROR
        assert "proxy_roles" in error.message

    run(scenario)


def test_errors_are_those_of_the_tree() -> None:
    assert issubclass(AuthenticationError, PulsarishError)
    assert (AuthenticationError.http_status, AuthenticationError.server_error) == (401, 3)


def test_a_client_that_takes_no_refusal_loses_what_it_opened_at_once() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        show(world, shown("ann"))
        assert await find(world, ["broker0"], TOPIC) == GRPC
        ann = shown("ann", wall_ms() + 5_000)
        client = await connect(world, ann)
        await client.next(3)
        opened = await client.open_producer(1, TOPIC, producer_access_mode=pb.EXCLUSIVE)
        assert opened.command.type == 17
        assert (await client.subscribe(2, TOPIC)).command.type == 13
        assert client.transport is not None
        client.transport.pause_reading()
        # So many deliveries that the broker waits until the client takes them.
        for number in range(60):
            client.write(send_frame(1, number, entry("p", number, b"x" * 100_000)))
        await world.clock.sleep(7.0)
        # It still sends, and nobody listens.
        client.write(send_frame(1, 60, entry("p", 60, b"late")))
        other = await connect(world, shown("ben"))
        await other.next(3)
        opened = await other.open_producer(1, TOPIC, "other", producer_access_mode=pb.EXCLUSIVE)
        assert opened.command.type == 17
        await world.clock.sleep(6.0)
        client.transport.resume_reading()
        await is_ended(world, client)

    run(scenario)


def test_a_call_has_a_limit_of_lookups() -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        for count, size in ((1_001, 0), (1, 1 << 20)):
            lookups = [own.LookupRequest(topic="x" * size)] * count
            with pytest.raises(CallFailed, match="ask for fewer"):
                await call(world, "broker.lookup", own.LookupsRequest(lookups=lookups))

    run(scenario, expected=(InvalidArgument,))


def test_a_proxy_renews_the_credentials_of_its_connection() -> None:
    async def check() -> None:
        callers = Callers(NamedRoles(), proxy_roles=["proxy"])
        before = await callers.identify(shown("proxy", 1_000), None, Original("ann"))
        assert (before.role, before.proxy_role, before.expires_at_ms) == ("ann", "proxy", 1_000)
        after = await callers.refresh(shown("proxy", 2_000), None, before)
        assert (after.role, after.proxy_role, after.expires_at_ms) == ("ann", "proxy", 2_000)
        with pytest.raises(AuthenticationError, match="'ann'"):
            await callers.refresh(shown("ann", 3_000), None, before)

    asyncio.run(check())


def test_a_watch_of_topics_ends_with_its_grant() -> None:
    sim = Simulation(1)
    cluster = BrokerCluster(
        sim, authenticator=NamedRoles(), authorization_enabled=True, super_user_roles=("root",)
    )
    grants = "/admin/v2/namespaces/public/default/permissions/ann"

    async def told(world: World, method: str, path: str, body: bytes = b"") -> None:
        headers = {"authorization": "Bearer root", "content-type": "application/json"}
        assert isinstance(world.connections, SimConnections)
        segments = tuple(path.strip("/").split("/"))
        request = HttpRequest(method, path, {}, headers, body, segments)
        answer = await world.connections.http(HTTP, request)
        assert answer.status in (200, 204), answer

    async def scenario(world: World) -> None:
        await told(world, "POST", grants, b'["consume"]')
        client = await connect(world, shown("ann"))
        await client.next(3)
        watch = pb.WatchTopicList(
            request_id=1, watcher_id=7, namespace="public/default", topics_pattern=".*"
        )
        client.say(pb.Command(type=64, watch_topic_list=watch))
        await client.next(65)
        topics = "/admin/v2/persistent/public/default"
        await told(world, "PUT", f"{topics}/seen")
        assert (await client.next(66)).command.watch_topic_update.new_topics
        await told(world, "DELETE", grants)
        await world.clock.sleep(1.5)
        await told(world, "PUT", f"{topics}/hidden")
        await world.clock.sleep(5.0)
        assert not [each for each in client.heard if each.command.type == 66]
        client.say(pb.Command(type=64, watch_topic_list=watch))
        assert (await client.next(14)).command.error.error == pb.AUTHORIZATION_ERROR

    async def main() -> None:
        await cluster.start()
        await sim.node("client").run(scenario)

    sim.run(main, 600.0)


@pytest.mark.parametrize("face", ["binary", "stream", "framed", "call", "http"])
def test_an_address_that_fails_too_often_is_refused_on_every_face(face: str) -> None:
    async def scenario(world: World, wall_ms: Calendar) -> None:
        known = await connect(world, shown("ann"))
        await known.next(3)

        async def fails(credentials: Credentials) -> str:
            show(world, credentials)
            if face == "binary":
                client = await connect(world, credentials)
                return (await client.next(14)).command.error.message
            if face in ("stream", "framed"):
                address = GRPC if face == "stream" else FRAMED_ADDRESS
                stream = await world.connections.open(address, "broker.consume")
                with pytest.raises(StreamBroken) as raised:
                    await stream.receive()
                return str(raised.value)
            if face == "call":
                topics = own.TopicsRequest(namespace="public/default")
                answer = await call(world, "broker.topics", topics)
                return own.TopicsResponse.FromString(answer).message
            status = await ask(world, "admin/v2/tenants", "Bearer wrong")
            return "try again in" if status == 429 else str(status)

        for _ in range(5):
            assert "try again in" not in await fails(shown("wrong"))
        assert "try again in" in await fails(shown("wrong"))
        if face != "http":
            # Not even good ones are checked, unless they were good lately.
            assert "try again in" in await fails(shown("ben"))
        again = await connect(world, shown("ann"))
        await again.next(3)
        await world.clock.sleep(31.0)
        assert "try again in" not in await fails(shown("wrong"))
        later = await connect(world, shown("ben"))
        await later.next(3)

    run(
        scenario,
        authentication_enabled=True,
        authentication_failures_max=5,
        authentication_failures_window_seconds=30.0,
        framed_port=6661,
    )


def test_a_ping_needs_credentials_or_the_key_of_the_registration() -> None:
    async def scenario(world: World, _calendar: Calendar) -> None:
        async def ping(**fields: str) -> own.PingResponse:
            request = own.PingRequest(**fields).SerializeToString()
            answer = await world.connections.call(GRPC, "broker.ping", request, timeout_seconds=5.0)
            return own.PingResponse.FromString(answer)

        for credentials in (NO_CREDENTIALS, shown("wrong")):
            show(world, credentials)
            assert await ping() == own.PingResponse()
            # What the caller names is no secret: the instance is in logs and lists.
            named = await ping(broker_id="broker0", instance_id="broker0~1")
            assert named == own.PingResponse()
            assert await ping(admin_key="guessed") == own.PingResponse()
        show(world, shown("ann"))
        assert (await ping()).broker_id == "broker0"

    run(scenario)


def test_brokers_without_credentials_of_their_own_do_not_evict_each_other() -> None:
    sim = Simulation(1)
    cluster = BrokerCluster(sim, brokers=2, authenticator=NamedRoles())

    async def main() -> None:
        await cluster.start()

        async def wait(world: World) -> None:
            before = {name: each.address for name, each in cluster.brokers.items()}
            instances = [each._ownership.registry.instance_id for each in cluster.brokers.values()]
            await world.clock.sleep(60.0)
            assert [
                each._ownership.registry.instance_id for each in cluster.brokers.values()
            ] == instances
            for name, each in cluster.brokers.items():
                (other,) = each._ownership.registry.others()
                assert other.address in before.values()
                assert other.broker_id != name
                assert each._ownership.peers.names() == [other.instance_id]

        await sim.node("client").run(wait)

    sim.run(main, 200.0)
