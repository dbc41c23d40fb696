"""A bookie that takes only members of its cluster."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from pulsarish.metadata import paths
from pulsarish.metadata.records import BookieRegistration
from pulsarish.model.errors import AuthorizationError, ConfigError
from pulsarish.runtime.seams import CallFailed, StreamBroken, World
from pulsarish.security.credentials import Certificate
from pulsarish.security.membership import member_uri
from pulsarish.sim.world.connections import SimConnections
from pulsarish.wire.json_record import decode_record
from tests.support.bookies import BookieBench, small_config

TLS = {
    "tls_certificate_file_path": "/tls/b1.pem",
    "tls_key_file_path": "/tls/b1.key",
    "tls_trust_certs_file_path": "/tls/ca.pem",
    "tls_require_trusted_client_cert_on_connect": True,
    "tls_cluster_name": "prod",
    "tls_allowed_roles": ("backup",),
}
_FOREVER_MS = 1 << 60


def shows(world: World, certificate: Certificate | None) -> None:
    cast("SimConnections", world.connections).certificate = certificate


def member(kind: str, cluster: str = "prod", *, expires_at_ms: int = _FOREVER_MS) -> Certificate:
    return Certificate("any", (f"URI:{member_uri(cluster, kind, 'x')}",), expires_at_ms)


@pytest.mark.parametrize(
    ("certificate", "is_member"),
    [
        (member("broker"), True),
        (member("bookie"), True),
        (member("autorecovery"), True),
        (Certificate("backup", (), _FOREVER_MS), True),
        (member("broker", "other"), False),
        (member("client"), False),
        (member("broker", expires_at_ms=1), False),
        (Certificate("broker", (), _FOREVER_MS), False),
        (None, False),
    ],
)
def test_only_members_get_through(certificate: Certificate | None, is_member: bool) -> None:
    bench = BookieBench(10, framed_port=3281, **TLS)
    bench.node.expect(AuthorizationError)

    async def look(world: World) -> None:
        await world.clock.sleep(1.0)
        (node,) = await world.metadata.get_many([paths.bookie("b1")])
        assert node is not None
        found = decode_record(node.data, BookieRegistration, "")
        assert (found.address, found.framed_address) == ("tls:b1:3181", "framed:tls:b1:3281")
        assert found.host == "b1"
        shows(world, certificate)
        for address in (found.address, found.framed_address):
            call = world.connections.call(address, "bookie.status", b"", timeout_seconds=5)
            if is_member:
                await call
            else:
                with pytest.raises(CallFailed, match="certificate"):
                    await call
            for method in ("bookie.add", "bookie.read"):
                stream = await world.connections.open(address, method)
                if is_member:
                    await stream.finish()
                    assert await stream.receive() is None
                else:
                    with pytest.raises(StreamBroken):
                        await stream.receive()
            with pytest.raises(StreamBroken, match="only one end speaks TLS"):
                await world.connections.open(address.replace("tls:", ""), "bookie.add")

    async def scenario() -> None:
        await bench.client()
        await bench.client_node.run(look)

    bench.sim.run(scenario)


@pytest.mark.parametrize("method", ["bookie.add", "bookie.read"])
def test_an_open_stream_ends_with_its_certificate(method: str) -> None:
    bench = BookieBench(12, **TLS)

    async def look(world: World) -> None:
        await world.clock.sleep(1.0)
        # The bookie's clock counts, which differs from that of the client's machine.
        assert bench.node.world is not None
        clock = bench.node.world.clock
        end_ms = clock.wall_ms() + 5_000
        shows(world, member("broker", expires_at_ms=end_ms))
        stream = await world.connections.open("tls:b1:3181", method)
        shows(world, member("broker"))
        other = await world.connections.open("tls:b1:3181", method)
        with pytest.raises(StreamBroken, match="expired"):
            await stream.receive()
        assert 0 <= clock.wall_ms() - end_ms < 2_000
        await other.finish()
        assert await other.receive() is None

    async def scenario() -> None:
        await bench.client()
        await bench.client_node.run(look)

    bench.sim.run(scenario)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tls_require_trusted_client_cert_on_connect": False}, "tls_cluster_name needs"),
        (
            {"tls_require_trusted_client_cert_on_connect": False, "tls_cluster_name": ""},
            "tls_allowed_roles needs",
        ),
        ({"tls_certificate_file_path": ""}, "needs TLS: set tls_certificate_file_path"),
    ],
)
def test_options_that_would_do_nothing_are_refused(change: dict[str, object], said: str) -> None:
    config = small_config(**TLS)
    config.validate()
    with pytest.raises(ConfigError, match=said):
        msgspec.structs.replace(config, **change).validate()
