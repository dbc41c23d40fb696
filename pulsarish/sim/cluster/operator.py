"""The operator of the simulated cluster, who works while everything else continues: unloads topics,
restarts nodes, changes policies.

Also a broker that believes to own what another broker serves, and recovers its ledgers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from pulsarish.broker.ownership.bundles import Bundle, bundles_of
from pulsarish.broker.ownership.splits import BY_RANGE, BY_TOPICS
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.records import NamespacePolicies
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerState
from pulsarish.runtime.seams import (
    HttpRequest,
    HttpResponse,
    OutcomeUnknown,
    SessionLost,
    StreamBroken,
    World,
)
from pulsarish.sim.cluster.cluster import LEDGER_OPTIONS, SimCluster
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.stage import Stage
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.nodes import Node, NodeDied

__all__ = ["NAMESPACE", "TOPICS", "Operator", "administer"]

TOPICS: Final = "/admin/v2/persistent/public/default"
NAMESPACE: Final = "/admin/v2/namespaces/public/default"

_ANSWER_SECONDS: Final = 5.0
_MOVES_MAX: Final = 4
_UNLOAD_SHARE: Final = 0.7
_POLICY_PAUSE_SECONDS: Final = 1.5
_RIVAL_PAUSE_SECONDS: Final = 2.5
_TOGGLE_PAUSE_SECONDS: Final = 1.5
_MOVE_PAUSE_SECONDS: Final = 0.7
_MOVED_SHARE: Final = 0.7
_SPLIT_SHARE: Final = 0.3
_BUNDLES_MAX: Final = 12
_RULE_PAUSE_SECONDS: Final = 1.0
_BINDINGS_MAX: Final = 30
_CLUSTER: Final = "/admin/v2/clusters/pulsarish"
_ISOLATION: Final = f"{_CLUSTER}/namespaceIsolationPolicies/own"
_DOMAINS: Final = f"{_CLUSTER}/failureDomains"
_GROUP: Final = f"{NAMESPACE}/antiAffinity"
DEDUPLICATION: Final = "deduplication"

# None of these changes what is promised: neither what a subscription must get nor what is a
# duplicate. ``None`` removes a policy.
_POLICIES: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    (
        "persistence",
        (
            None,
            *(
                {
                    "bookkeeperEnsemble": ensemble,
                    "bookkeeperWriteQuorum": write,
                    "bookkeeperAckQuorum": 2,
                }
                for ensemble, write in ((3, 3), (3, 2), (2, 2))
            ),
        ),
    ),
    (
        "retention",
        (
            None,
            {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
            {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        ),
    ),
    (
        "dispatchRate",
        (None, {"dispatchThrottlingRateInMsg": 20}, {"dispatchThrottlingRateInByte": 4_000}),
    ),
    ("subscriptionDispatchRate", (None, {"dispatchThrottlingRateInMsg": 30})),
    ("publishRate", (None, {"publishThrottlingRateInMsg": 30})),
    ("maxUnackedMessagesPerConsumer", (None, 20)),
    ("maxUnackedMessagesPerSubscription", (None, 30)),
    ("deduplicationSnapshotInterval", (None, 1)),
)


async def ask(
    world: World, broker: str, method: str, target: str, body: object = None
) -> HttpResponse:
    """Send one request to a broker's HTTP face. Raises ``StreamBroken``, ``TimeoutError``."""
    assert isinstance(world.connections, SimConnections)
    parts = urlsplit(target)
    query = dict(pair.split("=") for pair in parts.query.split("&") if pair)
    shown = world.connections.credentials()
    headers = {}
    if shown.method == "token":
        headers["authorization"] = f"Bearer {shown.data.reveal().decode()}"
    content = b"" if body is None else msgspec.json.encode(body)
    request = HttpRequest(
        method, parts.path, query, headers, content, tuple(parts.path.strip("/").split("/"))
    )
    async with asyncio.timeout(_ANSWER_SECONDS):
        return await world.connections.http(f"{broker}:8080", request)


async def administer(
    stage: Stage, world: World, broker: str, method: str, target: str, body: object = None
) -> HttpResponse:
    """Send the request to the broker that it concerns: redirects are followed.

    A refusal for want of rights, unless the token expired on its way, and an answer with status
    500 are defects.
    """
    response = await ask(world, broker, method, target, body)
    for _ in range(_MOVES_MAX):
        if response.status != 307:
            break
        moved = urlsplit(response.headers["Location"])
        broker, target = moved.netloc.split(":")[0], f"{moved.path}?{moved.query}"
        response = await ask(world, broker, method, target, body)
    stage.trace(f"{method} {target} at {broker}: {response.status}")
    is_late = response.status == 401 and b"expired" in response.body and stage.tokens_may_be_late
    if response.status in (401, 403) and not is_late:
        stage.oracle.report("refused-with-rights", f"{method} {target}: {response.body.decode()}")
    if response.status == 500:
        stage.oracle.report(
            "defect", f"{method} {target} was answered with 500: {response.body.decode()}"
        )
    return response


