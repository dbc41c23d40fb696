"""Fences: many in one call, and what comes with their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pulsarish.ledger.bookie_control import BookieControl, FenceAnswer, NoAnswer
from pulsarish.ledger.options import LedgerOptions
from pulsarish.model.errors import BookieIOError, LedgerFenced, NoSuchEntry, WrongBookie
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.framing import join_records
from pulsarish.wire.record import peek_ids
from tests.support.bookies import BookieBench, BookieClient, make_record

OK = 0


def control_of(client: BookieClient, **options: int) -> BookieControl:
    book = AddressBook()
    book.put(client.instance_id, client.address)
    return BookieControl(client.world, LedgerOptions(**options), book)


async def fence(control: BookieControl, member: str, *ledger_ids: int) -> list[FenceAnswer]:
    return await asyncio.gather(*(control.fence(member, each) for each in ledger_ids))


def shown(answer: FenceAnswer) -> tuple[int, list[int], int]:
    """Return the first entry that was read, the entries that came, and why no other came."""
    return answer.first, [peek_ids(record)[2] for record in answer.records], answer.end


def calls_of(client: BookieClient) -> list[pb.FenceRequest]:
    """Return the list to which each later fence of this client is added."""
    made: list[pb.FenceRequest] = []
    call = client.world.connections.call

    async def counted(
        address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        made.append(pb.FenceRequest.FromString(request))
        return await call(address, method, request, timeout_seconds=timeout_seconds)

    client.world.connections.call = counted  # type: ignore[method-assign]
    return made


def test_the_answer_shows_what_the_bookie_has_from_its_lac_on() -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        # Each record carries the LAC before it.
        await client.add([make_record(1, entry, b"e%d" % entry) for entry in range(3)])
        await client.add([make_record(2, entry, b"e%d" % entry) for entry in range(9)])
        await client.add([make_record(3, 0, b"x"), make_record(3, 2, b"x")])
        made = calls_of(client)
        answers = await fence(control_of(client), client.instance_id, 1, 2, 3, 4)
        assert [sorted([call.ledger, *call.more_ledgers]) for call in made] == [[1, 2, 3, 4]]
        assert [(answer.code, answer.lac) for answer in answers] == [
            (OK, 1),
            (OK, 7),
            (OK, 1),
            (OK, -1),
        ]
        assert [shown(answer) for answer in answers] == [
            (1, [1, 2], NoSuchEntry.code),
            (7, [7, 8], NoSuchEntry.code),
            (1, [], NoSuchEntry.code),  # it knows the LAC 1, and misses that entry itself
            (0, [], NoSuchEntry.code),
        ]
        # All of them are fenced, the unknown one too.
        for ledger_id, entry in ((1, 3), (2, 9), (3, 3), (4, 0)):
            assert await client.add([make_record(ledger_id, entry, b"late")]) == {
                (ledger_id, entry): LedgerFenced.code
            }

    bench.sim.run(lambda: bench.with_client(work))


def test_the_answer_has_limits() -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        great = [make_record(1, entry, bytes(5_000), lac=-1) for entry in range(3)]
        await client.add(great)
        await client.add([make_record(2, entry, b"x", lac=-1) for entry in range(9)])
        answers = await fence(control_of(client), client.instance_id, 1, 2)
        # Nothing is said about the entry that did not fit.
        assert [shown(answer) for answer in answers] == [(0, [0], OK), (0, [0, 1, 2, 3], OK)]

    bench.sim.run(lambda: bench.with_client(work))


def test_what_does_not_fit_into_the_answer_of_all_is_not_read() -> None:
    bench = BookieBench(control_answer_size_bytes=3_000)

    async def work(client: BookieClient) -> None:
        for ledger_id in (1, 2, 3):
            await client.add([make_record(ledger_id, 0, bytes(1_000), lac=-1)])
        answers = await fence(control_of(client), client.instance_id, 1, 2, 3)
        assert [answer.code for answer in answers] == [OK] * 3
        assert sorted(shown(answer) for answer in answers) == [
            (-1, [], OK),
            (-1, [], OK),
            (0, [0], NoSuchEntry.code),
        ]

    bench.sim.run(lambda: bench.with_client(work))


def test_a_ledger_that_cannot_be_read_costs_the_others_of_its_call_nothing() -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        await client.add([make_record(1, 0, b"x"), make_record(2, 0, b"x")])
        bench.node.disk.read_failure_chance = 1.0
        answers = await fence(control_of(client), client.instance_id, 1, 7, 2)
        assert [answer.code for answer in answers] == [OK, BookieIOError.code, OK]
        bench.node.disk.heal()
        assert await client.add([make_record(1, 1, b"x")]) == {(1, 1): LedgerFenced.code}

    bench.sim.run(lambda: bench.with_client(work))


def test_another_bookie_refuses_the_whole_call() -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        client.instance_id = "b1~another"
        answers = await fence(control_of(client), client.instance_id, 1, 2)
        assert [answer.code for answer in answers] == [WrongBookie.code] * 2

    bench.sim.run(lambda: bench.with_client(work))


def test_a_bookie_of_an_earlier_version_has_fenced_the_first_ledger_only() -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        control = control_of(client)

        async def earlier(*_: object, **__: object) -> bytes:
            return pb.FenceResponse(lac=5).SerializeToString()

        client.world.connections.call = earlier  # type: ignore[method-assign]
        answers = await asyncio.gather(
            *(control.fence(client.instance_id, each) for each in (1, 2)), return_exceptions=True
        )
        (fenced,) = (answer for answer in answers if isinstance(answer, FenceAnswer))
        assert (fenced.code, fenced.lac, fenced.first) == (OK, 5, -1)
        assert any(isinstance(answer, NoAnswer) for answer in answers)

    bench.sim.run(lambda: bench.with_client(work))


def test_an_answer_with_other_records_than_it_announces_is_none() -> None:
    """Its "no such entry" would be said of another entry."""
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        control = control_of(client)

        async def torn(*_: object, **__: object) -> bytes:
            record = make_record(1, 0, b"x")
            answer = pb.FenceResponse(
                codes=[0], lacs=[-1], firsts=[0], counts=[2], ends=[NoSuchEntry.code]
            )
            answer.sizes.append(len(record))
            return b"".join(join_records(answer, [record], len(record)))

        client.world.connections.call = torn  # type: ignore[method-assign]
        with pytest.raises(NoAnswer, match="2 records were announced, 1 came"):
            await control.fence(client.instance_id, 1)

    bench.sim.run(lambda: bench.with_client(work))


def test_what_waits_behind_calls_without_an_answer_ends_in_time() -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        control = control_of(client, control_timeout_ms=500)
        bench.node.pause()
        began = client.world.clock.monotonic()
        answers: Sequence[FenceAnswer | BaseException] = await asyncio.gather(
            *(control.fence(client.instance_id, each) for each in range(1_000)),
            return_exceptions=True,
        )
        assert all(isinstance(answer, NoAnswer) for answer in answers)
        assert client.world.clock.monotonic() - began < 1.0
        bench.node.resume()
        await client.world.clock.sleep(1.0)
        assert [answer.code for answer in await fence(control, client.instance_id, 1, 2)] == [
            OK
        ] * 2

    bench.sim.run(lambda: bench.with_client(work))
