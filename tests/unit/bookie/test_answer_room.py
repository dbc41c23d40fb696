"""What a bookie reads for clients that do not take it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.bookie.answer_room import AnswerRoom
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.seams import StreamBroken
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.bookie import READS_PER_MESSAGE_MAX, ReadItem, decode_read_response, encode_read
from tests.support.bookies import BookieBench, BookieClient, make_record

ENTRY_BYTES = 300_000


def room_of(bench: BookieBench) -> AnswerRoom:
    return bench.bookie.service.answer_room


def point_reads(client: BookieClient, count: int) -> list[bytes]:
    return [
        encode_read(
            client.instance_id, [ReadItem(number, 1, [(0, 0)], 0) for number in range(count)]
        )
    ]


def test_reads_of_great_entries_are_answered_one_after_another() -> None:
    """A small request for many of them never has more in memory than an answer's size, or one
    entry.
    """
    bench = BookieBench(read_answer_size_bytes=ENTRY_BYTES, read_answers_size_bytes=1 << 20)

    async def work(client: BookieClient) -> None:
        assert await client.add([make_record(1, 0, bytes(ENTRY_BYTES))]) == {(1, 0): 0}
        room, used = room_of(bench), list[int]()

        def watched(enter: Callable[..., Awaitable[None]]) -> object:
            async def enter_and_note(*args: object) -> None:
                await enter(*args)
                used.append(room.used_bytes)

            return enter_and_note

        with replaced(AnswerRoom, "enter", watched):
            stream = await client.world.connections.open(client.address, "bookie.read")
            await stream.send(point_reads(client, 20))
            answered: list[int] = []
            while len(answered) < 20:
                message = await stream.receive()
                assert message is not None
                answers = decode_read_response(message)[1]
                assert [len(answer.records) for answer in answers] == [1] * len(answers)
                answered += [answer.request_id for answer in answers]
            assert answered == list(range(20))
            assert max(used) < 2 * ENTRY_BYTES
            await stream.finish()

    bench.sim.run(lambda: bench.with_client(work))


def test_a_client_that_does_not_read_ends_its_stream_when_others_wait() -> None:
    bench = BookieBench(read_answer_size_bytes=ENTRY_BYTES, read_answers_size_bytes=1 << 20)

    async def work(client: BookieClient) -> None:
        assert await client.add([make_record(1, 0, bytes(ENTRY_BYTES))]) == {(1, 0): 0}
        silent = [
            await client.world.connections.open(client.address, "bookie.read") for _ in range(10)
        ]
        for stream in silent:
            await stream.send(point_reads(client, 20))
        _, found = await client.read(1, 0, 0)
        assert set(found) == {0}
        room = room_of(bench)
        assert room.ended_count
        assert room.used_bytes <= 1 << 20
        for stream in silent:
            stream.abort("the test is over")

    bench.sim.run(lambda: bench.with_client(work))


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([ReadItem(1, -1, [(0, 0)], 0)], "negative"),
        ([ReadItem(1, 1, [(-5, 0)], 0)], "negative"),
        ([ReadItem(1, 1, [], 0)] * (READS_PER_MESSAGE_MAX + 1), "above the limit"),
    ],
)
def test_a_malformed_read_ends_its_stream(items: list[ReadItem], reason: str) -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        stream = await client.world.connections.open(client.address, "bookie.read")
        await stream.send([encode_read(client.instance_id, items)])
        with pytest.raises(StreamBroken, match=reason):
            await stream.receive()
        assert await client.add([make_record(1, 0, b"x")]) == {(1, 0): 0}

    bench.sim.run(lambda: bench.with_client(work))


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("fence", pb.FenceResponse),
        ("read_lac", pb.ReadLacResponse),
        ("recovery_read", pb.RecoveryReadResponse),
        ("list_ledgers", pb.ListLedgersResponse),
        ("list_entries", pb.ListEntriesResponse),
        ("clear_limbo", pb.ClearLimboResponse),
        ("list_trash", pb.ListTrashResponse),
        ("change_trash", pb.ChangeTrashResponse),
    ],
)
@pytest.mark.parametrize("request_bytes", [b"\xff" * 50, bytes(2 << 20)])
def test_a_malformed_call_is_refused_by_name(call: str, answer: type, request_bytes: bytes) -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        data = await client.world.connections.call(
            client.address, f"bookie.{call}", request_bytes, timeout_seconds=5
        )
        found = answer.FromString(data)
        assert found.code == InvalidArgument.code
        assert found.message.startswith(f"no valid request for bookie.{call}: ")

    bench.sim.run(lambda: bench.with_client(work))
