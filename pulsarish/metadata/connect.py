"""Open a store from a metadata URL: ``zk://h1:2181,h2:2181/chroot``, ``zk+ssl://`` for servers
with TLS, ``embedded:DIR``, ``memory:``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pulsarish.metadata.access import NO_ACCESS, MetadataAccess
from pulsarish.metadata.tree.nodes import path_is_valid
from pulsarish.model.errors import ConfigError, MetadataUnavailable
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, Files, KeyValueIndex, MetadataStore, Tasks

__all__ = ["MetadataUrl", "connect", "parse_metadata_url"]

_log = get_logger("metadata")

_HOST: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+)(:(\d{1,5}))?")
_EXAMPLES: Final = (
    "use zk://host:2181[,host:2181][/chroot], zk+ssl://host:2281[...] for TLS, embedded:DIRECTORY "
    "or memory:"
)


@dataclass(frozen=True, slots=True)
class MetadataUrl:
    kind: str  # "zk", "embedded" or "memory"
    hosts: str = ""
    root: str = "/"
    directory: str = ""
    has_tls: bool = False


def parse_metadata_url(url: str) -> MetadataUrl:
    """Return the parts of a URL. Raises ``ConfigError`` naming what is wrong."""
    scheme, _, rest = url.partition(":")
    match scheme:
        case "memory":
            if rest:
                raise ConfigError(f"metadata_url {url!r}: memory: takes nothing after the colon")
            return MetadataUrl("memory")
        case "embedded":
            if not rest:
                raise ConfigError(f"metadata_url {url!r}: embedded: needs a directory")
            return MetadataUrl("embedded", directory=rest)
        case "zk" | "zk+ssl" if rest.startswith("//"):
            hosts, slash, path = rest[2:].partition("/")
            root = slash + path.rstrip("/") if path.rstrip("/") else "/"
            if not path_is_valid(root):
                raise ConfigError(f"metadata_url {url!r}: {root!r} is not a valid ZooKeeper path")
            for host in hosts.split(","):
                found = _HOST.fullmatch(host)
                if found is None or not 0 < int(found[3] or 2181) < 65536:
                    raise ConfigError(f"metadata_url {url!r}: {host!r} is not host:port")
            return MetadataUrl("zk", hosts, root, has_tls=scheme == "zk+ssl")
        case _:
            raise ConfigError(f"metadata_url {url!r} is not understood: {_EXAMPLES}")


async def connect(
    url: str,
    *,
    clock: Clock,
    tasks: Tasks,
    rng: random.Random,
    files: Files,
    open_index: Callable[[str], Awaitable[KeyValueIndex]],
    outside: OutsideWork | None = None,
    session_timeout_ms: int = 10_000,
    connect_timeout_seconds: float | None = 30.0,
    access: MetadataAccess = NO_ACCESS,
) -> MetadataStore:
    """Open a store with a session. ``connect_timeout_seconds`` None waits forever.

    Raises ``ConfigError`` for a bad URL, and for a login or certificate that is missing, cannot be
    read or is refused, ``MetadataUnavailable`` when no server answers in time; ``Locked``,
    ``CorruptData`` for a directory.
    """
    parsed = parse_metadata_url(url)
    _check_access(url, parsed, access)
    # Imported here: what keeps a tree itself needs no kazoo with its threads, and no other process
    # needs the tree.
    if parsed.kind != "zk":
        from pulsarish.metadata.local import open_local

        local = await open_local(
            parsed.directory, clock=clock, tasks=tasks, rng=rng, files=files, open_index=open_index
        )
        return await local.new_store(closes_tree=True)
    from pulsarish.metadata.zookeeper.store import ZooKeeperSettings, ZooKeeperStore

    store = ZooKeeperStore(
        parsed.hosts,
        parsed.root,
        clock=clock,
        tasks=tasks,
        settings=ZooKeeperSettings(session_timeout_ms=session_timeout_ms),
        outside=outside,
        access=access,
        has_tls=parsed.has_tls,
    )
    _log.info("connecting", servers=parsed.hosts, tls=parsed.has_tls)
    try:
        async with clock.timeout(connect_timeout_seconds):
            await store.start()
    except TimeoutError as error:
        await store.close()
        problem = f" (the last attempt: {store.problem})" if store.problem else ""
        raise MetadataUnavailable(
            f"no metadata server answered at {parsed.hosts} within {connect_timeout_seconds:g} s; "
            f"is it running there?{problem}"
        ) from error
    except ConfigError:
        await store.close()
        raise
    return store


def _check_access(url: str, parsed: MetadataUrl, access: MetadataAccess) -> None:
    """Raise ``ConfigError`` for protection that the URL leaves out."""
    if access.auth_file and parsed.kind != "zk":
        raise ConfigError(
            f"{access.auth_option} is set, and metadata_url {url!r} is no server to log in to: "
            "use zk:// or zk+ssl://, or empty it"
        )
    if access.is_tls_set and not parsed.has_tls:
        raise ConfigError(
            f"certificates for the metadata are given, and metadata_url {url!r} has no TLS: use "
            "zk+ssl://, or empty the metadata_tls_* options"
        )
