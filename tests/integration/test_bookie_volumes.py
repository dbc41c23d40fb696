"""A volume is added to a bookie that is a real process, also one that is killed meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.model.errors import LedgerFenced
from pulsarish.wire._pb import bookie_pb2 as pb
from tests.integration.test_bookie_process import Process, talk
from tests.support.bookies import BookieClient, make_record

_KILLS = 3
_STEP_SECONDS = 0.02


def lists(*places: Path) -> list[str]:
    return [
        f"{kind}_directories=" + ",".join(f"{place}/{kind}" for place in places)
        for kind in ("journal", "ledger", "index")
    ]


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path, *lists(tmp_path / "first"))
    process.up()
    yield process
    process.kill()


async def ask(client: BookieClient, place: Path, *, add: bool) -> pb.AddVolumeResponse:
    request = pb.AddVolumeRequest(
        instance_id=client.instance_id,
        journal_directory=f"{place}/journal",
        ledger_directory=f"{place}/ledger",
        index_directory=f"{place}/index",
        add=add,
    )
    answer = await client._call("bookie.add_volume", request.SerializeToString())
    return pb.AddVolumeResponse.FromString(answer)


async def add_volume(client: BookieClient, place: Path) -> str:
    """Return why it was not added; empty: it was."""
    state = await ask(client, place, add=True)
    while state.adding:
        await client.world.clock.sleep(0.05)
        state = await ask(client, place, add=False)
    assert state.added is not bool(state.refusal)
    return state.refusal


async def fill(client: BookieClient, ledgers: range) -> None:
    for ledger in ledgers:
        assert await client.add([make_record(ledger, 0, b"%d" % ledger)]) == {(ledger, 0): 0}


def reading(ledgers: range) -> Callable[[BookieClient], Awaitable[None]]:
    async def read(client: BookieClient) -> None:
        for ledger in ledgers:
            assert await client.read(ledger, 0, 0) == (0, {0: b"%d" % ledger})
        assert await client.ledgers() == list(ledgers)

    return read


def test_a_volume_is_added_while_the_bookie_runs_and_a_restart_knows_it(
    bookie: Process, tmp_path: Path
) -> None:
    place = tmp_path / "deep" / "second"

    async def grow(client: BookieClient) -> None:
        await fill(client, range(10))
        (tmp_path / "file").write_bytes(b"")
        refusal = await add_volume(client, tmp_path / "file")
        assert f"{tmp_path}/file/journal" in refusal
        full = tmp_path / "full" / "index"
        full.mkdir(parents=True)
        (full / "x").write_bytes(b"")
        assert f"{full} is not empty, it has x" in await add_volume(client, tmp_path / "full")
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "first")
        assert f"{link}/journal is not empty" in await add_volume(client, link)
        assert sorted(os.listdir(tmp_path / "full")) == ["index"]
        assert await add_volume(client, place) == ""
        await fill(client, range(10, 60))
        assert await client.fence(59) == (0, -1)

    async def look(client: BookieClient) -> None:
        await reading(range(60))(client)
        add = await client.add([make_record(59, 1, b"x")])
        assert add == {(59, 1): LedgerFenced.code}

    talk(bookie, grow)
    assert list((place / "ledger").glob("*.log")) or list((place / "journal").iterdir())
    for more in (lists(tmp_path / "first"), lists(tmp_path / "first", place)):
        bookie.kill()
        bookie.more = tuple(more)
        bookie.up()
        talk(bookie, look)
    bookie.kill()
    bookie.more = tuple(lists(tmp_path / "first"))
    with pytest.raises(AssertionError, match=r"second/journal, .* is missing"):
        bookie.up()
    bookie.more = tuple(lists(tmp_path / "first", place))
    bookie.up()


def test_a_bookie_that_is_killed_meanwhile_has_the_volume_or_takes_it_again(
    bookie: Process, tmp_path: Path
) -> None:
    filled = 0
    places = [tmp_path / f"v{number}" for number in range(_KILLS)]

    for number, place in enumerate(places):

        async def begin(client: BookieClient, number: int = number, place: Path = place) -> None:
            assert (await ask(client, place, add=True)).adding
            await client.world.clock.sleep(number * _STEP_SECONDS)
            assert bookie.process is not None
            os.kill(bookie.process.pid, signal.SIGKILL)

        talk(bookie, begin)
        bookie.kill()
        bookie.up()

        async def again(client: BookieClient, place: Path = place, first: int = filled) -> None:
            assert await add_volume(client, place) == ""
            await fill(client, range(first, first + 20))
            await reading(range(first + 20))(client)

        talk(bookie, again)
        filled += 20
        assert (place / "ledger" / COOKIE_NAME).exists()
    bookie.kill()
    bookie.up()
    talk(bookie, reading(range(filled)))
