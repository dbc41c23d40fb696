"""One bookie in a simulation, and a client that speaks its wire protocol and remembers what it was
promised.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.runtime.seams import Stream, World
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.bookie import (
    ReadAnswer,
    ReadItem,
    decode_add_response,
    decode_read_response,
    encode_add,
    encode_read,
)
from pulsarish.wire.framing import slice_records, split_records
from pulsarish.wire.record import decode_entry_record, encode_record_head

__all__ = ["BookieBench", "BookieClient", "make_record", "small_config"]

T = TypeVar("T")


def small_config(name: str = "b1", **settings: object) -> BookieConfig:
    """Small files and caches, so that everything rolls and flushes early."""
    config = BookieConfig(
        bookie_id=name,
        listen_address=f"{name}:3181",
        http_address="",
        data_directory=f"/{name}",
        journal_file_size_bytes=8192,
        write_cache_size_bytes=40_000,
        entry_log_size_bytes=10_000,
        checkpoint_interval_seconds=0.5,
        read_only_free_bytes=1 << 20,
        reserved_bytes=1 << 19,
        disk_check_interval_seconds=0.2,
        gc_interval_seconds=1000.0,
        gc_second_look_seconds=0.0,
        trash_grace_seconds=0.0,
    )
    return msgspec.structs.replace(config, **settings)  # type: ignore[arg-type]  # checked by validate


def make_record(ledger_id: int, entry_id: int, payload: bytes, *, lac: int | None = None) -> bytes:
    """A record whose length is what a writer of equal payloads would count."""
    lac = entry_id - 1 if lac is None else lac
    return (
        encode_record_head(ledger_id, entry_id, lac, len(payload) * (entry_id + 1), payload)
        + payload
    )


class BookieClient:
    """Calls and streams to one address, from one node's world."""

    def __init__(self, world: World, address: str, instance_id: str) -> None:
        self.world = world
        self.address = address
        self.instance_id = instance_id
        self._adds: Stream | None = None
        self._sent = 0

    async def open_adds(self) -> Stream:
        if self._adds is None:
            self._adds = await self.world.connections.open(self.address, "bookie.add")
        return self._adds

    async def add(
        self, records: Sequence[bytes], *, recovery: bool = False
    ) -> dict[tuple[int, int], int]:
        """Send one batch and wait for all its codes, by ledger and entry."""
        stream = await self.open_adds()
        await stream.send(
            encode_add(
                self.instance_id,
                recovery=recovery,
                sizes=[len(r) for r in records],
                parts=list(records),
            )
        )
        self._sent += 1
        codes: dict[tuple[int, int], int] = {}
        while True:
            message = await stream.receive()
            assert message is not None
            answered, results = decode_add_response(message)
            for result in results:
                for entry_id in range(result.first, result.last + 1):
                    codes[result.ledger_id, entry_id] = result.code
            if answered == self._sent:
                return codes

    async def read(
        self, ledger_id: int, first: int, last: int, max_bytes: int = 1 << 20
    ) -> tuple[int, dict[int, bytes]]:
        """The code and the payloads, checked, of one read."""
        answer = (await self.read_many([ReadItem(1, ledger_id, [(first, last)], max_bytes)]))[0]
        return answer.code, {
            first + number: bytes(decode_entry_record(record, ledger_id, first + number).payload)
            for number, record in enumerate(answer.records)
        }

    async def read_many(self, items: Sequence[ReadItem]) -> list[ReadAnswer]:
        stream = await self.world.connections.open(self.address, "bookie.read", lane="read")
        await stream.send([encode_read(self.instance_id, items)])
        found: list[ReadAnswer] = []
        while True:
            message = await stream.receive()
            assert message is not None
            answered, answers = decode_read_response(message)
            found += answers
            if answered == 1:
                await stream.finish()
                return found

    async def fence(self, ledger_id: int) -> tuple[int, int]:
        request = pb.FenceRequest(instance_id=self.instance_id, ledger=ledger_id)
        answer = pb.FenceResponse.FromString(
            await self._call("bookie.fence", request.SerializeToString())
        )
        return answer.code, answer.lac

    async def write_lac(self, ledger_id: int, lac: int) -> int:
        request = pb.WriteLacsRequest(instance_id=self.instance_id, ledgers=[ledger_id], lacs=[lac])
        (code,) = pb.WriteLacsResponse.FromString(
            await self._call("bookie.write_lacs", request.SerializeToString())
        ).codes
        return code

    async def read_lac(self, ledger_id: int, after: int = -1, wait_ms: int = 0) -> tuple[int, int]:
        request = pb.ReadLacRequest(
            instance_id=self.instance_id, ledger=ledger_id, after_lac=after, wait_ms=wait_ms
        )
        answer = pb.ReadLacResponse.FromString(
            await self._call("bookie.read_lac", request.SerializeToString())
        )
        return answer.code, answer.lac

    async def recovery_read(self, ledger_id: int, first: int, last: int) -> tuple[int, list[bytes]]:
        request = pb.RecoveryReadRequest(
            instance_id=self.instance_id,
            ledger=ledger_id,
            first=first,
            last=last,
            max_bytes=1 << 20,
        )
        head, body = split_records(
            await self._call("bookie.recovery_read", request.SerializeToString())
        )
        answer = pb.RecoveryReadResponse.FromString(head)
        records = slice_records(body, answer.sizes)
        return answer.code, [
            bytes(decode_entry_record(record, ledger_id, first + number).payload)
            for number, record in enumerate(records)
        ]

    async def ledgers(self) -> list[int]:
        request = pb.ListLedgersRequest(instance_id=self.instance_id, after=-1, limit=1000)
        return list(
            pb.ListLedgersResponse.FromString(
                await self._call("bookie.list_ledgers", request.SerializeToString())
            ).ledgers
        )

    async def change_trash(
        self, ledger_ids: Sequence[int], *, restore: bool
    ) -> tuple[int, str, list[int]]:
        """The code, the reason and the ledgers that were changed."""
        request = pb.ChangeTrashRequest(
            instance_id=self.instance_id, restore=restore, ledgers=ledger_ids
        )
        answer = pb.ChangeTrashResponse.FromString(
            await self._call("bookie.change_trash", request.SerializeToString())
        )
        return answer.code, answer.message, list(answer.ledgers)

    async def _call(self, method: str, request: bytes) -> bytes:
        return await self.world.connections.call(self.address, method, request, timeout_seconds=60)


