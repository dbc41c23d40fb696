"""The loader of the shipped pipelines uses the profile in use, for its own cluster only."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pulsarish.runtime.profiles import Profile, Profiles

sys.path.insert(0, str(Path(__file__).parents[4] / "examples" / "pipelines"))

import load


@pytest.fixture
def contacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What the loader shows to each address, on a machine with a profile of a locked cluster."""
    file = tmp_path / "profiles.toml"
    monkeypatch.setenv("PULSARISH_PROFILES_FILE", str(file))
    profiles = Profiles.read(file)
    profiles.found["locked"] = Profile(
        url="pulsarish+ssl://h:6661",
        admin_url="https://h:8443",
        tls_trust_certs_file_path="/ca.pem",
    )
    profiles.current = "locked"
    profiles.write()
    found: dict[str, dict[str, Any]] = {}
    monkeypatch.setattr(load, "read_flights", lambda: iter(()))
    monkeypatch.setattr(load, "write_tables", lambda _flights, _folder: None)
    monkeypatch.setattr(load, "keep", lambda url, **security: found.update({url: security}))

    def send(
        url: str, _topic: str, _messages: object, *, progress: object, **security: Any
    ) -> None:
        found[url] = security

    monkeypatch.setattr(load, "send", send)
    return found


def test_the_profile_in_use_says_where_to_load_and_as_whom(
    contacts: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["load.py"])
    load.main()
    assert set(contacts) == {"pulsarish+ssl://h:6661", "https://h:8443"}
    for security in contacts.values():
        assert security["tls_trust_certs_file_path"] == "/ca.pem"


def test_another_cluster_is_shown_nothing_of_the_profile(
    contacts: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ["--url", "pulsarish://o:6660", "--admin-url", "http://o:8080"]
    monkeypatch.setattr(sys, "argv", ["load.py", *other])
    load.main()
    assert contacts == {"pulsarish://o:6660": {}, "http://o:8080": {}}
