"""Write the cookies of a stopped bookie again where some are lost, or delete them all.

A directory whose cookie is lost may have lost more than that. So a bookie whose directory gets a
cookie here is in limbo for every ledger that existed (rule 7): it answers "unknown" instead of "not
there" until auto-recovery has repaired its ledgers.

A bookie with several volumes is refused. Its one cookie in the metadata is that of all of them, and
a volume without a cookie is given up as a whole (``volume_loss``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from pulsarish.bookie.cookies import COOKIE_NAME, ledger_on
from pulsarish.bookie.journal.mark import read_file
from pulsarish.bookie.limbo import Limbo
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import ConfigError, CorruptData, NotAllowedError, NotFound
from pulsarish.runtime.seams import Files
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["create_cookies", "delete_cookies"]


async def create_cookies(
    files: Files,
    records: Records,
    directories: Sequence[str],
    bookie_id: str,
    *,
    several_volumes: bool,
    limbo_directory: str,
    given_out: Callable[[], Awaitable[int]],
) -> list[str]:
    """Write the missing cookies after those that are left. Return where one was written.

    Args:
        records: does not write to metadata that came back older.
        directories: all directories of the bookie, which this locks.
        several_volumes: whether the bookie is configured with several.
        limbo_directory: the one with the file ``limbo``.
        given_out: an id above those of all ledgers, by the metadata.

    Raises ``Locked`` for a running bookie, ``NotFound`` when no cookie is left, ``ConfigError``
    for cookies that are of different bookies, ``NotAllowedError`` for a bookie with several
    volumes, ``MetadataUnavailable``, ``OSError``.
    """
    for directory in directories:
        await files.lock(directory)
    local = {directory: await _cookie_in(files, directory) for directory in directories}
    stored = await records.get(paths.cookie(bookie_id), Cookie)
    named = {f"{name}/{COOKIE_NAME}": each for name, each in local.items() if each is not None}
    if stored is not None:
        named["the metadata"] = stored[0]
    if several_volumes or any(each.volume or each.volumes for each in named.values()):
        raise NotAllowedError(
            f"{bookie_id} has several volumes, and a volume without a cookie is given up as a "
            'whole: start the bookie once with volume_loss = "limbo"'
        )
    if not named:
        raise NotFound(
            f"neither {', '.join(directories)} nor the metadata have a cookie of {bookie_id}: "
            "start a new bookie instead, on empty directories and with another bookie_id"
        )
    cookie = next(reversed(named.values()))
    for place, each in named.items():
        if each.bookie_id != bookie_id:
            raise ConfigError(f"the cookie in {place} is of bookie {each.bookie_id}: {_CHECK}")
        if (each.instance_id, each.cluster_id) != (cookie.instance_id, cookie.cluster_id):
            raise ConfigError(
                f"the cookie in {place} is of {each.instance_id} in cluster {each.cluster_id}, "
                f"another one of {cookie.instance_id} in cluster {cookie.cluster_id}: {_CHECK}"
            )
    missing = [directory for directory, each in local.items() if each is None]
    if missing:
        limbo = Limbo(files, limbo_directory)
        await limbo.load()
        # Before the cookies: with them the bookie may start.
        await limbo.enter(
            await given_out(),
            f"the cookies of {', '.join(missing)} were lost",
            times_before=cookie.limbo_times,
        )
        for directory in missing:
            await files.replace(f"{directory}/{COOKIE_NAME}", encode_record(cookie))
    if stored is None:
        await records.compare_and_set(paths.cookie(bookie_id), cookie, None)
        return [*missing, "the metadata"]
    return missing


_CHECK = "put the right directories together, or correct bookie_id and metadata_url"


async def delete_cookies(
    files: Files,
    records: Records,
    directories: Sequence[str],
    bookie_id: str,
    *,
    several_volumes: bool,
    force: bool,
) -> list[str]:
    """Delete the cookies in the metadata and in all directories. Return where one was deleted.

    Args:
        records: does not write to metadata that came back older.
        directories: all directories of the bookie, which this locks.
        several_volumes: whether the bookie is configured with several.
        force: delete although ledgers name the bookie.

    Raises ``Locked`` for a running bookie, ``NotAllowedError`` while ledgers name it or for one
    with several volumes, ``MetadataUnavailable``, ``OSError``.
    """
    for directory in directories:
        await files.lock(directory)
    stored = await records.get(paths.cookie(bookie_id), Cookie)
    if several_volumes or (stored is not None and stored[0].volumes):
        raise NotAllowedError(
            f"{bookie_id} has several volumes, and the cookie in the metadata is that of all of "
            f"them: use pulsarish bookies decommission {bookie_id}, then empty the directories of "
            "all volumes"
        )
    done: list[str] = []
    if stored is not None:
        instance_id = stored[0].instance_id
        ledger_id = None if force else await ledger_on(records, instance_id)
        if ledger_id is not None:
            raise NotAllowedError(
                f"ledger {ledger_id} has entries on {instance_id}, and without its cookie they "
                f"would not count as lost: use pulsarish bookies decommission {bookie_id}, or "
                "--force if the copies are of no use"
            )
        # The metadata first: directories without a cookie are refused, one that is left is not
        # found in the metadata and is refused, too.
        await records.delete(paths.cookie(bookie_id), stored[1])
        done.append("the metadata")
    there = [
        directory
        for directory in directories
        if await read_file(files, f"{directory}/{COOKIE_NAME}") is not None
    ]
    await files.remove([f"{directory}/{COOKIE_NAME}" for directory in there])
    return done + there


async def _cookie_in(files: Files, directory: str) -> Cookie | None:
    """Return the cookie of a directory; ``None`` without one that can be read."""
    path = f"{directory}/{COOKIE_NAME}"
    data = await read_file(files, path)
    try:
        return None if data is None else decode_record(data, Cookie, path)
    except CorruptData:
        return None
