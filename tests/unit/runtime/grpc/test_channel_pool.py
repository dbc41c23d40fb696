"""Which connections are kept, shared and closed."""

from __future__ import annotations

from pulsarish.runtime.grpc.channel_pool import ChannelPool, PooledChannel


class Pool(ChannelPool[PooledChannel]):
    def __init__(self, idle_max: int) -> None:
        self.closed: list[PooledChannel] = []
        self.broken: list[PooledChannel] = []
        super().__init__(
            idle_max=idle_max,
            make=lambda _address: PooledChannel(),
            is_usable=lambda entry: entry not in self.broken,
            close=self.closed.append,
        )


def test_one_channel_for_each_address_and_lane() -> None:
    pool = Pool(10)
    first = pool.enter(("a:1", ""))
    assert pool.enter(("a:1", "")) is first
    assert first.users_count == 2
    assert len({id(pool.enter(key)) for key in [("a:1", ""), ("a:1", "call"), ("b:1", "")]}) == 3


def test_the_longest_idle_is_closed_beyond_the_limit() -> None:
    pool = Pool(1)
    keys = [("a:1", ""), ("b:1", ""), ("c:1", "")]
    entries = [pool.enter(key) for key in keys]
    pool.enter(keys[0])
    for key, entry in zip(keys, entries, strict=True):
        pool.leave(key, entry, False)
    # The first has a user left; of the idle ones the second was used before the third.
    assert pool.closed == [entries[1]]
    assert pool.enter(keys[1]) is not entries[1]


def test_a_stale_channel_is_closed_when_its_last_user_leaves() -> None:
    pool, key = Pool(10), ("a:1", "")
    entry = pool.enter(key)
    pool.enter(key)
    pool.leave(key, entry, True)
    assert pool.closed == []
    assert pool.enter(key) is not entry
    pool.leave(key, entry, False)
    assert pool.closed == [entry]


def test_a_channel_that_cannot_be_used_is_replaced() -> None:
    pool, key = Pool(10), ("a:1", "")
    idle = pool.enter(key)
    pool.leave(key, idle, False)
    pool.broken.append(idle)
    used = pool.enter(key)
    assert used is not idle
    assert pool.closed == [idle]
    pool.broken.append(used)
    assert pool.enter(key) is not used
    assert pool.closed == [idle]
    pool.leave(key, used, False)
    assert pool.closed == [idle, used]


def test_all_are_taken_at_the_end() -> None:
    pool = Pool(10)
    entries = [pool.enter(("a:1", "")), pool.enter(("b:1", ""))]
    assert pool.take_all() == entries
    pool.leave(("a:1", ""), entries[0], False)
    assert pool.closed == [entries[0]]
