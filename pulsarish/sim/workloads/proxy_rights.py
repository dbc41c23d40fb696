"""Who may do what through the proxy, and where it connects to.

Each caller of ``rights_cases`` asks a simulated proxy every question of Apache Pulsar's protocol,
and is passed on to a broker. Both must end as they do at the broker itself. Whatever else is sent
to the proxy is refused, and so is every address but those of brokers.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, cast

from pulsarish.broker.clients.authorization import Permission
from pulsarish.proxy.config import ProxyConfig
from pulsarish.proxy.main import Proxy
from pulsarish.runtime.seams import World
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials, Secret
from pulsarish.sim.workloads.binary_rights import ASKED, COMMANDS, QUESTIONS, command_numbers
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
from pulsarish.sim.world.connections import SimConnections

__all__ = ["run_proxy_rights"]

_PROXY: Final = "proxy:6650"
_TUNNEL: Final = "proxy:6655"
_CERTIFIED: Final = "certified:6650"
"""A proxy that shows brokers a certificate of its own."""
_REFUSED: Final = "NOT_ALLOWED_ERROR"
_BROKERS_OWN: Final = "broker0:6660"
_BROKERS_HTTP: Final = "broker0:8080"
_FORBIDDEN: Final = (
    _BROKERS_OWN,
    _BROKERS_HTTP,
    "bookie0:3181",
    "metadata:2181",
    _PROXY,
    "broker0:6651",
    "elsewhere:6650",
    f"user@{BINARY}",
    f"{BINARY}@elsewhere:6650",
    f"{BINARY}/elsewhere:6650",
)
"""What is no address of a broker's binary port."""
_METHODS: Final = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "connect")


def run_proxy_rights() -> Matrix:
    """Ask the proxy for each caller, and for each address."""

    async def ask(site: RightsSite, matrix: Matrix) -> None:
        for name, certificate in (("proxy", ""), ("certified", "proxy.pem")):
            config = ProxyConfig(
                pulsar_address=f"{name}:6650",
                connect_address=f"{name}:6655",
                http_address="",
                broker_client_certificate_file_path=certificate,
            )
            await site.sim.node(name).run(partial(_start, config))
        client = site.sim.node("10.0.0.1")
        await client.run(lambda world: _Run(site, world, matrix).run())

    return in_site(ask)


async def _start(config: ProxyConfig, world: World) -> None:
    await Proxy(world, config).start()


