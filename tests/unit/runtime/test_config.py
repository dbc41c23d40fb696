"""The configuration loader: which source wins, what is refused and how the refusal reads."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.config import describe, load, print_config


class Store(msgspec.Struct):
    url: Annotated[str, Meta(description="Where the metadata is.")] = "zk://localhost:2181"
    session_timeout_ms: Annotated[
        int, Meta(ge=1_000, le=60_000, description="Silence that ends a session.")
    ] = 10_000


class Config(msgspec.Struct):
    node_id: Annotated[str, Meta(min_length=1, description="The node's name.")]
    ack_quorum: Annotated[int, Meta(ge=1, description="Copies before an acknowledgement.")] = 2
    write_quorum: Annotated[int, Meta(ge=1, description="Copies of each entry.")] = 3
    rate: Annotated[
        float | None, Meta(description="Messages a second; not limited when absent.")
    ] = None
    sync: bool = True
    directories: list[str] = msgspec.field(default_factory=lambda: ["data"])
    ports: list[int] = msgspec.field(default_factory=list)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    form: Literal["text", "json"] = "text"
    advertised_address: str = ""
    metadata: Store = msgspec.field(default_factory=Store)

    def validate(self) -> None:
        if self.ack_quorum > self.write_quorum:
            raise ConfigError(
                f"ack_quorum = {self.ack_quorum} is above write_quorum = {self.write_quorum}"
            )


def _load(
    *overrides: str, environ: Mapping[str, str] | None = None, toml: Path | None = None
) -> Config:
    path = None if toml is None else str(toml)
    return load(
        Config,
        toml_path=path,
        environ=environ or {},
        prefix="NODE__",
        overrides=["node_id=n", *overrides],
    )


def test_later_sources_win(tmp_path: Path) -> None:
    toml = tmp_path / "node.toml"
    toml.write_text(
        "ack_quorum = 1\nwrite_quorum = 4\nsync = false\n[metadata]\nsession_timeout_ms = "
        "2000\nurl = 'file'\n"
    )
    environ = {
        "NODE__WRITE_QUORUM": "5",
        "NODE__METADATA__URL": "environment",
        "OTHER__WRITE_QUORUM": "9",
    }
    config = _load("metadata.url=flag", environ=environ, toml=toml)
    assert (config.ack_quorum, config.write_quorum, config.sync) == (1, 5, False)
    assert config.metadata == Store(url="flag", session_timeout_ms=2_000)


def test_the_callers_defaults_go_below_every_source(tmp_path: Path) -> None:
    toml = tmp_path / "node.toml"
    toml.write_text("write_quorum = 4\n")
    defaults = {
        "node_id": "mine",
        "ack_quorum": 1,
        "write_quorum": 1,
        "metadata.url": "mine",
        "form": "json",
        "sync": False,
    }
    environ = {"NODE__METADATA__URL": "environment"}
    config = load(
        Config,
        defaults=defaults,
        toml_path=str(toml),
        environ=environ,
        prefix="NODE__",
        overrides=["form=text"],
    )
    assert (config.node_id, config.ack_quorum, config.sync) == ("mine", 1, False)
    assert (config.write_quorum, config.metadata.url, config.form) == (4, "environment", "text")
    with pytest.raises(ConfigError, match=r"ack_quorom.*the command's defaults"):
        load(Config, defaults={"ack_quorom": 1}, environ={}, prefix="NODE__")


@pytest.mark.parametrize(
    ("override", "field", "value"),
    [
        ("rate=1.5", "rate", 1.5),
        ("rate=null", "rate", None),
        ("sync=false", "sync", False),
        ("directories=a, b", "directories", ["a", "b"]),
        ("directories=", "directories", []),
        ("ports=1,2", "ports", [1, 2]),
        ('labels={"zone": "a"}', "labels", {"zone": "a"}),
        ("form=json", "form", "json"),
        ("node_id=a=b", "node_id", "a=b"),
    ],
)
def test_strings_become_what_the_field_says(override: str, field: str, value: object) -> None:
    assert getattr(_load(override), field) == value


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("ack_quorum=0", ["ack_quorum", "'0'", "--set ack_quorum=", ">= 1"]),
        ("ack_quorum=4", ["ack_quorum = 4", "write_quorum = 3"]),
        ("ack_qorum=1", ["unknown option ack_qorum", "did you mean ack_quorum?"]),
        ("metadata.session_timeout_ms=70000", ["metadata.session_timeout_ms", "<= 60000"]),
        ("zzzzz=1", ["unknown option zzzzz", "--print-config"]),
        ("rate=inf", ["rate", "'inf'", "finite number"]),
        ("rate=-nan", ["rate", "'-nan'"]),
        ("form=xml", ["form", "json | text"]),
        ("sync=maybe", ["sync", "true or false"]),
        ("ports=1,x", ["ports", "list of integer"]),
        ("labels={", ["labels", "mapping"]),
        ("node_id=", ["node_id", "length >= 1"]),
        ("advertised_address=host:", ["advertised_address", "host:port"]),
        ("advertised_address=host:x", ["advertised_address", "host:port"]),
        ("advertised_address=fd00::1", ["advertised_address", "brackets"]),
        ("junk", ["'junk'", "key=value"]),
    ],
)
def test_a_refusal_names_key_value_and_limit(override: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(override)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("address", ["", "host", "host:1", "[fd00::1]", "[fd00::1]:1"])
def test_an_advertised_address_is_a_host_or_both(address: str) -> None:
    assert _load(f"advertised_address={address}").advertised_address == address


def test_a_refusal_names_its_source(tmp_path: Path) -> None:
    toml = tmp_path / "node.toml"
    toml.write_text("ack_quorum = '2'\n")
    with pytest.raises(ConfigError, match=r"node\.toml"):
        _load(toml=toml)
    with pytest.raises(ConfigError, match="environment NODE__ACK_QUORUM"):
        _load(environ={"NODE__ACK_QUORUM": "two"})
    with pytest.raises(ConfigError, match="environment NODE__TYPO"):
        _load(environ={"NODE__TYPO": "1"})


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        _load(toml=tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = \n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        _load(toml=broken)


def test_what_has_no_default_must_be_set() -> None:
    with pytest.raises(ConfigError, match="node_id must be set"):
        load(Config, environ={}, prefix="NODE__")


def test_the_printed_configuration_is_the_default_one() -> None:
    text = print_config(Config)
    printed = tomllib.loads(text)
    assert printed["write_quorum"] == 3
    assert printed["metadata"] == {"url": "zk://localhost:2181", "session_timeout_ms": 10_000}
    assert "Copies of each entry." in text
    assert msgspec.convert({"node_id": "n", **printed}, Config) == _load()
    assert [option.name for option in describe(Config)][-2:] == [
        "metadata.url",
        "metadata.session_timeout_ms",
    ]
    assert describe(Config)[-1].limits == ">= 1000, <= 60000"
