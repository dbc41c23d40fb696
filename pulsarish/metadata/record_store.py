"""The one compare-and-set loop: every read and write of the metadata store goes through here.

No code outside this package calls the store itself or handles its ``OutcomeUnknown`` and
``SessionLost``. They are raised as ``MetadataUnavailable``, which every caller of the metadata
handles.

A lost answer is resolved by reading back: the record's token tells this process's write from
another's, because neither "it failed" nor "it was written" may be assumed. A conflict is never
overwritten: ``update`` decides again from the stored record, and ``compare_and_set`` raises.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from pulsarish.metadata.paths import OF_SESSIONS, parents
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.seams import (
    Clock,
    Conflict,
    ConflictReason,
    MetadataStore,
    Op,
    OutcomeUnknown,
    SessionLost,
    SessionState,
    Versioned,
)
from pulsarish.wire.json_record import decode_record, encode_record

__all__ = ["ATTEMPTS_MAX", "Guard", "Records", "new_token"]

T = TypeVar("T", bound=msgspec.Struct)
U = TypeVar("U", bound=msgspec.Struct)
Answer = TypeVar("Answer")
Found = tuple[T, int] | None
"""A record and its version, if the record exists."""

ATTEMPTS_MAX: Final = 30
_WAIT_SECONDS: Final = 0.05
_WAIT_MAX_SECONDS: Final = 1.0


def new_token(rng: random.Random) -> str:
    return f"{rng.getrandbits(64):016x}"


def _decoded(node: Versioned | None, kind: type[T], path: str) -> Found[T]:
    return None if node is None else (decode_record(node.data, kind, path), node.version)


def _nothing_else(_record: object) -> Sequence[Op]:
    return ()


class _Again(Exception):
    """An attempt prepared something and is to be repeated at once."""


class Guard(Protocol):
    """Decide whether the tree may be trusted and written."""

    @property
    def is_closed(self) -> bool:
        """Whether it is known that nothing may be read and written now, so that repeating a request
        is useless.
        """
        ...

    async def check(self) -> None:
        """Raise ``MetadataUnavailable`` when the tree may not be trusted, or when that could not be
        found out.

        Requests that are sent in the same turn of the loop go over the connection that was checked.
        """
        ...


class Records:
    """Typed access to the metadata tree for one node.

    ``guard`` is asked before each read and commit of nodes that outlive a session.
    """

    def __init__(
        self, store: MetadataStore, clock: Clock, rng: random.Random, *, guard: Guard | None = None
    ) -> None:
        self._guard = guard
        self._store = store
        self._clock = clock
        self._random = rng

    async def get(self, path: str, kind: type[T]) -> tuple[T, int] | None:
        """Return the record and its version, or ``None``.

        Raises ``MetadataUnavailable``, ``CorruptData``.
        """
        return (await self.get_many([path], kind))[0]

    async def get_many(self, paths: Sequence[str], kind: type[T]) -> list[tuple[T, int] | None]:
        return [
            _decoded(node, kind, path)
            for path, node in zip(paths, await self.nodes(paths), strict=True)
        ]

    async def get_each(
        self, paths: Sequence[str], kind: type[T]
    ) -> list[tuple[T, int] | CorruptData | None]:
        """Return records as ``get_many``, and in the place of one that cannot be read why not.

        For work on many of which none may stop the others. Raises ``MetadataUnavailable``.
        """
        found: list[tuple[T, int] | CorruptData | None] = []
        for path, node in zip(paths, await self.nodes(paths), strict=True):
            try:
                found.append(_decoded(node, kind, path))
            except CorruptData as error:
                found.append(error)
        return found

    async def get_pair(
        self, path: str, kind: type[T], other_path: str, other_kind: type[U]
    ) -> tuple[Found[T], Found[U]]:
        """Return two records of different kinds, requested together: one wait instead of two."""
        node, other = await self.nodes([path, other_path])
        return _decoded(node, kind, path), _decoded(other, other_kind, other_path)

    async def nodes(
        self, paths: Sequence[str], *, watch: Callable[[str], None] | None = None
    ) -> list[Versioned | None]:
        """Return the nodes as they are stored; ``watch`` as in ``MetadataStore.get_many``.

        Raises ``MetadataUnavailable``.
        """
        if not paths:
            return []
        await self._check_read(paths[0])
        try:
            return await self._store.get_many(paths, watch=watch)
        except (OutcomeUnknown, SessionLost) as error:
            raise MetadataUnavailable(
                f"the metadata store did not answer a read of {paths[0]}: {error}"
            ) from error

    async def children(self, path: str) -> list[str]:
        """Return the sorted names of the children; empty when there is no such node.

        Raises ``MetadataUnavailable``.
        """
        try:
            return await self.watch_children(path)
        except Conflict:
            return []

    async def watch_children(
        self, path: str, watch: Callable[[str], None] | None = None
    ) -> list[str]:
        """Return the sorted names of the children. ``watch`` is called when they may have changed.

        Raises ``Conflict`` when there is no such node, and then nothing is watched, and
        ``MetadataUnavailable``.
        """
        await self._check_read(path)
        try:
            return await self._store.children(path, watch=watch)
        except (OutcomeUnknown, SessionLost) as error:
            raise MetadataUnavailable(
                f"the metadata store did not answer a listing of {path}: {error}"
            ) from error

    async def sync(self, path: str) -> None:
        """Make reads after this see everything that any client committed before it.

        Raises ``MetadataUnavailable``.
        """
        try:
            await self._store.sync(path)
        except (OutcomeUnknown, SessionLost) as error:
            raise MetadataUnavailable(
                f"the metadata store did not answer a sync of {path}: {error}"
            ) from error

    async def commit(self, ops: Sequence[Op]) -> None:
        """Commit once.

        Raises ``Conflict`` with nothing written, and ``MetadataUnavailable`` when the outcome is
        unknown.

        This does not retry, since only the caller knows how to find out what happened.
        """
        try:
            await self._commit(ops)
        except (OutcomeUnknown, SessionLost) as error:
            raise MetadataUnavailable(
                f"the metadata store did not answer whether {ops[0].path} was written: {error}"
            ) from error

    @property
    def state(self) -> SessionState:
        """The state of the session."""
        return self._store.state

    @property
    def is_away(self) -> bool:
        """Whether it is known that nothing that outlives a session can be read and written now."""
        is_closed = self._guard is not None and self._guard.is_closed
        return is_closed or self.state is not SessionState.CONNECTED

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def zxid(self) -> int:
        """The greatest transaction id that this session has seen, as ``MetadataStore.zxid``."""
        return self._store.zxid

    @property
    def answered_at(self) -> float:
        """When the last answered request was sent, as ``MetadataStore.answered_at``."""
        return self._store.answered_at

    async def close(self) -> None:
        """End the session. Only the code that opened the store calls this."""
        await self._store.close()

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        """Call ``changed`` in the loop at each change of the session's state."""
        self._store.listen(changed)

    def token(self) -> str:
        """Return a new token, with which a caller later recognises its own write."""
        return new_token(self._random)

    async def _commit(self, ops: Sequence[Op]) -> list[str | int]:
        # Asked before every attempt: between two attempts the tree may have changed to another one.
        # Nodes that end with their session may be written.
        if not any(op.kind == "create_ephemeral" for op in ops):
            await self._check()
        return await self._store.commit(ops)

    async def _check_read(self, path: str) -> None:
        # From an older tree a caller would read nodes that were deleted since, or miss nodes that
        # were made since, and act on it for good: a seek is done, a deletion counts as done.
        # Registrations are right in an older tree once nodes have registered there.
        if self._guard is not None and not path.startswith(OF_SESSIONS):
            await self._guard.check()

    async def _check(self) -> None:
        if self._guard is not None:
            try:
                await self._guard.check()
            except MetadataUnavailable as error:
                if self._guard.is_closed:
                    raise
                # The connection broke before anything was sent. Callers retry as if it had broken
                # after that.
                raise OutcomeUnknown(str(error)) from error

    async def compare_and_set(
        self,
        path: str,
        record: msgspec.Struct,
        version: int | None,
        *,
        with_ops: Sequence[Op] = (),
        parents: bool = True,
        token: str = "",
    ) -> int:
        """Create (``version`` None) or replace the record, together with ``with_ops``.

        Return the new version.

        The record needs a ``token`` field; it is stamped here, with ``token`` or a new one. Missing
        parents of a new node are made unless ``parents`` is off. Raises ``Conflict`` when the node
        is not at ``version`` (or exists), with nothing written, and ``MetadataUnavailable`` when
        that could not be decided: then the caller must treat the write as unknown.
        """
        token = token or self.token()
        data = encode_record(msgspec.structs.replace(record, token=token))
        op = Op("create", path, data) if version is None else Op("put", path, data, version)

        async def attempt(unsure: bool) -> int:
            try:
                if unsure:
                    node = await self._read_newest(path)
                    if node is not None and token.encode() in node.data:
                        return node.version
                result = (await self._commit([op, *with_ops]))[0]
                return result if isinstance(result, int) else 0
            except Conflict as conflict:
                if (
                    parents
                    and version is None
                    and conflict.index == 0
                    and conflict.reason is ConflictReason.NO_NODE
                ):
                    await self.make_parents(path)
                    raise _Again from conflict
                if not unsure:
                    raise
                # An earlier attempt may have been the one that conflicts with this: read once more
                # before raising.
                found = await self._read_surely(path)
                if found is not None and token.encode() in found.data:
                    return found.version
                raise

        return await self._until_answered(
            attempt, f"whether {path} was written; its outcome is unknown"
        )

    async def _until_answered(
        self, attempt: Callable[[bool], Awaitable[Answer]], what: str
    ) -> Answer:
        """Call ``attempt`` until the store answers it, and return its result.

        ``attempt`` is called with whether the outcome of an earlier attempt is unknown. Raises what
        it raises, and ``MetadataUnavailable`` after ``ATTEMPTS_MAX`` calls.
        """
        backoff = Backoff(_WAIT_SECONDS, _WAIT_MAX_SECONDS)
        unsure = False
        for _ in range(ATTEMPTS_MAX):
            try:
                return await attempt(unsure)
            except _Again:
                pass
            except (OutcomeUnknown, SessionLost):
                unsure = True
                await self._clock.sleep(backoff.next_seconds())
        raise MetadataUnavailable(f"the metadata store did not answer {what}")

    async def _read_newest(self, path: str) -> Versioned | None:
        if self._guard is not None and self._guard.is_closed:
            await self._guard.check()  # a sync is not answered during an outage
        await self._store.sync(path)
        await self._check()
        return (await self._store.get_many([path]))[0]

    async def _read_surely(self, path: str) -> Versioned | None:
        return await self._until_answered(lambda _: self._read_newest(path), f"a read of {path}")

    async def update(
        self,
        path: str,
        kind: type[T],
        change: Callable[[T | None], T | None],
        *,
        with_ops: Callable[[T | None], Sequence[Op]] = _nothing_else,
    ) -> tuple[T, int] | None:
        """Read, decide and write, in one commit with what ``with_ops`` returns for the record that
        was read. On a conflict start again.

        ``change`` gets the record or ``None`` and returns the new one, or ``None`` to change
        nothing. It may raise to refuse. Return what is stored now and its version.

        Raises ``MetadataUnavailable``, and ``Conflict`` when one of those operations is refused.
        """
        for _ in range(ATTEMPTS_MAX):
            found = await self._read_surely(path)
            current = None if found is None else decode_record(found.data, kind, path)
            wanted = change(current)
            if wanted is None:
                return None if current is None or found is None else (current, found.version)
            try:
                version = await self.compare_and_set(
                    path,
                    wanted,
                    None if found is None else found.version,
                    with_ops=with_ops(current),
                )
            except Conflict as conflict:
                if conflict.index > 0:
                    raise
                continue
            return wanted, version
        raise MetadataUnavailable(f"{path} changed {ATTEMPTS_MAX} times while it was being updated")

    async def make_parents(self, path: str) -> None:
        """Make the missing nodes above a path."""
        for parent in parents(path):
            await self.ensure(parent)

    async def ensure(self, path: str, data: bytes = b"") -> None:
        """Make a plain node unless it exists; its parent must exist."""

        async def attempt(_unsure: bool) -> None:
            try:
                await self._commit([Op("create", path, data)])
            except Conflict as conflict:
                if conflict.reason is not ConflictReason.EXISTS:
                    raise

        await self._until_answered(attempt, f"whether {path} was made")

    async def delete(
        self,
        path: str,
        version: int = -1,
        *,
        before: Sequence[Op] = (),
        with_ops: Sequence[Op] = (),
        created: int = 0,
        once: bool = False,
    ) -> bool:
        """Delete a node, in one commit with ``before`` (what lies below it) and ``with_ops``.

        A node that another process creates again at this path in the meantime is left alone.

        Args:
            created: the creation of the node that is meant, as in ``Versioned``; 0: the node that
                is there now.
            once: nothing is ever created again at this path, or ``with_ops`` refuse it then; that
                saves a read.

        Returns:
            ``False`` when there was no such node.

        Raises ``Conflict`` (bad version, not empty) and ``MetadataUnavailable``.
        """
        was = None if once else await self._read_surely(path)
        if not once and (was is None or created not in (0, was.created)):
            return False

        async def attempt(unsure: bool) -> bool:
            if unsure and was is not None:
                now = await self._read_surely(path)
                if now is None or now.created != was.created:
                    return True
            try:
                await self._commit([*before, Op("delete", path, version=version), *with_ops])
            except Conflict as conflict:
                if conflict.index == len(before) and conflict.reason is ConflictReason.NO_NODE:
                    return unsure
                raise
            return True

        return await self._until_answered(attempt, f"whether {path} was deleted")
