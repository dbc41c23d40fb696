"""Metadata servers as processes of their own, with TLS and logins."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from pulsarish.metadata.daemon.zookeeper_server import (
    ZooKeeperServerConfig,
    write_configuration,
    zookeeper_command,
)
from tests.support.certificates import Certificates
from tests.support.metadata_stores import free_port, require_zookeeper

__all__ = ["LOGIN", "STARTS", "Server", "daemon", "login_file", "plain_kazoo", "zookeeper"]

LOGIN = "pulsarish:correct-horse-battery"
_START_SECONDS = 60.0


@dataclass
class Server:
    """A running server: ``host:port`` of each face."""

    plain: str
    secured: str
    made: Certificates


def login_file(path: Path, *logins: str) -> str:
    path.write_text("".join(f"{login}\n" for login in logins))
    path.chmod(0o600)
    return str(path)


@contextlib.contextmanager
def daemon(directory: Path, made: Certificates, **settings: str) -> Iterator[Server]:
    """Run ``pulsarish metadata`` with TLS and, unless ``settings`` say otherwise, with a login."""
    certificate, key = made.issue("metadata")
    options = {
        "listen_address": "127.0.0.1:0",
        "listen_address_tls": "127.0.0.1:0",
        "http_address": "",
        "data_directory": str(directory / "data"),
        "tls_certificate_file_path": certificate,
        "tls_key_file_path": key,
        "tls_trust_certs_file_path": made.trust,
        "auth_file": str(directory / "metadata.auth"),
        **settings,
    }
    if not (directory / "metadata.auth").exists():
        login_file(directory / "metadata.auth", LOGIN)
    words = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "pulsarish", "metadata", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "address=" in line, line
        addresses = line.split("address=")[1].split()[0].replace("tls:", "").split(",")
        yield Server(addresses[0], addresses[-1], made)
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextlib.contextmanager
def zookeeper(directory: Path, made: Certificates) -> Iterator[Server]:
    """Run the real ZooKeeper with TLS, as docs/security.md says."""
    require_zookeeper()
    certificate, key = made.issue("zookeeper")
    store = directory / "zookeeper-store.pem"
    store.write_text(Path(key).read_text() + Path(certificate).read_text())
    plain, secured = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    config = ZooKeeperServerConfig(
        listen_address=plain,
        data_directory=str(directory / "zookeeper"),
        tick_ms=200,
        configuration_lines=(
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"secureClientPort={secured.rpartition(':')[2]}",
            "secureClientPortAddress=127.0.0.1",
            f"ssl.keyStore.location={store}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={made.trust}",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=need",
        ),
    )
    log = directory / "zookeeper.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            zookeeper_command(config, write_configuration(config)), stdout=output, stderr=output
        )
        try:
            deadline = time.monotonic() + _START_SECONDS
            while True:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                client = KazooClient(plain)
                try:
                    client.start(timeout=5)
                    break
                except (KazooException, client.handler.timeout_exception):
                    continue
                finally:
                    client.stop()
                    client.close()
            yield Server(plain, secured, made)
        finally:
            process.kill()
            process.wait()


STARTS = {"daemon": daemon, "zookeeper": zookeeper}


@contextlib.contextmanager
def plain_kazoo(address: str, *logins: str) -> Iterator[KazooClient]:
    """Yield a client of another program."""
    client = KazooClient(address, auth_data=[("digest", login) for login in logins], timeout=20)
    try:
        client.start(timeout=20)
        yield client
    finally:
        client.stop()
        client.close()