def _isolation(primary: Sequence[str], others: Sequence[str] = ()) -> dict[str, object]:
    """Return an isolation policy of the namespace. Without ``others`` it is strict: only the
    primary brokers serve it, whatever they do.
    """
    return {
        "namespaces": ["public/default"],
        "primary": list(primary),
        "secondary": [each for each in others if each not in primary],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": 1, "usage_threshold": 100},
        },
    }


@dataclass(slots=True)
class Operator:
    """Works on a node of its own until the load ends."""

    stage: Stage
    cluster: SimCluster
    node: Node

    async def unload_and_restart(self) -> None:
        rng = self.stage.rng
        busy = rng.choice((0.0, 2.0, 5.0))
        while busy and not self.stage.over:
            await asyncio.sleep(rng.expovariate(1 / busy))
            if rng.random() < _UNLOAD_SHARE:
                await self._unload()
            else:
                await self.cluster.restart_gracefully(
                    rng.choice([*self.cluster.brokers, *self.cluster.bookies])
                )

    async def _unload(self) -> None:
        rng, partitions = self.stage.rng, self.cluster.settings.partitions
        partition = f"-partition-{rng.randrange(partitions)}" if partitions else ""
        broker = rng.choice(self.cluster.brokers)

        async def inside(world: World) -> None:
            response = await ask(world, broker, "PUT", f"{TOPICS}/t{partition}/unload")
            self.stage.trace(f"unload t{partition} at {broker}: {response.status}")
            if response.status == 500:
                self.stage.oracle.report("defect", f"unload answered 500: {response.body.decode()}")

        try:
            await self.node.run(inside)
        except (NodeDied, StreamBroken, TimeoutError) as error:
            self.stage.trace(f"unload at {broker} failed: {error!r}")

    async def change_policies(self, rng: random.Random) -> None:
        """Change policies of the namespace while topics are loaded. At the end all are removed."""
        changed: dict[str, None] = {}
        while not self.stage.over:
            await asyncio.sleep(rng.expovariate(1 / _POLICY_PAUSE_SECONDS))
            name, values = rng.choice(_POLICIES)
            changed[name] = None
            await self._set_policy(rng.choice(self.cluster.brokers), name, rng.choice(values))

    async def toggle_deduplication(self, rng: random.Random) -> None:
        """Switch deduplication on and off during publishing.

        No message may be lost, or count as stored when it is not.
        """
        while not self.stage.over:
            await asyncio.sleep(rng.expovariate(1 / _TOGGLE_PAUSE_SECONDS))
            await self._set_policy(
                rng.choice(self.cluster.brokers), DEDUPLICATION, rng.choice((True, False, None))
            )

    async def move_bundles(self, rng: random.Random) -> None:
        """Move and split bundles, and drain brokers for a while, beside the balancer."""
        brokers = self.cluster.brokers
        bundles = bundles_of("public", "default", NamespacePolicies(self.cluster.settings.bundles))
        while not self.stage.over:
            await asyncio.sleep(rng.expovariate(1 / _MOVE_PAUSE_SECONDS))
            drained, way = rng.choice(brokers), rng.random()
            bundles = await self._bundles(rng.choice(brokers)) or bundles
            if way < _SPLIT_SHARE and len(bundles) < _BUNDLES_MAX:
                target = f"{NAMESPACE}/{rng.choice(bundles).range}/split"
                target += f"?unload={rng.choice(('true', 'false'))}"
                target += f"&splitAlgorithmName={rng.choice((BY_RANGE, BY_TOPICS))}"
                await self._change(rng.choice(brokers), "PUT", target)
            elif way < _MOVED_SHARE:
                target = f"{NAMESPACE}/{rng.choice(bundles).range}/unload"
                target += f"?destinationBroker={rng.choice(brokers)}"
                await self._change(rng.choice(brokers), "PUT", target)
            else:
                target = f"/admin/v2/brokers/{drained}/drain"
                await self._change(rng.choice(brokers), "PUT", target)
                await asyncio.sleep(rng.expovariate(1 / _MOVE_PAUSE_SECONDS))
                # A broker may miss this, and drains on: it serves what no other broker takes.
                await self._change(rng.choice(brokers), "DELETE", target)

    async def change_placement(self, rng: random.Random) -> None:
        """Set and remove rules of which brokers serve the namespace, beside the balancer."""
        brokers = self.cluster.brokers
        while not self.stage.over:
            await asyncio.sleep(rng.expovariate(1 / _RULE_PAUSE_SECONDS))
            asked, named, rest = rng.choice(brokers), rng.choice(brokers), rng.random()
            method = rng.choice(("POST", "POST", "DELETE"))
            target, body = rng.choice(
                (
                    (_ISOLATION, _isolation([named], others=brokers if rest < 0.5 else ())),
                    (_ISOLATION, _isolation([each for each in brokers if each != named])),
                    (f"{_DOMAINS}/{rng.choice(('left', 'right'))}", {"brokers": [named]}),
                    (_GROUP, "spread"),
                )
            )
            await self._change(asked, method, target, None if method == "DELETE" else body)

    async def bind_to(self, broker: str) -> None:
        """Have one broker serve the namespace, and no other one, whatever the rules were.

        Brokers may be starting: what has no answer is asked for again. The broker may still drain
        because it missed the end of its drain.
        """
        for method, target, body in (
            ("DELETE", f"/admin/v2/brokers/{broker}/drain", None),
            ("DELETE", _GROUP, None),
            ("POST", _ISOLATION, _isolation([broker])),
        ):
            for _ in range(_BINDINGS_MAX):
                if await self._change(broker, method, target, body):
                    break
                await asyncio.sleep(_RULE_PAUSE_SECONDS)

    async def _bundles(self, broker: str) -> list[Bundle]:
        """Return the bundles of the namespace as a broker lists them; none without an answer."""

        async def inside(world: World) -> list[Bundle]:
            response = await administer(self.stage, world, broker, "GET", f"{NAMESPACE}/bundles")
            if response.status != 200:
                return []
            edges = [int(edge, 16) for edge in msgspec.json.decode(response.body)["boundaries"]]
            return bundles_of("public", "default", NamespacePolicies(boundaries=tuple(edges)))

        try:
            return await self.node.run(inside)
        except (NodeDied, StreamBroken, TimeoutError) as error:
            self.stage.trace(f"bundles at {broker} failed: {error!r}")
            return []

    async def _change(self, broker: str, method: str, target: str, body: object = None) -> bool:
        """Return whether the change was made."""

        async def inside(world: World) -> bool:
            response = await administer(self.stage, world, broker, method, target, body)
            self.stage.counts.rules += response.status < 300 and body is not None
            return response.status < 300

        try:
            return await self.node.run(inside)
        except (NodeDied, StreamBroken, TimeoutError) as error:
            self.stage.trace(f"{method} {target} has no answer: {error!r}")
            return False

    async def take_deduplication_back(self) -> None:
        await self._set_policy(self.cluster.brokers[0], DEDUPLICATION, None)

    async def take_policies_back(self) -> None:
        """Remove the policies once everything has healed.

        One that was never set may be removed, too.
        """
        for name, _ in _POLICIES:
            await self._set_policy(self.cluster.brokers[0], name, None)

    async def _set_policy(self, broker: str, name: str, value: object) -> None:
        async def inside(world: World) -> int:
            method = "DELETE" if value is None else "POST"
            response = await administer(
                self.stage, world, broker, method, f"{NAMESPACE}/{name}", value
            )
            return response.status

        try:
            status = await self.node.run(inside)
        except (NodeDied, StreamBroken, TimeoutError) as error:
            self.stage.trace(f"policy {name} not set: {error!r}")
            return
        self.stage.counts.policies += status < 300
        if 400 <= status < 500 and status not in (401, 403, 409):
            self.stage.oracle.report(
                "defect", f"policy {name} = {value!r} was refused with {status}"
            )

    async def give_up(self, bookie_ids: Sequence[str]) -> None:
        """Give up bookies that never come back. Raises ``TimeoutError`` when no broker answers."""

        async def inside(world: World) -> None:
            for bookie_id in bookie_ids:
                target = f"/admin/v2/bookies/decommission/{bookie_id}"
                await administer(self.stage, world, self.cluster.brokers[0], "PUT", target)

        await self.node.run(inside)

    async def recover_others_ledgers(self, rng: random.Random, invariants: Invariants) -> None:
        """Recover ledgers that are being written or recovered, like a broker that was replaced and
        does not know it.
        """
        while not self.stage.over:
            await asyncio.sleep(rng.expovariate(1 / _RIVAL_PAUSE_SECONDS))
            open_ones = [
                ledger_id
                for ledger_id, record in invariants.ledgers.items()
                if record.state is not LedgerState.CLOSED
            ]
            if open_ones:
                await self._recover(rng.choice(open_ones))

    async def _recover(self, ledger_id: int) -> None:
        async def inside(world: World) -> None:
            client = LedgerClient(world, LEDGER_OPTIONS)
            await client.start()
            try:
                await client.open(ledger_id)
            finally:
                await client.close()

        try:
            await self.node.run(inside)
        except (NodeDied, PulsarishError, OutcomeUnknown, SessionLost) as error:
            self.stage.trace(f"ledger {ledger_id} not recovered by a rival: {error!r}")
            return
        self.stage.counts.rival_recoveries += 1
        self.stage.trace(f"ledger {ledger_id} recovered by a rival")
