"""Random scripts of requests, sessions and watches, run on a server over the wire; what it
answered, made comparable.

Left out of the comparison are times and transaction numbers themselves; that a node's numbers stand
in the same order is compared.
"""

from __future__ import annotations

import asyncio
import random
import struct
from typing import Any

from tests.support.zk_client import (
    RawClient,
    Reply,
    acl,
    multi_body,
    read_multi,
    read_stat,
    read_string,
    read_strings,
    text,
)

__all__ = ["run_script"]

CLIENTS = 3
STEPS = 60
NAMES = ["a", "b", "a/x", "a/y", "a/x/deep", "b/s-", "a/s-", "b/", "c"]
BAD_PATHS = ["a", "//", "/d//x", "/d/./x", "/d/..", "/d/x/", "/d/\x01", "/d/\0", "/nowhere/x"]
(
    CREATE,
    DELETE,
    EXISTS,
    GET,
    SET,
    GET_ACL,
    CHILDREN,
    SYNC,
    PING,
    CHILDREN2,
    CHECK,
    MULTI,
    CREATE2,
    CLOSE,
    SET_WATCHES,
) = (
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    9,
    11,
    12,
    13,
    14,
    15,
    -11,
    101,
)


class _Run:
    def __init__(self, seed: int, address: str) -> None:
        self.rng = random.Random(seed)
        self.address = address
        self.root = f"/d{seed}"
        self.clients: list[RawClient] = []
        self.owners: dict[int, int] = {0: 0}
        self.story: list[Any] = []

    # What is done: drawn from the seed alone, never from what the server said.

    def path(self) -> str:
        if self.rng.random() < 0.04:
            return self.rng.choice(BAD_PATHS)
        return f"{self.root}/{self.rng.choice(NAMES)}"

    def write(self, *, within_multi: bool = False) -> tuple[int, bytes]:
        rng, path = self.rng, self.path()
        if rng.random() < 0.01:
            # More of the root is not comparable: it knows of the other scripts. (A read of "" is a
            # read of the root to ZooKeeper alone.)
            return DELETE, text(rng.choice(["/", ""])) + struct.pack(">i", -1)
        version = rng.choice([-1, -1, -1, 0, 1, 2])
        # Alone, ZooKeeper does not take a check and ends the connection.
        match rng.randrange(10 if within_multi else 9):
            case 0 | 1 | 2 | 3:
                flags = rng.choice([0, 0, 0, 1, 2, 3]) if rng.random() < 0.97 else 9
                if path.endswith(("-", "/")) and rng.random() < 0.8:
                    flags |= 2
                rights = acl() if rng.random() < 0.97 else struct.pack(">i", 0)
                return rng.choice([CREATE, CREATE2]), text(path) + text(
                    rng.randbytes(rng.randrange(4))
                ) + rights + struct.pack(">i", flags)
            case 4 | 5 | 6:
                return SET, text(path) + text(rng.randbytes(rng.randrange(4))) + struct.pack(
                    ">i", version
                )
            case 7 | 8:
                return DELETE, text(path) + struct.pack(">i", version)
            case _:
                return CHECK, text(path) + struct.pack(">i", version)

    def draw(self) -> tuple[int, bytes]:
        rng = self.rng
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                return self.write()
            case 4 | 5:
                return MULTI, multi_body(
                    [self.write(within_multi=True) for _ in range(rng.choice([1, 2, 2, 3, 5]))]
                )
            case 6:
                return rng.choice(
                    [
                        (SYNC, text(self.path())),
                        (GET_ACL, text(self.path())),
                        (19, text(self.root + "/c") + text(b"") + acl()),
                    ][:2]
                )
            case _:
                kind = rng.choice([EXISTS, EXISTS, GET, GET, CHILDREN, CHILDREN2])
                return kind, text(self.path()) + (b"\1" if rng.random() < 0.7 else b"\0")

    # What was answered, without times and numbers.

    def stat(self, stat: tuple[int, ...]) -> tuple[int, ...]:
        czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, size, children, pzxid = stat
        order = (mzxid > czxid, pzxid > czxid, (pzxid > mzxid) - (pzxid < mzxid), mtime >= ctime)
        return (version, cversion, aversion, self.owners[owner], size, children, *order)

    def answer(self, kind: int, reply: Reply) -> Any:
        body = reply.body
        if reply.error:
            return reply.error
        match kind:
            case 1 | 9:
                return read_string(body)[0]
            case 15:
                path, at = read_string(body)
                return path, self.stat(read_stat(body, at)[0])
            case 3 | 5:
                return self.stat(read_stat(body)[0])
            case 4:
                (size,) = struct.unpack_from(">i", body)
                size = max(size, 0)
                return body[4 : 4 + size], self.stat(read_stat(body, 4 + size)[0])
            case 8:
                return sorted(read_strings(body)[0])
            case 12:
                names, at = read_strings(body)
                return sorted(names), self.stat(read_stat(body, at)[0])
            case 6:
                return body[: -88 + 20], self.stat(read_stat(body, len(body) - 68)[0])
            case 14:
                return [self.multi_answer(*one) for one in read_multi(body)]
            case _:
                return body

    def multi_answer(self, kind: int, value: Any) -> Any:
        if kind in (5, 15):
            return kind, value[0], self.stat(value[1])
        return kind, value

    # The run.

    async def open(self, number: int) -> RawClient:
        client = RawClient(self.address)
        assert await client.connect()
        self.owners[client.session_id] = number
        return client

    async def gather_events(self, *, unordered: bool) -> None:
        for number, client in enumerate(self.clients):
            # Everything that was to be told before this answer has been told.
            await client.request(EXISTS, text("/") + b"\0")
            events, client.events = client.events, []
            self.story.append((number, sorted(events) if unordered else events))

    async def run(self) -> list[Any]:
        self.clients = [await self.open(number + 1) for number in range(CLIENTS)]
        await self.clients[0].request(
            CREATE, text(self.root) + text(b"") + acl() + struct.pack(">i", 0)
        )
        for step in range(STEPS):
            number = self.rng.randrange(CLIENTS)
            client = self.clients[number]
            unordered = False
            what = self.rng.random()
            if what < 0.04:
                # A session ends: its nodes go in no particular order.
                unordered = True
                self.story.append(
                    (step, "close", (await client.request(CLOSE)).error, await client.at_end())
                )
                client.abort()
                self.clients[number] = await self.open(100 + step)
            elif what < 0.08:
                await self.come_back(step, client)
            elif what < 0.10:
                # ZooKeeper closes the session's living connection before it looks at the password;
                # the daemon does not.
                client.abort()
                stranger = RawClient(self.address)
                taken = await stranger.connect(30_000, client.session_id, bytes(16))
                self.story.append((step, "wrong password", taken, await stranger.at_end()))
                stranger.abort()
                assert await client.reattach()
            elif what < 0.16:
                # Many at once, answered in their order.
                requests = [self.draw() for _ in range(8)]
                sent = [await client.send(kind, body) for kind, body in requests]
                replies = [await client.reply() for _ in requests]
                assert [reply.xid for reply in replies] == sent
                answers = [
                    (kind, body, self.answer(kind, reply))
                    for (kind, body), reply in zip(requests, replies, strict=True)
                ]
                self.story.append((step, number, answers))
            else:
                kind, body = self.draw()
                reply = await client.request(kind, body)
                self.story.append((step, number, kind, body, self.answer(kind, reply)))
            await self.gather_events(unordered=unordered)
        for client in self.clients:
            await client.request(CLOSE)
            client.abort()
        return self.story

    async def come_back(self, step: int, client: RawClient) -> None:
        """The connection breaks, the others go on, the client returns and sets its watches
        again.
        """
        client.abort()
        seen = client.last_zxid
        other = self.clients[(self.clients.index(client) + 1) % CLIENTS]
        for _ in range(self.rng.randrange(4)):
            await other.request(*self.write())
        assert await client.reattach()
        lists = [
            [f"{self.root}/{name}" for name in self.rng.sample(NAMES[:5], self.rng.randrange(3))]
            for _ in range(3)
        ]
        body = struct.pack(">q", seen)
        for paths in lists:
            body += struct.pack(">i", len(paths)) + b"".join(text(path) for path in paths)
        reply = await client.request(SET_WATCHES, body, xid=-8)
        self.story.append((step, "back", reply.error, sorted(client.events)))
        client.events = []


async def run_script(seed: int, address: str) -> list[Any]:
    """Run the script of ``seed`` on the server; the story of what it answered."""
    async with asyncio.timeout(60):
        return await _Run(seed, address).run()
