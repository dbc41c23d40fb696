"""Keep this bookie's ephemeral registration in the metadata, through lost sessions and without
metadata (rule 19).

The bookie continues to serve whatever happens here. A registration of another session is left alone
until its session ends. The exception is one of an earlier process of this same instance: the locks
on the directories prove that this process has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration
from pulsarish.model.errors import CorruptData, MetadataUnavailable, PulsarishError
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, Conflict, Op, SessionState, Versioned
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["Registrar"]

_log = get_logger("bookie.registration")
_RETRY_SECONDS: Final = 0.2
_RETRY_MAX_SECONDS: Final = 2.0
# When a registration of another session goes, its watch fires. This interval is only the fallback.
_LOOK_AGAIN_SECONDS: Final = 5.0


class Registrar:
    """Keep ``wanted`` in the metadata. Run ``run`` as a task.

    ``prepare`` is awaited before each new registration: after it, clients place ledgers on this
    bookie.
    """

    def __init__(
        self,
        records: Records,
        clock: Clock,
        wanted: BookieRegistration,
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        self.registered = False
        self._records = records
        self._clock = clock
        self._wanted = wanted
        self._prepare = prepare
        self._path = paths.bookie(wanted.bookie_id)
        self._wake = asyncio.Event()
        self._tried = asyncio.Event()
        self._stopping = False
        records.listen(self._session_changed)

    def update(self, wanted: BookieRegistration) -> None:
        """Publish another registration from now on."""
        self._wanted = wanted
        self._wake.set()

    async def wait_tried(self) -> None:
        """Wait until the first attempt succeeded, or found that it has to wait for another
        session's end.
        """
        await self._tried.wait()

    async def stop(self) -> None:
        """Remove the registration, if the metadata can be reached."""
        self._stopping = True
        self._wake.set()
        if not self.registered:
            return
        self.registered = False
        try:
            node = (await self._records.nodes([self._path]))[0]
            if node is not None and node.session_id == self._records.session_id:
                await self._records.commit([Op("delete", self._path, version=node.version)])
        except (MetadataUnavailable, Conflict) as error:
            _log.warning("the registration is left to its session's end", reason=error)

    async def run(self) -> None:
        backoff = Backoff(_RETRY_SECONDS, _RETRY_MAX_SECONDS)
        failing = ""
        while not self._stopping:
            self._wake.clear()
            try:
                self.registered = await self._ensure()
                self._tried.set()
                backoff.reset()
                failing = ""
            except (PulsarishError, Conflict) as error:
                self.registered = False
                if str(error) != failing:
                    # Once for each reason: the metadata service may be away for hours.
                    _log.warning("not registered, trying again", reason=error)
                failing = str(error)
                await self._clock.sleep(backoff.next_seconds())
                continue
            try:
                async with self._clock.timeout(None if self.registered else _LOOK_AGAIN_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self.registered = False
        self._wake.set()

    def _fired(self, _path: str) -> None:
        self._wake.set()

    async def _ensure(self) -> bool:
        """Make the registration as it should be. Return false while another session holds it."""
        records = self._records
        while not self._stopping:
            session_id = records.session_id
            node = (await records.nodes([self._path], watch=self._fired))[0]
            data = encode_record(self._wanted)
            if node is None:
                await self._prepare()
                await records.ensure(paths.BOOKIES)
                await records.commit([Op("create_ephemeral", self._path, data)])
                _log.info("registered", path=self._path, address=self._wanted.address)
            elif node.session_id == session_id:
                if node.data == data:
                    return True
                await records.commit([Op("put", self._path, data, node.version)])
            elif self._is_earlier_life(node):
                await self._prepare()
                await records.commit(
                    [
                        Op("delete", self._path, version=node.version),
                        Op("create_ephemeral", self._path, data),
                    ]
                )
            else:
                _log.warning(
                    "another session holds the registration; waiting for its end", path=self._path
                )
                return False
        return False

    def _is_earlier_life(self, node: Versioned) -> bool:
        try:
            found = decode_record(node.data, BookieRegistration, self._path)
        except CorruptData:
            return False
        return found.instance_id == self._wanted.instance_id
