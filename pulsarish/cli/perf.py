"""``pulsarish perf``: measure rates and latencies of publishing and consuming."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from pulsarish.cli.acked import AckedLog, acked_option
from pulsarish.cli.connections import connected_client, url_option
from pulsarish.cli.groups import Group
from pulsarish.cli.output import fail, output_option, print_record, say
from pulsarish.cli.values import FiniteRange

__all__ = ["perf"]

_PERCENTILES: Final = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0)
_PLOT_WIDTH: Final = 50
_SAMPLES_MAX: Final = 2_000_000
_STAMP_BYTES: Final = 8
_AGE_SECONDS_MAX: Final = 366 * 86_400
"""A message that begins with a time older than this was not made by `perf produce`. Clocks of two
machines may differ a little.
"""


@dataclass(slots=True)
class _Latencies:
    """Measured times; kept whole up to a limit, after which the oldest are dropped."""

    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES_MAX))

    def add(self, value: float) -> None:
        self.seconds.append(value)

    def percentiles_ms(self) -> dict[str, float]:
        ordered = sorted(self.seconds)
        if not ordered:
            return {}
        last = len(ordered) - 1
        return {
            f"p{percent:g}": round(ordered[min(last, int(len(ordered) * percent / 100))] * 1000, 3)
            for percent in _PERCENTILES
        }


@click.group(cls=Group)
def perf() -> None:
    """Measure rates and latencies.

    \b
    Examples:
      pulsarish perf produce bench --size 1024 -n 200000
      pulsarish perf produce bench --rate 5000 --no-batching     # open loop: latency from due time
      pulsarish perf consume bench -s meter --from earliest
    """


@perf.command()
@click.argument("topic")
@click.option("-n", "--messages", default=100_000, show_default=True, type=click.IntRange(1))
@click.option(
    "--size",
    "size_bytes",
    default=1024,
    show_default=True,
    type=click.IntRange(_STAMP_BYTES),
    help="Bytes of a message.",
)
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    help="Messages per second, open loop; default: as fast as possible.",
)
@click.option("--batching/--no-batching", default=True, show_default=True)
@click.option(
    "--window",
    default=2000,
    show_default=True,
    type=click.IntRange(1),
    help="Maximum of unacknowledged messages (1: one at a time).",
)
@acked_option
@url_option
@output_option
def produce(
    topic: str,
    messages: int,
    size_bytes: int,
    rate: float | None,
    batching: bool,
    window: int,
    acked: Path | None,
    url: str,
    output: str,
) -> None:
    """Publish to TOPIC and print the rate and the publish latencies.

    \b
    Examples:
      pulsarish perf produce load --size 100
      pulsarish perf produce load --rate 5000 -n 50000 -o json
    """
    import pulsarish

    client = connected_client(url)
    producer = client.create_producer(
        topic,
        batching_enabled=batching,
        block_if_queue_full=True,
        max_pending_messages=window,
        batching_max_publish_delay_ms=1,
    )
    latencies = _Latencies()
    failures: list[pulsarish.Result] = []
    body = b"x" * (size_bytes - _STAMP_BYTES)
    progress = _Progress("published")
    log = AckedLog(acked)

    def send(due: float) -> None:
        payload = time.time_ns().to_bytes(_STAMP_BYTES) + body
        crc32c = log.checksum(payload)

        def done(result: pulsarish.Result, message_id: pulsarish.MessageId) -> None:
            if result == pulsarish.Result.Ok:
                latencies.add(time.perf_counter() - due)
                log.acked(producer.topic(), message_id, crc32c)
            else:
                failures.append(result)

        producer.send_async(payload, done)

    started = time.perf_counter()
    for number in range(messages):
        due = time.perf_counter()
        if rate is not None:
            due = started + number / rate
            _sleep_until(due)
        send(due)
        progress.step(number + 1)
    producer.flush()
    seconds = time.perf_counter() - started
    client.close()
    log.close()
    _report(messages - len(failures), size_bytes, seconds, latencies, output, failed=len(failures))
    if failures:
        fail(
            f"{len(failures):,} messages were not acknowledged by {topic}, the first because of "
            f"{failures[0].name}"
        )


@perf.command()
@click.argument("topic")
@click.option("-s", "--subscription", default="perf", show_default=True)
@click.option(
    "-n",
    "--messages",
    type=click.IntRange(1),
    help="Stop after this number of messages; otherwise when none came for 2 seconds.",
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
)
@click.option(
    "--queue",
    default=1000,
    show_default=True,
    type=click.IntRange(1),
    help="Size of the receive queue, in messages.",
)
@url_option
@output_option
def consume(
    topic: str,
    subscription: str,
    messages: int | None,
    start: str,
    queue: int,
    url: str,
    output: str,
) -> None:
    """Consume TOPIC and print the rate and, for messages of `perf produce`, the time since they
    were made.

    \b
    Example:
      pulsarish perf consume load -n 100000
    """
    import pulsarish

    client = connected_client(url)
    consumer = client.subscribe(
        topic,
        subscription,
        receiver_queue_size=queue,
        consumer_type=pulsarish.ConsumerType.Shared,
        initial_position=pulsarish.InitialPosition[start.capitalize()],
    )
    latencies = _Latencies()
    progress = _Progress("received")
    count = size_bytes = 0
    reported = False
    started = last = time.perf_counter()
    while messages is None or count < messages:
        try:
            message = consumer.receive(timeout_millis=2000)
        except pulsarish.Timeout:
            if messages is None:
                break
            if not reported:
                say(f"received {count:,} of {messages:,}; waiting for more; stop with Ctrl-C")
            reported = True
            continue
        reported = False
        last = time.perf_counter()
        if count == 0:
            started = last
        data = message.data()
        count += 1
        size_bytes += len(data)
        age_seconds = (time.time_ns() - int.from_bytes(data[:_STAMP_BYTES])) / 1e9
        if abs(age_seconds) < _AGE_SECONDS_MAX:
            latencies.add(age_seconds)
        consumer.acknowledge(message)
        progress.step(count)
    client.close()
    _report(count, size_bytes // max(count, 1), last - started, latencies, output, failed=0)


class _Progress:
    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._next = time.perf_counter() + 1
        self._count = 0

    def step(self, count: int) -> None:
        if count % 256 == 0 and (now := time.perf_counter()) >= self._next:
            say(
                f"{self._verb} {count:,}  ({(count - self._count) / (now - self._next + 1):,.0f}/s)"
            )
            self._next, self._count = now + 1, count


def _sleep_until(due: float) -> None:
    wait = due - time.perf_counter()
    if wait > 0:
        time.sleep(wait)


def _report(
    count: int, size_bytes: int, seconds: float, latencies: _Latencies, output: str, *, failed: int
) -> None:
    rate = count / seconds if seconds > 0 else 0.0
    percentiles = latencies.percentiles_ms()
    record = {
        "messages": count,
        "failed": failed,
        "seconds": round(seconds, 3),
        "rate_per_second": round(rate),
        "megabytes_per_second": round(rate * size_bytes / 1e6, 1),
        "latency_ms": percentiles,
    }
    if output == "json":
        print_record(record, "json")
        return
    click.echo(
        f"{count:,} messages of {size_bytes} B in {seconds:.2f} s: {rate:,.0f}/s, "
        f"{rate * size_bytes / 1e6:.1f} MB/s, {failed} failed"
    )
    for line in _plot(percentiles):
        click.echo(line)


def _plot(percentiles: dict[str, float]) -> list[str]:
    """Return latency by percentile as bars; the longest is as wide as the plot."""
    top = max(percentiles.values(), default=0) or 1
    return [
        f"{name:>7}  {value:>10.3f} ms  {'#' * round(value / top * _PLOT_WIDTH)}"
        for name, value in percentiles.items()
    ]
