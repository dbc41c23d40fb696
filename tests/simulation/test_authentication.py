"""Who is not known gets nothing on any port of a broker, and rights end when they should."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable

import pytest
from google.protobuf.message import Message

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.enums import InitialPosition
from pulsarish.model.errors import AuthenticationError, InvalidArgument, PulsarishError
from pulsarish.runtime.seams import CallFailed, HttpRequest, StreamBroken, World
from pulsarish.security.callers import Callers, Original
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as own
from pulsarish.wire._pb import pulsar_pb2 as pb
from tests.support.binary_client import BinaryClient, send_frame
from tests.support.brokers import BrokerCluster, entry, find
from tests.support.identities import NamedRoles, shown

TOPIC = "persistent://public/default/t"
BINARY = "broker0:6650"
GRPC = "broker0:6660"
HTTP = "broker0:8080"


Calendar = Callable[[], int]
"""Returns the broker's time, in milliseconds since the epoch; each machine has its own."""


def run(
    scenario: Callable[[World, Calendar], Awaitable[None]],
    *,
    seconds: float = 600.0,
    expected: tuple[type[Exception], ...] = (),
) -> None:
    sim = Simulation(1)
    cluster = BrokerCluster(sim, authenticator=NamedRoles())

    async def main() -> None:
        await cluster.start()
        cluster.nodes["broker0"].expected_errors = expected
        calendar = cluster.brokers["broker0"]._world.clock.wall_ms
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


def own_client(world: World) -> AsyncClient:
    return AsyncClient(
        f"pulsarish://{GRPC}",
        clock=world.clock,
        random=world.random,
        tasks=world.tasks,
        connect=lambda _: world.connections,
    )


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
