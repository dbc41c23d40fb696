"""What tasks are given to read bookies with: tokens for the ledgers of their splits, and no key."""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import types

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.cluster_members import read_cluster_key
from pulsarish.security.cluster_key import CLUSTER_METHOD, READER_LEDGERS_MAX, ClusterKey
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.spark.access import BookieAccess
from pulsarish.spark.jobs.cluster_access import JobCluster
from pulsarish.spark.options import DirectReads, ReadOptions, read_options
from pulsarish.spark.reading import executor
from pulsarish.spark.reading.batch import BatchReader
from pulsarish.spark.reading.planning import Piece, Split
from pulsarish.spark.reading.stream import StreamReader
from pulsarish.spark.reading.task import ReadSpec
from pulsarish.spark.reading.task_inputs import task_inputs, tokens_of

TOPIC = "persistent://public/default/t"
SCHEMA = types.StructType([types.StructField("value", types.BinaryType())])
ADDRESSES = {"b1": "127.0.0.1:1"}
NOW_MS = 1_790_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.key"
    path.touch(0o600)
    path.write_bytes(b64encode(b"k" * 64))
    return path


def piece(ledger_id: int, *, closed: bool = True) -> Piece:
    return Piece(ledger_id, 0, 9, 100, "{}" if closed else "")


def split(*pieces: Piece, before: tuple[Piece, ...] = ()) -> Split:
    return Split(TOPIC, -1, pieces, before)


def options(key_file: Path, **given: str) -> ReadOptions:
    return read_options({"topic": TOPIC, "clusterKeyFile": str(key_file), **given}, streaming=None)


def test_a_token_opens_the_closed_ledgers_of_its_splits_and_ends() -> None:
    key = ClusterKey(lambda: [Secret(b"k" * 64)], lambda: NOW_MS)
    splits = [
        split(piece(3), piece(4), before=(piece(2),)),
        split(piece(4), piece(5, closed=False)),
        split(),
        split(*map(piece, range(100, 400))),
    ]
    tokens = tokens_of(splits, key, HOUR_MS)
    assert [list(each) for each in tokens] == [[2, 3, 4], [4], [], list(range(100, 400))]
    assert tokens[0][4] == tokens[1][4]
    every = {ledger: token for each in tokens for ledger, token in each.items()}
    assert len(set(every.values())) == -(-len(every) // READER_LEDGERS_MAX)
    for ledger, token in every.items():
        member = key.identify(Credentials(CLUSTER_METHOD, token))
        assert member.role == "reader"
        assert member.ledgers is not None
        assert ledger in member.ledgers <= set(every)
        assert member.expires_at_ms == NOW_MS + HOUR_MS


def test_tasks_get_tokens_in_place_of_the_key(key_file: Path) -> None:
    found = task_inputs(options(key_file, bookieTokenLife="2h"), [split(piece(7))], ADDRESSES, None)
    _, addresses, tokens, _ = found[0].value
    assert addresses == ADDRESSES
    clock = SystemClock()
    key = read_cluster_key(str(key_file), clock.wall_ms)
    member = key.identify(Credentials(CLUSTER_METHOD, tokens[7]))
    assert member.ledgers == {7}
    assert clock.wall_ms() < member.expires_at_ms <= clock.wall_ms() + 2 * HOUR_MS
    assert pickle.loads(pickle.dumps(found[0])).value[2] == tokens


def test_without_a_key_on_the_driver_brokers_are_read_unless_bookies_have_to_be(
    tmp_path: Path,
) -> None:
    missing = tmp_path / "missing.key"
    with pytest.warns(UserWarning, match=r"through brokers: option 'clusterKeyFile': .*missing"):
        found = task_inputs(options(missing), [split(piece(7))], ADDRESSES, None)
    assert found[0].value[1:3] == ({}, {})
    with pytest.raises(ConfigError, match=r"option 'clusterKeyFile': .*missing"):
        _ = task_inputs(options(missing, directReads="always"), [split(piece(7))], ADDRESSES, None)


def test_what_is_sent_to_executors_names_no_key_file(key_file: Path) -> None:
    given = options(key_file)
    for reader in (
        BatchReader(given, SCHEMA, parallelism=2),
        StreamReader(given, SCHEMA, parallelism=2),
    ):
        assert str(key_file).encode() not in pickle.dumps(reader)


def test_tasks_of_a_job_read_only_and_show_no_secret(key_file: Path) -> None:
    clock = SystemClock()
    where = JobCluster("zk://h/p", BookieAccess(str(key_file)).for_auditing(clock.wall_ms))
    assert str(key_file).encode() not in pickle.dumps(where)
    shown = where.bookies.credentials(clock.wall_ms)()
    assert read_cluster_key(str(key_file), clock.wall_ms).identify(shown).role == "auditor"
    token = where.bookies.token
    assert token is not None
    spec = ReadSpec(
        options(key_file).brokers, where.bookies, DirectReads.AUTO, {}, True, tokens={7: token}
    )
    for text in (repr(where), repr(spec), repr(where.bookies.security())):
        assert token.reveal().decode() not in text


@pytest.fixture
def no_bookie_reads() -> Iterator[None]:
    yield
    for each in executor._bookie_reads.values():
        each.reads.close()
    executor._bookie_reads.clear()


@pytest.mark.usefixtures("no_bookie_reads")
def test_new_tokens_replace_the_connections_of_old_ones() -> None:
    first = executor.direct_reads(ADDRESSES, BookieAccess(token=Secret("0")))
    for number in range(20):
        access = BookieAccess(token=Secret(str(number)))
        reads = executor.direct_reads(ADDRESSES, access)
        assert executor.direct_reads(ADDRESSES, access) is reads
        assert executor.direct_reads(ADDRESSES, BookieAccess(token=Secret("0"))) is first
    assert len(executor._bookie_reads) == executor._BOOKIE_READS_MAX
    kept = {each.connections for each in executor._bookie_reads.values()}
    assert set(executor.loop().world._own) == kept
