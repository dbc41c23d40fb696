"""The binary protocol of a broker: all its connections."""

from __future__ import annotations

from pulsarish.broker.binary.connection import Connection, Questions
from pulsarish.broker.clients.authorization import Gate
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.clients.traffic import ConnectionTraffic
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.sessions.open_sessions import OpenSessions
from pulsarish.broker.sessions.session import Session, TopicSource
from pulsarish.runtime.seams import Tasks, World
from pulsarish.security.callers import Callers
from pulsarish.security.identity import UNCHECKED

__all__ = ["BinaryFace"]


class BinaryFace:
    """Creates the protocols that a broker's listeners serve."""

    def __init__(
        self,
        *,
        topics: TopicSource,
        gate: Gate,
        world: World,
        config: BrokerConfig,
        traffic: ConnectionTraffic,
        questions: Questions,
        callers: Callers,
        sessions: OpenSessions,
    ) -> None:
        self._callers = callers
        self._sessions = sessions
        self._topics = topics
        self._gate = gate
        self._world = world
        self._config = config
        self._traffic = traffic
        self._questions = questions
        self._connections: dict[Connection, None] = {}

    def connection(self, came_in_on: str) -> Connection:
        """Return the protocol for one connection that a listener accepts."""
        return Connection(
            world=self._world,
            config=self._config,
            traffic=self._traffic,
            questions=self._questions,
            came_in_on=came_in_on,
            callers=self._callers,
            sessions=self._sessions,
            make_session=self._session,
            opened=self._opened,
            ended=self._ended,
        )

    def _session(self, peer: str, tasks: Tasks, outbox: Outbox) -> Session:
        # When a consumer is closed, its client drops the messages and permits from before a seek.
        # In this order the client knows that a seek closed it, and drops the messages before its
        # place in a batch.
        return Session(
            topics=self._topics,
            gate=self._gate,
            identity=UNCHECKED,
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

    def finish_all(self) -> int:
        """Close every connection after its waiting answers are sent, and return how many there are.

        Called when the broker stops.
        """
        connections = list(self._connections)
        for connection in connections:
            connection.finish()
        return len(connections)

    def abort_all(self, reason: str) -> None:
        """Close every open connection now."""
        for connection in list(self._connections):
            connection.abort(reason)
