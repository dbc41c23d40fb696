"""What a locked cluster's directory of keys has, and that it stays as it was made."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from cryptography import x509

from pulsarish.local_cluster import security_files
from pulsarish.local_cluster.locked import is_locked, lock_cluster
from pulsarish.local_cluster.plan import plan_cluster, service_urls
from pulsarish.local_cluster.processes import Cluster
from pulsarish.local_cluster.security_files import ADMINISTRATOR, SecurityFiles
from pulsarish.runtime.profiles import Profile, Profiles
from tests.support.modules import changed


def test_only_the_owner_can_read_what_is_made_and_it_is_made_once(tmp_path: Path) -> None:
    files = SecurityFiles(tmp_path / "new" / "security")
    files.make()
    before = {file.name: file.read_bytes() for file in files.home.iterdir()}
    assert files.home.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in files.home.iterdir())
    files.make()
    assert {file.name: file.read_bytes() for file in files.home.iterdir()} == before


def test_a_failure_leaves_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = security_files._write

    def fail_at_the_last(path: Path, content: bytes) -> None:
        if path.name == "server.key":
            raise OSError("no space")
        write(path, content)

    monkeypatch.setattr(security_files, "_write", fail_at_the_last)
    with pytest.raises(OSError, match="no space"):
        SecurityFiles(tmp_path / "security").make()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "is_named"), [("laptop", True), ("läptop", False), ("h" * 254, False)]
)
def test_the_certificate_names_loopback_and_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_named: bool
) -> None:
    monkeypatch.setattr(security_files, "socket", changed(socket, gethostname=lambda: name))
    files = SecurityFiles(tmp_path / "security")
    files.make()
    certificate = x509.load_pem_x509_certificate((files.home / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", *([name] if is_named else [])]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == [
        "127.0.0.1",
        "::1",
    ]


def test_other_profiles_of_the_file_stay(tmp_path: Path) -> None:
    files = SecurityFiles(tmp_path / "security")
    files.make()
    files.put_profile("pulsarish+ssl://127.0.0.1:1", "https://127.0.0.1:2")
    profiles = Profiles.read(files.profiles)
    profiles.put("orders", Profile(url="pulsarish+ssl://127.0.0.1:1"), replace=False)
    profiles.write()
    files.put_profile("pulsarish+ssl://127.0.0.1:3", "https://127.0.0.1:4")
    found = Profiles.read(files.profiles)
    assert (found.current, set(found.found)) == (ADMINISTRATOR, {ADMINISTRATOR, "orders"})
    assert found.get(ADMINISTRATOR).url == "pulsarish+ssl://127.0.0.1:3"


def test_a_plan_is_locked_with_all_its_brokers_and_bookies(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    nodes = plan_cluster(bookies=2, brokers=2, metadata="embedded", base_port=20_000)
    assert not is_locked(nodes)
    assert service_urls(nodes)["http"] == "http://127.0.0.1:20009,127.0.0.1:20013"
    lock_cluster(cluster, nodes)
    cluster.create(nodes)
    assert is_locked(cluster.nodes())
    assert cluster.admin_url() == "https://127.0.0.1:20009,127.0.0.1:20013"
    assert cluster.service_urls() == {
        "pulsarish": "pulsarish+ssl://127.0.0.1:20008,127.0.0.1:20012",
        "pulsar": "pulsar+ssl://127.0.0.1:20010,127.0.0.1:20014",
        "http": "https://127.0.0.1:20009",
        "metadata": "zk://127.0.0.1:20000/pulsarish",
    }
    for node in cluster.nodes():
        given = dict(setting.partition("=")[::2] for setting in node.settings)
        if node.role == "bookie":
            assert given["tls_require_trusted_client_cert_on_connect"] == "true"
            assert os.path.exists(given["tls_certificate_file_path"])
        if node.role == "broker":
            plain = [given[f"{kind}_address"] for kind in ("listen", "http", "pulsar")]
            assert plain == ["", "", ""]
