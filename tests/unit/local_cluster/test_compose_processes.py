"""``deploy/docker-compose.processes.yml`` publishes what lookups name to programs outside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pulsarish.broker.config import BrokerConfig
from pulsarish.cli.server_options import ENVIRONMENT_PREFIXES
from pulsarish.local_cluster.member_options import broker_members, shared_by_brokers
from pulsarish.runtime.config import load

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
# What the container's entry point adds.
ADDRESSES = {
    "PULSARISH_BROKER__LISTEN_ADDRESS": "0.0.0.0:6660",
    "PULSARISH_BROKER__HTTP_ADDRESS": "0.0.0.0:8080",
    "PULSARISH_BROKER__PULSAR_ADDRESS": "0.0.0.0:6650",
}
_VARIABLE = re.compile(r"\$\{[A-Z_0-9]+:-([^}]*)\}")


def services(name: str) -> dict[str, Any]:
    """The services of a compose file, with the defaults of its variables."""
    text = (DEPLOY / name).read_text()
    found: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(r"\1", text))["services"]
    return found


def ports_of(entries: list[str]) -> dict[str, str]:
    """The port of each entry that is of the listener for programs outside, by scheme."""
    found = {}
    for entry in entries:
        listener, _, url = entry.partition(":")
        if listener == "external":
            found[url.partition(":")[0]] = url.rpartition(":")[2]
    return found


@pytest.mark.parametrize("service", ["broker-1", "broker-2"])
def test_every_address_of_a_process_is_published(service: str) -> None:
    plain, over = (
        services("docker-compose.yml")[service],
        services("docker-compose.processes.yml")[service],
    )
    environ = {**ADDRESSES, **{key: str(value) for key, value in plain["environment"].items()}}
    listeners = "PULSARISH_BROKER__ADVERTISED_LISTENERS"
    environ[listeners] = environ[listeners].replace("{ip}", "10.0.0.2")
    config = load(BrokerConfig, environ=environ, prefix=ENVIRONMENT_PREFIXES["broker"])
    role, option, count = over["command"]
    assert (role, option) == ("broker", "--processes")
    members = broker_members(config, int(count), 200, shared_by_brokers(config))
    wanted = []
    for member in members:
        bound = ports_of(member.settings["bind_addresses"].split(","))
        told = ports_of(member.settings["advertised_listeners"].split(","))
        assert told.keys() == bound.keys()
        wanted += [f"127.0.0.1:{told[scheme]}:{bound[scheme]}" for scheme in told]
    assert sorted(over["ports"]) == sorted(wanted)
