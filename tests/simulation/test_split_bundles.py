"""Bundles are split while clients use their topics, and while brokers have old lists of them."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import msgspec
import pytest

from pulsarish.broker.ownership.bundles import Bundle, bundle_of, bundles_of, topic_hash
from pulsarish.broker.ownership.splits import BY_TOPICS
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import InitialPosition
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BundleOwner, NamespacePolicies
from pulsarish.model.errors import MetadataUnavailable, NotAllowedError, NotOwner, ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import find

SPACE = "namespaces/public/default"
TOPICS = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(8)]


def owned(brokered: Brokered) -> dict[str, list[str]]:
    return {
        name: [each.range for each in broker._ownership.owned.bundles()]
        for name, broker in brokered.cluster.brokers.items()
    }


async def ranges(brokered: Brokered) -> list[str]:
    edges = (await brokered.administer("GET", f"{SPACE}/bundles"))["boundaries"]
    return [f"{low}_{high}" for low, high in pairwise(edges)]


async def split(brokered: Brokered, owner: str, bundle: Bundle, algorithm: str = "") -> None:
    async def inside(_: World) -> None:
        _ = await brokered.cluster.brokers[owner]._topics.split_bundle(bundle, algorithm)

    await brokered.node(owner).run(inside)


async def whole(brokered: Brokered) -> tuple[Bundle, str, str]:
    """Return the only bundle of the namespace, its owner and the other broker."""
    owner = (await find(brokered.world, ["broker0", "broker1"], TOPICS[0].full)).partition(":")[0]
    (bundle,) = brokered.cluster.brokers[owner]._ownership.owned.bundles()
    return bundle, owner, "broker1" if owner == "broker0" else "broker0"


def test_topics_of_a_bundle_that_is_split_lose_nothing() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producers = [await client.create_producer(name.full) for name in TOPICS]
        consumers = [
            await client.subscribe(name.full, "s", initial_position=InitialPosition.Earliest)
            for name in TOPICS
        ]
        bundle, owner, other = await whole(brokered)
        path = f"{SPACE}/{bundle.range}/topicHashPositions"
        shown = await brokered.administer("GET", path)
        assert shown["topicHashPositions"] == {name.full: topic_hash(name) for name in TOPICS}
        asked = {"topics": f"{TOPICS[0]},persistent://public/default/elsewhere"}
        shown = await brokered.administer("GET", path, query=asked)
        assert list(shown["topicHashPositions"]) == [TOPICS[0].full]
        topics = [brokered.topic(name.full) for name in TOPICS]
        pauses: list[float] = []

        async def publish() -> None:
            for number in range(100):
                began = brokered.world.clock.monotonic()
                await asyncio.gather(*(each.send(b"%d" % number) for each in producers))
                pauses.append(brokered.world.clock.monotonic() - began)

        publishing = asyncio.create_task(publish())
        await asyncio.sleep(0.1)
        await split(brokered, owner, bundle, BY_TOPICS)
        await publishing
        assert max(pauses) <= 0.5
        assert [brokered.topic(name.full) for name in TOPICS] == topics, "they stay open"
        parts = await ranges(brokered)
        assert len(parts) == 2
        assert owned(brokered) == {owner: parts, other: []}
        for name, consumer in zip(TOPICS, consumers, strict=True):
            seen = [int((await consumer.receive(5_000)).data()) for _ in range(100)]
            assert seen == list(range(100)), name
        # The halves move on their own.
        target = f"{SPACE}/{parts[1]}/unload"
        await brokered.administer("PUT", target, query={"destinationBroker": other})
        assert owned(brokered) == {owner: parts[:1], other: parts[1:]}
        await brokered.administer("PUT", f"{SPACE}/{parts[0]}/split")
        assert len(await ranges(brokered)) == 3

    play_with_brokers(scenario, brokers=2, default_number_of_namespace_bundles=1)


def test_a_broker_with_an_old_list_of_bundles_serves_no_topic_of_a_split_bundle() -> None:
    async def scenario(brokered: Brokered) -> None:
        for name in TOPICS:
            _ = await find(brokered.world, ["broker0", "broker1"], name.full)
        bundle, owner, other = await whole(brokered)
        stale = brokered.cluster.brokers[other]
        path, cached = (
            paths.namespace("public", "default"),
            stale._namespaces._cached.namespaces,
        )
        _ = await stale._namespaces.policies("public", "default")
        old = cached[path]
        await split(brokered, owner, bundle)
        for name in TOPICS:
            cached[path] = old  # no watch has come
            assert bundle_of(name, old[0]) == bundle
            assert stale.calls._lookup.at_once(name) is None
            cached[path] = old
            assert await find(brokered.world, [other], name.full) == f"{owner}:6660"
            cached[path] = old
            with pytest.raises(NotOwner):
                _ = await stale._topics.get(name, create=True)
        assert bundle not in stale._ownership.owned
        # Its owner dies. The other one takes the parts, not what was split.
        brokered.node(owner).crash()
        await asyncio.sleep(2.0)  # nothing that it answered before counts any more
        for name in TOPICS:
            cached[path] = old
            assert await find(brokered.world, [other], name.full) == f"{other}:6660"
        assert set(owned(brokered)[other]) == set(await ranges_at(brokered, other))

    async def ranges_at(brokered: Brokered, other: str) -> list[str]:
        space = await brokered.cluster.brokers[other]._namespaces.policies("public", "default")
        return [each.range for each in bundles_of("public", "default", space)]

    play_with_brokers(scenario, brokers=2, default_number_of_namespace_bundles=1)


@pytest.mark.parametrize("was_written", [True, False])
def test_a_split_whose_outcome_is_not_known_leaves_each_topic_one_owner(
    was_written: bool,
) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producers = [await client.create_producer(name.full) for name in TOPICS]
        bundle, owner, other = await whole(brokered)
        namespaces = brokered.cluster.brokers[owner]._namespaces
        divide = namespaces.divide

        async def unknown(*args: object) -> None:
            if was_written:
                await divide(*args)  # type: ignore[arg-type]
            raise MetadataUnavailable("no answer")

        namespaces.divide = unknown  # type: ignore[method-assign]
        with pytest.raises(MetadataUnavailable):
            await split(brokered, owner, bundle)
        await asyncio.gather(*(each.send(b"m") for each in producers))
        assert owned(brokered) == {owner: await ranges(brokered), other: []}
        assert len(owned(brokered)[owner]) == 1 + was_written

    play_with_brokers(scenario, brokers=2, default_number_of_namespace_bundles=1)


@pytest.mark.parametrize("was_written", [True, False])
def test_a_split_whose_outcome_cannot_be_read_leaves_each_topic_one_owner(
    was_written: bool,
) -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producers = [await client.create_producer(name.full) for name in TOPICS]
        bundle, owner, _ = await whole(brokered)
        namespaces = brokered.cluster.brokers[owner]._namespaces
        divide = namespaces.divide

        async def unknown(*args: object) -> None:
            if was_written:
                await divide(*args)  # type: ignore[arg-type]
            brokered.sim.metadata.stop()
            raise MetadataUnavailable("no answer")

        namespaces.divide = unknown  # type: ignore[method-assign]
        with pytest.raises(MetadataUnavailable):
            await split(brokered, owner, bundle)
        await asyncio.gather(*(each.send(b"m") for each in producers))
        brokered.sim.metadata.start()
        await brokered.world.clock.sleep(20.0)
        for _ in range(40):  # their ledgers are full now and then
            await asyncio.gather(*(each.send(b"m") for each in producers))
            await brokered.world.clock.sleep(0.5)
        for name in TOPICS:
            _ = await find(brokered.world, [owner], name.full)
        assert set(owned(brokered)[owner]) >= set(await ranges(brokered))
        assert len(await ranges(brokered)) == 1 + was_written

    play_with_brokers(
        scenario,
        brokers=2,
        default_number_of_namespace_bundles=1,
        managed_ledger=ManagedLedgerOptions(max_entries_per_ledger=10),
    )


def test_ledgers_that_fill_during_a_split_fence_no_topic() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        producers = [await client.create_producer(name.full) for name in TOPICS]
        _, owner, _ = await whole(brokered)
        topics = [brokered.topic(name.full) for name in TOPICS]

        async def publish(producer: AsyncProducer) -> None:
            for _ in range(200):
                _ = await producer.send(b"m")

        publishing = asyncio.gather(*map(publish, producers))
        for _ in range(6):
            await asyncio.sleep(0.05)
            for each in brokered.cluster.brokers[owner]._ownership.owned.bundles():
                await split(brokered, owner, each)
        await publishing
        assert [brokered.topic(name.full) for name in TOPICS] == topics

    play_with_brokers(
        scenario,
        seeds=3,
        brokers=2,
        default_number_of_namespace_bundles=1,
        managed_ledger=ManagedLedgerOptions(max_entries_per_ledger=2),
    )


def test_an_unload_during_a_split_says_that_the_bundle_was_split() -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, _ = await whole(brokered)
        broker = brokered.cluster.brokers[owner]
        namespaces, unloading = broker._namespaces, []
        divide = namespaces.divide

        async def divide_meanwhile(*args: object) -> None:
            unloading.append(asyncio.create_task(broker._topics.unload_bundle(bundle)))
            await asyncio.sleep(0)
            await divide(*args)  # type: ignore[arg-type]

        namespaces.divide = divide_meanwhile  # type: ignore[method-assign]
        await split(brokered, owner, bundle)
        with pytest.raises(ServiceNotReady, match="unload its parts"):
            await unloading[0]

    play_with_brokers(scenario, brokers=2, default_number_of_namespace_bundles=1)


def test_a_namespace_that_is_created_again_has_nothing_of_the_former_splits() -> None:
    async def scenario(brokered: Brokered) -> None:
        space = "namespaces/public/again"
        await brokered.administer("PUT", space, {"bundles": {"numBundles": 1}})
        topic = "persistent://public/again/t"
        owner = (await find(brokered.world, ["broker0"], topic)).partition(":")[0]
        broker = brokered.cluster.brokers[owner]
        (bundle,) = [
            each for each in broker._ownership.owned.bundles() if each.namespace == "again"
        ]
        await split(brokered, owner, bundle)
        record = await broker._records.get(bundle.path, BundleOwner)
        assert record is not None
        assert record[0].is_split
        # What a split leaves that comes while the namespace is being deleted.
        await brokered.administer("DELETE", space)
        await broker._records.ensure("/owners/public/again")
        left = BundleOwner("", "", is_split=True)
        _ = await broker._records.compare_and_set(bundle.path, left, None)
        await brokered.administer("PUT", space, {"bundles": {"numBundles": 1}})
        _ = await (await brokered.client().create_producer(topic)).send(b"m")
        space_now = await broker._namespaces.policies("public", "again")
        assert space_now.boundaries == ()

    play_with_brokers(scenario, default_number_of_namespace_bundles=1)


def test_a_part_that_a_broker_kept_from_a_former_namespace_is_used_or_nothing_is_closed() -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, other = await whole(brokered)
        first, last = bundle.part(0, 0x7FFFFFFF), bundle.part(0x7FFFFFFF, 0xFFFFFFFF)
        broker = brokered.cluster.brokers[owner]

        async def acquire(name: str, part: Bundle) -> None:
            ownership = brokered.cluster.brokers[name]._ownership
            _ = await brokered.node(name).run(lambda _: ownership.acquire(part, None))

        await acquire(owner, first)
        await acquire(other, last)
        _ = await brokered.client().create_producer(TOPICS[0].full)
        topic = brokered.topic(TOPICS[0].full)
        with pytest.raises(ServiceNotReady, match=f"{other} still has {last}"):
            await split(brokered, owner, bundle)
        assert brokered.topic(TOPICS[0].full) is topic
        assert topic.closed is None
        brokered.node(other).crash()
        await asyncio.sleep(30.0)
        await split(brokered, owner, bundle)
        assert broker._ownership.owned.bundles() == [first, last]
        for name in TOPICS:
            _ = await (await brokered.client().create_producer(name.full)).send(b"m")

    play_with_brokers(scenario, brokers=2, default_number_of_namespace_bundles=1)


def test_a_stop_during_a_split_hands_the_parts_over() -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, other = await whole(brokered)
        broker = brokered.cluster.brokers[owner]
        namespaces, stopping = broker._namespaces, []
        divide = namespaces.divide

        async def divide_meanwhile(*args: object) -> None:
            stopping.append(asyncio.create_task(broker._topics.hand_over_all()))
            await asyncio.sleep(0)
            await divide(*args)  # type: ignore[arg-type]

        namespaces.divide = divide_meanwhile  # type: ignore[method-assign]
        await split(brokered, owner, bundle)
        await stopping[0]
        assert owned(brokered) == {owner: [], other: []}
        records = Records(brokered.world.metadata, brokered.world.clock, brokered.world.random)
        space = await brokered.cluster.brokers[other]._namespaces.policies("public", "default")
        for part in bundles_of("public", "default", space):
            record = await records.get(part.path, BundleOwner)
            assert record is not None
            assert record[0] == BundleOwner("", "", token=record[0].token)

    play_with_brokers(scenario, brokers=2, default_number_of_namespace_bundles=1)


def test_bundles_with_many_topics_are_split_by_themselves() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        for name in TOPICS:
            _ = await client.create_producer(name.full)
        await asyncio.sleep(60.0)
        parts = await ranges(brokered)
        space = NamespacePolicies(
            boundaries=(0, *(int(part.partition("_")[2], 16) for part in parts))
        )
        found = [bundle_of(name, space).range for name in TOPICS]
        assert max(found.count(part) for part in parts) <= 3
        assert brokered.cluster.brokers["broker0"]._splitter.splits_count == len(parts) - 1

    play_with_brokers(
        scenario,
        default_number_of_namespace_bundles=1,
        load_balancer_interval_seconds=1.0,
        load_balancer_namespace_bundle_max_topics=3,
        default_namespace_bundle_split_algorithm=BY_TOPICS,
    )


def test_no_bundle_is_split_beside_a_broker_that_knows_no_splits() -> None:
    async def scenario(brokered: Brokered) -> None:
        bundle, owner, other = await whole(brokered)
        registry = brokered.cluster.brokers[owner]._ownership.registry
        (old,) = [each for each in registry.alive.values() if each.broker_id == other]
        alive = dict(registry.alive)
        alive[old.instance_id] = msgspec.structs.replace(old, knows_splits=False)
        registry.alive = alive
        with pytest.raises(NotAllowedError, match="upgrade it first"):
            await split(brokered, owner, bundle)
        assert await ranges(brokered) == [bundle.range]

    play_with_brokers(scenario, brokers=2, default_number_of_namespace_bundles=1)
