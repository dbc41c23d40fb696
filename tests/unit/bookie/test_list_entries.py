"""A bookie's list of the entries that it holds of a ledger: complete, or no list at all."""

from __future__ import annotations

import pytest

from pulsarish.bookie import service
from pulsarish.bookie.bookie import Bookie
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LedgerIds
from pulsarish.model.errors import EntryUnknown, InvalidArgument, NoSuchLedger, WrongBookie
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.wire._pb import bookie_pb2 as pb
from tests.support.bookies import BookieBench, BookieClient, make_record

OK = 0
LAST = 59


async def ask(
    client: BookieClient, ledger_id: int, first: int = 0, last: int = LAST, instance_id: str = ""
) -> pb.ListEntriesResponse:
    request = pb.ListEntriesRequest(
        instance_id=instance_id or client.instance_id, ledger=ledger_id, first=first, last=last
    )
    return pb.ListEntriesResponse.FromString(
        await client._call("bookie.list_entries", request.SerializeToString())
    )


async def entries_of(client: BookieClient, ledger_id: int) -> list[int]:
    found: list[int] = []
    first = 0
    while first <= LAST:
        answer = await ask(client, ledger_id, first)
        assert answer.code == OK
        for start, end in zip(answer.spans[::2], answer.spans[1::2], strict=True):
            found += range(start, end + 1)
        first = answer.until + 1
    return found


async def add(client: BookieClient, ledger_id: int, *entry_ids: int) -> None:
    codes = await client.add(
        [make_record(ledger_id, entry_id, b"x" * 50) for entry_id in entry_ids]
    )
    assert set(codes.values()) == {OK}


def test_it_has_what_is_in_the_cache_and_what_is_in_the_index_page_by_page() -> None:
    bench = BookieBench(1, checkpoint_interval_seconds=10.0)

    async def flushed(client: BookieClient) -> None:
        await add(client, 7, *range(20), *range(21, 40))

    async def work(client: BookieClient) -> None:
        await add(client, 7, 20, *range(40, 50, 2))
        await add(client, 8, 1)
        everything = [*range(40), *range(40, 50, 2)]
        assert await entries_of(client, 7) == everything
        with replaced(service, "_LIST_LIMIT_MAX", lambda _was: 7):
            assert await entries_of(client, 7) == everything
        assert list((await ask(client, 7, 15, 44)).spans) == [15, 40, 42, 42, 44, 44]

    async def scenario() -> None:
        await bench.with_client(flushed)
        await bench.in_bookie(lambda bookie: bookie.store.checkpoint())
        await bench.with_client(work)

    bench.sim.run(scenario, 120)


def test_of_a_ledger_that_is_here_and_has_no_such_entries_it_is_empty() -> None:
    bench = BookieBench(1)

    async def work(client: BookieClient) -> None:
        await add(client, 7, 0)
        answer = await ask(client, 7, 1)
        assert (answer.code, list(answer.spans), answer.until) == (OK, [], LAST)

    bench.sim.run(lambda: bench.with_client(work), 120)


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({"ledger_id": 8}, NoSuchLedger.code),
        ({"ledger_id": -1}, InvalidArgument.code),
        ({"ledger_id": 7, "first": -1}, InvalidArgument.code),
        ({"ledger_id": 7, "first": 2, "last": 1}, InvalidArgument.code),
        ({"ledger_id": 7, "instance_id": "another~1"}, WrongBookie.code),
    ],
)
def test_what_cannot_be_listed_has_a_code(what: dict[str, object], code: int) -> None:
    bench = BookieBench(1)

    async def work(client: BookieClient) -> None:
        await add(client, 7, 0)
        answer = await ask(client, **what)  # type: ignore[arg-type]
        assert (answer.code, list(answer.spans)) == (code, [])

    bench.sim.run(lambda: bench.with_client(work), 120)


def test_a_bookie_in_limbo_does_not_say_what_it_lacks() -> None:
    bench = BookieBench(1, journal_corruption="limbo")

    async def give_out(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        await records.update(paths.LEDGER_IDS, LedgerIds, lambda _found: LedgerIds(10))

    async def enter(bookie: Bookie) -> None:
        await bookie.store.limbo.enter(10, "a test says so")
        bookie.store.states.enter_limbo()

    async def scenario() -> None:
        await bench.client_node.run(give_out)
        await bench.with_client(lambda client: add(client, 7, 0, 1, 2))
        await bench.in_bookie(enter)
        answer = await bench.with_client(lambda client: ask(client, 7))
        assert (answer.code, list(answer.spans)) == (EntryUnknown.code, [])

    bench.sim.run(scenario, 120)
