"""Which bookie instance a name in a request means."""

from __future__ import annotations

from typing import NamedTuple

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration, Cookie, GivenUpBookie
from pulsarish.model.errors import NotFound

__all__ = ["BookieInstance", "cookie_of", "find_instance", "registration_of"]


class BookieInstance(NamedTuple):
    bookie_id: str
    instance_id: str


async def find_instance(records: Records, name: str) -> BookieInstance:
    """Return the bookie that a name means: a bookie id, or the instance id of one instance.

    An instance id never means a later bookie of the same id. Raises ``NotFound``,
    ``MetadataUnavailable``, ``CorruptData``.
    """
    given_up = await records.get(paths.given_up(name), GivenUpBookie)
    if given_up is not None:
        return BookieInstance(given_up[0].bookie_id, given_up[0].instance_id)
    bookie_id = name.partition("~")[0]
    if name != bookie_id:
        return BookieInstance(bookie_id, name)
    cookie = await records.get(paths.cookie(bookie_id), Cookie)
    if cookie is None:
        raise NotFound(
            f"there never was a bookie {name!r}, or it is decommissioned; one that ledgers "
            "still name is given by instance id"
        )
    return BookieInstance(bookie_id, cookie[0].instance_id)


async def cookie_of(records: Records, bookie: BookieInstance) -> Cookie:
    """Return the cookie of exactly this instance.

    Raises ``NotFound``, ``MetadataUnavailable``, ``CorruptData``.
    """
    found = await records.get(paths.cookie(bookie.bookie_id), Cookie)
    if found is None or found[0].instance_id != bookie.instance_id:
        raise NotFound(
            f"there is no bookie instance {bookie.instance_id!r}, or not any more: give the id "
            "of a bookie, as in: pulsarish bookies list"
        )
    return found[0]


async def registration_of(records: Records, bookie: BookieInstance) -> BookieRegistration | None:
    """Return the registration of exactly this instance, if it is alive.

    Raises ``MetadataUnavailable``, ``CorruptData``.
    """
    found = await records.get(paths.bookie(bookie.bookie_id), BookieRegistration)
    return found[0] if found is not None and found[0].instance_id == bookie.instance_id else None
