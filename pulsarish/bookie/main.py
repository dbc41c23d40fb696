"""Start of the bookie's process."""

from __future__ import annotations

import os

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.metadata.access import access_of
from pulsarish.metadata.process import start_node
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.cluster_members import member_credentials
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.loop import NodeProcess, RunningNode
from pulsarish.runtime.network.open_ports import open_options, warn_of_open_ports
from pulsarish.runtime.network.tls_options import tls_of_client

__all__ = ["check_directories", "open_bookie_options", "start_bookie"]

_log = get_logger("bookie.security")


def open_bookie_options(config: BookieConfig) -> list[str]:
    """Return the options whose ports every program of other machines may use."""
    if config.tls_certificate_file_path or config.cluster_key_file:
        return []
    return open_options([("listen_address", config.listen_address)])


def check_directories(config: BookieConfig, count: int) -> None:
    """Raise ``ConfigError`` when the directories hold a bookie that no process would run.

    Entries would lack a copy, and nothing would say why.

    ``count``: how many processes are to run.
    """
    journal = config.journal_directory or next(iter(config.journal_directories), "")
    above = journal or config.data_directory
    below = "" if journal else "journal"
    if count > 1 and _has_cookie(os.path.join(above, below)):
        raise ConfigError(
            f"--processes: {above} holds the bookie of a single process: give the processes "
            "another data_directory; a bookie of their own below this one would not have its data"
        )
    names = os.listdir(above) if os.path.isdir(above) else []
    indexes = [int(name) for name in names if name.isdecimal()]
    found = [index for index in indexes if _has_cookie(os.path.join(above, str(index), below))]
    kept = max(found, default=-1) + 1
    if kept > (count if count > 1 else 0):
        raise ConfigError(
            f"{above} holds the bookies of {kept} processes, and {count} would run: give "
            f"--processes {kept}, or decommission the others and delete their directories"
        )


def _has_cookie(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, COOKIE_NAME))


async def start_bookie(config: BookieConfig, process: NodeProcess) -> RunningNode:
    """Start a bookie in this process's event loop, and return when it serves.

    Raises what ``Bookie.start`` and ``connect`` raise.
    """
    warn_of_open_ports(_log, open_bookie_options(config), "set cluster_key_file")

    def ready(bookie: Bookie) -> str:
        return f"bookie {bookie.instance_id} ready grpc={bookie.address}{bookie.http.ready_words()}"

    return await start_node(
        process,
        metadata_url=config.metadata_url,
        session_timeout_ms=config.metadata_session_timeout_ms,
        credentials=member_credentials(config.cluster_key_file, "bookie"),
        make=lambda world, _: Bookie(world, config, lags=process.care.lags),
        ready=ready,
        tls=tls_of_client(config),
        access=access_of(config, tls_of_client(config)),
    )
