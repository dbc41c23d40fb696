"""The gRPC interface of a bookie: streams of adds and reads, and the calls of the control lane.

Each stream has one reader and one writer, because calls of one kind must not overlap on a gRPC
stream. The reader passes batches to the store, which answers in order once they are durable. The
writer joins all answers that wait into one message. Calls run besides the streams and never queue
behind adds. A reader with too much unanswered, on its connection or in the journal, stops
receiving, which slows the sender down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError

from pulsarish.bookie.access import Access, check_ledger
from pulsarish.bookie.add_session import AddSession
from pulsarish.bookie.answer_room import AnswerRoom
from pulsarish.bookie.call_guard import guarded
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.garbage import GarbageCollector
from pulsarish.bookie.store import EntryStore
from pulsarish.bookie.unlisted_volumes import how_to_give_lists
from pulsarish.bookie.volume_addition import AdditionState, VolumeAdditions
from pulsarish.bookie.volume_garbage import VolumesGarbage
from pulsarish.bookie.volume_removal import VolumeRemovals
from pulsarish.bookie.volumes import Volumes
from pulsarish.ledger.repair.repair_core import spans_of
from pulsarish.metadata.tree_age import TreeAge
from pulsarish.model.errors import (
    AuthenticationError,
    AuthorizationError,
    BookieIOError,
    CorruptData,
    EntryUnknown,
    InvalidArgument,
    MetadataUnavailable,
    NotAllowedError,
    WrongBookie,
)
from pulsarish.model.position import ID_MAX, NO_ENTRY
from pulsarish.runtime.byte_budget import ByteBudget
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import (
    CallHandler,
    Clock,
    Stream,
    StreamBroken,
    StreamHandler,
    Tasks,
)
from pulsarish.security.cluster_key import Member
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.bookie import (
    ReadAnswer,
    ReadItem,
    decode_read,
    encode_read_response,
)
from pulsarish.wire.framing import join_records

__all__ = ["BookieService"]

_log = get_logger("bookie.service")

_LIST_LIMIT_MAX: Final = 10_000
_READS_PER_ANSWER_MAX: Final = 256
# requests of one stream that wait to be read; the client keeps to two
_READ_REQUESTS_MAX: Final = 4
_EXPIRY_LOOK_SECONDS: Final = 1.0
_LARGE_CALLS_MAX: Final = 4  # concurrent calls that read or list much


class BookieService:
    """The handlers of all calls and streams over a store."""

    def __init__(
        self,
        store: EntryStore | Volumes,
        garbage: GarbageCollector | VolumesGarbage,
        age: TreeAge,
        tasks: Tasks,
        clock: Clock,
        config: BookieConfig,
        free_bytes: Callable[[], int],
        access: Access,
        removals: VolumeRemovals | None = None,
        additions: VolumeAdditions | None = None,
    ) -> None:
        self._access = access
        self._open: dict[Stream, Member | None] = {}
        self._store = store
        self._garbage = garbage
        self._removals = removals
        self._additions = additions
        self._age = age
        self._tasks = tasks
        self._clock = clock
        self._config = config
        self._free_bytes = free_bytes
        self._all_adds = ByteBudget(config.journal_queue_size_bytes)
        self.answer_room = AnswerRoom(config.read_answers_size_bytes, clock)
        self._large_calls = asyncio.Semaphore(_LARGE_CALLS_MAX)
        self._idle = asyncio.Event()
        self._idle.set()

    def streams(self) -> dict[str, StreamHandler]:
        serves = {"bookie.add": self._add_stream, "bookie.read": self._read_stream}
        return {
            method: partial(self._serve, method=method, serve=serve)
            for method, serve in serves.items()
        }

    def calls(self) -> dict[str, CallHandler]:
        handlers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "bookie.fence": self._fence,
            "bookie.read_lac": self._read_lac,
            "bookie.write_lacs": self._write_lacs,
            "bookie.recovery_read": self._recovery_read,
            "bookie.list_ledgers": self._list_ledgers,
            "bookie.list_entries": self._list_entries,
            "bookie.clear_limbo": self._clear_limbo,
            "bookie.list_trash": self._list_trash,
            "bookie.change_trash": self._change_trash,
            "bookie.collect_garbage": self._collect_garbage,
            "bookie.volume": self._volume,
            "bookie.add_volume": self._add_volume,
            "bookie.status": self._status,
        }
        return {name: guarded(name, handler, self._access) for name, handler in handlers.items()}

    async def probe(self) -> None:
        """Process an empty add like a received one. Return when it is synced."""
        await self._all_adds.wait_for_room()
        await self._store.probe()

    @property
    def unanswered_bytes(self) -> int:
        """Bytes of received and unanswered adds, of all connections."""
        return self._all_adds.used_bytes

    async def wait_idle(self) -> None:
        """Wait until no stream is open. After the listener has stopped, nothing more is added."""
        await self._idle.wait()

    @property
    def open_streams_count(self) -> int:
        return len(self._open)

    async def end_expired(self) -> None:
        """End the streams whose certificate or token ends, or whose key is removed, while they are
        open, within about two seconds.
        """
        while True:
            await self._clock.sleep(_EXPIRY_LOOK_SECONDS)
            for stream, member in list(self._open.items()):
                if refusal := self._access.end_of(stream.caller, member):
                    _log.warning("a stream is ended", peer=stream.peer, reason=refusal)
                    stream.abort(f"AuthorizationError: {refusal}")

    def _opened(self, stream: Stream, member: Member | None) -> None:
        self._open[stream] = member
        self._idle.clear()

    def _closed(self, stream: Stream) -> None:
        self._open.pop(stream, None)
        if not self._open:
            self._idle.set()

    def _contain(self, task: str, error: Exception, stream: Stream) -> None:
        def end(_error: BaseException) -> None:
            stream.abort(f"{task} failed on the bookie: {type(error).__name__}")

        self._tasks.contain(
            f"{task} {stream.peer}", error, Scope(ScopeKind.CONNECTION, stream.peer, end)
        )

    async def _serve(
        self, stream: Stream, method: str, serve: Callable[[Stream, Member | None], Awaitable[None]]
    ) -> None:
        """Serve a stream if its caller may open it. If not, the stream ends with the reason."""
        try:
            member = self._access.check(stream.caller, method)
        except (AuthenticationError, AuthorizationError) as error:
            _refuse(stream, method, error)
        else:
            await serve(stream, member)

    async def _add_stream(self, stream: Stream, member: Member | None) -> None:
        session = AddSession(
            stream,
            self._store,
            self._all_adds,
            self._config.connection_size_bytes,
            lambda error: self._contain("adds", error, stream),
        )
        self._opened(stream, member)
        writer = self._tasks.spawn(
            self._send_adds(stream, session), name=f"add answers {stream.peer}"
        )
        try:
            await session.receive()
        finally:
            self._closed(stream)
        await writer

    async def _send_adds(self, stream: Stream, session: AddSession) -> None:
        try:
            await stream.feed(session.next_message, session.wake)
        except StreamBroken:
            return
        except Exception as error:  # noqa: BLE001
            # Any error: without a writer no add on this connection is answered.
            self._contain("add answers", error, stream)

    async def _read_stream(self, stream: Stream, member: Member | None) -> None:
        requests: asyncio.Queue[tuple[str, list[ReadItem]] | None] = asyncio.Queue(
            _READ_REQUESTS_MAX
        )
        is_limited = member is not None and member.ledgers is not None
        self._opened(stream, member)
        worker = self._tasks.spawn(self._work_reads(stream, requests), name=f"reads {stream.peer}")
        try:
            while (message := await stream.receive()) is not None:
                try:
                    request = decode_read(message)
                except (DecodeError, ValueError) as error:
                    stream.abort(f"no valid ReadRequest: {error}")
                    break
                try:
                    for item in request[1] if is_limited else ():
                        check_ledger(member, item.ledger_id)
                except AuthorizationError as error:
                    _refuse(stream, "bookie.read", error)
                    break
                await requests.put(request)
        except StreamBroken:
            # the worker notices when it sends; the client does not wait for the answers any more
            pass
        finally:
            self._closed(stream)
            await requests.put(None)
        await worker

    async def _work_reads(
        self, stream: Stream, requests: asyncio.Queue[tuple[str, list[ReadItem]] | None]
    ) -> None:
        try:
            await self._answer_reads(stream, requests)
        except Exception as error:  # noqa: BLE001
            # Any error: without a worker no read on this connection is answered.
            self.answer_room.leave(stream)
            self._contain("reads", error, stream)
            # The receiver may be waiting for room in the queue.
            while await requests.get() is not None:
                continue

    async def _answer_reads(
        self, stream: Stream, requests: asyncio.Queue[tuple[str, list[ReadItem]] | None]
    ) -> None:
        """Answer in order, many reads together, about one answer's size at a time."""
        answered = 0
        limit = self._config.read_answer_size_bytes
        admit = partial(self.answer_room.enter, stream)
        broken = False
        while (request := await requests.get()) is not None:
            if broken:
                continue
            instance_id, items = request
            if instance_id != self._store.instance_id:
                answers = [ReadAnswer(item.request_id, WrongBookie.code) for item in items]
                answered += 1
                broken = not await _send(stream, encode_read_response(answered, answers))
                continue
            for item in items:
                item.max_bytes = min(item.max_bytes, limit)
            at = 0
            count_max = _READS_PER_ANSWER_MAX
            while at < len(items) or not items:
                group = _group(items, at, count_max, limit)
                found = await self._store.read(group, limit, admit) if group else []
                at += len(found)
                # Reads that did not fit were looked up for nothing: look fewer up next time.
                count_max = _READS_PER_ANSWER_MAX if len(found) == len(group) else 2 * len(found)
                if at == len(items):
                    answered += 1
                # Only one copy waits until the client receives it, without the records that it was
                # made of.
                answer = b"".join(encode_read_response(answered, found))
                del found
                broken = not await _send(stream, [answer])
                self.answer_room.leave(stream)
                if broken or not items:
                    break
        if not broken:
            await stream.finish()

    async def _fence(self, request: bytes) -> bytes:
        asked = pb.FenceRequest.FromString(request)
        ledger_ids = [asked.ledger, *asked.more_ledgers]
        code = self._refusal(asked.instance_id, *ledger_ids)
        if code:
            return pb.FenceResponse(
                code=code, message=self._reason(code), lac=NO_ENTRY
            ).SerializeToString()
        fenced = await self._fence_each(ledger_ids)
        answer = pb.FenceResponse(
            code=fenced[0][0],
            lac=fenced[0][1],
            codes=[code for code, _ in fenced],
            lacs=[lac for _, lac in fenced],
            firsts=[-1] * len(fenced),
            counts=[0] * len(fenced),
            ends=[0] * len(fenced),
        )
        records: list[bytes | memoryview] = []
        # A fence never waits behind large calls. Without its records the caller asks once more.
        if asked.read_entries and not self._large_calls.locked():
            async with self._large_calls:
                await self._read_fenced(asked, ledger_ids, answer, records)
        return b"".join(join_records(answer, records, sum(answer.sizes)))

    async def _fence_each(self, ledger_ids: list[int]) -> list[tuple[int, int]]:
        """Fence ledgers, each by itself if what is stored of one cannot be read."""
        try:
            return await self._store.fence_all(ledger_ids)
        except Exception as error:
            if len(ledger_ids) == 1:
                raise
            _log.error(
                "fences are made one by one, because what is stored cannot be read",
                exception=error,
                call="fence",
            )
        found: list[tuple[int, int]] = []
        for ledger_id in ledger_ids:
            try:
                found.append(await self._store.fence(ledger_id))
            except Exception as error:  # noqa: BLE001  # as in ``guarded``
                _log.error(
                    "a fence fails, because what is stored cannot be read",
                    exception=error,
                    ledger=ledger_id,
                )
                found.append((BookieIOError.code, NO_ENTRY))
        return found

    async def _read_fenced(
        self,
        asked: pb.FenceRequest,
        ledger_ids: list[int],
        answer: pb.FenceResponse,
        records: list[bytes | memoryview],
    ) -> None:
        """Read each ledger that is fenced from its LAC on, into ``answer`` and ``records``."""
        limit = self._config.control_answer_size_bytes
        max_bytes = min(asked.max_bytes, limit)
        items: list[ReadItem] = []
        for place, ledger_id in enumerate(ledger_ids):
            if not answer.codes[place]:
                first = max(answer.lacs[place], 0)
                span = (first, min(first + asked.read_entries - 1, ID_MAX))
                items.append(ReadItem(place, ledger_id, [span], max_bytes))
        if not items:
            return
        for item, found in zip(items, await self._store.read_fenced(items, limit), strict=False):
            place = item.request_id
            answer.firsts[place] = item.spans[0][0]
            answer.counts[place] = len(found.records)
            answer.ends[place] = found.code
            answer.sizes.extend(len(record) for record in found.records)
            records += found.records

    async def _read_lac(self, request: bytes) -> bytes:
        asked = pb.ReadLacRequest.FromString(request)
        code = self._refusal(asked.instance_id, asked.ledger)
        if code:
            return pb.ReadLacResponse(
                code=code, message=self._reason(code), lac=NO_ENTRY
            ).SerializeToString()
        wait_ms = min(asked.wait_ms, self._config.long_poll_max_ms)
        code, lac = await self._store.read_lac(asked.ledger, asked.after_lac, wait_ms / 1000)
        return pb.ReadLacResponse(code=code, lac=lac).SerializeToString()

    async def _write_lacs(self, request: bytes) -> bytes:
        asked = pb.WriteLacsRequest.FromString(request)
        if len(asked.ledgers) != len(asked.lacs):
            raise InvalidArgument(f"{len(asked.lacs)} LACs for {len(asked.ledgers)} ledgers")
        # A negative LAC says that the ledger has no entry.
        codes = [
            self._refusal(asked.instance_id, ledger_id, max(lac, 0))
            for ledger_id, lac in zip(asked.ledgers, asked.lacs, strict=True)
        ]
        taken = [place for place, code in enumerate(codes) if not code]
        try:
            answered = await self._store.write_lacs(
                [(asked.ledgers[place], asked.lacs[place]) for place in taken]
            )
        except Exception as error:  # noqa: BLE001  # as in ``guarded``
            _log.error(
                "a call fails, because what is stored cannot be read",
                exception=error,
                call="write_lacs",
            )
            answered = [BookieIOError.code] * len(taken)
        for place, code in zip(taken, answered, strict=True):
            codes[place] = code
        return pb.WriteLacsResponse(codes=codes).SerializeToString()

    async def _recovery_read(self, request: bytes) -> bytes:
        asked = pb.RecoveryReadRequest.FromString(request)
        code = self._refusal(asked.instance_id, asked.ledger, asked.first)
        if code:
            return pb.RecoveryReadResponse(
                code=code, message=self._reason(code)
            ).SerializeToString()
        max_bytes = min(asked.max_bytes, self._config.control_answer_size_bytes)
        async with self._large_calls:
            answer = await self._store.recovery_read(
                asked.ledger, asked.first, asked.last, max_bytes
            )
        sizes = [len(record) for record in answer.records]
        return b"".join(
            join_records(
                pb.RecoveryReadResponse(code=answer.code, sizes=sizes), answer.records, sum(sizes)
            )
        )

    async def _list_ledgers(self, request: bytes) -> bytes:
        asked = pb.ListLedgersRequest.FromString(request)
        code = self._refusal(asked.instance_id, 0)
        if code:
            return pb.ListLedgersResponse(code=code, message=self._reason(code)).SerializeToString()
        async with self._large_calls:
            found, more = await self._store.list_ledgers(
                asked.after, min(asked.limit or _LIST_LIMIT_MAX, _LIST_LIMIT_MAX)
            )
        return pb.ListLedgersResponse(ledgers=found, more=more).SerializeToString()

    async def _list_entries(self, request: bytes) -> bytes:
        asked = pb.ListEntriesRequest.FromString(request)
        code = self._refusal(asked.instance_id, asked.ledger)
        if not code and not 0 <= asked.first <= asked.last <= ID_MAX:
            code = InvalidArgument.code
        if code:
            return pb.ListEntriesResponse(code=code, message=self._reason(code)).SerializeToString()
        until = min(asked.last, asked.first + _LIST_LIMIT_MAX - 1)
        async with self._large_calls:
            code, found = await self._store.list_entries(asked.ledger, asked.first, until)
        spans = [end for span in spans_of(found) for end in span]
        return pb.ListEntriesResponse(code=code, spans=spans, until=until).SerializeToString()

    async def _clear_limbo(self, request: bytes) -> bytes:
        asked = pb.ClearLimboRequest.FromString(request)
        code = self._refusal(asked.instance_id, asked.ledger)
        if not code:
            code = await self._store.clear_limbo(asked.ledger, asked.times)
        return pb.ClearLimboResponse(code=code, message=self._reason(code)).SerializeToString()

    async def _list_trash(self, request: bytes) -> bytes:
        asked = pb.ListTrashRequest.FromString(request)
        code = self._refusal(asked.instance_id, 0)
        if code:
            return pb.ListTrashResponse(code=code, message=self._reason(code)).SerializeToString()
        limit = min(asked.limit or _LIST_LIMIT_MAX, _LIST_LIMIT_MAX)
        async with self._large_calls:
            found = [
                each for each in await self._garbage.trash.sizes() if each.ledger_id > asked.after
            ]
        answer = pb.ListTrashResponse(more=len(found) > limit)
        for each in found[:limit]:
            answer.ledgers.append(each.ledger_id)
            answer.since_ms.append(each.since_ms)
            answer.size_bytes.append(each.size_bytes)
        return answer.SerializeToString()

    async def _change_trash(self, request: bytes) -> bytes:
        asked = pb.ChangeTrashRequest.FromString(request)
        code = self._refusal(asked.instance_id, *asked.ledgers)
        if code:
            return pb.ChangeTrashResponse(code=code, message=self._reason(code)).SerializeToString()
        if asked.restore:
            changed = [
                ledger_id
                for ledger_id in asked.ledgers
                if await self._garbage.trash.restore(ledger_id)
            ]
        else:
            try:
                changed = await self._garbage.empty_trash(asked.ledgers)
            except (MetadataUnavailable, NotAllowedError, CorruptData) as error:
                return pb.ChangeTrashResponse(
                    code=error.code, message=str(error)
                ).SerializeToString()
        return pb.ChangeTrashResponse(ledgers=changed).SerializeToString()

    async def _collect_garbage(self, request: bytes) -> bytes:
        asked = pb.CollectGarbageRequest.FromString(request)
        code = self._refusal(asked.instance_id)
        if code:
            return pb.CollectGarbageResponse(
                code=code, message=self._reason(code)
            ).SerializeToString()
        garbage = self._garbage
        if asked.begin:
            garbage.ask()
        return pb.CollectGarbageResponse(
            ended=garbage.ended,
            wanted=garbage.wanted,
            failure=garbage.failure,
            missing_ledgers=garbage.missing_count,
            trash_ledgers=garbage.trash.count,
            stray_ledgers=garbage.stray_ledgers_count,
            postponed_logs=garbage.logs_postponed,
            **garbage.last._asdict(),
        ).SerializeToString()

    async def _volume(self, request: bytes) -> bytes:
        asked = pb.VolumeRequest.FromString(request)
        code = self._refusal(asked.instance_id)
        drain = removal = None
        if not code and self._removals is not None:
            drain = self._removals.drains.state(asked.directory)
            at = self._removals.begin if asked.remove else self._removals.state
            removal = at(asked.directory)
        if drain is None or removal is None:
            message = self._reason(code) or f"it has no volume {asked.directory!r}"
            return pb.VolumeResponse(
                code=code or InvalidArgument.code, message=message
            ).SerializeToString()
        return pb.VolumeResponse(
            draining=drain.is_draining,
            looked=drain.has_looked,
            closed_ledgers=drain.closed_ledgers,
            open_ledgers=drain.open_ledgers,
            waiting=list(drain.waiting),
            reasons=list(drain.waiting.values()),
            failure=drain.failure,
            removing=removal.is_running,
            removed=removal.is_removed,
            refusal=removal.refusal,
        ).SerializeToString()

    async def _add_volume(self, request: bytes) -> bytes:
        asked = pb.AddVolumeRequest.FromString(request)
        code = self._refusal(asked.instance_id)
        if code:
            return pb.AddVolumeResponse(code=code, message=self._reason(code)).SerializeToString()
        directories = (asked.journal_directory, asked.ledger_directory, asked.index_directory)
        if self._additions is None:
            state = AdditionState(refusal=how_to_give_lists(self._config))
        elif asked.add:
            state = self._additions.begin(directories)
        else:
            state = self._additions.state(asked.ledger_directory)
        return pb.AddVolumeResponse(
            adding=state.is_running, added=state.is_added, refusal=state.refusal
        ).SerializeToString()

    async def _status(self, _request: bytes) -> bytes:
        store = self._store
        return pb.StatusResponse(
            instance_id=store.instance_id,
            bookie_id=self._config.bookie_id,
            read_only=not store.is_writable,
            free_bytes=self._free_bytes(),
            ledgers=store.ledgers_count,
            journal_queue_bytes=store.journal_queue_bytes,
            write_cache_bytes=store.write_cache_bytes,
            seen=self._age.seen,
        ).SerializeToString()

    def _refusal(self, instance_id: str, *ids: int) -> int:
        """Return the code for a request that is for another bookie, or names an id that was never
        given out; otherwise 0.
        """
        if instance_id != self._store.instance_id:
            return WrongBookie.code
        return 0 if all(0 <= each <= ID_MAX for each in ids) else InvalidArgument.code

    def _reason(self, code: int) -> str:
        if code == WrongBookie.code:
            return f"this is bookie {self._store.instance_id}"
        if code == EntryUnknown.code:
            return "it may have lost entries again since they were verified"
        return (
            f"ledger and entry ids are numbers from 0 to {ID_MAX}"
            if code == InvalidArgument.code
            else ""
        )


def _group(items: list[ReadItem], start: int, count_max: int, limit_bytes: int) -> list[ReadItem]:
    """Return the reads from ``start`` on that are answered together if their records fit."""
    end, size_bytes = start, 0
    while (
        end < len(items)
        and end - start < count_max
        and (end == start or size_bytes + items[end].max_bytes <= limit_bytes)
    ):
        size_bytes += items[end].max_bytes
        end += 1
    return items[start:end]


def _refuse(stream: Stream, method: str, error: Exception) -> None:
    _log.warning("a stream is refused", method=method, peer=stream.peer, reason=error)
    stream.abort(f"{type(error).__name__}: {error}")


async def _send(stream: Stream, parts: list[bytes | bytearray | memoryview]) -> bool:
    try:
        await stream.send(parts)
    except StreamBroken:
        return False
    return True
