"""The simulated network: delays, silence and resets between nodes.

Every direction of every connection is a ``Wire``: first in, first out, with a drawn delay for each
item. Faults are properties of a link, which is an ordered pair of node names. A link can be cut: it
is one way and carries nothing, and after it heals some connections are found dead. A link can be
clogged: it carries nothing for a while, and nothing is lost. A node can be slow. A dead process
resets its connections after a delay. A paused process sends nothing at all.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

from google.protobuf.message import DecodeError

from pulsarish.sim.world.loop import SimLoop
from pulsarish.wire.framing import split_records

if TYPE_CHECKING:
    from pulsarish.sim.world.nodes import Process
    from pulsarish.sim.world.stream import SimStream

__all__ = ["Network", "Service", "Wire"]

DELAY_SECONDS = 0.0002  # the least delay of a message; the mean delay adds as much again
SLOW_DELAY_CHANCE = 0.01  # waiting in the queue of a switch
SLOW_DELAY_SECONDS = 0.02
DEAD_AFTER_PARTITION_CHANCE = 0.5  # the chance that a connection did not survive a partition

State = Literal["open", "clogged", "cut"]
Accept = Callable[["SimStream"], Awaitable[None]]


class Service:
    """A listener on an address: a process, its handlers by method name, and the open server
    ends.
    """

    def __init__(
        self, process: Process, accept: dict[str, Accept], *, has_tls: bool = False
    ) -> None:
        self.process = process
        self.accept = accept
        self.has_tls = has_tls
        self.streams: dict[int, SimStream] = {}
        # set when the last stream ends, if a task waits for that
        self.idle: asyncio.Event | None = None

    def add(self, stream: SimStream) -> None:
        self.streams[stream.number] = stream

    def remove(self, stream: SimStream) -> None:
        del self.streams[stream.number]
        if not self.streams and self.idle is not None:
            self.idle.set()


class Wire:
    """One direction of one connection."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.link = (source, target)
        self._network = network
        self._items: deque[tuple[float, Callable[[], None]]] = deque()
        self._last_arrival = 0.0
        self._stalled = False  # an item has arrived at a link that carries nothing
        self._dead = False

    def carry(self, deliver: Callable[[], None], extra_seconds: float = 0.0) -> None:
        """Call ``deliver`` at the other end, after everything that was sent before."""
        if self._dead:
            return
        network = self._network
        arrival = max(
            self._last_arrival, network.loop.time() + network.draw_delay(*self.link) + extra_seconds
        )
        self._last_arrival = arrival
        self._items.append((arrival, deliver))
        network.loop.call_at(arrival, self.pump, context=network.context)

    def pump(self) -> None:
        """Deliver what has arrived, unless the link carries nothing."""
        items, network = self._items, self._network
        now = network.loop.time()
        while items and items[0][0] <= now:
            if network.state(*self.link) != "open":
                if not self._stalled:
                    self._stalled = True
                    network.stall(self)
                return
            items.popleft()[1]()

    def go_on(self) -> None:
        """Deliver again: the link is open."""
        self._stalled = False
        self._network.loop.call_soon(self.pump, context=self._network.context)

    def kill(self) -> None:
        """Deliver nothing more: neither what is on its way nor what is sent later.

        A gap would break the promise of order.
        """
        self._dead = True
        self._items.clear()


