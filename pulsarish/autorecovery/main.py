"""Auto-recovery as a process of its own, with its HTTP face: ``/health`` and ``/metrics``."""

from __future__ import annotations

import msgspec

from pulsarish.autorecovery.autorecovery import AutoRecovery
from pulsarish.autorecovery.config import AutoRecoveryConfig
from pulsarish.metadata.access import access_of
from pulsarish.metadata.backup.backup import check_not_being_restored
from pulsarish.metadata.process import start_node
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.runtime.cluster_members import member_credentials
from pulsarish.runtime.loop import NodeProcess, RunningNode
from pulsarish.runtime.metrics import Histogram, Metrics
from pulsarish.runtime.network.tls_options import tls_of_client
from pulsarish.runtime.network.watch_ports import WatchPorts
from pulsarish.runtime.seams import HttpRequest, HttpResponse, SessionState, World
from pulsarish.runtime.watch_face import answer_watcher

__all__ = ["start_autorecovery"]

_GRACE_SECONDS = 1.0


class _AutoRecoveryNode:
    def __init__(self, world: World, config: AutoRecoveryConfig, lags: Histogram) -> None:
        self.http = WatchPorts(world.connections, config, world.clock.wall_ms)
        self._world = world
        self._config = config
        self._records = Records(world.metadata, world.clock, world.random)
        self._session = SessionWatch(world)
        self._node: AutoRecovery | None = None
        self._metrics = Metrics(labels={}, lags=lags)

    async def start(self) -> None:
        """Returns when it works.

        Raises ``MetadataUnavailable``, and what ``WatchPorts.open`` raises.
        """
        world, config = self._world, self._config
        await check_not_being_restored(self._records)
        await self.http.open(self._handle)
        name = config.autorecovery_id or self.http.address or self.http.address_tls
        node = AutoRecovery(world, config.auto_recovery, name)
        await node.start()
        node.export(self._metrics)
        self._session.export(self._metrics)
        self._node = node

    async def stop(self) -> None:
        await self.http.stop(_GRACE_SECONDS)
        if self._node is not None:
            await self._node.stop()

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        return await answer_watcher(request, self._health, self._metrics)

    def _health(self) -> HttpResponse:
        """200 while it can find and repair: not without metadata, and not while an operator must
        decide.
        """
        node = self._node
        reason = "starting" if node is None else node.unwell_reason()
        if not reason and self._records.state is not SessionState.CONNECTED:
            reason = "the metadata do not answer"
        off_reason = "" if node is None else node.switch.off_reason
        body = {
            "status": "unhealthy" if reason else "ok",
            "reason": reason,
            "warnings": [off_reason] if off_reason else [],
            "auditor": node.election.elected if node is not None else "",
            "is_auditor": node is not None and node.auditor.is_active,
            "underreplicated_ledgers": node.worker.backlog.count if node is not None else 0,
        }
        return HttpResponse(503 if reason else 200, msgspec.json.encode(body))


async def start_autorecovery(config: AutoRecoveryConfig, process: NodeProcess) -> RunningNode:
    """Start auto-recovery in this process's event loop.

    Raises what ``connect`` and the node's ``start`` raise.
    """
    return await start_node(
        process,
        metadata_url=config.metadata_url,
        session_timeout_ms=config.metadata_session_timeout_ms,
        credentials=member_credentials(config.cluster_key_file, "autorecovery"),
        make=lambda world, _: _AutoRecoveryNode(world, config, process.care.lags),
        ready=lambda node: f"autorecovery ready{node.http.ready_words()}",
        tls=tls_of_client(config),
        access=access_of(config, tls_of_client(config)),
    )
