"""Clients with TLS, on gRPC and on frames, against the fake broker in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme

import pulsarish
import pulsarish.asyncio
from tests.integration.test_client_authentication import exchange
from tests.integration.test_client_blocking import run, start_broker


@dataclass
class Files:
    trust: str
    certificate: str
    key: str
    server: str
    other_host: str

    @property
    def mine(self) -> pulsarish.AuthenticationTLS:
        return pulsarish.AuthenticationTLS(self.certificate, self.key)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder: Path = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    trust = str(folder / "ca.pem")
    authority.cert_pem.write_to_path(trust)

    def issue(host: str) -> tuple[str, str]:
        made = authority.issue_cert(host)
        certificate, key = str(folder / f"{host}.pem"), str(folder / f"{host}.key")
        made.cert_chain_pems[0].write_to_path(certificate)
        made.private_key_pem.write_to_path(key)
        return certificate, key

    return Files(
        trust,
        *issue("me"),
        server=",".join((*issue("localhost"), trust)),
        other_host=",".join((*issue("elsewhere"), "")),
    )


@pytest.fixture(scope="module", params=["grpc", "framed"])
def url(request: pytest.FixtureRequest, files: Files) -> Iterator[str]:
    process, address = start_broker(f"tls={files.server}", "token=", request.param)
    assert address.startswith("tls:")
    yield f"pulsarish+ssl://{address.removeprefix('tls:')}"
    process.kill()
    process.communicate()


def client(url: str, **options: Any) -> pulsarish.Client:
    return pulsarish.Client(url, operation_timeout_seconds=2, **options)


def test_a_client_with_a_certificate(url: str, files: Files) -> None:
    by_class = {"authentication": files.mine}
    by_option = {
        "tls_certificate_file_path": files.certificate,
        "tls_private_key_file_path": files.key,
    }
    for number, shown in enumerate((by_class, by_option)):
        with client(url, tls_trust_certs_file_path=files.trust, **shown) as made:
            exchange(made, f"t{number}")


def test_clients_that_do_not_trust_or_are_not_trusted(url: str, files: Files) -> None:
    for options in (
        {"authentication": files.mine},
        {"tls_trust_certs_file_path": files.trust},
    ):
        with client(url, **options) as made, pytest.raises(pulsarish.ConnectError):
            made.create_producer("t")
    with client(url.replace("+ssl", "")) as plain, pytest.raises(pulsarish.ConnectError):
        plain.create_producer("t")


def test_files_that_cannot_be_used_are_named_at_once(url: str, files: Files) -> None:
    with pytest.raises(pulsarish.InvalidConfiguration, match=r"tls_trust_certs_file_path.*/none"):
        client(url, tls_trust_certs_file_path="/none")
    swapped = pulsarish.AuthenticationTLS(files.key, files.certificate)
    with pytest.raises(pulsarish.InvalidConfiguration, match="tls_certificate_file_path"):
        client(url, tls_trust_certs_file_path=files.trust, authentication=swapped)


def test_host_names(files: Files) -> None:
    process, address = start_broker(f"tls={files.other_host}")
    url = f"pulsarish+ssl://{address.removeprefix('tls:')}"
    try:
        trusting = {"tls_trust_certs_file_path": files.trust}
        with client(url, **trusting) as made, pytest.raises(pulsarish.ConnectError):
            made.create_producer("t")
        with client(url, tls_validate_hostname=False, **trusting) as made:
            exchange(made, "t")
        with client(url, tls_allow_insecure_connection=True) as made:
            exchange(made, "u")
    finally:
        process.kill()
        process.communicate()


def test_the_awaitable_client_and_a_forked_child(url: str, files: Files) -> None:
    async def main() -> None:
        async with pulsarish.asyncio.Client(
            url, authentication=files.mine, tls_trust_certs_file_path=files.trust
        ) as made:
            await (await made.create_producer("awaited")).send(b"x")

    asyncio.run(main())
    program = f"""
import os, sys
import pulsarish

def send(topic):
    mine = pulsarish.AuthenticationTLS({files.certificate!r}, {files.key!r})
    with pulsarish.Client(
        {url!r}, authentication=mine, tls_trust_certs_file_path={files.trust!r}
    ) as client:
        client.create_producer(topic).send(b"x")

send("parent")
child = os.fork()
if child == 0:
    send("child")
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
print("ok")
"""
    assert run(program)[:2] == (0, "ok\n")
