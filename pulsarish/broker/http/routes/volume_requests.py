"""What operators ask of single volumes of a bookie, as it is stored in the metadata."""

from __future__ import annotations

import posixpath
from typing import Final

import msgspec

from pulsarish.broker.http.bookie_names import BookieInstance, cookie_of
from pulsarish.broker.http.route import Parameter
from pulsarish.broker.http.routes.read_only_routes import check_enough_without
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, CordonedVolumes
from pulsarish.model.errors import CorruptData, NotAllowedError, NotFound

__all__ = [
    "CORDON_PARAMETERS",
    "DIRECTORY",
    "ask_to_cordon",
    "directories_of",
    "end_cordon",
    "name_of_volume",
]

DIRECTORY: Final = Parameter("directory", "The ledger directory of the volume.", required=True)
CORDON_PARAMETERS: Final = (
    DIRECTORY,
    Parameter("reason", "Why; the bookie shows it."),
    Parameter(
        "force",
        "Also if no volume is left, and too few bookies are writable then.",
        bool,
        default=False,
    ),
)


class _LastVolume(Exception):
    """Every volume would be cordoned: the bookie becomes read-only."""


async def ask_to_cordon(
    records: Records,
    options: ManagedLedgerOptions,
    bookie: BookieInstance,
    directory: str,
    *,
    reason: str,
    force: bool,
    drain: bool = False,
) -> Cookie:
    """Store the request to cordon a volume, or to drain it, too. Return the bookie's cookie.

    Raises ``NotFound``, and ``NotAllowedError`` for a bookie with one volume, and without ``force``
    when no volume would be left and too few bookies are.
    """
    cookie = await cookie_of(records, bookie)
    volumes = directories_of(cookie)
    if len(volumes) < 2:
        raise NotAllowedError(
            f"bookie {bookie.bookie_id} has one volume: set the whole bookie read-only "
            f"instead: pulsarish bookies set-read-only {bookie.bookie_id}"
        )
    name = name_of_volume(cookie, directory)
    path = paths.cordoned_volumes(bookie.instance_id)
    await records.make_parents(path)
    may_be_last = force

    def changed(found: CordonedVolumes | None) -> CordonedVolumes:
        found = found or CordonedVolumes(bookie.bookie_id, bookie.instance_id)
        asked = {each: why for each, why in found.volumes.items() if each in volumes}
        if not may_be_last and not volumes.keys() - asked.keys() - {name}:
            # Decided with the record that is replaced: another request may have come first.
            raise _LastVolume
        asked[name] = reason or asked.get(name, "")
        draining = [each for each in found.draining if each in volumes and each != name]
        if drain or name in found.draining:
            draining.append(name)
        return msgspec.structs.replace(found, volumes=asked, draining=tuple(draining))

    try:
        _ = await records.update(path, CordonedVolumes, changed)
    except _LastVolume:
        await check_enough_without(records, bookie, options)
        may_be_last = True
        _ = await records.update(path, CordonedVolumes, changed)
    return cookie


async def end_cordon(records: Records, bookie: BookieInstance, directory: str) -> Cookie:
    """Take the request to cordon or drain a volume back. Return the bookie's cookie.

    Raises ``NotFound``.
    """
    cookie = await cookie_of(records, bookie)
    name = name_of_volume(cookie, directory)

    def changed(found: CordonedVolumes | None) -> CordonedVolumes | None:
        if found is None or name not in found.volumes:
            return None
        left = {each: why for each, why in found.volumes.items() if each != name}
        draining = tuple(each for each in found.draining if each != name)
        return msgspec.structs.replace(found, volumes=left, draining=draining)

    path = paths.cordoned_volumes(bookie.instance_id)
    try:
        _ = await records.update(path, CordonedVolumes, changed)
    except CorruptData:
        # As ``set-writable`` does: otherwise nothing could end a request that is damaged.
        await records.delete(path)
    return cookie


def directories_of(cookie: Cookie) -> dict[str, str]:
    """Return the ledger directories of a bookie's volumes that are not lost, by volume name."""
    volumes = cookie.volumes.items()
    found = {name: each.directories[1] for name, each in volumes if not each.is_lost}
    return found or {"": cookie.ledger_directory}


def name_of_volume(cookie: Cookie, directory: str) -> str:
    """Return the name of the volume with a ledger directory, however that is written.

    Raises ``NotFound``.
    """
    directories = directories_of(cookie)
    names = {posixpath.normpath(path): name for name, path in directories.items()}
    wanted = posixpath.normpath(directory)
    if wanted not in names:
        raise NotFound(
            f"bookie {cookie.bookie_id} has no ledger directory {directory!r}; it has "
            f"{', '.join(directories.values())}"
        )
    return names[wanted]
