"""The binary face of a broker: its connections, from the first to the last."""

from __future__ import annotations

from pulsarish.broker.binary.connection import Connection, Questions
from pulsarish.broker.clients.authorization import ANYBODY, Gate
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.clients.traffic import ConnectionTraffic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.sessions.session import Session, TopicSource
from pulsarish.runtime.seams import Tasks, World

__all__ = ["BinaryFace"]


class BinaryFace:
    """Makes the protocols that a broker's listeners serve."""

    def __init__(
        self, *, topics: TopicSource, gate: Gate, world: World, config: BrokerConfig, traffic: ConnectionTraffic, questions: Questions
    ) -> None:
        self._topics = topics
        self._gate = gate
        self._world = world
        self._config = config
        self._traffic = traffic
        self._questions = questions
        self._connections: dict[Connection, None] = {}

    def connection(self, came_in_on: str) -> Connection:
        """For one connection that comes in on a listener."""
        return Connection(
            world=self._world,
            config=self._config,
            traffic=self._traffic,
            questions=self._questions,
            came_in_on=came_in_on,
            make_session=self._session,
            opened=self._opened,
            ended=self._ended,
        )

    def _session(self, peer: str, tasks: Tasks, outbox: Outbox) -> Session:
        # What a client of this protocol still holds of before a seek, and the permits for it, end with its consumer. Told in this order, it
        # knows that it comes from a seek, and drops what lies before its place in a batch.
        return Session(
            topics=self._topics,
            gate=self._gate,
            principal=ANYBODY,
            peer=peer,
            tasks=tasks,
            outbox=outbox,
            config=self._config,
            ends_with_seek=True,
        )

    def _opened(self, connection: Connection) -> None:
        self._traffic.opened()
        self._connections[connection] = None

    def _ended(self, connection: Connection) -> None:
        self._traffic.ended()
        del self._connections[connection]

    def finish_all(self) -> None:
        """End every connection after what still waits to be sent, at the end of the broker."""
        for connection in list(self._connections):
            connection.finish()

    def abort_all(self, reason: str) -> None:
        """Close every connection that is still there."""
        for connection in list(self._connections):
            connection.abort(reason)
