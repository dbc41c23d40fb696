"""Recoveries that share crowded streams with others, and those whose bookies fail while they write
back: each one ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pulsarish.ledger.bookie_control import FenceAnswer
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.ledger.recovery import Recovery, _StartOver
from pulsarish.metadata import paths
from pulsarish.model.errors import MetadataUnavailable, NotEnoughBookies, PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import bookie_pb2 as pb
from tests.simulation.test_ledger_scripts import OPTIONS, Client, Cluster, play

ENTRY = b"." * 1_000
COUNT = 150
SMALL_QUEUES = {"bookie_queue_bytes": 12_000, "message_bytes_target": 1_200}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def left_ledger(client: Client) -> int:
    """A ledger whose entries all carry the LAC of its start, so that a recovery has to write all of
    them back.
    """
    writer, _ = await client.create()
    await client.append(writer, [ENTRY] * COUNT)
    assert writer.last_add_confirmed == COUNT - 1
    writer.abandon()
    return writer.ledger_id


def test_recoveries_that_share_small_queues_leave_each_other_room() -> None:
    """However much one recovery has found, it sends at once what leaves room for others: a bookie
    whose queue is full counts as failed.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        writer = await cluster.client("writer", window_entries=1_000)
        ledgers = [await left_ledger(writer) for _ in range(6)]
        client = await cluster.client(**SMALL_QUEUES)
        readers = await asyncio.gather(
            *(client.do(client.ledgers.open(ledger_id)) for ledger_id in ledgers)
        )
        assert [reader.last_add_confirmed for reader in readers] == [COUNT - 1] * len(ledgers)

    play(scenario)


@pytest.mark.parametrize("fault", ["crash", "pause"])
@pytest.mark.parametrize("step", range(6))
def test_recoveries_end_when_bookies_fail_while_their_queues_are_full(
    fault: str, step: int
) -> None:
    """One recovery waits for room that another one's entries take: it must notice when the queue is
    gone together with its bookie.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        writer = await cluster.client("writer", window_entries=1_000)
        ledgers = [await left_ledger(writer) for _ in range(3)]
        client = await cluster.client(**SMALL_QUEUES)
        loop = asyncio.get_running_loop()
        running = [
            loop.create_task(client.do(client.ledgers.open(ledger_id))) for ledger_id in ledgers
        ]
        await asyncio.sleep(0.02 + step * 0.04)
        for bookie in cluster.bookies[:2]:
            getattr(bookie, fault)()
        _, pending = await asyncio.wait(running, timeout=30.0)
        assert not pending, "a recovery never ends"
        for task in running:
            assert task.exception() is None or isinstance(task.exception(), PulsarishError)
        for bookie in cluster.bookies[:2]:
            bookie.start() if fault == "crash" else bookie.resume()
        await asyncio.sleep(5.0)
        for ledger_id in ledgers:
            reader = await client.do(client.ledgers.open(ledger_id))
            assert reader.last_add_confirmed == COUNT - 1, (
                "the same process can open it once the bookies are back"
            )

    play(scenario)


@pytest.mark.parametrize("quorums", [(3, 3, 2), (4, 3, 2)])
def test_a_member_that_a_dying_writer_alone_knew_to_be_behind_is_published(
    quorums: tuple[int, int, int],
) -> None:
    """The first and the last entry of its part are there: the last was written back.

    What is missing lies between them.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, quorums[0])
        client = await cluster.client()
        writer, _ = await client.create(*quorums)
        await client.append(writer, [b"before"] * 5)
        late = writer.metadata.last_segment.members[0]
        sim.network.cut("client", late.partition("~")[0])

        async def write_on() -> None:
            for _ in range(20):
                writer.append(b"meanwhile")
                await client.world.clock.sleep(0.01)
            await client.world.clock.sleep(0.1)

        await client.do(write_on())
        assert writer.last_add_confirmed == 24
        assert await client.lacking(writer.ledger_id) is None, (
            "it has not answered yet, which is no failure"
        )
        client.node.crash()
        sim.network.heal("client", late.partition("~")[0])
        rival = await cluster.client("rival")
        reader = await rival.do(rival.ledgers.open(writer.ledger_id))
        assert reader.last_add_confirmed == 24
        gaps = await rival.do(
            rival.ledgers.find_missing_copies(reader.metadata, reader.metadata.last_segment.members)
        )
        assert gaps.missing == [late], "the next look of the auditor would find it, too"
        await asyncio.sleep(1.0)
        lacking = await rival.lacking(writer.ledger_id)
        assert lacking is not None
        assert lacking.missing_members == (late,)

    play(scenario)


