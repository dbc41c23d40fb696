"""For how long a broker that is cut off from the metadata serves a role whose grant was taken away:
until its own metadata session is over, and no longer.
"""

from __future__ import annotations

from pulsarish.broker.config import BrokerConfig
from pulsarish.model.errors import AuthorizationError, PulsarishError
from pulsarish.runtime.seams import HttpRequest, StreamBroken, World
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find
from tests.support.identities import NamedRoles, shown

TOPIC = "persistent://public/default/t"
GRANT = "/admin/v2/namespaces/public/default/permissions/ann"
BROKERS = ("broker0", "broker1")
SESSION_SECONDS = BrokerConfig(metadata_url="memory:").metadata_session_timeout_ms / 1_000
LOOK_SECONDS = 1.0
"""Within which a broker does what it has heard."""
HEARD_SECONDS = 1.0
"""The longest pause of a client of the metadata before it connects again."""


class Scene:
    """A cluster of two brokers, and ``ann``, who may use it at first."""

    def __init__(self) -> None:
        self.sim = Simulation(1)
        self.cluster = BrokerCluster(
            self.sim,
            brokers=2,
            authenticator=NamedRoles(),
            authorization_enabled=True,
            super_user_roles=("root",),
        )
        self.owner = ""
        self.answered_at: list[float] = []
        self.delivered_at: list[float] = []
        self.ended: set[str] = set()

    def now(self) -> float:
        return self.sim.loop.time()

    async def change(self, world: World, broker: str, method: str, body: bytes = b"") -> None:
        headers = {"authorization": "Bearer root", "content-type": "application/json"}
        assert isinstance(world.connections, SimConnections)
        request = HttpRequest(method, GRANT, {}, headers, body, tuple(GRANT.strip("/").split("/")))
        answer = await world.connections.http(f"{broker}:8080", request)
        assert answer.status in (200, 204), answer

    async def cut_the_owner_off(self) -> tuple[Node, Node, str]:
        """Let ann publish and consume, then take the metadata away from the owner of the topic.

        Return the nodes of ann and root, and the other broker.
        """
        await self.cluster.start()
        ann, root = self.sim.node("ann"), self.sim.node("root")
        grant = b'["produce", "consume"]'
        await root.run(lambda world: self.change(world, "broker0", "POST", grant))

        async def begin(world: World) -> None:
            as_role(world, "ann")
            self.owner = await find(world, list(BROKERS), TOPIC)
            for name, work in (("publish", self.publish), ("consume", self.consume)):
                _ = world.tasks.spawn(work(world), name=name)
            await world.clock.sleep(1.0)

        await ann.run(begin)
        owner = self.owner.partition(":")[0]
        (other,) = set(BROKERS) - {owner}
        self.sim.network.partition([owner], [METADATA])
        return ann, root, other

    async def publish(self, world: World) -> None:
        """Publish as ann, until the broker ends it."""
        client = await PublishClient.connect(world, self.owner)
        await client.open(1, TOPIC)
        for number in range(1_000):
            try:
                await client.send([(1, entry("p", number))])
                (*_, found) = await client.wait(1, number + 1)
                if isinstance(found, PulsarishError):
                    raise found
            except (PulsarishError, StreamBroken):
                break
            self.answered_at.append(self.now())
            await world.clock.sleep(0.25)
        self.ended.add("publish")

    async def consume(self, world: World) -> None:
        """Consume as ann, until the broker ends it."""
        client = await ConsumeClient.connect(world, self.owner)
        await client.subscribe(1, TOPIC)
        while not client.closed:
            try:
                _ = await client.receive()
            except StreamBroken:
                break
            if client.got:
                client.got.clear()
                self.delivered_at.append(self.now())
        self.ended.add("consume")


def as_role(world: World, role: str) -> None:
    assert isinstance(world.connections, SimConnections)
    world.connections.credentials = lambda: shown(role)


async def open_producer(world: World, address: str) -> PulsarishError | None:
    """Return why ann may not open a producer, or None."""
    client = await PublishClient.connect(world, address)
    try:
        await client.open(2, TOPIC, "other")
    except PulsarishError as error:
        return error
    client.stream.abort("it was only asked for")
    return None


def test_a_broker_without_metadata_serves_a_revoked_role_until_its_session_ends() -> None:
    scene = Scene()
    sim = scene.sim

    async def main() -> None:
        ann, root, other = await scene.cut_the_owner_off()
        cut_at = scene.now()
        await root.run(lambda world: scene.change(world, other, "DELETE"))

        async def look_while_cut(world: World) -> None:
            # The owner goes by what it knew, for what is opened now, too.
            await world.clock.sleep(SESSION_SECONDS / 2)
            assert await open_producer(world, scene.owner) is None
            await world.clock.sleep(SESSION_SECONDS / 2 + LOOK_SECONDS)
            assert await open_producer(world, scene.owner) is not None
            await world.clock.sleep(SESSION_SECONDS)

        await ann.run(look_while_cut)
        assert scene.ended == {"publish", "consume"}
        for served_at in (scene.answered_at, scene.delivered_at):
            assert served_at[-1] > cut_at + SESSION_SECONDS / 2
            assert served_at[-1] <= cut_at + SESSION_SECONDS + LOOK_SECONDS
        sim.network.heal_all()

        async def look_after_healing(world: World) -> None:
            for broker in BROKERS:
                for _ in range(100):
                    refused = await open_producer(world, f"{broker}:6660")
                    if isinstance(refused, AuthorizationError):
                        break
                    assert refused is not None
                    await world.clock.sleep(0.1)
                else:
                    raise AssertionError(f"{broker}: {refused!r}")

        await ann.run(look_after_healing)

    sim.run(main, 600.0)


def test_a_broker_that_is_connected_again_ends_a_revoked_role_within_a_second() -> None:
    scene = Scene()
    sim = scene.sim

    async def main() -> None:
        ann, root, other = await scene.cut_the_owner_off()
        await root.run(lambda world: scene.change(world, other, "DELETE"))
        await ann.run(lambda world: world.clock.sleep(SESSION_SECONDS / 3))
        assert not scene.ended
        sim.network.heal_all()
        healed_at = scene.now()
        await ann.run(lambda world: world.clock.sleep(SESSION_SECONDS))
        assert scene.ended == {"publish", "consume"}
        for served_at in (scene.answered_at, scene.delivered_at):
            assert served_at[-1] > healed_at - LOOK_SECONDS
            assert served_at[-1] <= healed_at + HEARD_SECONDS + LOOK_SECONDS

    sim.run(main, 600.0)
