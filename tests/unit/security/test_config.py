"""The options of authentication, as a process has them among its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.config import describe, load, print_config
from pulsarish.security.config import SECRET_OPTIONS, AuthenticationConfig


class ServerConfig(AuthenticationConfig, frozen=True, kw_only=True):
    """Options of a process that checks its callers."""

    name: Annotated[str, Meta(description="Name.")] = "x"


def test_a_process_has_the_options_at_its_top_level() -> None:
    config = load(
        ServerConfig,
        environ={
            "P__AUTHENTICATION_ENABLED": "true",
            "P__AUTHENTICATION_PROVIDERS": "token, tls",
            "P__TOKEN_PUBLIC_KEYS": '{"2026": "file:///etc/keys/2026.public"}',
        },
        prefix="P__",
    )
    assert config.authentication_providers == ("token", "tls")
    assert config.token_public_keys == {"2026": "file:///etc/keys/2026.public"}


def test_options_that_do_not_fit_are_refused_when_they_are_loaded() -> None:
    with pytest.raises(ConfigError, match="authentication_providers is empty"):
        load(ServerConfig, environ={"P__AUTHENTICATION_ENABLED": "true"}, prefix="P__")
    for name, value in (
        ("TLS_ROLE_SOURCE", "SAN"),
        ("TOKEN_AUTH_CLAIM", ""),
        ("TOKEN_ALLOWED_CLOCK_SKEW_SECONDS", "-1"),
        ("OPENID_CACHE_EXPIRATION_SECONDS", "0"),
    ):
        with pytest.raises(ConfigError, match=name.lower()):
            load(ServerConfig, environ={f"P__{name}": value}, prefix="P__")


def test_every_option_is_described_and_printed() -> None:
    options = describe(ServerConfig)
    assert all(option.meaning for option in options)
    assert {option.name for option in options} >= SECRET_OPTIONS
    printed = tomllib.loads(print_config(ServerConfig))
    assert printed["token_public_keys"] == {}
    assert printed["authentication_enabled"] is False


def test_a_process_without_authentication_pays_for_no_library() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import pulsarish.security.chain, sys; print(*sys.modules, sep='\\n')",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert not {"bcrypt", "cryptography", "jwt", "re2"} & set(done.stdout.split())


def test_the_examples_of_the_documentation_are_taken() -> None:
    page = (Path(__file__).parents[3] / "docs" / "authentication.md").read_text()
    examples = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(examples) == 6
    for example in examples:
        config = msgspec.convert(tomllib.loads(example), AuthenticationConfig, strict=True)
        assert set(tomllib.loads(example)) <= {option.name for option in describe(ServerConfig)}
        config.validate()
        assert config.authentication_enabled
