"""Which volumes a bookie has: the cookies of several triples of directories, and the list of
volumes in the metadata (rule 7).

The cookie in a directory names its volume; the first volume has no name, so a bookie with one
volume can be given more. The metadata know all volumes. A volume that they know and that is not
there is never replaced by an empty directory: a disk that is not mounted looks like one. The start
is refused, or, on an operator's word (``volume_loss``), the volume is given up for good. Its data
are not used again, because ledgers that were in it may have been fenced or written in another
volume since. An empty triple of directories beside all known volumes is a new volume.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.cookies import COOKIE_NAME, decide_cookie, find_cluster_id, refuse_if_promised
from pulsarish.bookie.journal.mark import read_file
from pulsarish.bookie.limbo import Limbo
from pulsarish.bookie.store import has_data
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, VolumeRecord
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, Conflict, ConflictReason, Files
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["AgreedVolumes", "agree_on_volumes", "write_cookies"]

_log = get_logger("bookie.volumes")
_FIRST: Final = ""


@dataclass(slots=True)
class AgreedVolumes:
    """The volumes of a bookie that starts."""

    cookie: Cookie
    """As the metadata are to have it; the caller writes it."""
    usable: list[tuple[str, BookieConfig]] = field(default_factory=list)
    """Name and configuration of each, in the order of the configuration."""
    lost: dict[str, str] = field(default_factory=dict)
    """The volumes that this start gives up, and why."""


@dataclass(slots=True)
class _Triple:
    """The three directories of a volume as they were found."""

    config: BookieConfig
    cookies: list[Cookie | None] = field(default_factory=list)
    lost: tuple[str, ...] = ()
    """The volumes that this one knows as lost."""
    has_data: bool = False
    error: str = ""

    @property
    def where(self) -> str:
        return ", ".join(self.config.paths)

    @property
    def is_empty(self) -> bool:
        return not self.error and not self.has_data and not any(self.cookies)


async def agree_on_volumes(
    files: Files,
    records: Records,
    guarded: Records,
    clock: Clock,
    rng: random.Random,
    config: BookieConfig,
    unusable: Mapping[str, str],
    unlisted: Collection[str],
) -> AgreedVolumes:
    """Compare the cookies of all volumes with the metadata, and make those of new volumes.

    Args:
        unusable: directories that could not be locked, and why.
        unlisted: the ledger directories of volumes that the lists of the options do not name.

    Raises ``ConfigError``, ``MetadataUnavailable``, ``CorruptData``.
    """
    triples = [await _look(files, volume, unusable) for volume in config.volumes()]
    path = paths.cookie(config.bookie_id)
    found = await records.get(path, Cookie) or await guarded.get(path, Cookie)
    wanted = Cookie(
        bookie_id=config.bookie_id,
        instance_id=f"{config.bookie_id}~{rng.getrandbits(32):08x}",
        cluster_id=await find_cluster_id(records, guarded, clock, rng),
        journal_directory=triples[0].config.journal_path,
        ledger_directory=triples[0].config.ledger_path,
        index_directory=triples[0].config.index_path,
        created_ms=clock.wall_ms(),
    )
    if found is None:
        return await _first_start(files, guarded, rng, wanted, triples)
    stored = found[0]
    known = dict(stored.volumes) or {
        _FIRST: VolumeRecord(
            (stored.journal_directory, stored.ledger_directory, stored.index_directory),
            stored.journal_position,
        )
    }
    for triple in triples:
        for cookie in triple.cookies:
            # The metadata may have come back older.
            for name, record in cookie.volumes.items() if cookie is not None else ():
                known.setdefault(name, record)
    for name in [name for triple in triples for name in triple.lost if name in known]:
        # The metadata may not have learned of it.
        known[name] = msgspec.structs.replace(known[name], is_lost=True)
    agreed = AgreedVolumes(stored)
    named = _named(wanted, stored, known, triples)
    _miss(agreed, known, named, triples, may_lose=config.volume_loss == "limbo")
    for triple in triples:
        names = [name for name, each in named.items() if each is triple]
        if triple.is_empty:
            names = [f"{rng.getrandbits(32):08x}"]
        if not names:
            continue
        name = names[0]
        if name not in known:
            await write_cookies(files, stored, name, triple.config)
            known[name] = VolumeRecord(tuple(triple.config.paths))
            _log.warning("a volume is added", volume=name, directories=triple.where)
        agreed.usable.append((name, triple.config))
        known[name] = msgspec.structs.replace(
            known[name],
            directories=tuple(triple.config.paths),
            is_unlisted=triple.config.ledger_path in unlisted,
        )
    if not any(each.has_data for each in named.values()):
        await refuse_if_promised(records, stored, [each.where for each in triples])
    agreed.cookie = msgspec.structs.replace(stored, volumes=known)
    return agreed


async def _look(files: Files, config: BookieConfig, unusable: Mapping[str, str]) -> _Triple:
    triple = _Triple(config)
    reasons = [unusable[each] for each in config.paths if each in unusable]
    try:
        for directory in config.paths:
            path = f"{directory}/{COOKIE_NAME}"
            data = await read_file(files, path)
            triple.cookies.append(None if data is None else decode_record(data, Cookie, path))
        triple.has_data = await has_data(files, config)
        limbo = Limbo(files, config.ledger_path)
        await limbo.load()
        triple.lost = limbo.lost
    except OSError as error:
        reasons.append(str(error))
    triple.error = "; ".join(reasons)
    return triple


async def _first_start(
    files: Files,
    guarded: Records,
    rng: random.Random,
    wanted: Cookie,
    triples: Sequence[_Triple],
) -> AgreedVolumes:
    agreed = AgreedVolumes(wanted)
    known: dict[str, VolumeRecord] = {}
    for triple in triples:
        if triple.error:
            raise ConfigError(f"the volume {triple.where} cannot be used: {triple.error}")
        decided = decide_cookie(
            wanted, triple.config.paths, triple.cookies, None, has_data=triple.has_data
        )
        assert decided is None, "the metadata have no cookie"
        name = f"{rng.getrandbits(32):08x}" if known else _FIRST
        await write_cookies(files, wanted, name, triple.config)
        known[name] = VolumeRecord(tuple(triple.config.paths))
        agreed.usable.append((name, triple.config))
    agreed.cookie = msgspec.structs.replace(wanted, volumes=known)
    try:
        await guarded.compare_and_set(paths.cookie(wanted.bookie_id), agreed.cookie, None)
    except Conflict as conflict:
        if conflict.reason is not ConflictReason.EXISTS:
            raise
        raise ConfigError(
            f"another bookie took the bookie_id {wanted.bookie_id} at this moment: take another one"
        ) from None
    return agreed


def _named(
    wanted: Cookie, stored: Cookie, known: Mapping[str, VolumeRecord], triples: Sequence[_Triple]
) -> dict[str, _Triple]:
    """Return the triples that are whole volumes of this bookie, by name; notes in the others why
    they are not.

    Raises ``ConfigError`` for directories of another bookie, or of two volumes.
    """
    named: dict[str, _Triple] = {}
    for triple in triples:
        there = [cookie for cookie in triple.cookies if cookie is not None]
        for directory, cookie in zip(triple.config.paths, triple.cookies, strict=False):
            if cookie is None:
                continue
            for what in ("bookie_id", "cluster_id", "instance_id"):
                own = getattr(wanted if what == "cluster_id" else stored, what)
                if getattr(cookie, what) != own:
                    raise ConfigError(
                        f"the directory {directory} has the {what} {getattr(cookie, what)}, this "
                        f"bookie has {own}: give the bookie its own directories, or take another "
                        "bookie_id"
                    )
            if cookie.volume != there[0].volume:
                raise ConfigError(
                    f"the directories {triple.where} are of different volumes: put those of one "
                    "volume at the same place of journal_directories, ledger_directories and "
                    "index_directories"
                )
        if triple.error or triple.is_empty:
            continue
        if len(there) < len(triple.cookies):
            missing = [
                directory
                for directory, cookie in zip(triple.config.paths, triple.cookies, strict=True)
                if cookie is None
            ]
            triple.error = f"{', '.join(missing)} has no cookie: a disk is missing or was emptied"
            continue
        name = there[0].volume
        if name in named:
            raise ConfigError(f"{named[name].where} and {triple.where} are the same volume {name}")
        record = known.get(name)
        if record is None and triple.has_data:
            raise ConfigError(
                f"{triple.where} hold a volume {name} of this bookie that the metadata do not "
                "know: its data are old. Empty the directories to add them as a new volume"
            )
        if record is not None and record.is_lost:
            triple.error = "the volume was given up"
            _log.warning(
                "a volume that was given up is not used: empty its directories to add them as a "
                "new one",
                volume=name,
                directories=triple.where,
            )
            continue
        if record is not None and record.is_opened and not triple.has_data:
            triple.error = "its directories hold the cookies and nothing else"
            continue
        named[name] = triple
    return named


def _miss(
    agreed: AgreedVolumes,
    known: dict[str, VolumeRecord],
    named: Mapping[str, _Triple],
    triples: Sequence[_Triple],
    *,
    may_lose: bool,
) -> None:
    """Give up the volumes that are not there. Raises ``ConfigError`` unless ``may_lose``."""
    found = "; ".join(
        f"{triple.where}: {triple.error or 'nothing'}"
        for triple in triples
        if triple.error or triple.is_empty
    )
    for name, record in known.items():
        if record.is_lost or name in named:
            continue
        where = ", ".join(record.directories)
        reason = f"the volume {name or '(first)'} of {where} is missing" + (
            f", and this was found: {found}" if found else ""
        )
        if not may_lose:
            raise ConfigError(
                f"{reason}. Mount its disks and name its directories; if its data are lost, start "
                'once with volume_loss = "limbo": the bookie goes on without it and answers '
                '"unknown" for the ledgers that may have been in it, until auto-recovery has '
                "copied them"
            )
        agreed.lost[name] = reason
        known[name] = msgspec.structs.replace(record, is_lost=True)
    if not named:
        raise ConfigError(
            f"none of the volumes of bookie {agreed.cookie.bookie_id} is there ({found}): mount "
            "their disks; if the data of all are lost, take another bookie_id so that "
            f"{agreed.cookie.instance_id} counts as lost"
        )


async def write_cookies(files: Files, cookie: Cookie, name: str, config: BookieConfig) -> None:
    """Write the cookies of a volume with this name into its directories. Raises ``OSError``."""
    own = msgspec.structs.replace(
        cookie,
        journal_directory=config.journal_path,
        ledger_directory=config.ledger_path,
        index_directory=config.index_path,
        volume=name,
        volumes={},
        journal_position=0,
        limbo_times=0,
        token="",
    )
    for directory in config.paths:
        await files.replace(f"{directory}/{COOKIE_NAME}", encode_record(own))
