"""How the brokers of a cluster share the limits of a resource group: the core, without I/O or a
clock.

The leader divides. A broker with topics of a group asks for its share every ``ASK_SECONDS``, says
what it uses of each limit, and gets a part of 1 for ``SHARE_SECONDS``. The rule:

* A tenth of a limit is divided equally among the brokers that use the group, so that none is
  without a share. The rest is divided in proportion to what they use. A broker that uses its share
  up counts for an equal part at least, so those that want more than they get come to equal shares.
* A broker gets no more than the others leave. What it wants beyond that it gets when the others
  have got less, and have said so with their next question: an answer may be lost.
* A broker that the others leave less than the least share gets this one: a tenth of the limit,
  divided by the number of brokers of the cluster.
* A broker whose share was not divided again in time has at most an equal part of the limit: 1,
  divided by the number of brokers. The others leave it that while it is registered.

So the shares together are at most 1.1, and more than 1 only until the other brokers have asked
again. Each broker that does not reach the leader may add an equal part to that.

A new leader does not know which shares the former one gave. It raises none until all of these are
over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pulsarish.broker.policies.group_rates import KINDS, Wish

__all__ = ["ASK_SECONDS", "SHARE_SECONDS", "GroupDivision", "equal_share", "least_share"]

ASK_SECONDS: Final = 1.0
"""How often a broker asks for its shares."""
SHARE_SECONDS: Final = 5.0
"""How long a share is valid."""
_EQUAL_PART: Final = 0.1
"""What is divided equally of a limit."""


def equal_share(brokers_count: int) -> float:
    """Return the greatest share of a broker that does not reach the leader."""
    return 1.0 / max(brokers_count, 1)


def least_share(brokers_count: int) -> float:
    """Return the share of a broker that has just begun to use a group."""
    return 1.0 if brokers_count <= 1 else _EQUAL_PART / brokers_count


@dataclass(slots=True)
class _User:
    """A broker that uses a limit.

    ``share``: the greatest that it may have: what it was given, or had before, since the answer may
    be lost. ``until``: when that is over.
    """

    demand: float
    share: float
    until: float

    def in_force(self, brokers_count: int, now: float) -> float:
        return self.share if now < self.until else min(self.share, equal_share(brokers_count))


class GroupDivision:
    """The shares that a leader has given, by group, limit and broker instance.

    ``began``: when the broker became the leader (monotonic seconds).
    """

    def __init__(self, began: float) -> None:
        self.began = began
        self._users: dict[tuple[str, int], dict[str, _User]] = {}

    def ask(
        self,
        broker: str,
        wishes: Mapping[str, Sequence[Wish]],
        brokers: Collection[str],
        now: float,
    ) -> dict[str, tuple[float, ...]]:
        """Return the shares of one broker for the next ``SHARE_SECONDS``, by group.

        ``wishes``: of all groups that it uses, one for each of ``KINDS``. ``brokers``: the
        instances that are registered.
        """
        for group, kind in list(self._users):
            users = self._users[group, kind]
            for each in [each for each in users if each not in brokers]:
                del users[each]
            if group not in wishes:
                users.pop(broker, None)
            if not users:
                del self._users[group, kind]
        return {
            group: tuple(
                self._share(
                    self._users.setdefault((group, kind), {}), broker, wish, len(brokers), now
                )
                for kind, wish in enumerate(each)
            )
            for group, each in wishes.items()
        }

    def _share(
        self, users: dict[str, _User], broker: str, wish: Wish, brokers_count: int, now: float
    ) -> float:
        me = users.setdefault(broker, _User(0.0, 0.0, now))
        count = len(users)
        me.demand = max(wish.demand, 1.0 / count if wish.is_short else 0.0)
        me.until = now + SHARE_SECONDS
        total = sum(each.demand for each in users.values() if now < each.until)
        part = me.demand / total if total > 0 else 1.0 / count
        wanted = _EQUAL_PART / count + (1.0 - _EQUAL_PART) * part
        if now < self.began + SHARE_SECONDS:
            wanted = min(wanted, wish.share)
        left = 1.0 - sum(
            each.in_force(brokers_count, now) for name, each in users.items() if name != broker
        )
        share = max(min(wanted, left), least_share(max(brokers_count, count)))
        me.share = max(share, wish.share)
        return share

    def check(self, brokers_count: int, now: float) -> None:
        """Assert that no limit is divided into more than the bound."""
        for (group, kind), users in self._users.items():
            shares = sum(each.in_force(brokers_count, now) for each in users.values())
            assert kind < len(KINDS)
            assert shares <= 1.0 + _EQUAL_PART + 1e-9 or len(users) > brokers_count, (group, kind)
