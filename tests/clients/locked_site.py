"""A cluster that asks for credentials, for Apache Pulsar's clients: brokers with plain ports and
ports with TLS, a proxy with TLS, and the credentials that are shown to them.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import bcrypt

from pulsarish.local_cluster.locked import administrator
from pulsarish.local_cluster.plan import HOST, NodePlan
from pulsarish.local_cluster.ports import free_ports
from pulsarish.local_cluster.processes import Cluster
from pulsarish.security.authority import Authority
from pulsarish.security.credentials import Secret
from pulsarish.security.keys import SigningKey, load_secret_key
from pulsarish.security.token_maker import sign_token
from tests.support.certificates import Certificates
from tests.support.clusters import running_cluster
from tests.support.relay import Relay

__all__ = ["NAMESPACE", "PASSWORD", "ROLE", "LockedSite", "locked_site"]

NAMESPACE = "public/default"
ROLE = "app"
"""The role that may produce and consume, by a token, a password or a certificate."""
PASSWORD = "correct horse"


@dataclass
class LockedSite:
    """Where the clients connect to, and with what."""

    cluster: Cluster
    certificates: Certificates
    urls: dict[str, str]
    """Service URLs by kind: ``tls``, ``https``, ``plain``, ``http``, ``proxy`` and ``misnamed``,
    whose address no certificate has.
    """

    def __post_init__(self) -> None:
        self.admin = administrator(self.cluster)
        self.trust = str(self._home / "ca.pem")
        self.administrators_token = str(self._home / "admin.token")

    @property
    def _home(self) -> Path:
        return self.cluster.directory / "security"

    def token(self, role: str = ROLE, seconds: float | None = None, **claims: object) -> str:
        """Return a new token, with an expiry if ``seconds`` says how long it lives."""
        key = load_secret_key("key", str(self._home / "token.key"))
        if seconds is not None:
            claims["exp"] = int(time.time() + seconds)
        return sign_token({"sub": role, **claims}, SigningKey(key.key, key.algorithms)).decode()

    def token_file(self, role: str = ROLE) -> str:
        path = self.certificates.directory / f"{role}.token"
        path.write_text(self.token(role))
        return str(path)


@contextmanager
def locked_site(directory: Path) -> Iterator[LockedSite]:
    """Run the cluster and its proxy until the end of the block."""
    passwords = directory / "users.htpasswd"
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    passwords.write_text(f"{ROLE}:{hashed}\n")
    plain: dict[str, list[str]] = {"pulsar": [], "http": []}

    def prepare(plan: list[NodePlan]) -> None:
        ports = free_ports(HOST)
        for node in plan:
            if node.role != "broker":
                continue
            for kind, addresses in plain.items():
                address = f"{HOST}:{next(ports)}"
                addresses.append(address)
                node.settings.append(f"{kind}_address={address}")
            node.settings += [
                "authentication_providers=token,basic,tls",
                f"basic_auth_conf={passwords}",
                # All wrong credentials of the tests come from one address.
                "authentication_failures_max=1000000",
            ]

    with ExitStack() as stack:
        cluster = stack.enter_context(
            running_cluster(
                directory, bookies=2, brokers=2, locked=True, balanced=False, prepare=prepare
            )
        )
        home = cluster.directory / "security"
        authority = Authority(
            (home / "ca.pem").read_bytes(), Secret((home / "ca.key").read_bytes())
        )
        certificates = Certificates(directory, authority=authority)
        urls = cluster.service_urls()
        # One broker only: of several hosts the Go client takes all for the name to verify.
        tls = urls["pulsar"].partition(",")[0]
        proxy = stack.enter_context(_proxy(cluster, home))
        misnamed = stack.enter_context(_misnamed(tls.partition("://")[2]))
        site = LockedSite(
            cluster,
            certificates,
            {
                "tls": tls,
                "https": urls["http"],
                "plain": "pulsar://" + ",".join(plain["pulsar"]),
                "http": "http://" + ",".join(plain["http"]),
                "proxy": f"pulsar+ssl://{proxy}",
                "tls to plain": f"pulsar+ssl://{plain['pulsar'][0]}",
                "plain to tls": tls.replace("+ssl", ""),
                "misnamed": f"pulsar+ssl://{misnamed}",
            },
        )
        site.admin.namespaces.grant_permission(NAMESPACE, ROLE, ["produce", "consume"])
        yield site


@contextmanager
def _proxy(cluster: Cluster, home: Path) -> Iterator[str]:
    """Run a proxy with TLS both ways; gives its address."""
    settings = {
        "metadata_url": cluster.service_urls()["metadata"],
        "metadata_auth_file": home / "metadata.auth",
        "pulsar_address": "",
        "connect_address": "",
        "http_address": "127.0.0.1:0",
        "pulsar_address_tls": "127.0.0.1:0",
        "tls_certificate_file_path": home / "server.pem",
        "tls_key_file_path": home / "server.key",
        "tls_enabled_with_broker": "true",
        "broker_client_trust_certs_file_path": home / "ca.pem",
    }
    command = [sys.executable, "-m", "pulsarish", "proxy"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = dict(
                word.split("=", 1) for word in process.stdout.readline().split() if "=" in word
            )
            yield ready["pulsar+ssl"]
        finally:
            process.terminate()


@contextmanager
def _misnamed(target: str) -> Iterator[str]:
    """Relay to ``target`` from an address that its certificate does not name; gives the address."""
    started = threading.Event()
    relay = Relay(target, host="127.0.0.2")
    loop = asyncio.new_event_loop()

    def serve() -> None:
        loop.run_until_complete(relay.start())
        started.set()
        loop.run_forever()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert started.wait(30)
        yield relay.address
    finally:
        asyncio.run_coroutine_threadsafe(relay.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
