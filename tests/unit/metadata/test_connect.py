"""Metadata URLs, and what is wrong with those that are refused."""

from __future__ import annotations

import pytest

from pulsarish.metadata.connect import MetadataUrl, parse_metadata_url
from pulsarish.model.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory:", MetadataUrl("memory")),
        ("embedded:/var/lib/x", MetadataUrl("embedded", directory="/var/lib/x")),
        ("embedded:data", MetadataUrl("embedded", directory="data")),
        ("zk://h1:2181", MetadataUrl("zk", "h1:2181", "/")),
        ("zk://h1", MetadataUrl("zk", "h1", "/")),
        ("zk://h1:2181,10.0.0.2:2182/", MetadataUrl("zk", "h1:2181,10.0.0.2:2182", "/")),
        ("zk://[::1]:2181/pulsarish/a/", MetadataUrl("zk", "[::1]:2181", "/pulsarish/a")),
    ],
)
def test_good_urls(url: str, expected: MetadataUrl) -> None:
    assert parse_metadata_url(url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "not understood"),
        ("localhost:2181", "not understood"),
        ("zookeeper://h", "not understood"),
        ("zk:h1:2181", "not understood"),
        ("zk://", "not host:port"),
        ("zk://h1:2181,", "not host:port"),
        ("zk://h1:0", "not host:port"),
        ("zk://h1:65536", "not host:port"),
        ("zk://h1:port", "not host:port"),
        ("zk://h1;h2", "not host:port"),
        ("zk://h1//a", "not a valid ZooKeeper path"),
        ("zk://h1/a/../b", "not a valid ZooKeeper path"),
        ("embedded:", "directory"),
        ("memory:x", "nothing"),
    ],
)
def test_bad_urls(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        parse_metadata_url(url)
    assert repr(url) in str(error.value)
