"""The disks of one bookie in real directories, without a network: filled by the bookie's own store,
and looked at by commands.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from click.testing import Result

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.bookie.store import EntryStore, open_store
from pulsarish.metadata import paths
from pulsarish.metadata.process import open_store as open_metadata
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, LedgerIds
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.seams import MetadataStore
from pulsarish.runtime.world import production
from pulsarish.wire.bookie import AddResult, decode_add, encode_add
from pulsarish.wire.json_record import encode_record
from tests.support.commands import run_command

__all__ = ["INSTANCE", "BookieDisks"]

T = TypeVar("T")

INSTANCE = "b1~00000001"
_SETTINGS = {
    "bookie_id": "b1",
    "journal_file_size_bytes": 65536,
    "entry_log_size_bytes": 20_000,
    "checkpoint_spread": 0.0,
}


class BookieDisks:
    """One bookie's directories below ``home``, and its metadata."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.settings = {
            **_SETTINGS,
            "data_directory": f"{home}/data",
            "metadata_url": f"embedded:{home}/metadata",
        }
        self.config = BookieConfig(**cast("dict[str, Any]", self.settings))

    @property
    def directories(self) -> list[str]:
        return [self.config.journal_path, self.config.ledger_path, self.config.index_path]

    @property
    def cookie(self) -> Cookie:
        return Cookie("b1", INSTANCE, "c1", *self.directories, created_ms=1)

    def with_store(self, work: Callable[[EntryStore], Awaitable[T]], *, crash: bool = False) -> T:
        """Run ``work`` on the open store. ``crash``: leave it as SIGKILL would."""

        async def main() -> T:
            parts = production(outside=OutsideWork())
            try:
                for directory in self.directories:
                    path = f"{directory}/{COOKIE_NAME}"
                    if not Path(path).exists():  # noqa: ASYNC240
                        await parts.files.replace(path, encode_record(self.cookie))
                store = await open_store(
                    files=parts.files,
                    tasks=parts.tasks,
                    clock=parts.clock,
                    rng=parts.random,
                    open_index=parts.open_index,
                    config=self.config,
                    instance_id=INSTANCE,
                    ledgers_given_out=self._given_out,
                )
                try:
                    return await work(store)
                finally:
                    if crash:
                        await store.index.rows.close()
                    else:
                        await store.close()
            finally:
                await parts.close()

        return asyncio.run(main())

    async def _given_out(self) -> int:
        return 1000

    async def add(self, store: EntryStore, records: Sequence[bytes]) -> list[AddResult]:
        message = encode_add(
            INSTANCE, recovery=False, sizes=[len(each) for each in records], parts=list(records)
        )
        data = b"".join(bytes(part) for part in message)
        done: asyncio.Future[list[AddResult]] = asyncio.get_running_loop().create_future()
        waiting = store.add(data, decode_add(data), done.set_result)
        if waiting is not None:
            await waiting
        results = await done
        assert not any(each.code for each in results)
        return results

    def with_metadata(self, work: Callable[[Records], Awaitable[T]]) -> T:
        """Run ``work`` on the tree of the bookie."""

        async def main() -> T:
            outside = OutsideWork()
            parts = production(outside=outside)
            try:
                store: MetadataStore = await open_metadata(self.config.metadata_url, parts, outside)
                try:
                    return await work(Records(store, parts.clock, parts.random))
                finally:
                    await store.close()
            finally:
                await parts.close()

        return asyncio.run(main())

    def make_tree(self) -> None:
        """Put the cookie into the metadata, and give out ids."""

        async def work(records: Records) -> None:
            await records.compare_and_set(paths.cookie("b1"), self.cookie, None)
            await records.compare_and_set(paths.LEDGER_IDS, LedgerIds(1000), None)

        self.with_metadata(work)

    def command(self, *words: str) -> Result:
        """Run ``pulsarish storage``."""
        options = [f"--set={name}={value}" for name, value in self.settings.items()]
        return run_command({}, "storage", *words, *options)

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """Return the JSON that a command prints: a list, an object, or one object a line."""
        result = self.command(*words, "-o", "json")
        assert result.exit_code == 0, result.output
        text = result.stdout
        if text.startswith("["):
            return cast("list[dict[str, Any]]", json.loads(text))
        if text.startswith("{\n"):
            return [json.loads(text)]
        return [json.loads(line) for line in text.splitlines()]
