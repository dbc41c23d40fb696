"""The broker as a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.metadata.access import access_of
from pulsarish.metadata.process import start_node
from pulsarish.runtime.cluster_members import member_credentials
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.loop import NodeProcess, RunningNode
from pulsarish.runtime.network.open_ports import open_options, warn_of_open_ports
from pulsarish.runtime.usage import usage
from pulsarish.runtime.world import Production
from pulsarish.security.authentication import Authenticator
from pulsarish.security.chain import make_authenticator
from pulsarish.security.failed_attempts import SALT_BYTES

__all__ = ["authenticator_of", "open_broker_options", "start_broker"]

_log = get_logger("broker.security")

_LANE = "credentials"
_ISSUERS_LANE = "issuers"
"""Apart, so that a slow issuer of tokens holds up no check of a password."""


def authenticator_of(config: BrokerConfig, parts: Production) -> Authenticator:
    """Return what checks the broker's callers. Raises ``ConfigError``."""

    def offload(job: Callable[[], bool]) -> Awaitable[bool]:
        return parts.lanes.get(_LANE).run(job)

    def fetch(url: str) -> Awaitable[bytes]:
        return parts.lanes.get(_ISSUERS_LANE).run(lambda: _read_https(url))

    return make_authenticator(
        config,
        wall_ms=parts.clock.wall_ms,
        offload=offload,
        fetch=fetch,
        salt=parts.random.randbytes(SALT_BYTES),
        on_problem=lambda problem: _log.warning("a check of credentials failed", reason=problem),
    )


def _read_https(url: str) -> bytes:
    # Imported here: only a broker with issuers of tokens needs the modules of HTTP behind it.
    from pulsarish.runtime.network.https import read_https

    return read_https(url)


def open_broker_options(config: BrokerConfig) -> list[str]:
    """Return the options whose ports every program of other machines may use."""
    if config.authentication_enabled:
        return []
    internal, *others = config.listener_plans()
    bound = [
        ("listen_address", internal.bind_address),
        ("http_address", internal.bind_http_address),
        ("pulsar_address", internal.bind_pulsar_address),
    ]
    for plan in others:
        bound += [
            ("bind_addresses", address)
            for address in (
                plan.bind_address,
                plan.bind_http_address,
                plan.bind_pulsar_address,
                plan.bind_framed_address,
            )
        ]
    bound += [("shared_addresses", each.address) for each in config.shared()]
    return open_options(bound)


async def start_broker(config: BrokerConfig, process: NodeProcess) -> RunningNode:
    """Start a broker in this process's event loop.

    Returns when it serves. Raises the errors of ``Broker.start`` and ``connect``.
    """
    warn_of_open_ports(_log, open_broker_options(config), "set authentication_enabled = true")

    def ready(broker: Broker) -> str:
        faces = f"grpc={broker.address}" + (
            f" http={broker.http_address}" if broker.http_address else ""
        )
        faces += f" pulsar={broker.pulsar_address}" if broker.pulsar_address else ""
        internal = next(iter(broker.listeners.values()))
        if internal.http_address_tls:
            faces += f" https={internal.http_address_tls}"
        if internal.pulsar_address_tls:
            faces += f" pulsar+ssl={internal.pulsar_address_tls}"
        for name, listener in broker.listeners.items():
            if listener is not internal:
                faces += f" {name}=pulsarish://{listener.address}" + (
                    f",http://{listener.http_address}" if listener.http_address else ""
                )
                faces += f",pulsar://{listener.pulsar_address}" if listener.pulsar_address else ""
        return f"broker {broker.broker_id} ready {faces}"

    return await start_node(
        process,
        metadata_url=config.metadata_url,
        session_timeout_ms=config.metadata_session_timeout_ms,
        credentials=member_credentials(config.cluster_key_file, "broker"),
        make=lambda world, parts: Broker(
            world,
            config,
            lag_seconds=lambda: process.care.lag_seconds,
            take_lag_max=process.care.take_lag_max,
            lags=process.care.lags,
            read_usage=usage,
            authenticator=authenticator_of(config, parts),
        ),
        ready=ready,
        tls=config.client_tls(),
        access=access_of(config, config.client_tls()),
    )
