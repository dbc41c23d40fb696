"""Every method and command has a row in the table of permissions, and the table has no other rows;
routes name theirs.
"""

from __future__ import annotations

from typing import get_args

import pytest

from pulsarish.broker.broker import Broker
from pulsarish.broker.clients.authorization import ANYBODY, PERMISSIONS, Gate, Permission, Principal
from pulsarish.broker.clients.commands import Command
from pulsarish.broker.config import BrokerConfig
from pulsarish.model.errors import AuthorizationError
from pulsarish.runtime.seams import HttpRequest, World
from pulsarish.sim.world.world import Simulation


def broker() -> Broker:
    made: list[Broker] = []

    async def build(world: World) -> None:
        made.append(Broker(world, BrokerConfig()))

    sim = Simulation(1)

    async def main() -> None:
        await sim.node("b").run(build)

    sim.run(main)
    return made[0]


def test_every_method_and_command_is_in_the_table_and_nothing_else() -> None:
    node = broker()
    commands = [command.__name__ for command in get_args(Command)]
    reachable = [*node.streams, *node.calls.handlers("internal"), *commands]
    assert len(set(reachable)) == len(reachable)
    assert set(reachable) == set(PERMISSIONS)


def test_what_is_not_in_the_table_is_denied_to_everybody() -> None:
    with pytest.raises(AuthorizationError, match="broker\\.shutdown"):
        Gate().check("broker.shutdown", ANYBODY)


def test_the_policy_hears_permission_principal_and_resource() -> None:
    heard: list[tuple[Permission, Principal, str]] = []

    def policy(permission: Permission, principal: Principal, resource: str) -> bool:
        heard.append((permission, principal, resource))
        return permission is Permission.CONSUME

    gate = Gate(policy)
    gate.check("Subscribe", Principal("ann"), "persistent://a/b/c")
    with pytest.raises(AuthorizationError, match="ann lacks permission produce"):
        gate.check("OpenProducer", Principal("ann"), "persistent://a/b/c")
    gate.permit(Permission.NONE, "GET /health", Principal("ann"))
    assert heard[0] == (Permission.CONSUME, Principal("ann"), "persistent://a/b/c")
    assert len(heard) == 2, "health needs nobody's leave"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("POST", "/health", 405),
        ("GET", "/health", 503),
        ("GET", "/metrics", 200),
        ("PUT", "/admin/v2/persistent/public/default/t/partitions", 400),
        ("GET", "/admin/v2/ledgers/x", 400),
        ("GET", "/admin/v2/ledgers/-1", 412),
        ("GET", "/admin/v2/persistent/pub lic/default/t/stats", 412),
        ("POST", "/admin/v2/persistent/public/default/t/subscription/s/skip/no", 400),
        ("GET", "/admin/v2/brokers/leaderBroker", 404),
        ("GET", "/lookup/v2/topic/persistent/public/default/t", 404),
        ("GET", "/lookup/v2/topic/non-persistent/public/default/t", 404),
    ],
)
def test_status_codes_without_a_cluster(method: str, path: str, status: int) -> None:
    """A broker that has not started answers what needs no metadata, and every refusal has a
    reason.
    """
    sim = Simulation(1)
    found: list[tuple[int, bytes]] = []

    async def ask(world: World) -> None:
        node = Broker(world, BrokerConfig())
        segments = tuple(path.strip("/").split("/"))
        answer = await node.http.handle(HttpRequest(method, path, {}, {}, b"", segments))
        found.append((answer.status, answer.body))

    async def main() -> None:
        await sim.node("b").run(ask)

    sim.run(main)
    assert found[0][0] == status
    assert status == 200 or b'"reason"' in found[0][1]
