"""A peer that adds entries to an open ledger of a topic: the broker never acknowledges a message
whose entry holds other bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pulsarish.managed_ledger.chain_core import ChainCore
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.workloads.safeguard import replacing
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.record import encode_record_head
from tests.support.bookies import BookieClient
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, entry, find

TOPIC = "persistent://public/default/t"


async def forge(
    cluster: BrokerCluster, world: World, bookies: int, ledger_id: int, entry_id: int
) -> None:
    """Store an entry at an id that its writer has not used yet, on the first ``bookies``."""
    payload = entry("p", 1_000 + entry_id, b"forged")
    record = encode_record_head(ledger_id, entry_id, entry_id - 1, 1_000_000, payload) + payload
    for name in sorted(cluster.bookies)[:bookies]:
        codes = await BookieClient(
            world, f"{name}:3181", cluster.bookies[name].store.instance_id
        ).add([record])
        assert codes == {(ledger_id, entry_id): 0}


def check_receipts(bookies: int, forged: tuple[int, ...]) -> None:
    """Publish while a peer forges entries; check that every receipt names a place with the
    message's own bytes.
    """
    sim = Simulation(1)
    # reads come from bookies
    cluster = BrokerCluster(sim, brokers=1, managed_ledger_cache_size_bytes=0)
    messages = [entry("p", number, b"genuine-%d" % number) for number in range(6)]

    async def scenario(world: World) -> None:
        address = await find(world, ["broker0"], TOPIC)
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "audit")
        publish = await PublishClient.connect(world, address)
        await publish.open(1, TOPIC)
        await publish.send([(1, messages[0])])
        ((ledger_id, _),) = await publish.wait(1, 1)  # type: ignore[misc]
        for entry_id in forged:
            await forge(cluster, world, bookies, ledger_id, entry_id)
        await publish.send([(1, message) for message in messages[1:]])
        receipts = await publish.wait(1, len(messages))
        while len({each.sequence_id for each in consume.got} & set(range(6))) < 6:
            await consume.receive()
        read = {(each.ledger, each.entry): bytes(each.payload) for each in consume.got}
        assert [read[receipt] for receipt in receipts] == messages  # type: ignore[index]
        assert receipts == sorted(receipts), "the order of the producer"  # type: ignore[type-var]

    async def main() -> None:
        await cluster.start()
        await sim.node("client").run(scenario)

    sim.run(main, 600.0)


@pytest.mark.parametrize("forged", [(1,), (1, 2, 3), (3,)])
@pytest.mark.parametrize("bookies", [2, 3])
def test_a_message_is_acknowledged_where_its_own_bytes_are(
    bookies: int, forged: tuple[int, ...]
) -> None:
    check_receipts(bookies, forged)


def _believing(was: Any) -> object:
    def recovered(
        core: ChainCore, last_entry: int, payloads: Sequence[bytes | memoryview]
    ) -> object:
        return was(core, last_entry, core._payloads[: len(payloads)])

    return recovered


def test_it_is_noticed_when_the_bytes_are_not_compared() -> None:
    """The mutant: an entry id alone is taken for proof.

    A message that was acknowledged is then never received.
    """
    with (
        replacing(ChainCore, "recovered", _believing)(),
        pytest.raises(StreamBroken, match="nothing was received"),
    ):
        check_receipts(3, (1,))
