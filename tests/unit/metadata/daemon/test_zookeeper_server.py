"""ZooKeeper's own configuration file, for a single server and for one of an ensemble."""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarish.metadata.daemon.zookeeper_server import ZooKeeperServerConfig, write_configuration
from pulsarish.model.errors import ConfigError

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
