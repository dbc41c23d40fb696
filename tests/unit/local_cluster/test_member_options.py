"""What each process of a group is started with, and which groups cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.main import check_directories
from pulsarish.broker.config import BrokerConfig
from pulsarish.local_cluster.member_options import (
    bookie_members,
    broker_members,
    shared_by_brokers,
)
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.config import load


def brokers(count: int = 2, step: int = 200, **options: Any) -> list[BrokerConfig]:
    """The configurations of the processes of a group, as these read them themselves."""
    config = BrokerConfig(**options)
    given = [f"{key}={text(value)}" for key, value in options.items()]
    return [
        load(
            BrokerConfig,
            environ={},
            prefix="X__",
            overrides=[*given, *(f"{key}={value}" for key, value in member.settings.items())],
        )
        for member in broker_members(config, count, step, shared_by_brokers(config))
    ]


def text(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def test_brokers_share_what_was_given_and_have_ports_of_their_own() -> None:
    first, second = brokers(broker_id="b", listen_address="h:6660", http_address="h:8080")
    assert (first.broker_id, second.broker_id) == ("b-0", "b-1")
    assert first.shared_addresses == second.shared_addresses
    assert first.shared_addresses == (
        "internal:pulsarish://h:6660",
        "internal:http://h:8080",
        "internal:pulsar://127.0.0.1:6650",
    )
    assert (first.listen_address, first.http_address, first.pulsar_address) == (
        "h:6860",
        "h:8280",
        "127.0.0.1:6850",
    )
    assert (second.listen_address, second.http_address, second.pulsar_address) == (
        "h:7060",
        "h:8480",
        "127.0.0.1:7050",
    )
    assert first.framed_port == second.framed_port == 0


def test_every_port_that_clients_are_told_moves_with_the_one_that_is_bound() -> None:
    _, second = brokers(
        broker_id="b",
        advertised_listeners=("in:pulsarish://b:6660", "out:pulsarish://l:16660", "out:http://l:0"),
        bind_addresses=("out:pulsarish://0.0.0.0:16660", "out:http://0.0.0.0:18080"),
        audit_log_directory="/audit",
    )
    assert second.advertised_listeners == (
        "in:pulsarish://b:7060",
        "out:pulsarish://l:17060",
        "out:http://l:0",
    )
    assert second.bind_addresses == ("out:pulsarish://0.0.0.0:17060", "out:http://0.0.0.0:18480")
    assert "out:http://0.0.0.0:18080" in second.shared_addresses
    assert second.audit_log_directory == "/audit/1"


def test_a_port_before_the_brokers_and_that_of_frames_move_too() -> None:
    first, _ = brokers(
        advertised_address="proxy:7000", framed_port=6700, framed_advertised_address="proxy:7001"
    )
    assert (first.advertised_address, first.framed_advertised_address) == (
        "proxy:7200",
        "proxy:7201",
    )
    assert first.framed_port == 6900
    assert "internal:framed://127.0.0.1:6700" in first.shared_addresses


def test_a_group_without_a_name_has_that_of_its_address() -> None:
    assert [each.broker_id for each in brokers()] == ["127.0.0.1:6660-0", "127.0.0.1:6660-1"]
    assert brokers(advertised_address="host1")[0].broker_id == "host1:6660-0"


def test_any_free_port_stays_any_free_port() -> None:
    config = BrokerConfig(listen_address="h:0", http_address="h:0", pulsar_address="")
    assert shared_by_brokers(config) == ["internal:pulsarish://h:0", "internal:http://h:0"]
    shared = ["internal:pulsarish://h:41", "internal:http://h:42"]
    first, _ = broker_members(config, 2, 200, shared)
    assert first.settings["broker_id"] == "h:41-0"
    assert first.settings["listen_address"] == "h:0"
    assert first.settings["shared_addresses"] == ",".join(shared)


@pytest.mark.parametrize(
    ("options", "step", "said"),
    [
        ({}, 10, "pulsar_address of .*-0 and internal:pulsarish://.*:6660 would both have port"),
        ({"framed_port": 6680}, 20, "would both have port 6680: choose another --port-step"),
        ({"listen_address": "h:65000"}, 500, "would be 66000, beyond 65535"),
        ({"metadata_url": "embedded:d"}, 200, "metadata_url = 'embedded:d' is of one process"),
        (
            {"shared_addresses": ("internal:http://h:1",)},
            200,
            "--processes sets shared_addresses itself",
        ),
    ],
)
def test_a_group_of_brokers_that_cannot_be(options: dict[str, Any], step: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        brokers(step=step, **options)


def test_the_usual_step_keeps_the_services_of_a_machine_apart() -> None:
    """Brokers, bookies and the metadata daemon, all with their usual ports, and TLS beside."""
    config = BrokerConfig(
        listen_address_tls="h:6661", http_address_tls="h:8443", pulsar_address_tls="h:6651"
    )
    bookie = BookieConfig(bookie_id="b")
    taken = [
        int(address.rpartition(":")[2])
        for address in [
            *(entry for entry in shared_by_brokers(config)),
            *(
                address
                for member in [
                    *broker_members(config, 64, 200, shared_by_brokers(config)),
                    *bookie_members(bookie, 64, 200),
                ]
                for address in member.bound.values()
            ),
            *(f":{port}" for port in (2181, 2888, 3888, 8001, 8100, 6655)),
        ]
    ]
    assert len(taken) == len(set(taken)) == 6 + 64 * 6 + 64 * 2 + 6


def test_bookies_have_directories_and_ports_of_their_own_and_one_host() -> None:
    config = BookieConfig(
        bookie_id="b",
        listen_address="0.0.0.0:3181",
        advertised_address="host1",
        http_address="0.0.0.0:8000",
        framed_port=3281,
        data_directory="/data",
        journal_directory="/fast",
    )
    first, second = bookie_members(config, 2, 200)
    assert first.settings == {
        "bookie_id": "b-0",
        "listen_address": "0.0.0.0:3181",
        "http_address": "0.0.0.0:8000",
        "framed_port": "3281",
        "data_directory": "/data/0",
        "journal_directory": "/fast/0",
    }
    assert second.settings == {
        "bookie_id": "b-1",
        "listen_address": "0.0.0.0:3381",
        "http_address": "0.0.0.0:8200",
        "framed_port": "3481",
        "data_directory": "/data/1",
        "journal_directory": "/fast/1",
    }


def test_no_bookie_is_left_without_a_process(tmp_path: Path) -> None:
    config = BookieConfig(bookie_id="b", data_directory=str(tmp_path))
    for count in (1, 2):
        check_directories(config, count)
    for index in range(3):
        (tmp_path / str(index) / "journal").mkdir(parents=True)
        (tmp_path / str(index) / "journal" / "cookie").touch()
    for count in (3, 4):
        check_directories(config, count)
    for count in (1, 2):
        with pytest.raises(ConfigError, match=f"of 3 processes, and {count} would run"):
            check_directories(config, count)


@pytest.mark.parametrize("option", ["data_directory", "journal_directory"])
def test_a_single_bookie_is_not_forgotten(tmp_path: Path, option: str) -> None:
    home = tmp_path / "journal" if option == "data_directory" else tmp_path
    home.mkdir(exist_ok=True)
    (home / "cookie").touch()
    config = BookieConfig(bookie_id="b", **{option: str(tmp_path)})
    check_directories(config, 1)
    with pytest.raises(ConfigError, match="holds the bookie of a single process"):
        check_directories(config, 2)