@pytest.mark.parametrize("is_away", [True, False])
def test_a_member_that_does_not_answer_the_recovery_is_published_once(is_away: bool) -> None:
    """Only this member could say that it misses entries which the dead writer still owed it."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writers = [(await client.create(3, 3, 2))[0] for _ in range(2)]
        for writer in writers:
            await client.append(writer, [b"entry"] * 5)
        await asyncio.sleep(2.0)  # the LAC was told
        late = writers[0].metadata.last_segment.members[0]
        client.node.crash()
        rival = await cluster.client("rival")
        if is_away:
            sim.nodes[late.partition("~")[0]].crash()
        else:
            sim.network.cut("rival", late.partition("~")[0])
        for _ in range(2):
            for writer in writers:
                reader = await rival.do(rival.ledgers.open(writer.ledger_id))
                assert reader.last_add_confirmed == 4
        await asyncio.sleep(5.0)
        for writer in writers:
            lacking = await rival.lacking(writer.ledger_id)
            assert lacking is not None
            assert lacking.missing_members == (late,)
            node = sim.metadata.tree.get(paths.underreplicated(writer.ledger_id))
            assert node is not None
            assert node.version == 0

    play(scenario)


def test_what_a_recovery_finds_is_published_once_the_metadata_are_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = list(range(5))
    publish = LedgerStore.publish_found

    async def fail_first(store: LedgerStore, *arguments: Any, **named: Any) -> bool:
        if failures:
            failures.pop()
            raise MetadataUnavailable("a test says so")
        return await publish(store, *arguments, **named)

    monkeypatch.setattr(LedgerStore, "publish_found", fail_first)

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, _ = await client.create(3, 3, 2)
        await client.append(writer, [b"entry"] * 5)
        await asyncio.sleep(2.0)
        late = writer.metadata.last_segment.members[0]
        client.node.crash()
        rival = await cluster.client("rival")
        sim.network.cut("rival", late.partition("~")[0])
        await rival.do(rival.ledgers.open(writer.ledger_id))
        await asyncio.sleep(60.0)
        assert not failures
        lacking = await rival.lacking(writer.ledger_id)
        assert lacking is not None
        assert lacking.missing_members == (late,)
        # A client that is closed does not go on trying.
        failures.extend(range(1_000))
        idle, _ = await rival.create(3, 3, 2)
        await rival.append(idle, [b"entry"])
        await asyncio.sleep(2.0)
        idle.abandon()
        await rival.do(rival.ledgers.open(idle.ledger_id))
        await asyncio.sleep(5.0)
        assert len(failures) < 1_000
        await rival.do(rival.ledgers.close())
        await asyncio.sleep(10.0)
        left = len(failures)
        await asyncio.sleep(60.0)
        assert len(failures) == left

    play(scenario)


def calls_of(client: Client) -> list[tuple[str, str]]:
    """Return the list to which every later call of a client adds its method and its address."""
    made: list[tuple[str, str]] = []
    connections = client.world.connections
    call = connections.call

    async def counted(
        address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        made.append((method, address))
        return await call(address, method, request, timeout_seconds=timeout_seconds)

    connections.call = counted  # type: ignore[method-assign]
    return made


async def idle_ledgers(client: Client, count: int) -> list[int]:
    """Ledgers with one entry, whose writers have told the bookies the LAC."""
    writers = [(await client.create())[0] for _ in range(count)]
    for writer in writers:
        await client.append(writer, [ENTRY])
    await asyncio.sleep(1.0)
    for writer in writers:
        writer.abandon()
    return [writer.ledger_id for writer in writers]


def test_an_idle_ledger_is_recovered_with_one_call_to_each_bookie() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        (ledger_id,) = await idle_ledgers(await cluster.client("writer"), 1)
        client = await cluster.client()
        made = calls_of(client)
        reader = await client.do(client.ledgers.open(ledger_id))
        await asyncio.sleep(1.0)
        assert (reader.last_add_confirmed, reader.length_bytes) == (0, len(ENTRY))
        assert len({address for _, address in made}) == 3
        assert [method for method, _ in made] == ["bookie.fence"] * 3
        assert not client.ledgers._pool._reads, "the entry was read again"

    play(scenario)


def test_recoveries_share_their_calls() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        ledgers = await idle_ledgers(await cluster.client("writer"), 30)
        client = await cluster.client()
        made = calls_of(client)
        readers = await asyncio.gather(
            *(client.do(client.ledgers.open(ledger_id)) for ledger_id in ledgers)
        )
        assert [reader.last_add_confirmed for reader in readers] == [0] * len(ledgers)
        assert {method for method, _ in made} == {"bookie.fence"}
        assert len(made) <= 3 * len(ledgers) // 2

    play(scenario)


def test_a_member_without_the_last_entry_is_published_as_before() -> None:
    """What its answer to the fence does not show is asked of it."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        owner = await cluster.client("writer")
        writer, _ = await owner.create()
        await owner.append(writer, [ENTRY])
        left = writer.metadata.last_segment.members[2]
        sim.network.clog("writer", left.partition("~")[0])
        await owner.append(writer, [ENTRY])
        await asyncio.sleep(0.5)
        owner.node.crash()
        client = await cluster.client()
        reader = await client.do(client.ledgers.open(writer.ledger_id))
        await asyncio.sleep(1.0)
        assert reader.last_add_confirmed == 1
        (found,) = await client.do(client.ledgers.under_replicated([writer.ledger_id]))
        assert found.missing_members == (left,)

    play(scenario)


