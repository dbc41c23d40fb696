"""Cookies that are written again, and cookies that are deleted, by the command line."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from pulsarish.bookie.limbo import Limbo
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, VolumeRecord
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.runtime.files import LocalFiles, ReadOnlyFiles
from pulsarish.runtime.lanes import Lanes, OutsideWork
from tests.support.bookie_disks import INSTANCE, BookieDisks
from tests.support.bookies import make_record


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    disks = BookieDisks(tmp_path_factory.mktemp("filled"))
    disks.with_store(lambda store: disks.add(store, [make_record(3, 0, b"x")]))
    disks.make_tree()
    return disks.home


@pytest.fixture
def disks(filled: Path, tmp_path: Path) -> BookieDisks:
    shutil.copytree(filled, tmp_path / "bookie")
    return BookieDisks(tmp_path / "bookie")


def cookie_files(disks: BookieDisks) -> list[Path]:
    return [Path(directory, "cookie") for directory in disks.directories]


async def stored(records: Records) -> Cookie | None:
    found = await records.get(paths.cookie("b1"), Cookie)
    return None if found is None else found[0]


def limbo_of(disks: BookieDisks) -> tuple[int, int]:
    """Below which ledger the bookie is in limbo, and how often it was."""

    async def main() -> tuple[int, int]:
        lanes = Lanes(OutsideWork())
        limbo = Limbo(ReadOnlyFiles(lanes), disks.config.ledger_path)
        await limbo.load()
        await lanes.close()
        return limbo.ledgers_below, limbo.times

    return asyncio.run(main())


def test_a_lost_cookie_is_written_again_and_the_bookie_is_in_limbo(disks: BookieDisks) -> None:
    async def was_in_limbo(records: Records) -> None:
        found = await records.get(paths.cookie("b1"), Cookie)
        assert found is not None
        cookie = msgspec.structs.replace(found[0], limbo_times=2)
        await records.compare_and_set(paths.cookie("b1"), cookie, found[1])

    disks.with_metadata(was_in_limbo)
    lost = cookie_files(disks)[1]
    lost.write_text("{")
    result = disks.command("cookie", "create")
    assert result.exit_code == 0, result.output
    assert f"cookies written: {disks.config.ledger_path}\n" in result.output
    assert limbo_of(disks) == (1000, 3)
    assert all(row["instance_id"] == INSTANCE for row in disks.rows("cookie", "show"))
    (ledger,) = disks.rows("ledger", "list")
    assert ledger["limbo"] is True


def test_a_cookie_that_only_the_metadata_lost_causes_no_limbo(disks: BookieDisks) -> None:
    async def forget(records: Records) -> None:
        found = await records.get(paths.cookie("b1"), Cookie)
        assert found is not None
        await records.delete(paths.cookie("b1"), found[1])

    disks.with_metadata(forget)
    assert "cookies written: the metadata" in disks.command("cookie", "create").output
    assert (found := disks.with_metadata(stored)) is not None
    assert found.instance_id == INSTANCE
    assert limbo_of(disks) == (0, 0)
    assert "no cookie is missing" in disks.command("cookie", "create").output


def test_cookies_of_two_bookies_are_refused(disks: BookieDisks) -> None:
    cookie_files(disks)[0].unlink()
    other = msgspec.structs.replace(disks.cookie, instance_id="b1~00000002")
    cookie_files(disks)[2].write_bytes(msgspec.json.encode(other))
    result = disks.command("cookie", "create")
    assert result.exit_code == 1
    assert "b1~00000002" in result.output
    assert not cookie_files(disks)[0].exists()
    assert limbo_of(disks) == (0, 0)


def test_nothing_is_written_when_no_cookie_is_left(disks: BookieDisks) -> None:
    assert disks.command("cookie", "delete", "--confirm", "b1").exit_code == 0
    result = disks.command("cookie", "create")
    assert result.exit_code == 1
    assert "have a cookie of b1" in result.output


def test_cookies_are_deleted_everywhere_once_the_id_is_typed(disks: BookieDisks) -> None:
    refused = disks.command("cookie", "delete", "--confirm", "b2")
    assert refused.exit_code == 1
    assert "nothing was deleted" in refused.output
    assert all(each.exists() for each in cookie_files(disks))
    result = disks.command("cookie", "delete", "--confirm", "b1")
    assert result.exit_code == 0, result.output
    assert not any(each.exists() for each in cookie_files(disks))
    assert disks.with_metadata(stored) is None


def test_cookies_stay_while_a_ledger_names_the_bookie(disks: BookieDisks) -> None:
    async def name_it(records: Records) -> None:
        ledger = LedgerMetadata(
            7,
            1,
            1,
            1,
            LedgerPurpose(PurposeKind.DIAGNOSTIC, "test"),
            (Segment(0, (INSTANCE,)),),
        )
        await records.compare_and_set(paths.ledger(7), ledger, None)

    disks.with_metadata(name_it)
    result = disks.command("cookie", "delete", "--confirm", "b1")
    assert result.exit_code == 1
    assert "ledger 7 has entries on b1~00000001" in result.output
    assert "bookies decommission b1" in result.output
    assert all(each.exists() for each in cookie_files(disks))
    assert disks.command("cookie", "delete", "--confirm", "b1", "--force").exit_code == 0
    assert disks.with_metadata(stored) is None


def test_the_cookies_of_several_volumes_are_left_alone(disks: BookieDisks) -> None:
    lost = cookie_files(disks)[1]
    lost.unlink()
    lists = [
        f"--set={kind}_directories={here},{disks.home}/other-{kind}"
        for kind, here in zip(("journal", "ledger", "index"), disks.directories, strict=True)
    ]
    volume = ("--volume", disks.config.ledger_path)

    def refused(*words: str) -> None:
        created = disks.command("cookie", "create", *words)
        assert created.exit_code == 1
        assert 'start the bookie once with volume_loss = "limbo"' in created.output
        deleted = disks.command("cookie", "delete", "--confirm", "b1", "--force", *words)
        assert deleted.exit_code == 1
        assert "the cookie in the metadata is that of all of them" in deleted.output
        assert disks.with_metadata(stored) is not None
        assert [each.exists() for each in cookie_files(disks)] == [True, False, True]
        assert limbo_of(disks) == (0, 0)

    refused(*volume, *lists)

    async def add_volume(records: Records) -> None:
        found = await records.get(paths.cookie("b1"), Cookie)
        assert found is not None
        volumes = {"": VolumeRecord(tuple(disks.directories)), "2": VolumeRecord(("/lost",))}
        cookie = msgspec.structs.replace(found[0], volumes=volumes)
        await records.compare_and_set(paths.cookie("b1"), cookie, found[1])

    disks.with_metadata(add_volume)
    refused()


def test_a_running_bookie_keeps_its_cookies(disks: BookieDisks) -> None:
    async def main() -> list[str]:
        lanes = Lanes(OutsideWork())
        files = LocalFiles(lanes)
        await files.lock(disks.config.journal_path)
        results = [
            (await asyncio.to_thread(disks.command, "cookie", *words)).output
            for words in (("create",), ("delete", "--confirm", "b1"))
        ]
        files.release()
        await lanes.close()
        return results

    for output in asyncio.run(main()):
        assert "is in use by process" in output
    assert all(each.exists() for each in cookie_files(disks))
