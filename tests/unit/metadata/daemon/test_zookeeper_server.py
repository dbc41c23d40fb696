"""ZooKeeper's own configuration file, for a single server and for one of an ensemble."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarish.metadata.daemon.zookeeper_server import (
    ZooKeeperServerConfig,
    ensemble_settings,
    write_configuration,
)
from pulsarish.model.errors import ConfigError
from tests.support.commands import run_command

SERVERS = ("zk1:2888:3888", "zk2:2888:3888", "zk3:2888:3888")


def lines_of(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_a_single_server_has_no_ensemble(tmp_path: Path) -> None:
    lines = lines_of(write_configuration(ZooKeeperServerConfig(data_directory=str(tmp_path))))
    assert not [name for name in lines if name.startswith("server.") or name == "initLimit"]
    assert not (tmp_path / "myid").exists()


def test_a_server_of_an_ensemble_knows_the_others_and_its_own_number(tmp_path: Path) -> None:
    lines = lines_of(
        write_configuration(
            ZooKeeperServerConfig(data_directory=str(tmp_path), servers=SERVERS, server_id=2)
        )
    )
    assert {name: value for name, value in lines.items() if name.startswith("server.")} == {
        "server.1": "zk1:2888:3888:participant",
        "server.2": "zk2:2888:3888:participant",
        "server.3": "zk3:2888:3888:participant",
    }
    assert (lines["initLimit"], lines["syncLimit"]) == ("10", "5")
    assert (tmp_path / "myid").read_text() == "2\n"


@pytest.mark.parametrize(
    ("servers", "server_id", "reason"),
    [
        ((), 1, "server_id is 1 and servers is empty"),
        (SERVERS[:2], 1, "servers names 2, but an ensemble of fewer than three"),
        (SERVERS, 0, "server_id is 0; with 3 servers it is 1 to 3"),
        (SERVERS, 4, "server_id is 4; with 3 servers it is 1 to 3"),
        (
            (*SERVERS[:2], "zk3:2888"),
            1,
            "servers has 'zk3:2888', which is not host:quorum_port:election_port",
        ),
        ((*SERVERS[:2], "zk3:2888:x"), 1, "servers has 'zk3:2888:x', which is not"),
        ((*SERVERS[:2], ":2888:3888"), 1, "servers has ':2888:3888', which is not"),
    ],
)
def test_an_ensemble_that_cannot_be_is_refused(
    tmp_path: Path, servers: tuple[str, ...], server_id: int, reason: str
) -> None:
    config = ZooKeeperServerConfig(
        data_directory=str(tmp_path / "data"), servers=servers, server_id=server_id
    )
    with pytest.raises(ConfigError, match=f"^{reason}"):
        write_configuration(config)
    assert not (tmp_path / "data").exists()


def test_an_ensemble_in_one_line_finds_this_machine_by_its_name() -> None:
    settings, url = ensemble_settings(["zk1", " zk2.example.org", "zk3"], 0, "zk2.example.org")
    assert settings == [
        "servers=zk1:2888:3888,zk2.example.org:2888:3888,zk3:2888:3888",
        "server_id=2",
        "listen_address=0.0.0.0:2181",
    ]
    assert url == "zk://zk1:2181,zk2.example.org:2181,zk3:2181/pulsarish"
    for own_host in ("zk3", "zk3.example.org"):
        assert ensemble_settings(["zk1", "zk2", "zk3"], 0, own_host)[0][1] == "server_id=3"
    # The name as it is written counts more than its first part.
    both = ["zk.north", "zk.south", "zk3"]
    assert ensemble_settings(both, 0, "zk.south")[0][1] == "server_id=2"


def test_several_servers_on_one_host_have_ports_and_numbers() -> None:
    entries = ["127.0.0.1:2181:2888:3888", "127.0.0.1:2182:2889:3889", "127.0.0.1:2183:2890:3890"]
    settings, url = ensemble_settings(entries, 3, "laptop")
    assert settings == [
        "servers=127.0.0.1:2888:3888,127.0.0.1:2889:3889,127.0.0.1:2890:3890",
        "server_id=3",
        "listen_address=127.0.0.1:2183",
    ]
    assert url == "zk://127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183/pulsarish"


@pytest.mark.parametrize(
    ("entries", "server_id", "reason"),
    [
        (["zk1", "zk2", "zk3"], 0, "--ensemble does not name this machine, which is laptop.local"),
        (["laptop.a", "zk2", "laptop.b"], 0, "--ensemble names this machine, .* 2 times: .* 1, 3"),
        (["zk1", "zk2", "zk3"], 4, "--server-id is 4; with 3 servers it is 1 to 3"),
        (["zk1", "zk2:2181", "zk3"], 1, "--ensemble has 'zk2:2181', which is neither"),
        (["zk1", "", "zk3"], 1, "--ensemble has '', which is neither"),
    ],
)
def test_an_ensemble_in_one_line_that_is_not_clear_is_refused(
    entries: list[str], server_id: int, reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{reason}"):
        ensemble_settings(entries, server_id, "laptop.local")


@pytest.mark.parametrize("listen_address", ["0.0.0.0:2181", "127.0.0.1:2181"])
def test_a_server_at_all_addresses_hears_the_other_servers_there(
    tmp_path: Path, listen_address: str
) -> None:
    config = ZooKeeperServerConfig(
        data_directory=str(tmp_path), servers=SERVERS, server_id=1, listen_address=listen_address
    )
    lines = lines_of(write_configuration(config))
    assert lines.get("quorumListenOnAllIPs") == (
        "true" if listen_address == "0.0.0.0:2181" else None
    )


def test_the_command_names_the_url_of_the_ensemble() -> None:
    given = ["--ensemble", "zk1,zk2,zk3", "--server-id", "2"]
    done = run_command({}, "zookeeper", *given, "--set", "java=no-such-java")
    assert "metadata_url of this ensemble: zk://zk1:2181,zk2:2181,zk3:2181/pulsarish" in done.stderr
    assert "no program 'no-such-java'" in done.stderr
    done = run_command({}, "zookeeper", "--server-id", "2")
    assert "--server-id is of --ensemble" in done.stderr