def test_a_late_answer_to_an_earlier_attempt_does_not_count_twice() -> None:
    """A member that misses the last confirmed entry answers both attempts at once."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        owner = await cluster.client("writer", explicit_lac_interval_ms=60_000)
        writer, _ = await owner.create()
        await owner.append(writer, [ENTRY])
        late = writer.metadata.last_segment.members[2]
        sim.network.clog("writer", late.partition("~")[0])
        await owner.append(writer, [ENTRY])
        assert writer.last_add_confirmed == 1
        owner.node.crash()
        client = await cluster.client()
        pool, control = client.ledgers._pool, client.ledgers.control
        recovery = Recovery(client.world, OPTIONS, pool, client.ledgers._store, writer.ledger_id)
        attempts = [asyncio.Event() for _ in range(2)]
        fence, recover = control.fence, recovery._recover

        async def slow_fence(member: str, ledger_id: int) -> FenceAnswer:
            is_first = not attempts[0].is_set()
            answer = await fence(member, ledger_id)
            if member == late:
                if is_first:
                    await attempts[0].wait()
                    await asyncio.sleep(0.1)
                else:
                    await asyncio.sleep(0.2)
                    attempts[1].set()
                return answer
            if not is_first:
                await attempts[1].wait()
                await asyncio.sleep(0.1)
            return replace(answer, first=-1, records=[], end=0)  # the bookie was busy

        async def changed(metadata: LedgerMetadata, version: int, lac: int) -> LedgerMetadata:
            if not attempts[0].is_set():
                attempts[0].set()
                raise _StartOver
            return await recover(metadata, version, lac)

        control.fence = slow_fence  # type: ignore[method-assign]
        recovery._recover = changed  # type: ignore[method-assign]
        assert (await client.do(recovery.run())).last_entry == 1

    play(scenario)


def test_an_empty_ledger_ends_with_its_fences() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        writer, _ = await (await cluster.client("writer")).create()
        writer.abandon()
        client = await cluster.client()
        made = calls_of(client)
        reader = await client.do(client.ledgers.open(writer.ledger_id))
        assert (reader.last_add_confirmed, reader.length_bytes) == (-1, 0)
        assert [method for method, _ in made] == ["bookie.fence"] * 3

    play(scenario)


def test_a_bookie_that_does_not_know_the_ledger_gets_what_another_one_shows() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        owner = await cluster.client("writer")
        writer, _ = await owner.create()
        left = writer.metadata.last_segment.members[0]
        sim.network.cut("writer", left.partition("~")[0])
        await owner.append(writer, [ENTRY])
        owner.node.crash()
        client = await cluster.client()
        reader = await client.do(client.ledgers.open(writer.ledger_id))
        assert reader.last_add_confirmed == 0
        gaps = await client.do(client.ledgers.find_missing_copies(reader.metadata, [left]))
        assert (gaps.missing, gaps.unanswered) == ([], {})

    play(scenario)


@pytest.mark.parametrize("quorums", [(3, 3, 2), (5, 3, 2), (4, 2, 1)])
@pytest.mark.parametrize("is_busy", [False, True])
def test_two_recoveries_agree_while_bookies_restart_after_their_fences(
    quorums: tuple[int, int, int], *, is_busy: bool
) -> None:
    """What comes with a fence is as good as what is read later, from a bookie that has restarted;
    one of each write quorum does not come back.
    """

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, quorums[0] + 1)
        owner = await cluster.client("writer", explicit_lac_interval_ms=60_000)
        writer, _ = await owner.create(*quorums)
        await owner.append(writer, [ENTRY] * 5)
        members = [name.partition("~")[0] for name in writer.metadata.last_segment.members]
        sim.network.clog("writer", members[0])
        await owner.append(writer, [ENTRY] * quorums[0])
        confirmed = writer.last_add_confirmed
        owner.node.crash()
        rivals = [await cluster.client(name) for name in ("rival", "other")]
        nodes = {node.name: node for node in cluster.bookies}
        restarted: list[str] = []

        def restart(name: str) -> None:
            if name not in restarted:
                restarted.append(name)
                nodes[name].crash()
                if name != members[1] or quorums[2] == 1:
                    nodes[name].start()

        def watch(client: Client) -> None:
            fence = client.ledgers.control.fence

            async def fenced(member: str, ledger_id: int) -> FenceAnswer:
                answer = await fence(member, ledger_id)
                restart(member.partition("~")[0])
                return replace(answer, first=-1, records=[], end=0) if is_busy else answer

            client.ledgers.control.fence = fenced  # type: ignore[method-assign]

        async def end_of(client: Client) -> int:
            while True:
                try:
                    reader = await client.do(client.ledgers.open(writer.ledger_id))
                except PulsarishError:  # too few answered: the bookies restart
                    await asyncio.sleep(0.5)
                else:
                    return int(reader.last_add_confirmed)

        for rival in rivals:
            watch(rival)
        ends = await asyncio.gather(*(end_of(rival) for rival in rivals))
        assert ends[0] == ends[1] >= confirmed >= 4
        assert len(restarted) > quorums[1] - quorums[2]

    play(scenario)


def test_bookies_of_an_earlier_version_are_fenced_one_ledger_after_the_other() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        ledgers = await idle_ledgers(await cluster.client("writer"), 6)
        client = await cluster.client()
        call = client.world.connections.call

        async def earlier(
            address: str, method: str, request: bytes, *, timeout_seconds: float
        ) -> bytes:
            is_fence = method == "bookie.fence"
            if is_fence:
                asked = pb.FenceRequest.FromString(request)
                asked = pb.FenceRequest(instance_id=asked.instance_id, ledger=asked.ledger)
                request = asked.SerializeToString()
            answer = await call(address, method, request, timeout_seconds=timeout_seconds)
            if is_fence:
                found = pb.FenceResponse.FromString(answer)
                found = pb.FenceResponse(code=found.code, message=found.message, lac=found.lac)
                answer = found.SerializeToString()
            return answer

        client.world.connections.call = earlier  # type: ignore[method-assign]
        left = set(ledgers)
        for _ in ledgers:
            found = await asyncio.gather(
                *(client.do(client.ledgers.open(ledger_id)) for ledger_id in sorted(left)),
                return_exceptions=True,
            )
            for ledger_id, reader in zip(sorted(left), found, strict=True):
                if isinstance(reader, NotEnoughBookies):
                    continue
                assert not isinstance(reader, BaseException)
                assert reader.last_add_confirmed == 0
                left.remove(ledger_id)
        assert not left

    play(scenario)
