"""What a client's first argument says: one service URL, or what may change it at runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pulsarish.client.checks import check_type
from pulsarish.client.messages.options import ClientOptions
from pulsarish.client.service_info import AutoClusterFailover, ServiceInfo, ServiceInfoProvider
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.client_authentication import Authentication
from pulsarish.runtime.client_loggers import AnyLogger
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.address_book import Transport

__all__ = ["Service", "ServiceSource", "checked_info", "service_source"]

_log = get_logger("client")

Service = str | ServiceInfoProvider | AutoClusterFailover
_OF_EACH_CLUSTER = ("authentication", "tls_trust_certs_file_path")


def checked_info(info: object) -> ServiceInfo:
    """Return what a provider gave. Raises ``InvalidType`` for anything but a ``ServiceInfo``."""
    what = "what the provider gave"
    check_type(what, info, ServiceInfo, "a pulsarish.ServiceInfo", is_secret=True)
    return cast("ServiceInfo", info)


class ServiceSource:
    """The arguments of a client, for each cluster that it uses.

    Calls the program's provider, in the thread of its own caller.
    """

    def __init__(self, service: Service, arguments: Mapping[str, Any]) -> None:
        """Raises ``InvalidConfiguration``, ``InvalidArgument``, and what the provider raises."""
        self._arguments = arguments
        self.failover: AutoClusterFailover | None = None
        self._provider: ServiceInfoProvider | None = None
        self.chosen: ClientOptions
        if not isinstance(service, (AutoClusterFailover, ServiceInfoProvider)):
            self.chosen = ClientOptions(service, **self._arguments)
            self.current = ServiceInfo(
                service, *(self._arguments.get(name) for name in _OF_EACH_CLUSTER)
            )
            return
        for name in _OF_EACH_CLUSTER:
            if self._arguments.get(name) is not None:
                raise InvalidArgument(
                    f"{name} belongs to one cluster: pass it to each pulsarish.ServiceInfo"
                )
        if isinstance(service, AutoClusterFailover):
            self.failover, self.current = service, service.primary
            for each in service.secondary:  # so that a wrong one is noticed now
                self.options_of(each)
        else:
            self._provider = service
            self.current = checked_info(service.initial_service_info())
        self.chosen = self.options_of(self.current)

    @property
    def may_change(self) -> bool:
        return self.failover is not None or self._provider is not None

    def options_of(self, info: ServiceInfo) -> ClientOptions:
        """Return the options of the client in this cluster. Raises ``InvalidArgument``."""
        of_cluster = {
            "authentication": info.authentication,
            "tls_trust_certs_file_path": info.tls_trust_certs_file_path,
        }
        return ClientOptions(info.service_url, **{**self._arguments, **of_cluster})

    def begin(self, on_update: Callable[[ServiceInfo], None]) -> None:
        """Have the provider begin. Raises what it raises, after its ``close``."""
        if self._provider is None:
            return
        try:
            self._provider.initialize(on_update)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Have the provider end, once."""
        provider, self._provider = self._provider, None
        if provider is not None:
            try:
                provider.close()
            except Exception as error:  # noqa: BLE001 - the program's own code
                _log.error("the provider of service infos did not close", exception=error)


def service_source(
    service_url: Service,
    authentication: Authentication | None = None,
    operation_timeout_seconds: float = 30,
    io_threads: int = 1,
    message_listener_threads: int = 1,
    concurrent_lookup_requests: int = 50_000,
    log_conf_file_path: str | None = None,
    stats_interval_in_seconds: int = 600,
    use_tls: bool = False,
    tls_trust_certs_file_path: str | None = None,
    tls_allow_insecure_connection: bool = False,
    tls_validate_hostname: bool = True,
    logger: AnyLogger | None = None,
    connection_timeout_ms: int = 10_000,
    listener_name: str | None = None,
    tls_private_key_file_path: str | None = None,
    tls_certificate_file_path: str | None = None,
    *,
    transport: Transport = "auto",
    tracer_provider: object | None = None,
) -> ServiceSource:
    """Return what the arguments of a client say. Raises the errors of ``ServiceSource``."""
    arguments = locals()
    return ServiceSource(arguments.pop("service_url"), arguments)
