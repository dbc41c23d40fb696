"""What a client counts, as instruments of OpenTelemetry that are read when they are exported.

Nothing imports this module unless a program passes ``meter_provider``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import ref

from pulsarish.client.errors import InvalidType
from pulsarish.client.stats import ClientStats, Series, sent_seconds, series_of
from pulsarish.model.errors import OperationNotSupported
from pulsarish.runtime.extras import install_command

try:
    from opentelemetry.metrics import CallbackOptions, Observation
except ModuleNotFoundError:
    raise OperationNotSupported(
        f"metrics need the API of OpenTelemetry: {install_command('otel')}"
    ) from None

__all__ = ["export_metrics"]

_ATTRIBUTES = {
    "topic": "messaging.destination.name",
    "subscription": "messaging.destination.subscription.name",
    "producer_name": "messaging.client.id",
    "consumer_name": "messaging.client.id",
}


def export_metrics(client: Any, meter_provider: Any) -> None:
    """Have the provider's readers read the counts of a client for as long as it exists.

    Raises ``InvalidType`` for what is not a meter provider.
    """
    if not callable(getattr(meter_provider, "get_meter", None)):
        raise InvalidType(
            f"meter_provider is of type {type(meter_provider).__name__}: pass a MeterProvider, "
            "such as opentelemetry.metrics.get_meter_provider()"
        )
    meter = meter_provider.get_meter("pulsarish")
    found = ref(client)

    def stats() -> ClientStats:
        held = found()
        return ClientStats((), ()) if held is None else held.stats()

    for family, read in series_of():
        name = family.name.removeprefix("pulsarish_client_").removesuffix("_total")
        make = (
            meter.create_observable_counter
            if family.kind == "counter"
            else meter.create_observable_up_down_counter
        )
        make(
            f"pulsarish.client.{name}",
            callbacks=[_observing(stats, read)],
            unit="By" if name.startswith("bytes") else "{message}",
            description=family.meaning,
        )
    meter.create_observable_counter(
        "pulsarish.client.send_time",
        callbacks=[_observing(stats, sent_seconds)],
        unit="s",
        description="Sum of the send latencies of all stored messages.",
    )


def _observing(
    stats: Callable[[], ClientStats], read: Callable[[ClientStats], Iterable[Series]]
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observe(_options: CallbackOptions) -> Iterator[Observation]:
        for labels, value in read(stats()):
            attributes = {_ATTRIBUTES[name]: text for name, text in labels if text}
            yield Observation(value, {"messaging.system": "pulsar", **attributes})

    return observe
