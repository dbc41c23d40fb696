"""The compose files of a locked cluster, run: its administrator gets in over TLS, a stranger does
not, and keys outlive its containers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.ports import free_ports
from tests.containers.podman import HOME, Podman
from tests.containers.test_compose import until

pytestmark = pytest.mark.timeout(1_500)  # images from nothing on a slow machine

PORTS = tuple(
    f"PULSARISH_BROKER_{number}_{face}"
    for number in (1, 2)
    for face in ("PORT", "HTTP_PORT", "PULSAR_PORT", "FRAMED_PORT")
)


@pytest.fixture
def podman(images: None, request: pytest.FixtureRequest) -> Iterator[Podman]:
    ports = map(str, islice(free_ports("127.0.0.1"), len(PORTS)))
    podman = Podman(
        HOME,
        dict(zip(PORTS, ports, strict=True)),
        ("docker-compose.yml", "docker-compose.secure.yml"),
    )
    yield podman
    if request.session.testsfailed:
        podman.show()
    podman.remove_all()


def read(podman: Podman, file: str) -> str:
    return podman.compose("run", "--rm", "-T", "security", f"cat /etc/pulsarish/{file}")


def is_whole(admin: Admin) -> bool:
    return (len(admin.bookies.list()), len(admin.brokers.list())) == (3, 2)


def is_healthy(podman: Podman, container: str) -> bool:
    try:
        podman("healthcheck", "run", container)
    except AssertionError:
        return False
    return True


def test_only_its_administrator_gets_in_also_after_a_restart(
    podman: Podman, tmp_path: Path
) -> None:
    podman.compose("up", "--detach")
    authority, token = read(podman, "security/ca.pem"), read(podman, "admin/admin.token")
    trust = tmp_path / "ca.pem"
    trust.write_text(authority)
    at = {name: f"127.0.0.1:{podman.environ[name]}" for name in PORTS}
    admin_url = f"https://{at['PULSARISH_BROKER_1_HTTP_PORT']}"
    url = f"pulsarish+ssl://{at['PULSARISH_BROKER_1_PORT']},{at['PULSARISH_BROKER_2_PORT']}"
    of_administrator = {
        "authentication": pulsarish.AuthenticationToken(token),
        "tls_trust_certs_file_path": str(trust),
    }
    admin = Admin(admin_url, timeout_seconds=10.0, **of_administrator)
    until("3 bookies and 2 brokers", partial(is_whole, admin))
    with pulsarish.Client(url, **of_administrator) as client:
        consumer = client.subscribe("t", "s")
        client.create_producer("t").send(b"kept")
        consumer.close()
    with pytest.raises(pulsarish.AuthenticationError):
        Admin(admin_url, tls_trust_certs_file_path=str(trust)).tenants.list()
    for container in podman.containers():
        if "security" not in container:
            until(f"{container} is healthy", partial(is_healthy, podman, container))
    # What makes tokens and certificates is in no server.
    found = podman("exec", podman.container("broker-1_1"), "ls", "/etc/pulsarish/admin")
    assert found == ""

    podman.compose("down")
    podman.compose("up", "--detach")
    assert (read(podman, "security/ca.pem"), read(podman, "admin/admin.token")) == (
        authority,
        token,
    )
    until("3 bookies and 2 brokers", partial(is_whole, admin))
    with pulsarish.Client(url, **of_administrator) as client:
        assert client.subscribe("t", "s").receive(60_000).data() == b"kept"
