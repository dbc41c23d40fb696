"""Who owns a bundle, judged from the owner record and the registrations: no I/O.

The record says which broker should serve the bundle. It is valid while exactly that instance is
registered. The epoch of an ownership is the version of the record's node. None of this protects
data: fencing does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.metadata.records import BrokerRegistration, BundleOwner

__all__ = ["Mine", "Owned", "OwnerOf", "Split", "Theirs", "Unknown", "Unowned", "judge"]


class Mine(msgspec.Struct, frozen=True):
    """This broker's current instance is the owner, with this epoch."""

    epoch: int


class Theirs(msgspec.Struct, frozen=True):
    """Another registered instance is the owner."""

    registration: BrokerRegistration


class Unowned(msgspec.Struct, frozen=True):
    """Free to take by a compare-and-set at ``version`` (``None``: by creating the record).

    ``former``: the instance that the record names and that is not registered; empty: none.
    """

    version: int | None
    former: str = ""


class Unknown(msgspec.Struct, frozen=True):
    """The record names an instance that is not in the list of registrations.

    The caller must read whether it is registered, and judge again.
    """

    instance_id: str
    version: int


class Split(msgspec.Struct, frozen=True):
    """The bundle is none any more: a list of bundles that has it is old.

    No broker owns it ever again, unless its namespace is deleted and created again. So a broker
    with an old list serves no topic of it, and at each moment exactly one bundle that can be owned
    has a topic: the record of a split bundle and those of its parts change in one commit.
    """


OwnerOf = Mine | Theirs | Unowned | Unknown | Split


def judge(
    record: tuple[BundleOwner, int] | None,
    me: str,
    alive: Mapping[str, BrokerRegistration],
    gone: Iterable[str] = (),
) -> OwnerOf:
    """Judge who owns a bundle.

    Args:
        me: this broker's instance id.
        alive: registrations by instance id.
        gone: instances known not to be registered.
    """
    if record is None:
        return Unowned(None)
    owner, version = record
    if owner.is_split:
        return Split()
    if not owner.broker_id:
        return Unowned(version)
    if owner.instance_id == me:
        return Mine(version)
    if owner.instance_id in gone:
        return Unowned(version, owner.instance_id)
    registration = alive.get(owner.instance_id)
    return Unknown(owner.instance_id, version) if registration is None else Theirs(registration)


class Owned:
    """The bundles that this broker serves, with their epochs.

    Cleared at once when this broker may not serve any more.
    """

    def __init__(self) -> None:
        self._epochs: dict[Bundle, int] = {}

    def __len__(self) -> int:
        return len(self._epochs)

    def __contains__(self, bundle: Bundle) -> bool:
        return bundle in self._epochs

    def epoch(self, bundle: Bundle) -> int | None:
        """Return the epoch of an owned bundle; ``None`` if this broker does not own it."""
        return self._epochs.get(bundle)

    def acquired(self, bundle: Bundle, epoch: int) -> None:
        known = self._epochs.get(bundle)
        assert known is None or epoch >= known, "an epoch never goes back"
        self._epochs[bundle] = epoch

    def released(self, bundle: Bundle) -> None:
        self._epochs.pop(bundle, None)

    def clear(self) -> None:
        self._epochs.clear()

    def bundles(self) -> list[Bundle]:
        return sorted(self._epochs)