class _Run:
    def __init__(self, site: RightsSite, world: World, matrix: Matrix) -> None:
        assert isinstance(world.connections, SimConnections)
        self._site = site
        self._world = world
        self._connections = world.connections
        self._matrix = matrix
        self._numbers = command_numbers()

    async def run(self) -> None:
        cases = self._site.cases.cases()
        del cases["limited to this network"]  # which is not the proxy's
        await self._world.clock.sleep(1.0)  # the proxy reads which brokers there are
        await self._make_topic(cases["root"])
        before = self._site.kept()
        for name, case in cases.items():
            await self._ask(name, case, is_permitted=False)
            await self._be_passed_on(name, case, is_permitted=False)
        await self._send_the_rest(cases["root"])
        await self._name_other_addresses(cases["root"])
        await self._use_other_methods()
        await self._show_only_a_certificate()
        kept = self._site.kept()
        self._matrix.expect("what is denied changes nothing", found=kept, wanted=before)
        for name, case in cases.items():
            await self._ask(name, case, is_permitted=True)
            await self._be_passed_on(name, case, is_permitted=True)

    async def _make_topic(self, root: Case) -> None:
        wire = await self._passed_on(root, BINARY)
        assert isinstance(wire, Wire)
        assert await wire.ask(self._world, 23, 24, **QUESTIONS["lookup"].fields) == DONE
        assert await self._produce(wire) == DONE
        wire.close()

    async def _produce(self, wire: Wire) -> str:
        return await wire.ask(self._world, 5, 17, topic=TOPIC, producer_id=1, request_id=2)

    async def _passed_on(self, case: Case, address: str, proxy: str = _PROXY) -> Wire | str:
        return await self._site.connected(
            self._world, case, proxy, proxy_to_broker_url=f"pulsar://{address}"
        )

    # -- clients

    async def _ask(self, name: str, case: Case, *, is_permitted: bool) -> None:
        wire = await self._site.connected(self._world, case, _PROXY)
        assert isinstance(wire, Wire)  # the proxy knows no roles
        for command, row in QUESTIONS.items():
            may = bool(case.roles) and case.may(row.permission, row.resource)
            if may is not is_permitted:
                continue
            number = self._numbers[command]
            found = await wire.ask(self._world, number, row.answer, **row.fields)
            wanted = DONE if may else DENIED if case.roles else STRANGE
            self._matrix.expect(f"{name} asks the proxy: {command}", found=found, wanted=wanted)
        wire.close()

    async def _be_passed_on(self, name: str, case: Case, *, is_permitted: bool) -> None:
        may = bool(case.roles) and case.may(Permission.PRODUCE, ASKED)
        if may is not is_permitted:
            return
        wire = await self._passed_on(case, BINARY)
        found = await self._produce(wire) if isinstance(wire, Wire) else wire
        wanted = DONE if may else DENIED if case.roles else STRANGE
        self._matrix.expect(f"{name} produces through the proxy", found=found, wanted=wanted)
        if isinstance(wire, Wire):
            wire.close()

    # -- what no client may do

    async def _send_the_rest(self, root: Case) -> None:
        """Send what is no question, as an administrator: it must go no further."""
        for command, number in self._numbers.items():
            if command in QUESTIONS or command in ("ping", "pong"):
                continue
            wire = await self._site.connected(self._world, root, _PROXY)
            assert isinstance(wire, Wire)
            row = COMMANDS.get(command)
            found = await wire.ask(self._world, number, **({} if row is None else row.fields))
            # Others come without their required fields, or have none.
            wanted = _REFUSED if row is not None or found == _REFUSED else LOST
            self._matrix.expect(f"the proxy is sent {command}", found=found, wanted=wanted)
            wire.close()
        for command, number in self._numbers.items():
            if command != "connect":
                wire = await self._site.opened(self._world, _PROXY)
                wire.say(number)
                heard = await wire.next(self._world, *self._numbers.values())
                self._matrix.expect(f"the proxy: {command} first", found=heard, wanted=None)

    async def _name_other_addresses(self, root: Case) -> None:
        for address in _FORBIDDEN:
            found = await self._passed_on(root, address)
            said = found if isinstance(found, str) else DONE
            self._matrix.expect(f"passed on to {address}", found=said, wanted=_REFUSED)
        wanted = dict.fromkeys(_FORBIDDEN, 403)
        # The proxy connects there; in the simulated network that port has no bytes to relay.
        wanted |= {_BROKERS_OWN: 502, BINARY: 200}
        # What is no host:port is no request that is known here.
        wanted |= {address: 405 for address in _FORBIDDEN if set("@/") & set(address)}
        for address, status in wanted.items():
            found_status = await self._tunnel(f"CONNECT {address} HTTP/1.1")
            self._matrix.expect(f"CONNECT {address}", found=found_status, wanted=status)

    async def _use_other_methods(self) -> None:
        for method in _METHODS:
            for target in (_BROKERS_OWN, f"http://{_BROKERS_HTTP}/admin/v2/tenants", "/metrics"):
                found = await self._tunnel(f"{method} {target} HTTP/1.1")
                self._matrix.expect(f"{method} {target}", found=found, wanted=405)

    async def _tunnel(self, line: str) -> int:
        """Return the status of a request to the port for CONNECT of HTTP."""
        raw = cast("_Raw", await self._connections.open_bytes(_TUNNEL, _Raw))
        raw.send(f"{line}\r\nHost: x\r\n\r\n".encode())
        async with self._world.clock.timeout(20.0):
            return int((await raw.first).split()[1])

    async def _show_only_a_certificate(self) -> None:
        """To a broker, who shows nothing else would be the proxy with its certificate."""
        shown = {
            "nothing": NO_CREDENTIALS,
            "no method": Credentials("none"),
            "a certificate": Credentials("tls"),
            "a certificate and data": Credentials("tls", Secret(b"x")),
        }
        for name, credentials in shown.items():
            for fields in ({}, {"proxy_to_broker_url": f"pulsar://{BINARY}"}):
                found = await self._site.connected(
                    self._world, Case(credentials), _CERTIFIED, **fields
                )
                said = found if isinstance(found, str) else DONE
                case = f"{name} at a proxy with a certificate, {len(fields)}"
                self._matrix.expect(case, found=said, wanted=STRANGE)


class _Raw(asyncio.Protocol):
    def __init__(self) -> None:
        self.first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self.first.done():
            self.first.set_result(bytes(data))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.first.done():
            self.first.set_exception(EOFError("the connection ended without an answer"))

    def eof_received(self) -> bool:
        return False

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)
