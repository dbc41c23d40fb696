"""Election of one candidate at a time: the one that made the ephemeral node.

It is a belief, not a lock. What the elected candidate does must be harmless when two do it for a
moment.
"""

from __future__ import annotations

import asyncio

from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, Op, OutcomeUnknown, SessionLost, SessionState, World

__all__ = ["Election"]

_log = get_logger("election")

_RETRY_SECONDS = 1.0


class Election:
    """Candidacy for the node at ``path``. ``name`` is what others read there."""

    def __init__(self, world: World, records: Records, path: str, name: str) -> None:
        self.elected = ""
        """The name of the elected candidate, as last read; empty: none."""
        self._world = world
        self._records = records
        self._path = path
        self._name = name
        self.won = asyncio.Event()
        """Set once this candidate is elected, until it learns that it is not elected any more."""
        self._session_id = 0  # of the node, when it belongs to this candidate
        self._changed = asyncio.Event()
        self._stopped = False

    @property
    def is_mine(self) -> bool:
        """Whether this candidate is elected.

        It is not while its session is anything but connected (rule 19).
        """
        store = self._world.metadata
        return (
            not self._stopped
            and store.state is SessionState.CONNECTED
            and store.session_id == self._session_id
        )

    def start(self) -> None:
        self._world.metadata.listen(lambda _state: self._changed.set())
        _ = run_in_background(
            self._world.tasks, self._world.clock, f"election {self._path}", self._run
        )

    async def stop(self) -> None:
        """Let another candidate be elected at once."""
        mine = self.is_mine
        self._stopped = True
        self._changed.set()
        self.won.set()  # wake the waiting tasks, which see that the election is over
        if mine:
            try:
                await self._world.metadata.commit([Op("delete", self._path)])
            except (Conflict, OutcomeUnknown, SessionLost) as error:
                _log.debug(
                    "election node stays until its session ends", path=self._path, reason=error
                )

    async def _run(self) -> None:
        while not self._stopped:
            self._changed.clear()
            try:
                await self._look()
            except (OutcomeUnknown, SessionLost, MetadataUnavailable) as error:
                _log.debug("election waits for the metadata", path=self._path, reason=error)
                await self._world.clock.sleep(_RETRY_SECONDS)
                continue
            await self._changed.wait()

    async def _look(self) -> None:
        store = self._world.metadata
        session_id = store.session_id
        node = (await store.get_many([self._path], watch=lambda _path: self._changed.set()))[0]
        if node is not None:
            self.elected = node.data.decode(errors="replace")
            self._take(node.session_id if node.session_id == session_id else 0)
            return
        self.elected = ""
        self._take(0)
        try:
            await store.commit([Op("create_ephemeral", self._path, self._name.encode())])
        except Conflict:
            # Another candidate was faster, and the watch fires; or the parent node does not exist
            # yet.
            await self._records.make_parents(self._path)
            self._changed.set()
            return
        self.elected = self._name
        self._take(session_id)
        _log.info("elected", path=self._path, name=self._name)

    def _take(self, session_id: int) -> None:
        self._session_id = session_id
        if session_id:
            self.won.set()
        else:
            self.won.clear()
