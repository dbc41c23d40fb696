"""Volumes that an operator drains: their ledgers leave the bookie, and nothing is lost."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.volume import Volume
from pulsarish.bookie.volume_drains import DrainState, how_to_close
from pulsarish.ledger.repair.repair import LedgerRepair
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CordonedVolumes
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.runtime.seams import Op
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record
from tests.simulation.test_autorecovery import Repaired, lacking, metadata, read_all, written
from tests.simulation.test_ledger_scripts import Client, entries, play

PLACES = ("/data/0", "/data/1")
SETTINGS: dict[str, Any] = {
    f"{kind}_directories": tuple(f"{place}/{kind}" for place in PLACES)
    for kind in ("journal", "ledger", "index")
}


async def ask(client: Client, bookie: Bookie, *volumes: Volume) -> None:
    """Have exactly these volumes of a bookie drained."""
    records = Records(client.world.metadata, client.world.clock, client.world.random)
    path, names = paths.cordoned_volumes(bookie.instance_id), [each.name for each in volumes]
    record = CordonedVolumes(
        "b", bookie.instance_id, dict.fromkeys(names, ""), draining=tuple(names)
    )
    await client.do(records.make_parents(path))
    _ = await client.do(records.update(path, CordonedVolumes, lambda _found: record))


async def state_of(client: Client, bookie: Bookie, volume: Volume) -> DrainState:
    state = await client.do(
        client.ledgers.control.volume(bookie.instance_id, volume.config.ledger_path)
    )
    return DrainState(
        state.draining,
        state.looked,
        state.closed_ledgers,
        state.open_ledgers,
        dict(state.waiting),
        state.failure,
    )


async def until_drained(client: Client, bookie: Bookie, volume: Volume) -> None:
    for _ in range(300):
        if (await state_of(client, bookie, volume)).is_drained:
            return
        await client.do(client.world.clock.sleep(0.2))
    raise AssertionError(f"not drained: {await state_of(client, bookie, volume)}")


async def those_in(cluster: Repaired, name: str, volume: Volume, ids: list[int]) -> list[int]:
    async def inside(_world: object) -> list[bool]:
        return await volume.store.knows(ids)

    known = await cluster.sim.nodes[name].run(inside)
    return [each for each, here in zip(ids, known, strict=True) if here]


def test_the_closed_ledgers_of_a_drained_volume_leave_the_bookie() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4, SETTINGS)
        client = await cluster.client()
        writers = [await written(client) for _ in range(8)]
        name = cluster.name_of(writers[0].metadata.last_segment.members[0])
        bookie = cluster.running[name]
        volume, other = bookie.volumes
        ids = [each.ledger_id for each in writers]
        there = await those_in(cluster, name, volume, ids)
        elsewhere = await those_in(cluster, name, other, ids)
        assert there
        assert elsewhere
        await ask(client, bookie, volume)
        # It restarts in between, and goes on.
        await client.do(client.world.clock.sleep(1.0))
        sim.nodes[name].crash()
        sim.nodes[name].revive()
        await client.do(client.world.clock.sleep(3.0))
        bookie = cluster.running[name]
        await until_drained(client, bookie, bookie.volumes[0])
        member = bookie.instance_id
        for each in ids:
            members = {m for s in (await metadata(client, each)).segments for m in s.members}
            assert (member in members) is (each in elsewhere), each
        # Those copies are not needed any more.
        sim.nodes[name].disk.kill("/data/0/")
        for each in ids:
            assert await read_all(client, each) == entries(30)

    play(scenario)


def test_an_open_ledger_holds_the_drain_up_and_is_named_until_it_is_closed() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4, SETTINGS)
        client = await cluster.client()
        writer, _ = await client.create()
        await client.append(writer, entries(10))
        name = cluster.name_of(writer.metadata.last_segment.members[0])
        bookie = cluster.running[name]
        first, second = bookie.volumes
        is_first = await those_in(cluster, name, first, [writer.ledger_id])
        volume = first if is_first else second
        await ask(client, bookie, volume)
        await client.do(client.world.clock.sleep(6.0))
        state = await state_of(client, bookie, volume)
        assert (state.closed_ledgers, state.open_ledgers) == (0, 1)
        assert "it is not closed yet" in state.waiting[writer.ledger_id]
        await client.append(writer, entries(10, 10))
        await client.do(writer.close())
        await until_drained(client, bookie, volume)
        assert await read_all(client, writer.ledger_id) == entries(20)

    play(scenario)


def test_a_damaged_record_is_named_and_all_other_ledgers_leave() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4, SETTINGS)
        client = await cluster.client()
        writers = [await written(client) for _ in range(8)]
        name = cluster.name_of(writers[0].metadata.last_segment.members[0])
        bookie = cluster.running[name]
        ids = [each.ledger_id for each in writers]
        found = [(each, await those_in(cluster, name, each, ids)) for each in bookie.volumes]
        volume, there = max(found, key=lambda each: len(each[1]))
        damaged, *rest = there
        assert rest
        records = Records(client.world.metadata, client.world.clock, client.world.random)
        path = paths.ledger(damaged)
        (node,) = await client.do(records.nodes([path]))
        assert node is not None
        await client.do(records.commit([Op("put", path, b"{", node.version)]))
        await ask(client, bookie, volume)
        for _ in range(300):
            state = await state_of(client, bookie, volume)
            if state.has_looked and not state.closed_ledgers:
                break
            await client.do(client.world.clock.sleep(0.2))
        assert (state.closed_ledgers, state.open_ledgers, state.failure) == (0, 1, "")
        assert not state.is_drained
        assert list(state.waiting) == [damaged]
        assert path in state.waiting[damaged]
        for each in rest:
            members = {m for s in (await metadata(client, each)).segments for m in s.members}
            assert bookie.instance_id not in members
        # The record is put back.
        (node,) = await client.do(records.nodes([path]))
        assert node is not None
        whole = encode_record(writers[ids.index(damaged)].metadata)
        await client.do(records.commit([Op("put", path, whole, node.version)]))

    play(scenario)


def test_what_was_not_asked_for_yet_stays_once_the_drain_is_taken_back() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4, SETTINGS)
        client = await cluster.client()
        writer = await written(client)
        name = cluster.name_of(writer.metadata.last_segment.members[0])
        bookie = cluster.running[name]
        await ask(client, bookie, *bookie.volumes[:1])
        await client.do(client.world.clock.sleep(1.0))
        await ask(client, bookie)
        await client.do(client.world.clock.sleep(10.0))
        late = [await written(client) for _ in range(4)]
        await client.do(client.world.clock.sleep(10.0))
        for each in late:
            assert (await metadata(client, each.ledger_id)).segments == each.metadata.segments
        assert not (await state_of(client, bookie, bookie.volumes[0])).is_draining

    play(scenario)


def test_the_command_that_closes_an_open_ledger_is_named() -> None:
    def words(kind: PurposeKind, owner: str) -> str:
        purpose = LedgerPurpose(kind, owner)
        return how_to_close(LedgerMetadata(1, 1, 1, 1, purpose, (Segment(0, ("b~1",)),)))

    topic = "persistent://public/default/greetings"
    for kind, owner in ((PurposeKind.TOPIC, topic), (PurposeKind.CURSOR, f"{topic}#me")):
        assert words(kind, owner).endswith(f"have that now: pulsarish topics unload {topic}")
    odd = "persistent://public/default/a #1"
    assert words(PurposeKind.TOPIC, odd).endswith(f"pulsarish topics unload '{odd}'")
    assert words(PurposeKind.SCHEMA, "s").endswith("another ledger (schema s)")


async def remove(client: Client, bookie: Bookie, volume: Volume) -> str:
    """Remove a volume. Return why it was not; empty: it was."""
    directory = volume.config.ledger_path
    state = await client.do(
        client.ledgers.control.volume(bookie.instance_id, directory, remove=True)
    )
    while state.removing:
        await client.do(client.world.clock.sleep(0.2))
        state = await client.do(client.ledgers.control.volume(bookie.instance_id, directory))
    assert state.removed is not bool(state.refusal)
    return str(state.refusal)


def test_a_drained_volume_is_removed_and_the_next_start_is_without_it() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4, SETTINGS)
        client = await cluster.client()
        writers = [await written(client) for _ in range(8)]
        name = cluster.name_of(writers[0].metadata.last_segment.members[0])
        bookie = cluster.running[name]
        first, second = bookie.volumes
        ids = [each.ledger_id for each in writers]
        elsewhere = await those_in(cluster, name, second, ids)
        there = await those_in(cluster, name, first, ids)
        assert there
        assert "pulsarish storage drain" in await remove(client, bookie, first)
        await ask(client, bookie, first)
        await until_drained(client, bookie, first)
        assert await remove(client, bookie, first) == ""
        for each in ids:
            members = {m for s in (await metadata(client, each)).segments for m in s.members}
            assert (bookie.instance_id in members) is (each in elsewhere), each
        # Again it is the same.
        assert await remove(client, bookie, first) == ""
        assert bookie.live == [second]
        assert bookie.lost_directories == []
        assert not any(bookie.volume_reasons)
        # What was fenced in it is fenced still.
        assert await those_in(cluster, name, second, ids) == sorted(there + elsewhere)
        assert "last volume" in await remove(client, bookie, second)
        sim.nodes[name].disk.kill("/data/0/")
        late = [await written(client) for _ in range(4)]
        for settings in (SETTINGS, {each: paths_[1:] for each, paths_ in SETTINGS.items()}):
            sim.nodes[name].crash()
            sim.nodes[name].disk.heal()
            cluster.settings = settings
            sim.nodes[name].revive()
            await client.do(client.world.clock.sleep(3.0))
            bookie = cluster.running[name]
            assert [each.config.ledger_path for each in bookie.live] == ["/data/1/ledger"]
            assert bookie.lost_directories == []
            assert bookie.entries.limbo_below == 0
            for each in [*ids, *(writer.ledger_id for writer in late)]:
                assert await read_all(client, each) == entries(30)

    play(scenario)


def test_a_disk_that_fails_during_the_proof_ends_its_volume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fails() -> None:
        raise OSError(errno.EIO, "the disk is gone")

    async def scenario(sim: Simulation) -> None:
        # No other checkpoint would notice it.
        cluster = Repaired(sim, 4, {**SETTINGS, "checkpoint_interval_seconds": 1000.0})
        client = await cluster.client()
        ids = [(await written(client)).ledger_id for _ in range(6)]
        name = cluster.name_of((await metadata(client, ids[0])).last_segment.members[0])
        bookie = cluster.running[name]
        first = bookie.volumes[0]
        assert await those_in(cluster, name, first, ids)
        await ask(client, bookie, first)
        await until_drained(client, bookie, first)
        monkeypatch.setattr(first.store, "checkpoint", fails)
        assert "failed" in await remove(client, bookie, first)
        assert first.failure is not None
        assert len(bookie.live) == 1
        for each in ids:
            assert await read_all(client, each) == entries(30)

    play(scenario)


def test_a_volume_with_an_open_a_deleted_or_a_trashed_ledger_is_not_removed() -> None:
    async def scenario(sim: Simulation) -> None:
        settings = {
            **SETTINGS,
            "gc_interval_seconds": 1000.0,
            "gc_second_look_seconds": 1.0,
            "trash_grace_seconds": 1000.0,
        }
        cluster = Repaired(sim, 4, settings)
        client = await cluster.client()
        writers = [await client.create() for _ in range(4)]
        for writer, _ in writers:
            await client.append(writer, entries(10))
        name = cluster.name_of(writers[0][0].metadata.last_segment.members[0])
        bookie = cluster.running[name]
        ids = [writer.ledger_id for writer, _ in writers]
        places = {
            each: volume
            for volume in bookie.volumes
            for each in await those_in(cluster, name, volume, ids)
        }
        ledger_id, volume = next(iter(places.items()))
        await ask(client, bookie, volume)
        await client.do(client.world.clock.sleep(1.0))
        assert "is not closed yet" in await remove(client, bookie, volume)
        for writer, _ in writers:
            await client.do(writer.close())
        await client.do(client.ledgers.delete(ledger_id))
        await until_drained(client, bookie, volume)
        assert f"ledger {ledger_id} is deleted and still there" in await remove(
            client, bookie, volume
        )
        upkeep = bookie.upkeep[bookie.volumes.index(volume)]
        for _ in range(2):
            await cluster.sim.nodes[name].run(lambda _world: upkeep.garbage.collect())
            await client.do(client.world.clock.sleep(20.0))
        assert f"ledger {ledger_id} is in its trash" in await remove(client, bookie, volume)
        emptied = await client.do(
            client.ledgers.control.change_trash(bookie.instance_id, [ledger_id], restore=False)
        )
        assert emptied == [ledger_id]
        assert await remove(client, bookie, volume) == ""
        # A writer of the deleted ledger is refused as before.
        assert await those_in(cluster, name, bookie.live[0], [ledger_id]) == [ledger_id]
        for each in ids:
            if each != ledger_id:
                assert await read_all(client, each) == entries(10)

    play(scenario)


def test_without_another_bookie_the_drain_waits_and_nothing_is_removed() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3, SETTINGS)
        client = await cluster.client()
        writers = [await written(client) for _ in range(4)]
        name = cluster.name_of(writers[0].metadata.last_segment.members[0])
        bookie = cluster.running[name]
        volume, other = bookie.volumes
        ids = [each.ledger_id for each in writers]
        there = await those_in(cluster, name, volume, ids)
        await ask(client, bookie, volume)
        await client.do(client.world.clock.sleep(8.0))
        state = await state_of(client, bookie, volume)
        assert state.closed_ledgers == len(there) > 0
        assert "no other writable bookie" in state.waiting[there[0]]
        assert f"ledger {there[0]} has copies there that count" in await remove(
            client, bookie, volume
        )
        # It takes copies again, as repair may need it.
        assert not volume.store.takes_no_copies
        assert bookie.live == [volume, other]
        sim.node("b3", cluster._main("b3"))
        await until_drained(client, bookie, volume)
        assert await remove(client, bookie, volume) == ""
        for each in ids:
            assert await read_all(client, each) == entries(30)

    play(scenario)


def test_a_repair_that_made_copies_before_the_removal_does_not_name_the_bookie_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4, SETTINGS)
        client = await cluster.client()
        writer = await written(client)
        ledger_id = writer.ledger_id
        before = writer.metadata.last_segment.members
        name = cluster.name_of(before[0])
        bookie = cluster.running[name]
        first, second = bookie.volumes
        is_first = await those_in(cluster, name, first, [ledger_id])
        volume = first if is_first else second
        await ask(client, bookie, volume)
        await until_drained(client, bookie, volume)
        await ask(client, bookie)
        while await lacking(client):
            await client.do(client.world.clock.sleep(0.2))
        # Another member is lost, and the copies come back into the volume.
        reached, go_on = asyncio.Event(), asyncio.Event()
        swing = LedgerRepair._swing

        async def held(*arguments: Any) -> bool:
            if not go_on.is_set():
                reached.set()
                await go_on.wait()
            return await swing(*arguments)

        monkeypatch.setattr(LedgerRepair, "_swing", held)
        now = (await metadata(client, ledger_id)).last_segment.members
        (successor,) = [each for each in now if each not in before]
        cluster.lose(successor)
        await reached.wait()
        await ask(client, bookie, volume)
        while not (await state_of(client, bookie, volume)).is_draining:
            await client.do(client.world.clock.sleep(0.1))
        assert "are being made" in await remove(client, bookie, volume)
        # A record that was deleted too early, or a repair that goes on after its end.
        records = Records(client.world.metadata, client.world.clock, client.world.random)
        await client.do(records.delete(paths.underreplicated(ledger_id)))
        assert await remove(client, bookie, volume) == ""
        go_on.set()
        await client.do(client.world.clock.sleep(1.0))
        for _ in range(100):
            members = {m for s in (await metadata(client, ledger_id)).segments for m in s.members}
            if bookie.instance_id in members:
                break
            await client.do(client.ledgers.publish_leaving(ledger_id, successor))
            await client.do(client.world.clock.sleep(0.5))
        assert bookie.instance_id in members
        for each in before[1:]:
            cluster.lose(each)
        assert await read_all(client, ledger_id) == entries(30)

    play(scenario)