class BookieBench:
    """A simulation with a bookie named b1 and a client machine."""

    def __init__(self, seed: int = 1, *, boot: bool = True, **settings: object) -> None:
        self.sim = Simulation(seed)
        self.config = small_config(**settings)
        self.bookies: dict[int, Bookie] = {}
        """One for each life of the node."""
        self.node: Node = self.sim.node("b1")
        if boot:
            self.node.crash()
            self.node.start(self._main)
        else:
            self.node.crash()
        self.client_node: Node = self.sim.node("client")

    @property
    def bookie(self) -> Bookie:
        return self.bookies[self.node.incarnation]

    async def _main(self, world: World) -> None:
        bookie = Bookie(world, self.config)
        self.bookies[self.node.incarnation] = bookie
        await bookie.run()

    def start(self) -> None:
        """Boot, after a crash."""
        self.node.start(self._main)

    def crash_life(self, incarnation: int) -> None:
        """Crash the node unless it has begun another life meanwhile."""
        if self.node.incarnation == incarnation:
            self.node.crash()

    async def client(self) -> BookieClient:
        """A client of the bookie's present life, once that serves."""

        async def wait(world: World) -> BookieClient:
            while self.node.incarnation not in self.bookies or not self.bookie.is_ready:
                await world.clock.sleep(0.01)
            return BookieClient(world, self.bookie.address, self.bookie.instance_id)

        return await self.client_node.run(wait)

    async def with_client(self, work: Callable[[BookieClient], Awaitable[T]]) -> T:
        """Run ``work`` on the client machine."""
        client = await self.client()

        async def inside(_world: World) -> T:
            return await work(client)

        return await self.client_node.run(inside)

    async def in_bookie(self, work: Callable[[Bookie], Awaitable[T]]) -> T:
        """Run ``work`` inside the bookie's process."""

        async def inside(_world: World) -> T:
            return await work(self.bookie)

        return await self.node.run(inside)
