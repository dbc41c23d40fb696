"""Which settings a standalone process runs with: its own defaults, then the environment, then the
flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pulsarish.broker.config import BrokerConfig
from pulsarish.local_cluster.standalone import StandaloneConfigs, standalone_configs
from pulsarish.model.errors import ConfigError


def configs(
    environ: Mapping[str, str] | None = None, broker: Sequence[str] = (), bookie: Sequence[str] = ()
) -> StandaloneConfigs:
    return standalone_configs(
        "data",
        in_memory=False,
        environ=environ or {},
        broker_overrides=broker,
        bookie_overrides=bookie,
    )


def test_one_copy_of_everything_in_one_directory() -> None:
    found = configs()
    log = found.broker.managed_ledger
    assert (log.ensemble_size, log.write_quorum, log.ack_quorum) == (1, 1, 1)
    assert (found.bookie.data_directory, found.bookie.http_address) == ("data/bookie", "")
    assert found.broker.cluster_name == "standalone"
    assert (
        found.metadata_url
        == found.bookie.metadata_url
        == found.broker.metadata_url
        == "embedded:data/metadata"
    )


def test_the_environment_goes_over_its_defaults_and_flags_over_that() -> None:
    environ = {
        "PULSARISH_BOOKIE__HTTP_ADDRESS": "127.0.0.1:8001",
        "PULSARISH_BOOKIE__DATA_DIRECTORY": "elsewhere",
        "PULSARISH_BROKER__BROKER_ID": "environment",
    }
    found = configs(environ, broker=["broker_id=flag"], bookie=["data_directory=flag"])
    assert (found.bookie.http_address, found.bookie.data_directory, found.broker.broker_id) == (
        "127.0.0.1:8001",
        "flag",
        "flag",
    )


@pytest.mark.parametrize("role", ["broker", "bookie"])
def test_an_error_names_the_option_that_standalone_has(role: str) -> None:
    listing = f"pulsarish {role} --print-config lists all options"
    with pytest.raises(ConfigError, match=f"unknown option zzz from --{role}-set zzz=: {listing}"):
        configs(**{role: ["zzz=1"]})
    with pytest.raises(ConfigError, match=f"--{role}-set 'zzz' is not of the form key=value"):
        configs(**{role: ["zzz"]})


@pytest.mark.parametrize("role", ["broker", "bookie"])
def test_another_place_of_the_metadata_is_refused(role: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"for the {role}, but standalone keeps its metadata in embedded:data/metadata",
    ):
        configs({f"PULSARISH_{role.upper()}__METADATA_URL": "zk://elsewhere:2181"})


def test_metadata_that_are_served_are_kept_in_files() -> None:
    found = standalone_configs(
        "data",
        in_memory=True,
        environ={},
        broker_overrides=[],
        bookie_overrides=[],
        metadata_address="127.0.0.1:0",
    )
    assert found.metadata is not None
    assert (
        found.metadata.listen_address,
        found.metadata.data_directory,
        found.metadata.http_address,
    ) == (
        "127.0.0.1:0",
        "data/metadata",
        "",
    )
    assert found.metadata_url == "embedded:data/metadata"
    assert configs().metadata is None


def locked(environ: Mapping[str, str] | None = None, broker: Sequence[str] = ()) -> BrokerConfig:
    return standalone_configs(
        "data",
        in_memory=False,
        environ=environ or {},
        broker_overrides=broker,
        bookie_overrides=(),
        secure=True,
    ).broker


def test_a_locked_server_has_tls_on_the_well_known_ports_only() -> None:
    found = locked({"PULSARISH_BROKER__LISTEN_ADDRESS": "0.0.0.0:6660"})
    assert (found.listen_address, found.http_address, found.pulsar_address) == ("", "", "")
    assert (found.listen_address_tls, found.http_address_tls, found.pulsar_address_tls) == (
        "127.0.0.1:6660",
        "127.0.0.1:8080",
        "127.0.0.1:6650",
    )
    assert found.authentication_enabled
    assert found.authorization_enabled
    assert locked(broker=["http_address_tls=127.0.0.1:8443"]).http_address_tls == "127.0.0.1:8443"


@pytest.mark.parametrize(
    "setting",
    [
        "listen_address=127.0.0.1:6660",
        "http_address=127.0.0.1:8080",
        "pulsar_address=127.0.0.1:6650",
        "authentication_enabled=false",
        "authorization_enabled=false",
    ],
)
def test_a_locked_server_is_not_opened_by_another_option(setting: str) -> None:
    with pytest.raises(
        ConfigError, match=f"{setting.partition('=')[0]} = .*(--secure|permissions)"
    ):
        locked(broker=[setting])


def test_a_locked_directory_is_not_served_without_the_lock(tmp_path: Path) -> None:
    def start(*, secure: bool) -> StandaloneConfigs:
        return standalone_configs(
            str(tmp_path),
            in_memory=False,
            environ={},
            broker_overrides=(),
            bookie_overrides=(),
            secure=secure,
        )

    assert start(secure=False).security is None
    files = start(secure=True).security
    assert files is not None
    files.make()
    with pytest.raises(ConfigError, match=r"add --secure, or move .*security away"):
        start(secure=False)
    assert start(secure=True).security is not None
