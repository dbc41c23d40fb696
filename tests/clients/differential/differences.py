"""Where our client differs from Apache Pulsar's Python client, and why: the table of
``docs/clients.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DIFFERENCES", "Difference", "table"]


@dataclass(frozen=True)
class Difference:
    """A row: what a program finds there and here, and which programs show it."""

    there: str
    here: str
    why: str
    programs: tuple[str, ...]


DIFFERENCES: Final = (
    Difference(
        "A second `close()` raises.",
        "It does nothing.",
        "Code that cleans up may run twice.",
        (
            "producers.closed_twice",
            "consumers.closed_twice",
            "readers.closed",
            "closing.closed_twice",
        ),
    ),
    Difference(
        "`Producer.close()` fails messages that wait in a batch.",
        "It sends them, and returns when they are stored.",
        "Nothing that was given to the client is lost by an orderly end.",
        ("producers.close_sends_what_waits",),
    ),
    Difference(
        "`initial_sequence_id=0` is ignored.",
        "The first message has the id 1, as its documentation says.",
        "0 is a value like any other.",
        ("producers.initial_sequence_id_of_zero",),
    ),
    Difference(
        "After a message with a `sequence_id` the made ids go on from the last made one, and "
        "`last_sequence_id()` is that of the last message.",
        "They go on from the given one, and it is the highest id.",
        "With deduplication the broker would drop the next message as a duplicate.",
        ("producers.own_sequence_id_then_made_ones", "producers.sequence_id_that_falls"),
    ),
    Difference(
        "A consumer acknowledges single messages of a batch at the broker only with "
        "`batch_index_ack_enabled=True`.",
        "It does so unless that is `False`.",
        "What was acknowledged does not come again.",
        (
            "acknowledging.in_a_batch_without_index",
            "acknowledging.cumulative_inside_a_batch",
            "acknowledging.refused_in_a_batch_after_acks",
        ),
    ),
    Difference(
        "Acknowledging a message of another topic, or `MessageId.earliest` or `latest`, does "
        "nothing or acknowledges something else.",
        "`InvalidArgument`, a `ValueError`.",
        "It is a mistake in the program, and messages would come again or be lost.",
        (
            "acknowledging.message_of_another_topic",
            "wrong_arguments.ids_of_ack_that_stand_for_no_message",
        ),
    ),
    Difference(
        "`receive` with a time is refused when `receiver_queue_size` is 0.",
        "It works.",
        "An addition.",
        ("consumers.queue_of_zero_with_a_time",),
    ),
    Difference(
        "`acknowledge` takes one message.",
        "It takes a list of them, too.",
        "An addition.",
        ("acknowledging.a_list",),
    ),
    Difference(
        "Policies that do not fit the consumer's type are ignored: `key_shared_policy` without "
        "KeyShared, `dead_letter_policy` with Exclusive or Failover.",
        "`InvalidArgument`, a `ValueError`.",
        "The program would wait for an effect that never comes.",
        (
            "consumers.policy_of_key_shared_on_another_type",
            "dead_letters.policy_on_exclusive",
            "dead_letters.policy_on_failover",
        ),
    ),
    Difference(
        "A dead letter has the properties `REAL_TOPIC` and `ORIGIN_MESSAGE_ID`, and no event time.",
        "It also has `REAL_SUBSCRIPTION` and the event time of the message.",
        "As those of Apache Pulsar's client in Java; a redrive needs the subscription.",
        ("dead_letters.letter_of_the_default_topic",),
    ),
    Difference(
        "Of `deliver_at` and `deliver_after` the second one counts.",
        "`InvalidArgument`, a `ValueError`.",
        "Two times for one message are a mistake in the program.",
        ("messages.both_delays",),
    ),
    Difference(
        "`True` is a number. Negative sizes of queues, pairs of sticky ranges that are the "
        "wrong way round, ranges without `Sticky`, a router that is not a function, and an empty "
        "list of topics are taken.",
        "`InvalidArgument`, a `ValueError`.",
        "The program hears of its mistake where it makes it.",
        (
            "wrong_arguments.producer_send_timeout",
            "wrong_arguments.producer_pending",
            "wrong_arguments.producer_pending_across",
            "wrong_arguments.producer_router",
            "wrong_arguments.consumer_queue",
            "wrong_arguments.consumer_queue_in_all",
            "wrong_arguments.key_shared_policies",
            "wrong_arguments.empty_list_of_topics",
        ),
    ),
    Difference(
        "A dead letter policy of another type raises `AttributeError`, a router that names no "
        "partition `UnknownError`.",
        "`InvalidArgument`, a `ValueError`, which names the argument.",
        "The text says what to pass.",
        ("wrong_arguments.consumer_policies", "wrong_arguments.router_out_of_range"),
    ),
    Difference(
        "`schema=None`, contents of type `bytearray` and `memoryview`, batches of one message "
        "and a `ConsumerBatchReceivePolicy` without all arguments are refused.",
        "They are taken.",
        "Additions.",
        (
            "wrong_arguments.producer_schema",
            "wrong_arguments.consumer_schema",
            "wrong_arguments.content_that_is_not_bytes",
            "wrong_arguments.producer_batch_of_one",
            "wrong_arguments.reader_arguments",
            "wrong_arguments.table_view_arguments",
            "wrong_arguments.batch_receive_policies",
        ),
    ),
    Difference(
        "`AuthenticationAthenz` exists.",
        "`OperationNotSupported`.",
        "Brokers here do not know Athenz.",
        ("wrong_arguments.credentials",),
    ),
    Difference(
        "`schema_version()` is a `str`.",
        "It is `bytes`.",
        "A version is 8 bytes, and not every one is text.",
        ("messages.defaults",),
    ),
    Difference(
        "`replication_clusters`, `replicate_subscription_state_enabled=True` and "
        "`lazy_start_partitioned_producers=True` are taken.",
        "`OperationNotSupported`.",
        "There is one cluster, and all partitions are opened at once: they would have no effect.",
        (
            "messages.replication_clusters",
            "wrong_arguments.arguments_of_send",
            "wrong_arguments.consumer_replicated",
            "wrong_arguments.producer_flags",
        ),
    ),
    Difference(
        "`negative_acknowledge` and `redeliver_unacknowledged_messages` of a closed consumer do "
        "nothing.",
        "`AlreadyClosed`, as its other calls.",
        "The request is not carried out.",
        ("consumers.calls_after_close",),
    ),
    Difference(
        "`ConsumerDeadLetterPolicy` takes an `initial_subscription_name`, and shows what was not "
        "given as `''`.",
        "`OperationNotSupported`, and `None`.",
        "The native protocol has no field for it: subscribe to the dead letter topic first.",
        (
            "dead_letters.policy_shows_its_values",
            "dead_letters.initial_subscription",
        ),
    ),
    Difference(
        "A topic twice in a list is one topic.",
        "`InvalidArgument`, a `ValueError`.",
        "It is a mistake in the program.",
        ("wrong_arguments.list_with_a_topic_twice",),
    ),
    Difference(
        "`a/b/c/d` and `persistent:/a/b/c` are refused before any request.",
        "The broker refuses them: there is no such namespace.",
        "The part after the namespace is a name like others.",
        ("wrong_arguments.names_of_topics",),
    ),
    Difference(
        "Keys choose a partition by a hash of the C++ library Boost.",
        "By `HashingScheme.JavaStringHash`, as Apache Pulsar's client in Java does.",
        "Boost's hash is another one in other versions of that library. Give programs that "
        "publish to the same partitioned topic with both packages one `message_router`.",
        (
            "topics.keys_choose_partitions",
            "topics.keys_that_are_not_ascii_choose_partitions",
            "topics.ordering_keys_choose_partitions",
            "topics.single_partition_with_keys",
        ),
    ),
    Difference(
        "`batch_receive` ends before a message that would exceed `max_num_bytes`.",
        "It ends with that message.",
        "The bytes are a threshold here, as `receiver_queue_size` is.",
        ("receiving.batch_by_bytes",),
    ),
    Difference(
        "`batch_receive` beside a listener returns nothing.",
        "`InvalidConfiguration`, as `receive` does.",
        "It would never return a message.",
        ("receiving.listener",),
    ),
    Difference(
        "A topic of a tenant or namespace that does not exist is `TopicNotFound`.",
        "`NotFound`, of which `TopicNotFound` is a kind.",
        "It says what is missing, and a new topic would not help.",
        (
            "wrong_arguments.tenant_that_does_not_exist",
            "wrong_arguments.namespace_that_does_not_exist",
        ),
    ),
    Difference(
        "`unacked_messages_timeout_ms=-1` is a `TypeError`.",
        "`InvalidArgument`, a `ValueError`.",
        "The type is right and the value is not.",
        ("wrong_arguments.consumer_unacked_timeout",),
    ),
)


def table() -> str:
    """Return the rows that are there to stay as a table in Markdown."""
    rows = [f"| {row.there} | {row.here} | {row.why} |" for row in DIFFERENCES]
    return "\n".join(["| Apache Pulsar's client | ours | why |", "| --- | --- | --- |", *rows])
