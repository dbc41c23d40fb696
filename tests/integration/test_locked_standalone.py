"""A standalone server with ``--secure``: TLS and tokens, the same keys after a restart."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.security_files import ADMINISTRATOR, SecurityFiles
from pulsarish.runtime.profiles import Profiles
from tests.support.commands import run_command

_KINDS = ("listen", "http", "pulsar")


@contextmanager
def standalone(data: Path) -> Iterator[list[str]]:
    """Run the server. The lines that it prints when it is ready."""
    command = [sys.executable, "-m", "pulsarish", "standalone", "--data", str(data), "--secure"]
    for kind in _KINDS:
        command += ["--broker-set", f"{kind}_address_tls=127.0.0.1:0"]
    command += ["--bookie-set", "listen_address=127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield [process.stdout.readline(), process.stdout.readline()]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_it_serves_its_administrator_over_tls_with_the_same_keys_after_a_restart(
    tmp_path: Path,
) -> None:
    files = SecurityFiles(tmp_path / "data" / "security")
    environment = {"PULSARISH_PROFILES_FILE": str(files.profiles)}
    with standalone(tmp_path / "data") as (ready, hint):
        schemes = {url.partition("://")[0] for url in ready.split() if "://" in url}
        assert schemes == {"pulsarish+ssl", "https", "pulsar+ssl"}
        assert hint == f"as its administrator: export PULSARISH_PROFILES_FILE={files.profiles}\n"
        for command in (
            ("topics", "create", "kept"),
            ("subscriptions", "create", "kept", "s"),
            ("produce", "kept", "-m", "x"),
        ):
            done = run_command(environment, *command)
            assert done.exit_code == 0, done.output
        profile = Profiles.read(files.profiles).get(ADMINISTRATOR)
        with pytest.raises(pulsarish.AuthenticationError):
            Admin(profile.admin_url, tls_trust_certs_file_path=str(files.trust)).tenants.list()
        before = {
            file.name: file.read_bytes() for file in files.home.iterdir() if file != files.profiles
        }
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    with standalone(tmp_path / "data"):
        after = {
            file.name: file.read_bytes() for file in files.home.iterdir() if file != files.profiles
        }
        assert after == before
        # The profile has the ports of this start.
        done = run_command(environment, "consume", "kept", "-s", "s", "-n", "1")
        assert done.output.split() == ["x"]
