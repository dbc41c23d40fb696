"""The rates of resource groups on this broker: its share of what each group may use on all brokers.

Topics of a group take from its buckets as they take from those of the broker. Which share this
broker has is decided elsewhere (``ownership/group_division.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from pulsarish.broker.policies.shared_rates import Rate, SharedRates
from pulsarish.model.policies import RESOURCE_GROUP, ResourceGroup
from pulsarish.model.rate_limits import CountedRateLimit, TokenBucket

__all__ = ["KINDS", "GroupRates", "Groups", "Wish"]

KINDS: Final = ("publish_messages", "publish_bytes", "dispatch_messages", "dispatch_bytes")
"""The limits of a group, each divided for itself."""

_KEPT_DEMAND: Final = 0.8
"""What is left of a demand after a round without any: traffic comes in bursts."""
_USED_UP: Final = 0.9
"""A broker that used this part of its share may want more."""
_WINDOW_SECONDS: Final = 0.5
"""Use is measured over this time at least."""
_WHOLE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What a broker uses of one limit of a group, as parts of the whole limit.

    ``is_short``: its share was used up, or is owed. ``share``: what it has now.
    """

    demand: float = 0.0
    is_short: bool = False
    share: float = 0.0


class GroupRates(SharedRates):
    """The rates of one resource group on this broker.

    Args:
        share: of each limit, until the first division.
    """

    __slots__ = (
        "__weakref__",
        "_demands",
        "_noted",
        "_noted_at",
        "limits",
        "name",
        "shares",
        "shares_until",
    )

    publish: CountedRateLimit
    dispatch: CountedRateLimit

    def __init__(self, name: str, share: float = _WHOLE) -> None:
        super().__init__(f"resource group {name!r}", RESOURCE_GROUP.name.replace("_", "-"))
        self.name = name
        self.publish = CountedRateLimit()
        self.dispatch = CountedRateLimit()
        self.limits = ResourceGroup()
        self.shares: tuple[float, ...] = (share,) * len(KINDS)
        self.shares_until = 0.0
        """When the shares are to be divided again (monotonic seconds)."""
        self._demands = [0.0] * len(KINDS)
        self._noted = (0,) * len(KINDS)
        self._noted_at = 0.0

    def use(self, limits: ResourceGroup, now: float) -> None:
        """Put the limits of the group in force. A debt takes at most a second to pay then."""
        self.limits = limits
        self.want(
            Rate(limits.publish_messages, limits.publish_bytes),
            Rate(limits.dispatch_messages, limits.dispatch_bytes),
        )
        messages_in, bytes_in, messages_out, bytes_out = self._rates()
        self.publish.limit(messages_in, bytes_in, 1.0, now)
        self.dispatch.limit(messages_out, bytes_out, 1.0, now)

    def divide(self, shares: Sequence[float], until: float, now: float) -> None:
        """Put shares of the limits in force, which are above 0 and at most 1."""
        self.shares, self.shares_until = tuple(shares), until
        self.apply(now)

    def expire(self, share_max: float, now: float) -> None:
        """Limit the shares once their time is over."""
        if now >= self.shares_until:
            self.divide([min(each, share_max) for each in self.shares], self.shares_until, now)

    def apply(self, now: float) -> None:
        messages_in, bytes_in, messages_out, bytes_out = self._rates()
        self.publish.rescale(messages_in, bytes_in, now)
        self.dispatch.rescale(messages_out, bytes_out, now)

    def _rates(self) -> list[float]:
        """Return what this broker may use of each limit in a second; 0 or less: no limit."""
        return [self.limit_of(kind) * share for kind, share in zip(KINDS, self.shares, strict=True)]

    def limit_of(self, kind: str) -> int:
        """Return a limit of the whole group; 0 or less: none."""
        limit: int = getattr(self.limits, kind)
        return limit

    @property
    def counts(self) -> tuple[int, ...]:
        """What was published and delivered here, in the order of ``KINDS``."""
        return (
            self.publish.messages_count,
            self.publish.bytes_count,
            self.dispatch.messages_count,
            self.dispatch.bytes_count,
        )

    def wishes(self, now: float) -> list[Wish]:
        """Return what the group used here since the last call, for each of ``KINDS``."""
        seconds, counts = now - self._noted_at, self.counts
        if seconds < _WINDOW_SECONDS:
            # Too short to tell anything: what was counted counts the next time.
            return [
                Wish(demand, bucket.wait_seconds(now) > 0, share)
                for demand, bucket, share in zip(
                    self._demands, self._buckets(), self.shares, strict=True
                )
            ]
        found = []
        for index, (kind, bucket) in enumerate(zip(KINDS, self._buckets(), strict=True)):
            limit, share = self.limit_of(kind), self.shares[index]
            used = (counts[index] - self._noted[index]) / (limit * seconds) if limit > 0 else 0.0
            demand = max(used, self._demands[index] * _KEPT_DEMAND)
            is_short = limit > 0 and (used >= share * _USED_UP or bucket.wait_seconds(now) > 0)
            self._demands[index] = demand
            found.append(Wish(demand, is_short, share))
        self._noted, self._noted_at = counts, now
        return found

    def _buckets(self) -> tuple[TokenBucket, ...]:
        return (
            self.publish.messages,
            self.publish.size_bytes,
            self.dispatch.messages,
            self.dispatch.size_bytes,
        )


def _nothing(_name: str) -> None:
    pass


def _whole() -> float:
    return _WHOLE


class Groups:
    """The resource groups that topics of this broker are in. Most brokers have none.

    A group is in use as long as the limits of a topic have its rates.
    """

    def __init__(self) -> None:
        self._in_use: WeakValueDictionary[str, GroupRates] = WeakValueDictionary()
        self.came: Callable[[str], None] = _nothing
        """Called with the name of a group when its first topic was loaded."""
        self.first_share: Callable[[], float] = _whole
        """Returns the share of a group that was not in use here."""

    def find(self, name: str) -> GroupRates:
        """Return the rates of a group, which is in use from now on."""
        found = self._in_use.get(name)
        if found is None:
            found = self._in_use[name] = GroupRates(name, self.first_share())
            self.came(name)
        return found

    def in_use(self) -> dict[str, GroupRates]:
        """Return the rates of the groups in use, by name."""
        return dict(sorted(self._in_use.items()))
