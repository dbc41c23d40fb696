"""The places of the program at which ``ledger_trace`` watches it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from pulsarish.bookie.store import EntryStore
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.recovery import Recovery
from pulsarish.ledger.recovery_core import FencingCore, ReadingCore
from pulsarish.ledger.writer_core import WriterCore
from pulsarish.metadata import paths
from pulsarish.model.errors import NoSuchEntry, NoSuchLedger
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.sim.models import ledger as model
from pulsarish.sim.models.ledger_trace import ALL_RULES, LedgerTrace, LedgerView, NotAllowedError
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.sim.world.metadata_service import MetadataService
from pulsarish.wire.bookie import ReadAnswer, ReadItem
from pulsarish.wire.json_record import decode_record
from pulsarish.wire.record import RECORD_HEAD

__all__ = ["tracing"]

_NEGATIVE: Final = (NoSuchEntry.code, NoSuchLedger.code)


@contextmanager
def tracing() -> Generator[LedgerTrace]:
    """Watch every ledger of the simulations that run inside the block.

    Patch a mutant before, so that its steps are watched.
    """
    trace = LedgerTrace()
    hooks = _Hooks(trace)
    with ExitStack() as stack:
        for owner, name in (
            (MetadataService, "commit"),
            (EntryStore, "add"),
            (EntryStore, "_journal"),
            (EntryStore, "fence_all"),
            (EntryStore, "recovery_read"),
            (EntryStore, "read_fenced"),
            (EntryStore, "read_lac"),
            (EntryStore, "write_lacs"),
            (WriterCore, "__init__"),
            (WriterCore, "push"),
            (WriterCore, "acked"),
            (WriterCore, "confirm"),
            (WriterCore, "begin_change"),
            (WriterCore, "change_stored"),
            (LedgerReader, "_ask_lac"),
            (FencingCore, "__init__"),
            (FencingCore, "answered"),
            (ReadingCore, "__init__"),
            (ReadingCore, "answered"),
            (ReadingCore, "failed"),
            (Recovery, "_close"),
        ):
            stack.enter_context(
                replaced(owner, name, getattr(hooks, f"{owner.__name__}_{name.strip('_')}".lower()))
            )
        yield trace


class _Hooks:
    """One method for each watched function: it gets the function and returns the watched one."""

    def __init__(self, trace: LedgerTrace) -> None:
        self._trace = trace
        self._cores: dict[int, tuple[WriterCore, LedgerMetadata]] = {}
        self._readings: dict[int, tuple[object, LedgerMetadata]] = {}

    # -- metadata

    def metadataservice_commit(self, was: Any) -> object:
        def commit(service: MetadataService, session_id: int, ops: Sequence[Any]) -> Any:
            answer = was(service, session_id, ops)
            for op in ops:
                ledger_id = paths.ledger_id_of(op.path)
                if ledger_id is None or op.kind == "check":
                    continue
                record = (
                    None if op.kind == "delete" else decode_record(op.data, LedgerMetadata, op.path)
                )
                self._trace.committed(ledger_id, record)
            return answer

        return commit

    # -- bookies

    def entrystore_add(self, was: Any) -> object:
        def add(
            store: EntryStore, message: bytes, batch: Any, answer: Callable[[Any], None]
        ) -> Any:
            member, lacs = store.instance_id, {}
            if batch.instance_id == member:
                for record in batch.records:
                    _, ledger_id, entry_id, lac, _ = RECORD_HEAD.unpack_from(record)
                    lacs[ledger_id, entry_id] = lac
                    self._see(ledger_id, LedgerView.offers, member, entry_id, lac)

            def answered(results: Any) -> None:
                for result in results:
                    if result.code == 0:
                        for entry_id in range(result.first, result.last + 1):
                            lac = lacs[result.ledger_id, entry_id]
                            self._see(
                                result.ledger_id,
                                LedgerView.stores,
                                member,
                                entry_id,
                                lac,
                                recovery=batch.recovery,
                            )
                answer(results)

            return was(store, message, batch, answered)

        return add

    def entrystore_journal(self, was: Any) -> object:
        def journal(
            store: EntryStore, message: bytes, batch: Any, records: Any, taken: Any, *more: Any
        ) -> None:
            for place in range(len(records)) if taken is None else taken:
                _, ledger_id, entry_id, _, _ = RECORD_HEAD.unpack_from(records[place])
                self._see(ledger_id, LedgerView.admits, store.instance_id, entry_id)
            was(store, message, batch, records, taken, *more)

        return journal

    def entrystore_fence_all(self, was: Any) -> object:
        async def fence_all(store: EntryStore, ledger_ids: Sequence[int]) -> Any:
            member = store.instance_id
            least = [self._ask(ledger_id, LedgerView.lac, member) for ledger_id in ledger_ids]
            found = await was(store, ledger_ids)
            for ledger_id, known, (code, lac) in zip(ledger_ids, least, found, strict=True):
                if code == 0:
                    self._see(ledger_id, LedgerView.fenced, member)
                    self._see(ledger_id, LedgerView.lac_answered, member, known, lac)
            return found

        return fence_all

    def entrystore_recovery_read(self, was: Any) -> object:
        async def recovery_read(
            store: EntryStore, ledger_id: int, first: int, last: int, max_bytes: int
        ) -> Any:
            stored = self._ask(ledger_id, LedgerView.entries, store.instance_id)
            answer = await was(store, ledger_id, first, last, max_bytes)
            self._denied(store, ledger_id, first, last, answer, stored)
            return answer

        return recovery_read

    def entrystore_read_fenced(self, was: Any) -> object:
        async def read_fenced(
            store: EntryStore, items: Sequence[ReadItem], limit_bytes: int
        ) -> Any:
            member = store.instance_id
            stored = [self._ask(item.ledger_id, LedgerView.entries, member) for item in items]
            answers = await was(store, items, limit_bytes)
            for item, had, answer in zip(items, stored, answers, strict=False):
                self._denied(store, item.ledger_id, *item.spans[0], answer, had)
            return answers

        return read_fenced

    def _denied(
        self,
        store: EntryStore,
        ledger_id: int,
        first: int,
        last: int,
        answer: ReadAnswer,
        stored: int | None,
    ) -> None:
        after = first + len(answer.records)
        if answer.code in _NEGATIVE and after <= last and stored is not None:
            self._see(ledger_id, LedgerView.denies, store.instance_id, after, stored)

    def entrystore_read_lac(self, was: Any) -> object:
        async def read_lac(
            store: EntryStore, ledger_id: int, after_lac: int, wait_seconds: float
        ) -> Any:
            least = self._ask(ledger_id, LedgerView.lac, store.instance_id)
            code, lac = await was(store, ledger_id, after_lac, wait_seconds)
            if code == 0:
                self._see(ledger_id, LedgerView.lac_answered, store.instance_id, least, lac)
            return code, lac

        return read_lac

    def entrystore_write_lacs(self, was: Any) -> object:
        async def write_lacs(store: EntryStore, lacs: Sequence[tuple[int, int]]) -> Any:
            for ledger_id, lac in lacs:
                self._see(ledger_id, LedgerView.hears_lac, store.instance_id, lac)
            return await was(store, lacs)

        return write_lacs

    # -- writers, and the write-back of recoverers

    def writercore_init(self, was: Any) -> object:
        def init(core: WriterCore, metadata: LedgerMetadata, **more: Any) -> None:
            was(core, metadata, **more)
            self._cores[id(core)] = core, metadata

        return init

    def writercore_push(self, was: Any) -> object:
        def push(core: WriterCore, count: int) -> Any:
            def pushes(view: LedgerView) -> None:
                for _ in range(count):
                    view.step("the writer pushes", model.push(view.state))

            self._of_writer(core, pushes)
            return was(core, count)

        return push

    def writercore_acked(self, was: Any) -> object:
        def acked(core: WriterCore, member: str, first: int, last: int) -> None:
            was(core, member, first, last)
            if core.place_of(member) is not None and last <= core.pushed:
                self._of_recoverer(
                    core, lambda view, number: view.wrote(number, member, first, last)
                )

        return acked

    def writercore_confirm(self, was: Any) -> object:
        def confirm(core: WriterCore) -> Any:
            count = was(core)

            def confirms(view: LedgerView) -> None:
                for _ in range(count):
                    view.step(
                        f"the writer confirms {view.state.confirmed + 1}",
                        model.confirm(view.state, ALL_RULES),
                    )

            def counts(view: LedgerView, number: int) -> None:
                if core.confirmed > view.state.recoverers[number].written:
                    known = view.state.recoverers[number].written
                    raise NotAllowedError(
                        f"recoverer {number} counts copies up to {core.confirmed}; the answers "
                        f"say {known}"
                    )

            if count:
                self._of_writer(core, confirms)
                self._of_recoverer(core, counts)
            return count

        return confirm

    def writercore_begin_change(self, was: Any) -> object:
        def begin_change(core: WriterCore, replacements: Any) -> Any:
            change = was(core, replacements)
            if change.replaced:
                self._of_writer(
                    core,
                    lambda view: view.step(
                        "the writer begins a change", model.begin_change(view.state, ())
                    ),
                )
            return change

        return begin_change

    def writercore_change_stored(self, was: Any) -> object:
        def change_stored(core: WriterCore, stored: LedgerMetadata) -> Any:
            places = was(core, stored)
            segment = stored.last_segment

            def changes(view: LedgerView, number: int) -> None:
                members = [view.bookie(member) for member in segment.members]
                after = model.change_locally(view.state, number, segment.first_entry, members)
                view.step(
                    f"recoverer {number} changes the ensemble at {segment.first_entry}", after
                )

            if places:
                self._of_recoverer(core, changes)
            return places

        return change_stored

    # -- readers

    def ledgerreader_ask_lac(self, was: Any) -> object:
        async def ask_lac(reader: LedgerReader, *, wait_ms: int) -> None:
            await was(reader, wait_ms=wait_ms)
            self._see(reader.ledger_id, LedgerView.reads_up_to, reader.last_add_confirmed)

        return ask_lac

    # -- recoverers

    def fencingcore_init(self, was: Any) -> object:
        def init(core: FencingCore, metadata: LedgerMetadata, given_up: Sequence[str] = ()) -> None:
            was(core, metadata, given_up)
            self._readings[id(core)] = core, metadata
            if given_up:
                self._trace.drop(metadata.ledger_id)
            self._see(metadata.ledger_id, LedgerView.attempt, metadata)

        return init

    def fencingcore_answered(self, was: Any) -> object:
        def answered(core: FencingCore, member: str, code: int, lac: int) -> None:
            was(core, member, code, lac)
            if code == 0:
                self._of_reading(core, lambda view, number: view.heard_fence(number, member, lac))

        return answered

    def readingcore_init(self, was: Any) -> object:
        def init(core: ReadingCore, metadata: LedgerMetadata, lac: int, **more: Any) -> None:
            was(core, metadata, lac, **more)
            self._readings[id(core)] = core, metadata
            self._of_reading(core, lambda view, number: view.reads_from(number, lac))

        return init

    def readingcore_answered(self, was: Any) -> object:
        def answered(core: ReadingCore, order: Any, records: Sequence[Any], code: int) -> None:
            was(core, order, records, code)
            denies = code in _NEGATIVE and order.first + len(records) <= order.last
            self._of_reading(
                core,
                lambda view, number: view.heard_read(
                    number, order.member, order.first, len(records), denies
                ),
            )

        return answered

    def readingcore_failed(self, was: Any) -> object:
        def failed(core: ReadingCore, order: Any, records: Sequence[Any], why: str) -> None:
            was(core, order, records, why)
            self._of_reading(
                core,
                lambda view, number: view.heard_read(
                    number, order.member, order.first, len(records), False
                ),
            )

        return failed

    def recovery_close(self, was: Any) -> object:
        async def close(
            recovery: Recovery, writing: Any, frozen: LedgerMetadata, version: int, last_entry: int
        ) -> Any:
            self._of_recovery(frozen, lambda view, number: view.closes(number, last_entry))
            return await was(recovery, writing, frozen, version, last_entry)

        return close

    # -- helpers

    def _see(self, ledger_id: int, what: Callable[..., None], *details: Any, **more: Any) -> None:
        self._trace.see(ledger_id, lambda view: what(view, *details, **more))

    def _ask(
        self, ledger_id: int, what: Callable[[LedgerView, str], int], member: str
    ) -> int | None:
        view = self._trace.views.get(ledger_id)
        return None if view is None else what(view, member)

    def _of_writer(self, core: WriterCore, what: Callable[[LedgerView], None]) -> None:
        _, metadata = self._cores[id(core)]
        if metadata.state is LedgerState.OPEN:
            self._trace.see(metadata.ledger_id, what)

    def _of_recoverer(self, core: WriterCore, what: Callable[[LedgerView, int], None]) -> None:
        self._of_recovery(self._cores[id(core)][1], what)

    def _of_reading(self, core: object, what: Callable[[LedgerView, int], None]) -> None:
        self._of_recovery(self._readings[id(core)][1], what)

    def _of_recovery(
        self, metadata: LedgerMetadata, what: Callable[[LedgerView, int], None]
    ) -> None:
        def seen(view: LedgerView) -> None:
            number = view.number(metadata)
            if number is not None:
                what(view, number)

        self._trace.see(metadata.ledger_id, seen)
