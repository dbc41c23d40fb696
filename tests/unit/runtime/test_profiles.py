"""The file of profiles: what it takes, who may read it, and what it never holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pulsarish.admin import Admin
from pulsarish.client.api.blocking_client import Client
from pulsarish.model.errors import (
    AlreadyExists,
    AuthenticationError,
    ConfigError,
    InvalidArgument,
    InvalidConfiguration,
    NotFound,
)
from pulsarish.runtime.profiles import Profile, Profiles, find_profile, profile_arguments

SECRET = "hunter2"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "profiles.toml"
    monkeypatch.setenv("PULSARISH_PROFILES_FILE", str(path))
    monkeypatch.delenv("PULSARISH_PROFILE", raising=False)
    return path


def save(file: Path, name: str, profile: Profile) -> None:
    found = Profiles.read(file)
    found.put(name, profile, replace=False)
    found.write()


def test_what_is_written_is_read(file: Path) -> None:
    strange = Profile(
        url='pulsarish://ü"\\\x7f\x01\U0001f600',
        auth_plugin="token",
        auth_params="token:env:T",
        tls_validate_hostname=False,
        tls_allow_insecure_connection=True,
    )
    save(file, "a", strange)
    save(file, "b-2_C", Profile(admin_url="http://h"))
    found = Profiles.read(file)
    assert found.found == {"a": strange, "b-2_C": Profile(admin_url="http://h")}
    assert found.current == "a"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_the_one_in_use(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_profile() == ("", Profile())
    a, b = Profile(url="pulsarish://a"), Profile(url="pulsarish://b")
    save(file, "a", a)
    save(file, "b", b)
    assert find_profile() == ("a", a)
    monkeypatch.setenv("PULSARISH_PROFILE", "b")
    assert find_profile() == ("b", b)
    assert find_profile("a") == ("a", a)
    with pytest.raises(NotFound, match="has no profile 'c': it has a, b"):
        find_profile("c")
    found = Profiles.read(file)
    found.delete("a")
    assert found.current == ""


def test_a_profile_of_that_name(file: Path) -> None:
    save(file, "a", Profile(url="pulsarish://a"))
    with pytest.raises(AlreadyExists, match="--replace"):
        save(file, "a", Profile())
    for name in ("", "a b", "a.b", "ü", "a" * 65):
        with pytest.raises(InvalidArgument, match="letters, digits"):
            save(file, name, Profile())


@pytest.mark.parametrize(
    ("plugin", "parameters"),
    [
        ("token", f"token:{SECRET}"),
        ("token", SECRET),
        ("token", f"data:,{SECRET}"),
        ("basic", f"username:u,password:{SECRET}"),
        ("oauth2", f'{{"issuer_url": "https://i", "client_id": "c", "client_secret": "{SECRET}"}}'),
    ],
)
def test_a_secret_is_not_saved_and_not_taken(file: Path, plugin: str, parameters: str) -> None:
    profile = Profile(auth_plugin=plugin, auth_params=parameters)
    with pytest.raises(InvalidArgument, match="holds the secret itself") as raised:
        save(file, "a", profile)
    assert SECRET not in str(raised.value)
    assert not file.exists()
    save(file, "a", Profile())
    file.write_text(file.read_text() + f"auth_plugin = '{plugin}'\nauth_params = '{parameters}'\n")
    with pytest.raises(ConfigError, match="holds the secret itself") as raised:
        Profiles.read(file)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_can_read_or_change(file: Path, mode: int) -> None:
    save(file, "a", Profile(url="pulsarish://a"))
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode 0{mode:o}.*chmod 600 .*toml"):
        find_profile()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff", "not valid TOML"),
        (b"current", "not valid TOML"),
        (b"other = 1", "must hold only"),
        (b"profiles = 1", "must hold only"),
        (b"current = 'a'", "names no profile"),
        (b"current = 1", "names no profile"),
        (b"[profiles]\na = 1", r"\[profiles\.a\] is no profile"),
        (b"[profiles.'a b']", "is no profile"),
        (b"[profiles.a]\npassword = 'hunter2'", "unknown key password"),
        (b"[profiles.a]\nurl = 5", "url must be a text"),
        (b"[profiles.a]\ntls_validate_hostname = 'no'", "must be true or false"),
        (b"[profiles.a]\nauth_params = 'x:y'", "without auth_plugin"),
        (b"[profiles.a]\nauth_plugin = 'athenz'", "athenz is not supported"),
    ],
)
def test_files_that_are_none(file: Path, content: bytes, words: str) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=words) as raised:
        Profiles.read(file)
    assert "hunter2" not in str(raised.value)
    assert str(file) in str(raised.value)


def test_the_arguments_of_clients(file: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    token.chmod(0o600)
    profile = Profile(
        url="pulsarish+ssl://b",
        admin_url="http://b",
        auth_plugin="token",
        auth_params=f"token:file:{token}",
        tls_trust_certs_file_path="ca.pem",
    )
    save(file, "a", profile)
    url, found = profile_arguments(None, admin=False)
    assert url == "pulsarish+ssl://b"
    assert found.pop("authentication").provider.credentials().data.reveal() == b"t"
    assert found == {
        "tls_trust_certs_file_path": "ca.pem",
        "tls_validate_hostname": True,
        "tls_allow_insecure_connection": False,
    }
    # Options of TLS are for URLs of TLS.
    url, found = profile_arguments("a", admin=True)
    assert (url, list(found)) == ("http://b", ["authentication"])
    for mode in (0o644, 0o602):
        token.chmod(mode)
        with pytest.raises(AuthenticationError, match=f"mode 0{mode:o}.*chmod 600 .*token"):
            profile_arguments("a", admin=True)


def test_a_key_that_others_can_read(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("k")
    key.chmod(0o644)
    by_plugin = Profile(auth_plugin="tls", auth_params=f"tlsCertFile:/c,tlsKeyFile:{key}")
    by_option = Profile(tls_private_key_file_path=str(key), tls_certificate_file_path="/c")
    for each in (by_plugin, by_option):
        with pytest.raises(AuthenticationError, match="chmod 600"):
            each.arguments("https://h")
    key.chmod(0o640)
    assert by_plugin.arguments("https://h")


def test_clients_of_profiles(file: Path) -> None:
    for kind in (Client, Admin):
        with pytest.raises(NotFound, match="no profile is in use"):
            kind.from_profile()
    profile = Profile(url="pulsarish://b")
    save(file, "a", profile)
    with pytest.raises(InvalidConfiguration, match="profile a has no admin_url"):
        Admin.from_profile()
    save(file, "b", replace(profile, admin_url="http://b"))
    assert Admin.from_profile("b")
    with Client.from_profile("a", operation_timeout_seconds=1) as client:
        assert client
    with pytest.raises(InvalidArgument, match="no argument 'nonsense'"):
        Client.from_profile("a", nonsense=1)  # type: ignore[call-arg]
