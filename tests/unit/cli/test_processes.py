"""``--processes``: what is wrong is said before a process is started."""

from __future__ import annotations

import pytest

from tests.support.commands import run_command

BOOKIES = ("bookie", "--processes", "2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("broker", "--processes", "2", "--set", "max_mesage_size_bytes=1"),
            "error: ConfigError: unknown option max_mesage_size_bytes from --set",
        ),
        (
            ("broker", "--processes", "2", "--set", "http_address=8080"),
            "error: ConfigError: http_address = '8080' from --set http_address= is refused",
        ),
        (
            ("broker", "--processes", "2", "--set", "metadata_url=embedded:d"),
            "error: ConfigError: --processes: metadata_url = 'embedded:d' is of one process alone",
        ),
        (
            (*BOOKIES, "--set", "bookie_id=b", "--set", "listen_address=127.0.0.1:7800"),
            "error: ConfigError: --processes: listen_address of b-1 and http_address of b-0 would",
        ),
        (BOOKIES, "error: ConfigError: bookie_id must be set"),
        (("broker", "--processes", "65"), "'65' is neither auto nor a number of 0 to 64"),
        (("broker", "--processes", "-1"), "'-1' is neither auto nor a number of 0 to 64"),
        (("broker", "--processes", "many"), "'many' is neither auto nor a number of 0 to 64"),
    ],
)
def test_a_bad_option_is_named(words: tuple[str, ...], said: str) -> None:
    done = run_command({}, *words)
    assert done.exit_code != 0
    assert said in done.stderr
    assert "process started" not in done.stderr
