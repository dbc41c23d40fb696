"""Files of a stopped bookie, one of three, are damaged. It refuses to start and names the file and
the command or option that decides, or goes on safely; once that was done, everything that was
acknowledged is read, once each, from each pair of bookies that is left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.power.stand import Stand, standing

BOOKIE: Final = "bookie-1"
TOPIC: Final = "damaged"
SETTINGS: Final = {"bookie": ["journal_position_interval_seconds=3600"]}
"""Its directories can be put back as they were a moment ago."""


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("damage"), 3, SETTINGS) as stand:
        for _ in range(4):
            stand.publish(TOPIC, 50)
            stand.close_ledgers(TOPIC)
        yield stand


def newest(directory: Path, pattern: str) -> Path:
    found = sorted(directory.glob(pattern))
    assert found, f"{directory}/{pattern}"
    return found[-1]


def largest(directory: Path, pattern: str) -> Path:
    return max(directory.glob(pattern), key=lambda path: path.stat().st_size)


def flip(path: Path, at: float) -> Path:
    """Turn a bit over at this share of a file."""
    data = bytearray(path.read_bytes())
    data[int((len(data) - 1) * at)] ^= 4
    path.write_bytes(data)
    return path


def zero_page(path: Path, at: float) -> Path:
    data = bytearray(path.read_bytes())
    first = int(len(data) * at) // 4096 * 4096
    data[first : first + 4096] = bytes(len(data[first : first + 4096]))
    path.write_bytes(data)
    return path


def cut(path: Path, share: float) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def swap(first: Path, second: Path) -> Path:
    between = first.with_name("between")
    first.rename(between)
    second.rename(first)
    between.rename(second)
    return first


def remove(path: Path) -> Path:
    (shutil.rmtree if path.is_dir() else Path.unlink)(path)  # type: ignore[operator]
    return path


def logs(home: Path) -> list[Path]:
    return sorted((home / "ledgers").glob("*.log"))


def used_journal(home: Path) -> Path:
    """The journal file with the records that the next start replays."""
    return min((home / "journal").glob("*.journal"))


DAMAGES: Final[dict[str, Callable[[Path], Path]]] = {
    "journal-bit": lambda home: flip(used_journal(home), 0.02),
    "journal-page": lambda home: zero_page(used_journal(home), 0.0),
    "journal-cut": lambda home: cut(used_journal(home), 0.05),
    "journal-file": lambda home: remove(used_journal(home)),
    "journal-directory": lambda home: remove(home / "journal"),
    "log-bit": lambda home: flip(largest(home / "ledgers", "*.log"), 0.5),
    "log-page": lambda home: zero_page(largest(home / "ledgers", "*.log"), 0.3),
    "log-cut": lambda home: cut(largest(home / "ledgers", "*.log"), 0.4),
    "log-header": lambda home: flip(largest(home / "ledgers", "*.log"), 0.0),
    "logs-swapped": lambda home: swap(logs(home)[0], logs(home)[-1]),
    "log-file": lambda home: remove(logs(home)[0]),
    "ledgers-directory": lambda home: remove(home / "ledgers"),
    "mark-bit": lambda home: flip(home / "ledgers/last-mark", 0.3),
    "mark-gone": lambda home: remove(home / "ledgers/last-mark"),
    "index-log-bit": lambda home: flip(largest(home / "index/rows", "*.log"), 0.4),
    "index-manifest": lambda home: flip(newest(home / "index/rows", "MANIFEST*"), 0.5),
    "index-table-bit": lambda home: flip(largest(home / "index/rows", "*.sst"), 0.1),
    "index-table-gone": lambda home: remove(largest(home / "index/rows", "*.sst")),
    "index-current": lambda home: cut(home / "index/rows/CURRENT", 0.0),
    "index-synced": lambda home: flip(home / "index/rows.synced", 0.01),
    "index-synced-gone": lambda home: remove(home / "index/rows.synced"),
    "index-rows": lambda home: remove(home / "index/rows"),
    "index-directory": lambda home: remove(home / "index"),
    "cookie-bit": lambda home: flip(home / "journal/cookie", 0.3),
    "cookie-cut": lambda home: cut(home / "ledgers/cookie", 0.0),
    "cookie-gone": lambda home: remove(home / "index/cookie"),
    "directories-swapped": lambda home: swap(home / "journal", home / "ledgers"),
    "all-directories": remove,
}


USUAL: Final = (
    "journal-page",
    "journal-file",
    "log-page",
    "mark-bit",
    "index-log-bit",
    "cookie-cut",
    "ledgers-directory",
)
"""What is tried without POWER_ALL."""
REMEDIES: Final = {
    "pulsarish storage rebuild-index": ("rebuild-index",),
    "pulsarish storage cookie create": ("cookie", "create"),
}


def put_in_order(stand: Stand, said: str, kept: Path, name: str) -> str:
    """Do what the refusal says; return what was done."""
    home = stand.home(BOOKIE)
    for words, command in REMEDIES.items():
        if words in said and "mount it again" not in said.lower():
            done = stand.storage(BOOKIE, *command)
            assert done.returncode == 0, (done.stdout, done.stderr)
            stand.start(BOOKIE)
            return words
    if "journal_corruption" in said:
        stand.start_with(BOOKIE, "journal_corruption=limbo")
        return "journal_corruption"
    assert "bookie_id" in said or "put the right directories together" in said, said
    shutil.rmtree(home, ignore_errors=True)
    kept.rename(home)
    stand.start(BOOKIE)
    return "mounted again"


@pytest.mark.parametrize("name", list(DAMAGES if os.environ.get("POWER_ALL") else USUAL))
def test_a_damaged_bookie_says_what_is_wrong_and_which_command_decides(
    stand: Stand, name: str
) -> None:
    home = stand.home(BOOKIE)
    stand.publish(TOPIC, 45)  # enough for a checkpoint
    stand.publish(TOPIC, 5)
    stand.close_ledgers(TOPIC)
    stand.cluster.kill(BOOKIE)
    kept = home.with_name("kept")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(home, kept)
    path = DAMAGES[name](home)
    verified = stand.storage(BOOKIE, "verify")
    assert "Traceback" not in verified.stderr
    said = stand.tries_to_start(BOOKIE)
    if said is None:
        # What is read meanwhile comes from it where it can, and else from the other copies.
        stand.read(TOPIC)
        if name.startswith("log"):
            assert verified.returncode == 1, (verified.stdout, verified.stderr)
            assert "decides: " in verified.stdout, verified.stdout
        stand.cluster.kill(BOOKIE)
        shutil.rmtree(home)
        kept.rename(home)
        stand.start(BOOKIE)
        done = "serves"
    else:
        last = said.strip().splitlines()[-1]
        assert str(home) in last, last
        done = put_in_order(stand, last, kept, name)
    print(f"{name}: {path}: verify {verified.returncode}: {done}", flush=True)
    stand.read(TOPIC)
    # An open ledger is repaired once it is closed.
    stand.close_ledgers(TOPIC)
    stand.wait_whole()
