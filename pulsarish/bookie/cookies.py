"""A bookie's identity: the cookie, equal in each of its directories and in the metadata (rule 7).

The first start draws an instance id and writes the cookies durably into the directories, then into
the metadata. Nothing is served before both are written. A later disagreement means that a directory
was lost, was swapped or belongs to another bookie. The bookie then does not start: with other data
it would answer "not there" for entries that it promised to keep.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from pulsarish.bookie.journal.mark import read_file
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import ClusterRecord, Cookie
from pulsarish.model.errors import ConfigError, CorruptData
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.seams import Clock, Conflict, ConflictReason, Files
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = [
    "COOKIE_NAME",
    "agree_on_cookie",
    "decide_cookie",
    "find_cluster_id",
    "ledger_on",
    "refuse_if_promised",
]

COOKIE_NAME: Final = "cookie"


def decide_cookie(
    wanted: Cookie,
    directories: Sequence[str],
    local: Sequence[Cookie | None],
    stored: Cookie | None,
    *,
    has_data: bool,
) -> Cookie | None:
    """Return the cookie that all agree on, or ``None`` when this is the first start.

    Args:
        wanted: the bookie, cluster and directories of the configuration; its instance id is
            ignored.
        local: the cookie found in each directory.
        stored: the cookie in the metadata.
        has_data: whether a journal, mark or entry log exists.

    Raises ``ConfigError`` that says what disagrees and what to do.
    """
    name = wanted.bookie_id
    found = [cookie for cookie in local if cookie is not None]
    for directory, cookie in zip(directories, local, strict=True):
        if cookie is None:
            continue
        if cookie.bookie_id != name:
            raise ConfigError(
                f"the directory {directory} belongs to bookie {cookie.bookie_id}, not to {name}: "
                "give this one its own"
            )
        if cookie.cluster_id != wanted.cluster_id:
            raise ConfigError(
                f"the directory {directory} belongs to cluster {cookie.cluster_id}, the metadata "
                f"is of cluster {wanted.cluster_id}: check metadata_url"
            )
        if cookie.instance_id != found[0].instance_id:
            raise ConfigError(
                f"the directories of bookie {name} hold different instances, "
                f"{found[0].instance_id} and {cookie.instance_id} (in {directory}): put the right "
                "directories together"
            )
    if stored is None:
        if not has_data:
            # Either no bookie ever ran here, or the first start ended before the metadata had the
            # cookie. No client was promised anything.
            return None
        if found:
            raise ConfigError(
                f"the metadata has no cookie of bookie {name}, but {directories[0]} has data of "
                f"{found[0].instance_id}: check metadata_url; if the bookie was decommissioned, "
                "delete its directories"
            )
        raise ConfigError(
            f"there are data in {', '.join(directories)} without a cookie: restore the cookies or "
            "empty the directories"
        )
    missing = [
        directory for directory, cookie in zip(directories, local, strict=True) if cookie is None
    ]
    if missing:
        raise ConfigError(
            f"bookie {name} was {stored.instance_id} before, and {', '.join(missing)} has no "
            "cookie of it: a disk is missing or was emptied. Mount it again; if its data are "
            f"lost, take another bookie_id so that {stored.instance_id} counts as lost; if only "
            "the cookie is lost: pulsarish storage cookie create"
        )
    if found[0].instance_id != stored.instance_id:
        raise ConfigError(
            f"the directories of bookie {name} are of instance {found[0].instance_id}, the "
            f"metadata knows {stored.instance_id}: another bookie uses this bookie_id, or old "
            "directories were put back. Take another bookie_id"
        )
    if stored.cluster_id != wanted.cluster_id:
        raise ConfigError(
            f"the cookie of bookie {name} in the metadata is of cluster {stored.cluster_id}, not "
            f"{wanted.cluster_id}"
        )
    return stored


async def find_cluster_id(
    records: Records, guarded: Records, clock: Clock, rng: random.Random
) -> str:
    """Return the id of the cluster. The first bookie that ever starts makes it."""
    while (found := await records.get(paths.CLUSTER, ClusterRecord)) is None:
        made = ClusterRecord(cluster_id=f"{rng.getrandbits(64):016x}", created_ms=clock.wall_ms())
        try:
            await guarded.compare_and_set(paths.CLUSTER, made, None)
        except Conflict as conflict:
            if conflict.reason is not ConflictReason.EXISTS:
                raise
    return found[0].cluster_id


async def ledger_on(records: Records, instance_id: str) -> int | None:
    """Return a ledger that names this bookie as a member; ``None``: there is none.

    Raises ``MetadataUnavailable``.
    """
    async for branch in ledger_ids(records):
        for found in (
            await records.get_many(
                [paths.ledger(ledger_id) for ledger_id in branch], LedgerMetadata
            )
            if branch
            else []
        ):
            if found is not None and any(
                instance_id in segment.members for segment in found[0].segments
            ):
                return found[0].ledger_id
    return None


async def refuse_if_promised(records: Records, cookie: Cookie, directories: Sequence[str]) -> None:
    """Refuse a registered bookie that lost its data.

    A known bookie without any data either wrote only its cookies, and then no ledger names it, or
    was emptied.
    """
    ledger_id = await ledger_on(records, cookie.instance_id)
    if ledger_id is not None:
        raise ConfigError(
            f"{', '.join(directories)} hold the cookies of {cookie.instance_id} and "
            f"nothing else, but ledger {ledger_id} has entries on it: put the "
            "data back; if they are lost, take another bookie_id so that "
            f"{cookie.instance_id} counts as lost"
        )


async def agree_on_cookie(
    files: Files,
    records: Records,
    guarded: Records,
    clock: Clock,
    rng: random.Random,
    wanted: Cookie,
    directories: Sequence[str],
    *,
    has_data: bool,
) -> Cookie:
    """Compare all cookies, or make them at the first start.

    Fills in ``wanted.cluster_id`` and ``instance_id``.

    ``guarded`` refuses a tree that came back older than it was. A bookie that has its cookie can
    start with such a tree.

    Raises ``ConfigError``, ``MetadataUnavailable``, ``CorruptData``.
    """
    cluster_id = await find_cluster_id(records, guarded, clock, rng)
    made = Cookie(
        bookie_id=wanted.bookie_id,
        instance_id=f"{wanted.bookie_id}~{rng.getrandbits(32):08x}",
        cluster_id=cluster_id,
        journal_directory=wanted.journal_directory,
        ledger_directory=wanted.ledger_directory,
        index_directory=wanted.index_directory,
        created_ms=clock.wall_ms(),
    )
    local: list[Cookie | None] = []
    for directory in directories:
        path = f"{directory}/{COOKIE_NAME}"
        data = await read_file(files, path)
        try:
            local.append(None if data is None else decode_record(data, Cookie, path))
        except CorruptData as error:
            raise ConfigError(
                f"the cookie {path} cannot be read: {error}. Put the file back, or have it written "
                "again: pulsarish storage cookie create"
            ) from None
    stored = await records.get(paths.cookie(made.bookie_id), Cookie)
    if stored is None:
        # The newer tree may have it; and an id made in the older tree would be missing in the newer
        # one.
        stored = await guarded.get(paths.cookie(made.bookie_id), Cookie)
    agreed = decide_cookie(
        made, directories, local, None if stored is None else stored[0], has_data=has_data
    )
    if agreed is not None:
        if not has_data:
            await refuse_if_promised(records, agreed, directories)
        return agreed
    for directory in directories:
        await files.replace(f"{directory}/{COOKIE_NAME}", encode_record(made))
    try:
        await guarded.compare_and_set(paths.cookie(made.bookie_id), made, None)
    except Conflict as conflict:
        if conflict.reason is not ConflictReason.EXISTS:
            raise
        raise ConfigError(
            f"another bookie took the bookie_id {made.bookie_id} at this moment: take another one"
        ) from None
    return made
