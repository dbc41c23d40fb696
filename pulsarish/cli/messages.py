"""``pulsarish produce``, ``consume`` and ``read``: messages from and to the terminal, files and
pipes.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import click

from pulsarish.cli import values
from pulsarish.cli.acked import AckedLog, acked_option
from pulsarish.cli.connections import connected_client, url_option
from pulsarish.cli.output import fail, print_payload, say
from pulsarish.cli.values import FiniteRange
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.model.printable import printable_json
from pulsarish.model.subscription_type import SubscriptionType

if TYPE_CHECKING:
    import pulsarish

__all__ = ["consume", "produce", "read"]

F = TypeVar("F", bound=Callable[..., Any])

_Position = tuple[int, int, int]  # ledger, entry, index in the batch
_MAX: Final = 2**63 - 1
_POLL_MS: Final = 500
_ACKNOWLEDGED_MAX: Final = 1_000
_IDLE_MS: Final = 2000
_SHOWN_BYTES: Final = 80
_OPERATION_TIMEOUT_SECONDS: Final = 10
"""Longer than the brokers need to replace a dead one, and short for a person who mistyped an
address.
"""


@click.command()
@click.argument("topic")
@click.option("-m", "--message", "texts", multiple=True, help="A message; repeatable.")
@click.option(
    "-f",
    "--file",
    "source",
    type=click.File("rb"),
    help="Send each line of this file as a message; -: stdin.",
)
@click.option(
    "--key-from", metavar="FIELD", help="Take each message's key from this field of its JSON."
)
@click.option("--key", help="The key of all messages.")
@click.option(
    "--rate", type=FiniteRange(min=0, min_open=True), help="Maximum number of messages per second."
)
@click.option(
    "--properties",
    "-p",
    multiple=True,
    metavar="K=V",
    callback=values.properties,
    help="A property of every message; repeatable.",
)
@click.option(
    "--producer-name", help="Name of the producer, which keeps its sequence ids for deduplication."
)
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "zlib", "zstd", "snappy"]),
    default="none",
    show_default=True,
)
@click.option(
    "--expires-after",
    metavar="DURATION",
    callback=values.duration,
    help="How long consumers may get each message: 90s, 12h, 30d; without it, forever.",
)
@click.option(
    "--priority",
    type=click.IntRange(0, 9),
    help="Of each message: 9 is delivered first, 0 last; without it, 4. Only where the topic has "
    "the policy message-priority-window.",
)
@click.option(
    "--deliver-after",
    metavar="DURATION",
    callback=values.duration,
    help="When shared and key-shared subscriptions get each message: 90s, 12h; without it, at "
    "once.",
)
@acked_option
@url_option
def produce(
    topic: str,
    texts: tuple[str, ...],
    source: BinaryIO | None,
    key_from: str | None,
    key: str | None,
    rate: float | None,
    properties: dict[str, str],
    producer_name: str | None,
    compression: str,
    expires_after: timedelta | None,
    priority: int | None,
    deliver_after: timedelta | None,
    acked: Path | None,
    url: str,
) -> None:
    """Send messages to TOPIC.

    \b
    Examples:
      pulsarish produce greetings -m hello -m world
      pulsarish produce flights -f flights.jsonl --key-from tailnum
      pulsarish produce prices -m 17.3 --expires-after 10m
      pulsarish produce jobs -m urgent --priority 9
      pulsarish produce reminders -m "call back" --deliver-after 1h
    """
    import pulsarish

    if not texts and source is None:
        raise click.UsageError(
            "give messages with -m TEXT, or a file with -f FILE (or -f - for stdin)"
        )
    kinds = {"none": "NONE", "lz4": "LZ4", "zlib": "ZLib", "zstd": "ZSTD", "snappy": "SNAPPY"}
    log = AckedLog(acked)
    client = connected_client(url, operation_timeout_seconds=_OPERATION_TIMEOUT_SECONDS)
    try:
        producer = client.create_producer(
            topic,
            producer_name=producer_name,
            compression_type=pulsarish.CompressionType[kinds[compression]],
            batching_enabled=True,
            block_if_queue_full=True,
        )
        failures: list[pulsarish.Result] = []

        def done(crc32c: int, result: pulsarish.Result, message_id: pulsarish.MessageId) -> None:
            if result == pulsarish.Result.Ok:
                log.acked(producer.topic(), message_id, crc32c)
            else:
                failures.append(result)

        count = 0
        try:
            for payload in _paced(_payloads(texts, source), rate):
                producer.send_async(
                    payload,
                    partial(done, log.checksum(payload)),
                    partition_key=key if key is not None else _key(payload, key_from, count + 1),
                    properties=properties,
                    expires_after=expires_after,
                    priority=priority,
                    deliver_after=deliver_after,
                )
                count += 1
            producer.flush()
        except PulsarishError as error:
            error.add_note(_before(producer, count, failures, topic))
            raise
        if failures:
            if pulsarish.Result.Timeout in failures:
                say(
                    f"messages that timed out may still be stored later; to see what {topic} "
                    f"waits for: pulsarish topics stats {topic}"
                )
            fail(
                f"{len(failures)} of {count} messages were not acknowledged by {topic}, the first "
                f"because of {failures[0].name}"
            )
        say(f"{count} {'message' if count == 1 else 'messages'} acknowledged by {topic}")
    finally:
        client.close()
        log.close()


@click.command()
@click.argument("topic")
@click.option(
    "-s",
    "--subscription",
    required=True,
    help="Name of the subscription, which is created if it does not exist.",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice([each.option for each in SubscriptionType]),
    default="exclusive",
    show_default=True,
)
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="latest",
    show_default=True,
    help="Where a new subscription starts.",
)
@click.option(
    "--pattern",
    "is_pattern",
    is_flag=True,
    help="TOPIC is a regular expression for the names of topics of one namespace.",
)
@click.option(
    "--wildcard",
    "is_wildcard",
    is_flag=True,
    help="TOPIC has * for any token between dots, or > at its end for all that follow.",
)
@click.option(
    "--filter",
    "condition",
    help="Receive messages that fulfil this condition; a new subscription keeps it.",
)
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this number of messages.")
@click.option(
    "--follow",
    is_flag=True,
    help="Wait for more until interrupted; otherwise stop when none came for 2 seconds.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "hex"]),
    default="text",
    show_default=True,
)
@url_option
def consume(
    topic: str,
    subscription: str,
    kind: str,
    start: str,
    is_pattern: bool,
    is_wildcard: bool,
    condition: str | None,
    count: int | None,
    follow: bool,
    form: str,
    url: str,
) -> None:
    """Receive the messages of a subscription of TOPIC, print and acknowledge each. Messages with a
    schema are printed as JSON.

    With --pattern or --wildcard: of all topics that match, also of those that come later.

    \b
    Examples:
      pulsarish consume greetings -s me --from earliest -n 2
      pulsarish consume 'acme/shop/orders-.*' --pattern -s me --follow
      pulsarish consume 'orders.*.created' --wildcard -s me --follow --format json
      pulsarish consume greetings -s eu --filter "region = 'eu'" --follow
    """
    import pulsarish

    if is_pattern and is_wildcard:
        raise click.UsageError("TOPIC is either a pattern or a wildcard: give one of both options")
    topics: str | re.Pattern[str] | pulsarish.Wildcard = topic
    if is_pattern:
        topics = _pattern(topic)
    elif is_wildcard:
        topics = pulsarish.Wildcard(topic)
    types = {each.option: pulsarish.ConsumerType(each.value) for each in SubscriptionType}
    client = connected_client(url, operation_timeout_seconds=_OPERATION_TIMEOUT_SECONDS)
    try:
        consumer = client.subscribe(
            topics,
            subscription,
            consumer_type=types[kind],
            initial_position=pulsarish.InitialPosition[start.capitalize()],
            # printed messages are not delivered again, even after a crash of the broker
            ack_receipt_enabled=True,
            schema=pulsarish.AutoConsumeSchema(),
            filter=condition,
        )
        printed = _Printed(consumer)
        received = 0
        try:
            for message in _until(printed.receive, count, follow):
                with _whole():
                    _print(message, form)
                    printed.add(message)
                received += 1
        finally:
            printed.acknowledge()
        if not received:
            hint = (
                (
                    "; a new subscription starts at the end of the topic, or with --from earliest "
                    "at its start"
                )
                if start == "latest"
                else ""
            )
            say(f"no message came within {_IDLE_MS // 1000} s{hint}")
    finally:
        client.close()


@click.command()
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="earliest",
    show_default=True,
    metavar="POSITION",
    help="First message: earliest, latest, LEDGER:ENTRY[:INDEX] or a time.",
)
@click.option(
    "--to",
    "end",
    metavar="POSITION",
    help="Stop after this LEDGER:ENTRY[:INDEX], or at the first message published after this time.",
)
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this number of messages.")
@click.option(
    "--follow",
    is_flag=True,
    help="Wait for more until interrupted; otherwise stop at the end of the topic.",
)
@click.option(
    "--checkpoint-topic",
    metavar="TOPIC",
    help="Go on where the last reader of this --name stopped, and keep the position in this topic.",
)
@click.option("--name", metavar="NAME", help="The reader's name, for --checkpoint-topic.")
@click.option("--replica", is_flag=True, help="Read from a broker that does not own the topic.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "hex"]),
    default="text",
    show_default=True,
)
@url_option
def read(
    topic: str,
    start: str,
    end: str | None,
    count: int | None,
    follow: bool,
    checkpoint_topic: str | None,
    name: str | None,
    replica: bool,
    form: str,
    url: str,
) -> None:
    """Read TOPIC from a position, without a subscription and without acknowledgements. Messages
    with a schema are printed as JSON.

    \b
    Examples:
      pulsarish read greetings
      pulsarish read flights --from 2026-11-21T08:00 -n 10 --format json
      pulsarish read flights --from 12:0 --to 12:7
      pulsarish read flights --checkpoint-topic positions --name report
    """
    import pulsarish

    if (checkpoint_topic is None) != (name is None):
        raise click.UsageError("give --checkpoint-topic and --name together")

    first, first_ms = _position(start, missing_index=-1)
    last, last_ms = _position(end, missing_index=_MAX) if end else (None, None)
    client = connected_client(url, operation_timeout_seconds=_OPERATION_TIMEOUT_SECONDS)
    try:
        begin = _message_id(first) if first is not None else pulsarish.MessageId.earliest
        # LEDGER:ENTRY is the first to be printed; for latest, "inclusive" would print the last
        # existing message.
        reader = client.create_reader(
            topic,
            begin,
            start_message_id_inclusive=start != "latest",
            schema=pulsarish.AutoConsumeSchema(),
            reader_name=name,
            checkpoint_topic=checkpoint_topic,
            replica=replica,
        )
        if first_ms is not None and (name is None or reader.last_checkpoint() is None):
            reader.seek(first_ms)

        checkpoints = _Checkpoints(reader) if name is not None else None

        def receive(wait_ms: int) -> pulsarish.Message:
            if not follow and not reader.has_message_available():
                raise pulsarish.Timeout("the end of the topic")
            if checkpoints is not None:
                with suppress(pulsarish.Timeout):
                    return reader.read_next(timeout_millis=0)
                checkpoints.store()
            return reader.read_next(timeout_millis=wait_ms)

        try:
            for message in _until(receive, count, follow):
                here = message.message_id()
                position = (here.ledger_id(), here.entry_id(), here.batch_index())
                if (last is not None and position > last) or (
                    last_ms is not None and message.publish_timestamp() > last_ms
                ):
                    return
                with _whole():
                    _print(message, form)
                    if checkpoints is not None:
                        checkpoints.add(message)
        finally:
            if checkpoints is not None:
                checkpoints.store()
    finally:
        client.close()


class _Checkpoints:
    """Stores the position of a reader after what was printed: before a wait, at
    ``_ACKNOWLEDGED_MAX`` and in the end.
    """

    def __init__(self, reader: pulsarish.Reader) -> None:
        self._reader = reader
        self._printed: list[pulsarish.Message] = []

    def add(self, message: pulsarish.Message) -> None:
        self._printed.append(message)
        if len(self._printed) >= _ACKNOWLEDGED_MAX:
            self.store()

    def store(self) -> None:
        if self._printed:
            self._reader.checkpoint(self._printed[-1])
            self._printed = []


def _until(
    receive: Callable[[int], pulsarish.Message], count: int | None, follow: bool
) -> Iterator[pulsarish.Message]:
    """Yield messages up to the count, or until none has come for the idle time."""
    import pulsarish

    seen = idle_ms = 0
    while count is None or seen < count:
        try:
            message = receive(_POLL_MS)
        except pulsarish.Timeout:
            idle_ms += _POLL_MS
            if not follow and idle_ms >= _IDLE_MS:
                return
            continue
        idle_ms = 0
        seen += 1
        yield message


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidArgument(f"the pattern {text!r} is no regular expression: {error}") from None


class _Printed:
    """Printed messages. They are acknowledged together, with a receipt: before a wait, and at
    ``_ACKNOWLEDGED_MAX``.
    """

    def __init__(self, consumer: pulsarish.Consumer) -> None:
        self._consumer = consumer
        self._messages: list[pulsarish.Message] = []

    def receive(self, wait_ms: int) -> pulsarish.Message:
        """Return the next message. Raises ``Timeout`` when none came in time."""
        import pulsarish

        try:
            return self._consumer.receive(timeout_millis=0)
        except pulsarish.Timeout:
            self.acknowledge()
            return self._consumer.receive(timeout_millis=wait_ms)

    def add(self, message: pulsarish.Message) -> None:
        self._messages.append(message)
        if len(self._messages) >= _ACKNOWLEDGED_MAX:
            self.acknowledge()

    def acknowledge(self) -> None:
        if self._messages:
            self._consumer.acknowledge(self._messages)
            self._messages = []


@contextmanager
def _whole() -> Iterator[None]:
    """Delay an interruption until this ends, so that printed messages are acknowledged, too."""
    interruptions: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: interruptions.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interruptions:
        raise KeyboardInterrupt


def _payloads(texts: Iterable[str], source: BinaryIO | None) -> Iterator[bytes]:
    for text in texts:
        yield text.encode()
    if source is not None:
        for line in source:
            yield line.rstrip(b"\r\n")


def _paced(payloads: Iterable[bytes], rate: float | None) -> Iterator[bytes]:
    start = time.monotonic()
    for number, payload in enumerate(payloads):
        if rate is not None:
            wait = start + number / rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
        yield payload


def _before(
    producer: pulsarish.Producer, count: int, failures: Sequence[pulsarish.Result], topic: str
) -> str:
    """Return what became of the messages that were sent before an error, for a user who runs the
    command again.
    """
    with suppress(PulsarishError):  # a message without an acknowledgement is among the failures
        producer.flush()
    return f"of the {count} messages before it {count - len(failures)} were acknowledged by {topic}"


def _key(payload: bytes, field: str | None, number: int) -> str | None:
    """Return the key of a message. ``number`` counts messages from 1."""
    if field is None:
        return None
    try:
        value = json.loads(payload)[field]
    except (ValueError, KeyError, TypeError):
        shown = payload[:_SHOWN_BYTES].decode(errors="replace")
        raise InvalidArgument(
            f"--key-from {field}: message {number} is not a JSON object with that field: {shown!r}"
        ) from None
    return None if value is None else str(value)


def _position(text: str, *, missing_index: int) -> tuple[_Position | None, int | None]:
    """Return a position or a time (ms): earliest, latest, LEDGER:ENTRY[:INDEX], milliseconds since
    the epoch, or an ISO time.

    ``missing_index`` is used for the index in the batch when none is given.
    """
    if text == "earliest":
        return (-1, -1, -1), None
    if text == "latest":
        return (_MAX, _MAX, _MAX), None
    parts = text.split(":")
    if len(parts) in (2, 3) and all(part.isdecimal() for part in parts):
        ledger, entry, index = (*map(int, parts), missing_index)[:3]
        return (ledger, entry, index), None
    try:
        return None, values.time_ms(text)
    except click.BadParameter:
        raise click.UsageError(
            f"position {text!r} is not earliest, latest, LEDGER:ENTRY[:INDEX], milliseconds, a "
            "time like 2026-11-21T08:00 or an age like 2h"
        ) from None


def _message_id(position: _Position) -> pulsarish.MessageId:
    import pulsarish

    if position == (-1, -1, -1):
        return pulsarish.MessageId.earliest
    if position[0] == _MAX:
        return pulsarish.MessageId.latest
    return pulsarish.MessageId(ledger_id=position[0], entry_id=position[1], batch_index=position[2])


def _text(message_id: pulsarish.MessageId) -> str:
    """Return LEDGER:ENTRY, followed by the index in a batch; --from and --to accept it."""
    index = message_id.batch_index()
    return f"{message_id.ledger_id()}:{message_id.entry_id()}" + (f":{index}" if index >= 0 else "")


def _print(message: pulsarish.Message, form: str) -> None:
    value = message.data() if form == "hex" else _value(message)
    if form == "hex":
        print_payload(message.data().hex(" ").encode())
    elif form == "text":
        text = (
            value
            if isinstance(value, bytes)
            else value.encode()
            if isinstance(value, str)
            else _json(value)
        )
        print_payload(text)
    else:
        record = {
            "id": _text(message.message_id()),
            "topic": message.topic_name(),
            "key": message.partition_key() or None,
            "publish_time": message.publish_timestamp(),
            "event_time": message.event_timestamp() or None,
            "properties": message.properties(),
            "redelivery_count": message.redelivery_count(),
            "value": value.decode(errors="replace") if isinstance(value, bytes) else value,
        }
        print_payload(_json(record))


def _value(message: pulsarish.Message) -> Any:
    """Return the value of a message by its schema, or its bytes without a schema and when they do
    not match it.
    """
    try:
        return message.value()
    except InvalidArgument as error:
        _say_once(f"{_text(message.message_id())} is printed without decoding: {error}")
        return message.data()


_said: set[str] = set()


def _say_once(text: str) -> None:
    """Print a problem only for the first of many messages that have it."""
    reason = text.partition(": ")[2]
    if reason not in _said:
        _said.add(reason)
        say(text)


def _json(value: Any) -> bytes:
    return printable_json(json.dumps(value, ensure_ascii=False, default=_plain)).encode()


def _plain(value: Any) -> str:
    """Return bytes, dates and decimals within a record as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
