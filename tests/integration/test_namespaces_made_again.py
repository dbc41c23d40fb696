"""A namespace is deleted and created again: the owners of its bundles keep them or have released
them, and no bundle has two owners.
"""

from __future__ import annotations

from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import find

SPACE = "public/again"
TOPIC = f"persistent://{SPACE}/t"


def test_a_namespace_that_is_made_anew_has_one_owner_for_each_bundle() -> None:
    async def scenario(brokered: Brokered) -> None:
        await brokered.administer("PUT", f"namespaces/{SPACE}", {"bundles": {"numBundles": 1}})
        brokers = list(brokered.cluster.brokers)
        assert len({await find(brokered.world, [broker], TOPIC) for broker in brokers}) == 1
        await brokered.administer("DELETE", f"namespaces/{SPACE}")
        await brokered.administer("PUT", f"namespaces/{SPACE}", {"bundles": {"numBundles": 1}})
        assert (
            len({await find(brokered.world, [broker], TOPIC) for broker in reversed(brokers)}) == 1
        )
        client = brokered.client()
        producer = await client.create_producer(TOPIC)
        await producer.send(b"x")

    play_with_brokers(scenario, brokers=2, seeds=4)
