"""Space, the write cache, the entry log's bytes, the configuration."""

from __future__ import annotations

import msgspec
import pytest

from pulsarish.bookie.checkpoint import slices
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.entry_logs.entry_log_format import (
    CHUNK_HEAD_SIZE,
    HEADER_SIZE,
    check_header,
    decode_chunk_head,
    decode_chunk_sizes,
    encode_chunk_head,
    encode_header,
)
from pulsarish.bookie.space import SpaceMode, next_mode
from pulsarish.bookie.write_cache import Generation, WriteCache
from pulsarish.model.errors import ConfigError, CorruptData
from pulsarish.runtime.config import load, print_config

W, R, F = SpaceMode.WRITABLE, SpaceMode.READ_ONLY, SpaceMode.RESERVED


@pytest.mark.parametrize(
    ("mode", "free", "expected"),
    [
        (W, 100, W),
        (W, 99, R),
        (W, 39, F),
        (R, 100, R),
        (R, 124, R),
        (R, 125, W),
        (R, 39, F),
        (F, 40, F),
        (F, 50, R),
        (F, 125, W),
    ],
)
def test_space_modes_do_not_flap(mode: SpaceMode, free: int, expected: SpaceMode) -> None:
    assert next_mode(mode, free, read_only_free_bytes=100, reserved_bytes=40) is expected


def test_the_write_cache_shows_both_generations_and_counts_whole_messages() -> None:
    cache = WriteCache(2000)
    cache.active.entries(1)[0] = memoryview(b"old")
    cache.added(700, 1)
    assert (cache.wants_flush, cache.is_full) == (True, False)
    flushing = cache.begin_flush()
    cache.active.entries(1)[1] = memoryview(b"new")
    cache.added(700, 1)
    assert (cache.wants_flush, cache.is_full) == (True, True)
    assert (cache.get(1, 0), cache.get(1, 1), cache.get(1, 2), cache.get(2, 0)) == (
        b"old",
        b"new",
        None,
        None,
    )
    cache.active.entries(1)[0] = memoryview(b"newer")
    assert cache.get(1, 0) == b"newer"
    assert flushing.ledgers[1][0] == b"old"
    cache.end_flush()
    assert cache.size_bytes == 1000
    assert cache.holds(1)


def test_chunk_heads_survive_and_every_flip_is_seen() -> None:
    encoded = encode_chunk_head(3, 77, [5, 0, 300])
    head = decode_chunk_head(encoded[:CHUNK_HEAD_SIZE], 3)
    assert head is not None
    assert (head.ledger_id, head.count) == (77, 3)
    assert decode_chunk_sizes(encoded[CHUNK_HEAD_SIZE:], 3, head) == [(0, 5), (5, 0), (5, 300)]
    for byte in range(len(encoded)):
        broken = bytearray(encoded)
        broken[byte] ^= 4
        found = decode_chunk_head(bytes(broken[:CHUNK_HEAD_SIZE]), 3)
        if found is not None:
            assert (
                decode_chunk_sizes(
                    bytes(broken[CHUNK_HEAD_SIZE : CHUNK_HEAD_SIZE + found.sizes_size]), 3, found
                )
                is None
            ), byte
    assert decode_chunk_head(encoded, 4) is None


def test_an_entry_log_header_is_of_its_log() -> None:
    header = encode_header(9)
    assert len(header) == HEADER_SIZE
    check_header(header, 9, "x")
    for broken in (encode_header(8), header[:-1], bytes(HEADER_SIZE)):
        with pytest.raises(
            CorruptData, match="entry log x has no valid header of log 9 at offset 0"
        ):
            check_header(broken, 9, "x")


@pytest.mark.parametrize(
    ("overrides", "refusal"),
    [
        (["journal_directory=d", "ledger_directory=d/"], "must differ"),
        (["journal_directory=/a,/b"], "journal_directory = '/a,/b' names several directories"),
        (["index_directory=/a,/b"], "index_directory = '/a,/b' names several directories"),
        (["journal_directories=/a,/b"], "journal_directories has 2, ledger_directories has 0"),
        (
            ["journal_directories=/a,/b", "ledger_directories=/c,/d", "index_directories=/e"],
            "index_directories has 1 directories: each volume needs one of each",
        ),
        (
            [
                "journal_directory=/x",
                "journal_directories=/a",
                "ledger_directories=/c",
                "index_directories=/e",
            ],
            "journal_directory and journal_directories are given",
        ),
        (
            ["journal_directories=/a,", "ledger_directories=/c,/d", "index_directories=/e,/f"],
            "have an empty name",
        ),
        (
            ["journal_directories=/a,/b", "ledger_directories=/c,/d", "index_directories=/e,/a/"],
            "must differ",
        ),
        (["read_only_free_bytes=1000"], "read_only_free_bytes = 1000"),
        (["reserved_bytes=1000"], "reserved_bytes = 1000 must cover"),
        (["bookie_id=a/b"], "bookie_id"),
        (["journal_size=3"], "unknown option journal_size"),
    ],
)
def test_impossible_configurations_are_refused(overrides: list[str], refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        load(BookieConfig, environ={}, prefix="P_", overrides=["bookie_id=b", *overrides])


def test_every_option_is_described_and_the_defaults_fit() -> None:
    config = load(
        BookieConfig, environ={}, prefix="P_", overrides=["bookie_id=b", "data_directory=/x"]
    )
    assert (config.journal_path, config.ledger_path, config.index_path) == (
        "/x/journal",
        "/x/ledgers",
        "/x/index",
    )
    assert config.volumes() == [config]
    text = print_config(BookieConfig)
    for field in msgspec.structs.fields(BookieConfig):
        assert f"{field.name} =" in text or f"[{field.name}]" in text
    assert "\n# \n" not in text


@pytest.mark.parametrize(
    ("entries_max", "bytes_max", "expected"),
    [
        (100, 1000, [([(1, [0, 1]), (2, [5]), (3, [0, 1, 2])], 6)]),
        (2, 1000, [([(1, [0, 1])], 2), ([(2, [5]), (3, [0])], 2), ([(3, [1, 2])], 2)]),
        (100, 25, [([(1, [0, 1]), (2, [5])], 3), ([(3, [0, 1, 2])], 3)]),
        (
            1,
            1,
            [
                ([(1, [0])], 1),
                ([(1, [1])], 1),
                ([(2, [5])], 1),
                ([(3, [0])], 1),
                ([(3, [1])], 1),
                ([(3, [2])], 1),
            ],
        ),
    ],
)
def test_a_checkpoint_takes_many_small_ledgers_at_once(
    entries_max: int, bytes_max: int, expected: list[tuple[list[tuple[int, list[int]]], int]]
) -> None:
    generation = Generation()
    for ledger_id, entry_ids in ((3, (2, 0, 1)), (1, (0, 1)), (2, (5,)), (4, ())):
        for entry_id in entry_ids:
            generation.entries(ledger_id)[entry_id] = memoryview(b"x" * 10)
        generation.entries(ledger_id)
    found = [
        ([(run.ledger_id, run.entry_ids) for run in runs], count)
        for runs, count in slices(generation, entries_max, bytes_max)
    ]
    assert found == expected
