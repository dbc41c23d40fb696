"""``pulsarish certificates``."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pulsarish.cli.main import pulsarish
from pulsarish.model.errors import PulsarishError
from pulsarish.security.tls import (
    TlsClientConfig,
    TlsServerConfig,
    parse_certificate,
    read_client_material,
    read_server_material,
)


def now_ms() -> int:
    """Not a constant: a run may come long after the tests were collected."""
    return time.time_ns() // 1_000_000


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(pulsarish, ["certificates", *map(str, words)])


def made(directory: Path, *words: str) -> Result:
    done = run("create", "--dir", directory, *words)
    assert done.exit_code == 0, done.output
    return done


def refusal(*words: str | Path) -> str:
    """Return the reason for which a command fails, which the program prints."""
    done = run(*words)
    assert isinstance(done.exception, PulsarishError), done.output
    return str(done.exception)


def names(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


def test_what_is_made_can_be_used_at_once(tmp_path: Path) -> None:
    home = tmp_path / "tls"
    made(home, "--host", "broker-1", "--host", "10.0.0.1", "--role", "admin", "--cluster", "prod")
    assert names(home) == ["admin.key", "admin.pem", "ca.key", "ca.pem", "server.key", "server.pem"]
    trust = f"{home}/ca.pem"
    server = TlsServerConfig(f"{home}/server.pem", f"{home}/server.key", trust, "required")
    assert read_server_material(server, now_ms()).trust
    client = TlsClientConfig(trust, f"{home}/admin.pem", f"{home}/admin.key")
    assert read_client_material(client, now_ms()).chain
    found = parse_certificate((home / "server.pem").read_bytes())
    assert found is not None
    assert found.names == (
        "DNS:broker-1",
        "IP:10.0.0.1",
        "URI:pulsarish://prod/broker",
        "URI:pulsarish://prod/bookie",
        "URI:pulsarish://prod/autorecovery",
    )
    role = parse_certificate((home / "admin.pem").read_bytes())
    assert role is not None
    assert (role.common_name, role.names) == ("admin", ())


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "tls"
    before = os.umask(0)
    try:
        made(home, "--role", "admin")
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for name in ("ca", "server", "admin"):
        assert stat.S_IMODE((home / f"{name}.key").stat().st_mode) == 0o600


def test_a_role_is_added_later_by_the_same_authority(tmp_path: Path) -> None:
    made(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    done = made(tmp_path, "--role", "app")
    assert "for role app" in done.output
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    client = TlsClientConfig(f"{tmp_path}/ca.pem", f"{tmp_path}/app.pem", f"{tmp_path}/app.key")
    assert read_client_material(client, now_ms()).chain


def test_nothing_is_replaced_without_force(tmp_path: Path) -> None:
    made(tmp_path, "--role", "app")
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    assert "app.pem exists" in refusal(
        "create", "--dir", tmp_path, "--role", "new", "--role", "app"
    )
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before
    made(tmp_path, "--role", "app", "--force")
    after = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    changed = sorted(name for name in before if before[name] != after[name])
    assert changed == ["app.key", "app.pem"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--role", "../up"], "cannot be the name of a file"),
        (["--role", "ca"], "name of another file"),
        (["--role", ""], "cannot be the name of a file"),
        (["--host", "http://h:1/ü"], "no host name"),
        (["--role", "a\nb"], "cannot be the name in a certificate"),
        (["--role", "x" * 65], "1 to 64 printable"),
    ],
)
def test_bad_names_write_nothing(tmp_path: Path, words: list[str], said: str) -> None:
    home = tmp_path / "tls"
    assert said in refusal("create", "--dir", home, *words)
    assert not home.exists()


def test_an_authority_without_its_key_signs_nothing(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / "ca.key").unlink()
    add = ("create", "--dir", tmp_path, "--role", "app")
    assert "restore the file, or use another --dir" in refusal(*add)
    (tmp_path / "ca.key").write_text("junk")
    assert "cannot be read" in refusal(*add)
    assert "neither --role nor --host" in refusal("create", "--dir", tmp_path)


def test_show_says_whose_it_is_and_how_long(tmp_path: Path) -> None:
    made(tmp_path, "--days", "30")
    done = run("show", tmp_path / "server.pem", tmp_path / "ca.pem", "-o", "json")
    assert done.exit_code == 0, done.output
    server, authority = json.loads(done.stdout)
    assert (server["subject"], server["kind"], server["days_left"]) == (
        "CN=server",
        "certificate",
        29,
    )
    assert server["issuer"] == authority["subject"] == authority["issuer"]
    assert authority["kind"] == "authority"
    assert "DNS:localhost IP:127.0.0.1 IP:::1 URI:pulsarish://standalone/broker" in server["names"]


@pytest.mark.parametrize("content", [None, b"junk", b""])
def test_show_refuses_what_is_no_certificate(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    assert str(file) in refusal("show", file)


def test_show_never_shows_a_key(tmp_path: Path) -> None:
    made(tmp_path)
    both = tmp_path / "both"
    both.write_bytes(
        (tmp_path / "server.pem").read_bytes() + (tmp_path / "server.key").read_bytes()
    )
    done = run("show", both)
    assert done.exit_code == 0
    assert "PRIVATE" not in done.output
    assert (tmp_path / "server.key").read_text().splitlines()[1] not in done.output
