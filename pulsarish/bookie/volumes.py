"""The volumes of a bookie that has several, as what takes its adds, fences and reads. Which volume
has a ledger, and what follows when one fails, is in ``VolumeHomes``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from pulsarish.bookie.adds import check_records, read_heads, refused
from pulsarish.bookie.entry_logs.entry_log import READ_LANE
from pulsarish.bookie.reads import Admit
from pulsarish.bookie.store import check_whole
from pulsarish.bookie.volume import Answer, Volume, VolumeAdd
from pulsarish.bookie.volume_homes import VolumeHomes
from pulsarish.model.errors import BookieIOError, EntryUnknown
from pulsarish.runtime.log import get_logger
from pulsarish.wire.bookie import AddBatch, AddResult, ReadAnswer, ReadItem, encode_add
from pulsarish.wire.record import RECORD_HEAD_SIZE, peek_ids

__all__ = ["Volumes"]

_log = get_logger("bookie.volumes")


class _Parts:
    """The answer to a batch whose entries go to several volumes, once all of them have answered."""

    def __init__(self, count: int, answer: Answer) -> None:
        self._left = count
        self._answer = answer
        self._results: list[AddResult] = []

    def take(self, results: list[AddResult]) -> None:
        self._results += results
        self._left -= 1
        if not self._left:
            self._answer(self._results)


class Volumes(VolumeHomes):
    """They take what one store takes otherwise."""

    # -- adds

    def add(self, message: bytes, batch: AddBatch, answer: Answer) -> Awaitable[None] | None:
        """Store the entries of a batch that may be stored, as ``EntryStore.add``.

        Batches that go to different volumes are answered in any order.
        """
        homes = self._homes
        home: Volume | None = None
        last = -1
        for record in batch.records:
            ledger_id = peek_ids(record)[1] if len(record) >= RECORD_HEAD_SIZE else -1
            if ledger_id == last:
                continue
            volume = homes.get(ledger_id)
            if volume is None or (home is not None and home is not volume):
                check_whole(check_records(batch.records)[1], len(batch.records))
                return self._add_found(message, batch, answer)
            home, last = volume, ledger_id
        return self._add_to(home or self.live[0], message, batch, answer)

    async def _add_found(self, message: bytes, batch: AddBatch, answer: Answer) -> None:
        """Add a batch once it is known where its ledgers are."""
        if batch.instance_id != self.instance_id:
            waiting = self._add_to(self.live[0], message, batch, answer)
            if waiting is not None:
                await waiting
            return
        heads = read_heads(batch.records)
        ledger_ids = list(dict.fromkeys(head[1] for head in heads))
        with self._pinned(ledger_ids):
            try:
                homes = await self._find(ledger_ids, create=True)
            except BookieIOError as error:
                _log.error(
                    "entries refused, because it cannot be read where their ledgers are",
                    exception=error,
                    entries=len(heads),
                )
                homes = {}
            places: dict[Volume | None, list[int]] = {}
            for place, head in enumerate(heads):
                places.setdefault(homes.get(head[1]), []).append(place)
            parts = _Parts(len(places), answer)
            waits: list[Awaitable[None]] = []
            for volume, here in places.items():
                if volume is None:
                    parts.take(refused(heads, here, BookieIOError.code))
                    continue
                part, part_message = batch, message
                if len(here) < len(heads):
                    part = AddBatch(
                        batch.instance_id,
                        batch.recovery,
                        [batch.records[place] for place in here],
                    )
                    part_message = b"".join(
                        encode_add(
                            part.instance_id,
                            recovery=part.recovery,
                            sizes=[len(record) for record in part.records],
                            parts=part.records,
                        )
                    )
                waiting = self._add_to(volume, part_message, part, parts.take)
                if waiting is not None:
                    waits.append(waiting)
            failure: Exception | None = None
            for waiting in waits:
                try:
                    await waiting
                except Exception as error:  # noqa: BLE001 - raised once all were waited for
                    failure = failure or error
            if failure is not None:
                raise failure

    def _add_to(
        self, volume: Volume, message: bytes, batch: AddBatch, answer: Answer
    ) -> Awaitable[None] | None:
        self._numbers += 1
        adding = VolumeAdd(volume, self._numbers, batch.records, answer)
        try:
            waiting = volume.store.add(message, batch, adding.answer)
        except OSError:
            if volume.failure is None:
                adding.drop()
                raise
            adding.fail()
            return None
        except Exception:
            adding.drop()
            raise
        return None if waiting is None else self._wait(volume, waiting, adding, batch)

    async def _wait(
        self, volume: Volume, waiting: Awaitable[None], adding: VolumeAdd, batch: AddBatch
    ) -> None:
        with self._pinned([head[1] for head in read_heads(batch.records)]):
            try:
                await waiting
            except Exception:
                if volume.failure is None:
                    adding.drop()
                    raise
                adding.fail()

    # -- calls

    async def fence(self, ledger_id: int) -> tuple[int, int]:
        """Fence one ledger, as ``fence_all``."""
        return (await self.fence_all([ledger_id]))[0]

    async def fence_all(self, ledger_ids: Sequence[int]) -> list[tuple[int, int]]:
        """Fence ledgers, as ``EntryStore.fence_all``."""
        found: dict[int, tuple[int, int]] = {}
        with self._pinned(ledger_ids):
            for volume, here in (await self._by_volume(ledger_ids)).items():
                fenced = await volume.store.fence_all(here)
                _check_live(volume)
                found.update(zip(here, fenced, strict=True))
        return [found[ledger_id] for ledger_id in ledger_ids]

    async def clear_limbo(self, ledger_id: int, times: int) -> int:
        """End a ledger's limbo, as ``EntryStore.clear_limbo``."""
        with self._pinned([ledger_id]):
            (volume,) = await self._by_volume([ledger_id])
            if times != self.limbo_times:
                return EntryUnknown.code
            code = await volume.store.clear_limbo(ledger_id, volume.store.limbo_times)
        _check_live(volume)
        return code

    async def write_lacs(self, lacs: Sequence[tuple[int, int]]) -> list[int]:
        """Store explicit LACs, as ``EntryStore.write_lacs``."""
        ledger_ids = [ledger_id for ledger_id, _ in lacs]
        codes = [BookieIOError.code] * len(lacs)
        with self._pinned(ledger_ids):
            homes = await self._find(ledger_ids, create=True)
            places: dict[Volume, list[int]] = {}
            for place, ledger_id in enumerate(ledger_ids):
                if ledger_id in homes:
                    places.setdefault(homes[ledger_id], []).append(place)
            for volume, here in places.items():
                try:
                    answered = await volume.store.write_lacs([lacs[place] for place in here])
                except (OSError, BookieIOError):
                    if volume.failure is None:
                        raise
                    continue
                for place, code in zip(here, answered, strict=True):
                    codes[place] = code
        return codes

    async def read_lac(
        self, ledger_id: int, after_lac: int, wait_seconds: float
    ) -> tuple[int, int]:
        """Return ``(code, LAC)``, as ``EntryStore.read_lac``."""
        volume = await self._home(ledger_id)
        answer = await volume.store.read_lac(ledger_id, after_lac, wait_seconds)
        _check_live(volume)
        return answer

    async def recovery_read(
        self, ledger_id: int, first: int, last: int, max_bytes: int
    ) -> ReadAnswer:
        """Fence, then read, as ``EntryStore.recovery_read``."""
        with self._pinned([ledger_id]):
            (volume,) = await self._by_volume([ledger_id])
            answer = await volume.store.recovery_read(ledger_id, first, last, max_bytes)
        _check_live(volume)
        return answer

    async def read_fenced(self, items: Sequence[ReadItem], limit_bytes: int) -> list[ReadAnswer]:
        """Read fenced ledgers, as ``EntryStore.read_fenced``."""
        volume, here = await self._first_run(items)
        answers = await volume.store.read_fenced(here, limit_bytes)
        _check_live(volume)
        return answers

    async def read(
        self,
        items: Sequence[ReadItem],
        limit_bytes: int = 0,
        admit: Admit | None = None,
        *,
        lane: str = READ_LANE,
    ) -> list[ReadAnswer]:
        """Read entries, as ``EntryStore.read``.

        With a limit, the answers may end where those of another volume would follow.
        """
        answers: list[ReadAnswer] = []
        while len(answers) < len(items):
            rest = items[len(answers) :]
            try:
                volume, here = await self._first_run(rest)
                found = await volume.store.read(here, limit_bytes, admit, lane=lane)
                _check_live(volume)
            except BookieIOError:
                found = [ReadAnswer(rest[0].request_id, BookieIOError.code)]
            answers += found
            if limit_bytes:
                break
        return answers

    async def _first_run(self, items: Sequence[ReadItem]) -> tuple[Volume, list[ReadItem]]:
        """Return the reads at the beginning that go to one volume. Raises ``BookieIOError``."""
        homes = await self._find([item.ledger_id for item in items], create=False)
        first = homes.get(items[0].ledger_id)
        if first is None:
            self._check_doubt([items[0].ledger_id])
        here: list[ReadItem] = []
        for item in items:
            home = homes.get(item.ledger_id)
            if home is not first or (home is None and self._is_doubtful(item.ledger_id)):
                break
            here.append(item)
        return first or self._choose(), here

    async def list_entries(self, ledger_id: int, first: int, last: int) -> tuple[int, list[int]]:
        """List entries, as ``Reader.list_entries``."""
        volume = await self._home(ledger_id)
        answer = await volume.store.list_entries(ledger_id, first, last)
        _check_live(volume)
        return answer

    async def list_ledgers(self, after: int, limit: int) -> tuple[list[int], bool]:
        """Return ledgers above ``after`` in order, and whether there are more."""
        found: dict[int, None] = {}
        more = False
        for volume in self.live:
            here, has_more = await volume.store.list_ledgers(after, limit)
            found.update(dict.fromkeys(here))
            more = more or has_more
        return sorted(found)[:limit], more or len(found) > limit

    async def next_free_ledger(self, next_id: int) -> int:
        """Return the first id above those of all ledgers known here, as
        ``EntryStore.next_free_ledger``.
        """
        before = -1
        while before != next_id:
            before = next_id
            for volume in self.live:
                next_id = await volume.store.next_free_ledger(next_id)
        return next_id

    async def probe(self) -> None:
        """Add a batch without entries to each volume that is writable."""
        for volume in self.live:
            if volume.store.is_writable:
                try:
                    await volume.store.probe()
                except OSError:
                    if volume.failure is None:
                        raise


def _check_live(volume: Volume) -> None:
    """Raise ``BookieIOError`` when a volume has failed or was removed while it was asked: what it
    has not is no evidence any more, and what it has stored is not used again.
    """
    if volume.failure is not None:
        raise BookieIOError(f"the volume {volume.where} is not used any more: {volume.failure}")
