"""A bookie as a real process that speaks TLS and takes only members of its cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulsarish.runtime.seams import CallFailed, StreamBroken, World
from pulsarish.security.membership import member_uri
from pulsarish.security.tls import TlsClientConfig
from pulsarish.wire._pb import bookie_pb2 as pb
from tests.support.bookies import BookieClient, make_record
from tests.support.certificates import Certificates
from tests.support.until import until
from tests.support.worlds import in_world


def command(home: Path, made: Certificates, **settings: str) -> list[str]:
    certificate, key = made.issue("b1", uris=(member_uri("prod", "bookie", "b1"),))
    options = {
        "bookie_id": "b1",
        "metadata_url": f"embedded:{home}/metadata",
        "listen_address": "127.0.0.1:0",
        "http_address": "127.0.0.1:0",
        "data_directory": f"{home}/data",
        "tls_certificate_file_path": certificate,
        "tls_key_file_path": key,
        "tls_trust_certs_file_path": made.trust,
        "tls_require_trusted_client_cert_on_connect": "true",
        "tls_cluster_name": "prod",
        **settings,
    }
    words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    return [sys.executable, "-m", "pulsarish", "bookie", *words]


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def address(tmp_path: Path, made: Certificates) -> Iterator[str]:
    process = subprocess.Popen(command(tmp_path, made), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().partition("grpc=")[2].split()[0]
    process.kill()
    process.communicate()


def broker(made: Certificates, cluster: str = "prod") -> TlsClientConfig:
    pair = made.issue("broker", uris=(member_uri(cluster, "broker", "one"),), is_server=False)
    return TlsClientConfig(made.trust, *pair)


async def _status(world: World, address: str) -> pb.StatusResponse:
    return pb.StatusResponse.FromString(
        await world.connections.call(address, "bookie.status", b"", timeout_seconds=30)
    )


def test_a_broker_of_the_cluster_adds_and_reads(address: str, made: Certificates) -> None:
    assert address.startswith("tls:127.0.0.1:")

    async def work(world: World) -> None:
        client = BookieClient(world, address, (await _status(world, address)).instance_id)
        records = [make_record(1, entry, b"%d" % entry) for entry in range(100)]
        assert set((await client.add(records)).values()) == {0}
        _, found = await client.read(1, 0, 99)
        assert found == {entry: b"%d" % entry for entry in range(100)}

    in_world(broker(made), work)


def test_others_are_refused(address: str, made: Certificates, tmp_path: Path) -> None:
    async def refused_by_name(world: World) -> None:
        with pytest.raises(CallFailed, match="no member of this cluster"):
            await _status(world, address)
        with pytest.raises(StreamBroken, match="no member of this cluster"):
            stream = await world.connections.open(address, "bookie.add")
            await stream.receive()

    async def refused_by_tls(world: World) -> None:
        with pytest.raises(StreamBroken):
            await _status(world, address)
        with pytest.raises(StreamBroken):
            await world.connections.open(address, "bookie.add")

    async def refused_plain(world: World) -> None:
        with pytest.raises(StreamBroken, match="TLS"):
            await _status(world, address.removeprefix("tls:"))

    in_world(broker(made, "another cluster"), refused_by_name)
    in_world(made.client_config("somebody"), refused_by_name)
    in_world(made.client_config(""), refused_by_tls)
    (tmp_path / "other").mkdir()
    stranger = Certificates(tmp_path / "other")
    in_world(TlsClientConfig(made.trust, *stranger.issue("broker")), refused_by_tls)
    in_world(broker(stranger), refused_by_tls)
    in_world(broker(made), refused_plain)


def test_a_bad_certificate_ends_the_start_with_its_option(
    tmp_path: Path, made: Certificates
) -> None:
    expired, key = made.issue("old", age_days=10, days=9)
    for settings, said in (
        ({"tls_certificate_file_path": str(tmp_path / "none.pem")}, "there is no such file"),
        ({"tls_key_file_path": key}, "the key does not belong to the certificate"),
        (
            {"tls_certificate_file_path": expired, "tls_key_file_path": key},
            "tls_certificate_file_path",
        ),
    ):
        done = subprocess.run(
            command(tmp_path, made, **settings),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_a_renewed_certificate_is_used_without_a_restart(address: str, made: Certificates) -> None:
    client = broker(made)

    async def held(world: World) -> None:
        bookie = BookieClient(world, address, (await _status(world, address)).instance_id)
        assert set((await bookie.add([make_record(1, 0, b"x")])).values()) == {0}
        next_authority = Certificates(made.directory, "the next authority")
        next_authority.issue("b1", uris=(member_uri("prod", "bookie", "b1"),))
        await world.clock.sleep(1.2)  # files are looked at once a second
        # The stream of the old authority stays.
        assert set((await bookie.add([make_record(1, 1, b"x")])).values()) == {0}

    in_world(client, held)
    made.authority = Certificates(made.directory, "the third authority").authority
    made.issue("b1", uris=(member_uri("prod", "bookie", "b1"),))

    async def new(world: World) -> None:
        await _status(world, address)

    def is_used() -> bool:
        try:
            in_world(broker(made), new)
        except StreamBroken:
            return False
        return True

    until("the renewed certificate is used", is_used)
