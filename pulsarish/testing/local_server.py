"""A real server in a thread of the test's process."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Final, Self

from pulsarish.admin.client import Admin
from pulsarish.client.api.blocking_client import Client
from pulsarish.local_cluster.standalone import (
    StandaloneConfigs,
    standalone_configs,
    start_standalone,
)
from pulsarish.model.errors import AlreadyClosed
from pulsarish.runtime.loop import NodeProcess, server_runner

__all__ = ["LocalServer"]

_ANY_PORT: Final = tuple(
    f"{name}=127.0.0.1:0" for name in ("listen_address", "http_address", "pulsar_address")
)
# A start writes a whole journal file, and waits until it is on the disk.
_BOOKIE: Final = ("listen_address=127.0.0.1:0", f"journal_file_size_bytes={4 << 20}")


class LocalServer:
    """A broker and a bookie with one copy of everything, as ``pulsarish standalone`` runs them.

        with LocalServer() as server, server.client() as client:
            client.create_producer("orders").send(b"one")

    It serves when the constructor returns. A test may have several at a time.

    Args:
        directory: where messages are kept, for a server that is started again on what it has
            stored; ``None``: a temporary directory, deleted when the server is closed.
        settings: options of the broker as ``NAME=VALUE``; ``pulsarish broker --print-config`` lists
            them.

    Raises ``ConfigError`` for an option that does not exist or fit, ``OSError`` when the directory
    cannot be used or a port is taken. Environment variables are not read, so a test does not depend
    on the shell that runs it.
    """

    def __init__(self, directory: str | None = None, settings: Sequence[str] = ()) -> None:
        self._stack = ExitStack()
        self._thread: threading.Thread | None = None
        kept_in = directory or self._stack.enter_context(
            tempfile.TemporaryDirectory(prefix="pulsarish-testing-", ignore_cleanup_errors=True)
        )
        try:
            configs = standalone_configs(
                kept_in,
                in_memory=directory is None,
                environ={},
                broker_overrides=[*_ANY_PORT, *settings],
                bookie_overrides=_BOOKIE,
            )
            self._addresses = self._start(configs)
        except BaseException:
            self._stack.close()
            raise

    def _start(self, configs: StandaloneConfigs) -> dict[str, str]:
        ready: Future[dict[str, str]] = Future()

        def serve() -> None:
            try:
                with server_runner() as runner:
                    runner.run(self._serve(configs, ready))
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        thread = threading.Thread(target=serve, name="pulsarish-local-server", daemon=True)
        thread.start()
        found = ready.result()
        self._thread = thread
        return found

    async def _serve(self, configs: StandaloneConfigs, ready: Future[dict[str, str]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process = NodeProcess()
        process.care.start()
        try:
            node = await start_standalone(configs, process)
            ready.set_result(node.urls)
            await process.stop_requested()
            await node.stop()
        finally:
            process.care.stop()

    @property
    def service_url(self) -> str:
        """The URL for ``pulsarish.Client``."""
        return f"pulsarish://{self._addresses['pulsarish']}"

    @property
    def pulsar_url(self) -> str:
        """The URL for Apache Pulsar's clients."""
        return f"pulsar://{self._addresses['pulsar']}"

    @property
    def admin_url(self) -> str:
        """The URL for ``pulsarish.admin.client.Admin`` and for ``curl``."""
        return f"http://{self._addresses['http']}"

    def client(self, **options: Any) -> Client:
        """Return a new client of this server. The caller closes it before the server.

        Args:
            options: the arguments of ``pulsarish.Client``.
        """
        self._check_open()
        return Client(self.service_url, **options)

    def admin(self) -> Admin:
        """Return a client for the administration of this server."""
        self._check_open()
        return Admin(self.admin_url)

    def close(self) -> None:
        """Stop the server and wait for its end. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._loop.call_soon_threadsafe(self._process.request_stop, "the test has ended")
        thread.join()
        self._stack.close()

    def _check_open(self) -> None:
        if self._thread is None:
            raise AlreadyClosed("this LocalServer is closed: make a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._thread is None else self.service_url
        return f"LocalServer({state})"
