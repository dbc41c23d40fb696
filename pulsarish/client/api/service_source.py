"""What a client's first argument says: one service URL, or what may change it at runtime."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec, cast

from pulsarish.client.checks import check_type
from pulsarish.client.messages.options import ClientOptions
from pulsarish.client.service_info import (
    AutoClusterFailover,
    Service,
    ServiceInfo,
    ServiceInfoProvider,
)
from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.log import get_logger

__all__ = ["Service", "ServiceSource", "checked_info", "service_source"]

_log = get_logger("client")

P = ParamSpec("P")

_OF_EACH_CLUSTER: Final = ("authentication", "tls_trust_certs_file_path")


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
                service, **{name: arguments.get(name) for name in _OF_EACH_CLUSTER}
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
        of_cluster = {name: getattr(info, name) for name in _OF_EACH_CLUSTER}
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


def _source_of(options: Callable[P, ClientOptions]) -> Callable[P, ServiceSource]:
    """Return a function of the same arguments, whose first one may be any ``Service``."""
    signature = inspect.signature(options)

    def make(*arguments: P.args, **named: P.kwargs) -> ServiceSource:
        given = signature.bind(*arguments, **named).arguments
        return ServiceSource(given.pop("service_url"), given)

    make.__signature__ = signature  # type: ignore[attr-defined]
    return make


service_source: Final = _source_of(ClientOptions)
"""What the arguments of a client say. Raises the errors of ``ServiceSource``."""