class Network:
    """All links and listeners. Its callbacks belong to no process."""

    def __init__(
        self, loop: SimLoop, random_stream: random.Random, trace: Callable[[str], None]
    ) -> None:
        self.loop = loop
        self.trace = trace
        self.context = contextvars.Context()
        self._random = random_stream
        self._services: dict[str, Service] = {}
        self._states: dict[tuple[str, str], State] = {}
        self._stalled: dict[tuple[str, str], list[Wire]] = {}
        self._slowness: dict[str, float] = {}
        self._refusing: dict[str, None] = {}
        self._garbling: dict[str, float] = {}
        self._next_port = 20_000
        # the client ends of live connections by number, which is the order of creation
        self._streams: dict[int, SimStream] = {}
        self._next_stream = 0

    # -- faults

    def cut(self, source: str, target: str) -> None:
        """Let nothing through from one node to another.

        This is one way: cut both for a full partition.
        """
        self._set_state(source, target, "cut")

    def clog(self, source: str, target: str) -> None:
        """Hold everything on this link until ``heal``. Nothing is lost."""
        self._set_state(source, target, "clogged")

    def heal(self, source: str, target: str) -> None:
        """Open a link again.

        Connections that were open over a cut link either continue or are found dead.
        """
        was = self.state(source, target)
        if was == "open":
            return
        self._set_state(source, target, "open")
        if was == "cut":
            for stream in list(self._streams.values()):
                for wire in stream.wires():
                    if wire.link == (source, target) and self.chance(DEAD_AFTER_PARTITION_CHANCE):
                        stream.lose("connection timed out while the network was cut")
        for wire in self._stalled.pop((source, target), []):
            wire.go_on()

    def stall(self, wire: Wire) -> None:
        """Note that an item waits at a link that carries nothing."""
        self._stalled.setdefault(wire.link, []).append(wire)

    def partition(self, side: list[str], other: list[str]) -> None:
        """Cut every link between two groups of nodes, both ways."""
        for a in side:
            for b in other:
                self.cut(a, b)
                self.cut(b, a)

    def reset(self, node: str, amount: float) -> None:
        """Reset one of the node's connections at both ends.

        Everything else continues. ``amount``, from 0 to 1, chooses the connection.
        """
        mine = [stream for stream in self._streams.values() if node in stream.wires()[0].link]
        if mine:
            mine[int(amount * len(mine) * 0.999)].lose("connection reset by peer")

    def refuse(self, node: str, refuses: bool) -> None:
        """Refuse new connections to the node.

        Its process and its open connections continue, as with a full backlog or a firewall.
        """
        self.trace(f"net {'refuse' if refuses else 'accept'} {node}")
        if refuses:
            self._refusing[node] = None
        else:
            self._refusing.pop(node, None)

    def refuses(self, node: str) -> bool:
        return node in self._refusing

    def garble(self, node: str, chance: float) -> None:
        """Flip a bit in the records of messages from or to the node, with this chance. 0 ends it.

        The small fields before the records stay as they are: only the checksum of the transport
        covers them, and there TCP breaks the connection.
        """
        self.trace(f"net garble {node} {chance:g}")
        if chance:
            self._garbling[node] = chance
        else:
            self._garbling.pop(node, None)

    def carried(self, link: tuple[str, str], message: bytes) -> bytes:
        """Return what arrives of a message on this link."""
        chance = (
            max(self._garbling.get(link[0], 0.0), self._garbling.get(link[1], 0.0))
            if self._garbling
            else 0.0
        )
        if not chance or not self.chance(chance):
            return message
        try:
            records_size = len(split_records(message)[1])
        except DecodeError:
            return message
        if not records_size:
            return message
        garbled = bytearray(message)
        garbled[len(message) - 1 - int(self._random.random() * records_size)] ^= 1 << int(
            self._random.random() * 8
        )
        self.trace(f"net garbled a message {link[0]}->{link[1]}")
        return bytes(garbled)

    def heal_all(self) -> None:
        self._slowness.clear()
        self._refusing.clear()
        self._garbling.clear()
        for source, target in list(self._states):
            self.heal(source, target)

    def slow(self, node: str, extra_seconds: float) -> None:
        """Let every message to or from the node take this much longer. 0 ends it."""
        self._slowness[node] = extra_seconds
        self.trace(f"net slow {node} {extra_seconds:g}")

    def state(self, source: str, target: str) -> State:
        return self._states.get((source, target), "open")

    def _set_state(self, source: str, target: str, state: State) -> None:
        self.trace(f"net {state} {source}->{target}")
        if state == "open":
            self._states.pop((source, target), None)
        else:
            self._states[source, target] = state

    # -- connections

    def draw_delay(self, source: str, target: str) -> float:
        draw = self._random.random
        delay = DELAY_SECONDS + draw() * 2 * DELAY_SECONDS
        if draw() < SLOW_DELAY_CHANCE:
            delay += draw() * SLOW_DELAY_SECONDS
        if self._slowness:
            delay += self._slowness.get(source, 0.0) + self._slowness.get(target, 0.0)
        return delay

    def listen(self, address: str, service: Service) -> str:
        """Register a listener and return the real address.

        Raises ``OSError`` when the port is in use.
        """
        host, _, port = address.rpartition(":")
        if port == "0":
            self._next_port += 1
            address = f"{host}:{self._next_port}"
        if address in self._services:
            raise OSError(errno.EADDRINUSE, f"{address} is in use")
        self._services[address] = service
        service.process.at_death.append(lambda: self.close(address, service))
        self.trace(f"net listen {service.process} {address}")
        return address

    def close(self, address: str, service: Service) -> None:
        if self._services.get(address) is service:
            del self._services[address]

    def service(self, address: str) -> Service | None:
        return self._services.get(address)

    def number(self) -> int:
        """Return a number for a new connection."""
        self._next_stream += 1
        return self._next_stream

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def draw_size(self, most: int) -> int:
        return 1 + int(self._random.random() * most) if self.chance(0.25) else most

    def remember(self, client: SimStream) -> None:
        self._streams[client.number] = client

    def forget(self, number: int) -> None:
        """Forget a connection that is closed at both ends."""
        self._streams.pop(number, None)

    def is_open(self, number: int) -> bool:
        """Return whether a connection is open at its client's end."""
        client = self._streams.get(number)
        return client is not None and client.is_open

    def process_died(self, process: Process) -> None:
        """Reset the open connections of a dead process, as its machine does.

        A peer behind a cut link learns it when the link heals.
        """
        for stream in list(self._streams.values()):
            stream.process_died(process)
