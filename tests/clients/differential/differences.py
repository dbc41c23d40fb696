"""Where our client differs from Apache Pulsar's Python client, and why: the table of
``docs/clients.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["DIFFERENCES", "Difference", "table"]


@dataclass(frozen=True)
class Difference:
    """A row: what a program finds there and here, and where in the outcomes of which programs it
    shows: both values.
    """

    there: str
    here: str
    why: str
    outcomes: Mapping[str, tuple[object, object]]


DIFFERENCES: Final = (
    Difference(
        "A second `close()` raises.",
        "It does nothing.",
        "Code that cleans up may run twice.",
        {
            "producers.closed_twice": ({"raised": "AlreadyClosed"}, None),
            "consumers.closed_twice/1": ({"raised": "ValueError"}, None),
            "readers.closed/again": ({"raised": "ValueError"}, None),
            "closing.closed_twice": ({"raised": "AlreadyClosed"}, None),
        },
    ),
    Difference(
        "`Producer.close()` fails messages that wait in a batch.",
        "It sends them, and returns when they are stored.",
        "Nothing that was given to the client is lost by an orderly end.",
        {
            "producers.close_sends_what_waits/0": ("AlreadyClosed", "Ok"),
            "producers.close_sends_what_waits/1": ("AlreadyClosed", "Ok"),
            "producers.close_sends_what_waits/2": ("AlreadyClosed", "Ok"),
        },
    ),
    Difference(
        "`initial_sequence_id=0` is ignored.",
        "The first message has the id 1, as its documentation says.",
        "0 is a value like any other.",
        {
            "producers.initial_sequence_id_of_zero/0": (-1, 0),
            "producers.initial_sequence_id_of_zero/1": (0, 1),
        },
    ),
    Difference(
        "After a message with a `sequence_id` the made ids go on from the last made one, and "
        "`last_sequence_id()` is that of the last message.",
        "They go on from the given one, and it is the highest id.",
        "With deduplication the broker would drop the next message as a duplicate.",
        {
            "producers.own_sequence_id_then_made_ones": (0, 51),
            "producers.sequence_id_that_falls/1": (4, 9),
        },
    ),
    Difference(
        "A consumer acknowledges single messages of a batch at the broker only with "
        "`batch_index_ack_enabled=True`.",
        "It does so unless that is `False`.",
        "What was acknowledged does not come again.",
        {
            "acknowledging.in_a_batch_without_index/0": (["0", "1", "2", "3"], ["2", "3"]),
            "acknowledging.cumulative_inside_a_batch/0": (["0", "1", "2", "3"], ["2", "3"]),
            "acknowledging.refused_in_a_batch_after_acks/0/0": ("0", "1"),
        },
    ),
    Difference(
        "Acknowledging a message of another topic, or `MessageId.earliest` or `latest`, does "
        "nothing or acknowledges something else.",
        "`InvalidArgument`, a `ValueError`.",
        "It is a mistake in the program, and messages would come again or be lost.",
        {
            "acknowledging.message_of_another_topic": (None, {"raised": "ValueError"}),
            "wrong_arguments.ids_of_ack_that_stand_for_no_message/0": (
                None,
                {"raised": "ValueError"},
            ),
            "wrong_arguments.ids_of_ack_that_stand_for_no_message/1": (
                None,
                {"raised": "ValueError"},
            ),
        },
    ),
    Difference(
        "`receive` with a time is refused when `receiver_queue_size` is 0.",
        "It works.",
        "An addition.",
        {"consumers.queue_of_zero_with_a_time": ({"raised": "InvalidConfiguration"}, "b'0'")},
    ),
    Difference(
        "`acknowledge` takes one message.",
        "It takes a list of them, too.",
        "An addition.",
        {"acknowledging.a_list": ({"raised": "TypeError"}, None)},
    ),
    Difference(
        "Policies that do not fit the consumer's type are ignored: `key_shared_policy` without "
        "KeyShared, `dead_letter_policy` with Exclusive or Failover.",
        "`InvalidArgument`, a `ValueError`.",
        "The program would wait for an effect that never comes.",
        {
            "consumers.policy_of_key_shared_on_another_type": (True, {"raised": "ValueError"}),
            "dead_letters.policy_on_exclusive": (True, {"raised": "ValueError"}),
            "dead_letters.policy_on_failover": (True, {"raised": "ValueError"}),
        },
    ),
    Difference(
        "A dead letter has the properties `REAL_TOPIC` and `ORIGIN_MESSAGE_ID`, and no event time.",
        "It also has `REAL_SUBSCRIPTION` and the event time of the message.",
        "As those of Apache Pulsar's client in Java; a redrive needs the subscription.",
        {
            "dead_letters.letter_of_the_default_topic/properties": (
                {"ORIGIN_MESSAGE_ID": "an id", "REAL_TOPIC": "TOPIC", "a": "1"},
                {
                    "REAL_TOPIC": "TOPIC",
                    "REAL_SUBSCRIPTION": "work",
                    "ORIGIN_MESSAGE_ID": "an id",
                    "a": "1",
                },
            ),
            "dead_letters.letter_of_the_default_topic/event": (0, 7),
        },
    ),
    Difference(
        "Of `deliver_at` and `deliver_after` the second one counts.",
        "`InvalidArgument`, a `ValueError`.",
        "Two times for one message are a mistake in the program.",
        {"messages.both_delays/0": (-1, {"raised": "ValueError"})},
    ),
    Difference(
        "`True` is a number, and `None` and 1 are flags of a `ConsumerKeySharedPolicy`. Negative "
        "sizes of queues, pairs of sticky ranges that are the wrong way round, ranges without "
        "`Sticky`, a router that is not a function, and an empty list of topics are taken.",
        "`InvalidArgument`, a `ValueError`.",
        "The program hears of its mistake where it makes it.",
        {
            "wrong_arguments.producer_send_timeout/4": ("taken", "ValueError|TypeError"),
            "wrong_arguments.producer_pending/4": ("taken", "ValueError|TypeError"),
            "wrong_arguments.producer_pending/7": ("taken", "ValueError"),
            "wrong_arguments.producer_pending_across/4": ("taken", "ValueError|TypeError"),
            "wrong_arguments.producer_pending_across/7": ("taken", "ValueError"),
            "wrong_arguments.producer_router": ("taken", {"raised": "ValueError|TypeError"}),
            "wrong_arguments.consumer_queue/4": ("taken", "ValueError|TypeError"),
            "wrong_arguments.consumer_queue/6": ("taken", "ValueError"),
            "wrong_arguments.consumer_queue_in_all/4": ("taken", "ValueError"),
            "wrong_arguments.consumer_queue_in_all/5": ("taken", "ValueError"),
            "wrong_arguments.empty_list_of_topics": ("taken", {"raised": "ValueError"}),
            "wrong_arguments.key_shared_policies/3": ("made", "ValueError"),
            "wrong_arguments.key_shared_policies/9": ("made", "ValueError"),
            "wrong_arguments.key_shared_policies/11": ("made", "ValueError|TypeError"),
            "wrong_arguments.key_shared_policies/12": ("made", "ValueError|TypeError"),
        },
    ),
    Difference(
        "A dead letter policy of another type raises `AttributeError`, a router that names no "
        "partition `UnknownError`.",
        "`InvalidArgument`, a `ValueError`, which names the argument.",
        "The text says what to pass.",
        {
            "wrong_arguments.consumer_policies/dead_letter_policy/0": (
                "AttributeError",
                "ValueError|TypeError",
            ),
            "wrong_arguments.consumer_policies/dead_letter_policy/1": (
                "AttributeError",
                "ValueError|TypeError",
            ),
            "wrong_arguments.router_out_of_range/raised": ("UnknownError", "ValueError"),
        },
    ),
    Difference(
        "`schema=None`, `disable_replication=None`, contents of type `bytearray` and "
        "`memoryview`, batches of one message and a `ConsumerBatchReceivePolicy` without all "
        "arguments are refused.",
        "They are taken.",
        "Additions.",
        {
            "wrong_arguments.producer_schema/0": ("ValueError", "taken"),
            "wrong_arguments.consumer_schema/0": ("ValueError", "taken"),
            "wrong_arguments.producer_batch_of_one/0": ("ValueError", "taken"),
            "wrong_arguments.content_that_is_not_bytes/3": ("TypeError", "taken"),
            "wrong_arguments.content_that_is_not_bytes/4": ("TypeError", "taken"),
            "wrong_arguments.arguments_of_send/disable_replication/0": ("ValueError", "taken"),
            "wrong_arguments.reader_arguments/schema/0": ("ValueError", "taken"),
            "wrong_arguments.table_view_arguments/3": ({"raised": "ValueError"}, "a TableView"),
            "wrong_arguments.batch_receive_policies/0": ("TypeError", "made"),
            "wrong_arguments.batch_receive_policies/1": ("TypeError", "made"),
        },
    ),
    Difference(
        "`AuthenticationAthenz` exists.",
        "`OperationNotSupported`.",
        "Brokers here do not know Athenz.",
        {"wrong_arguments.credentials/6/raised": ("ValueError", "OperationNotSupported")},
    ),
    Difference(
        "`schema_version()` is a `str`.",
        "It is `bytes`.",
        "A version is 8 bytes, and not every one is text.",
        {"messages.defaults/schema_version": ("", "b''")},
    ),
    Difference(
        "`replication_clusters` and `replicate_subscription_state_enabled=True` are taken.",
        "`OperationNotSupported`.",
        "There is one cluster: they would have no effect.",
        {
            "messages.replication_clusters": ("b'x'", {"raised": "OperationNotSupported"}),
            "wrong_arguments.arguments_of_send/replication_clusters/0": (
                "ValueError",
                "OperationNotSupported",
            ),
            "wrong_arguments.arguments_of_send/replication_clusters/1": (
                "ValueError",
                "OperationNotSupported",
            ),
            "wrong_arguments.consumer_replicated/0": ("taken", "OperationNotSupported"),
        },
    ),
    Difference(
        "`negative_acknowledge` and `redeliver_unacknowledged_messages` of a closed consumer do "
        "nothing.",
        "`AlreadyClosed`, as its other calls.",
        "The request is not carried out.",
        {
            "consumers.calls_after_close/negative_acknowledge": (None, {"raised": "AlreadyClosed"}),
            "consumers.calls_after_close/redeliver": (None, {"raised": "AlreadyClosed"}),
        },
    ),
    Difference(
        "A topic twice in a list is one topic.",
        "`InvalidArgument`, a `ValueError`.",
        "It is a mistake in the program.",
        {"wrong_arguments.list_with_a_topic_twice": ("taken", {"raised": "ValueError"})},
    ),
    Difference(
        "`a/b/c/d` and `persistent:/a/b/c` are refused before any request.",
        "The broker refuses them: there is no such namespace.",
        "The part after the namespace is a name like others.",
        {
            "wrong_arguments.names_of_topics/a/b/c/d/e/f/raised": (
                "InvalidTopicName",
                "PulsarException",
            ),
            "wrong_arguments.names_of_topics/persistent:/a/b/c/raised": (
                "InvalidTopicName",
                "PulsarException",
            ),
        },
    ),
    Difference(
        "`batch_receive` ends before a message that would exceed `max_num_bytes`.",
        "It ends with that message.",
        "The bytes are a threshold here, as `receiver_queue_size` is.",
        {"receiving.batch_by_bytes/0": (1, 2), "receiving.batch_by_bytes/1": (1, 2)},
    ),
    Difference(
        "`batch_receive` beside a listener returns nothing.",
        "`InvalidConfiguration`, as `receive` does.",
        "It would never return a message.",
        {"receiving.listener/1/2": ([], {"raised": "InvalidConfiguration|ValueError"})},
    ),
    Difference(
        "A topic of a tenant or namespace that does not exist is `TopicNotFound`.",
        "`NotFound`, of which `TopicNotFound` is a kind.",
        "It says what is missing, and a new topic would not help.",
        {
            "wrong_arguments.tenant_that_does_not_exist/0/raised": (
                "TopicNotFound",
                "PulsarException",
            ),
            "wrong_arguments.tenant_that_does_not_exist/1/raised": (
                "TopicNotFound",
                "PulsarException",
            ),
            "wrong_arguments.namespace_that_does_not_exist/0/raised": (
                "TopicNotFound",
                "PulsarException",
            ),
            "wrong_arguments.namespace_that_does_not_exist/1/raised": (
                "TopicNotFound",
                "PulsarException",
            ),
        },
    ),
    Difference(
        "A negative number where there is none, as `unacked_messages_timeout_ms=-1`, is a "
        "`TypeError`.",
        "`InvalidArgument`, a `ValueError`.",
        "The type is right and the value is not.",
        {
            "wrong_arguments.producer_batch_of_one/2": ("TypeError", "ValueError"),
            "wrong_arguments.arguments_of_send/event_timestamp/2": ("TypeError", "ValueError"),
            "wrong_arguments.consumer_unacked_timeout/2": ("TypeError", "ValueError"),
        },
    ),
)


def table() -> str:
    """Return the rows as a table in Markdown."""
    rows = [f"| {row.there} | {row.here} | {row.why} |" for row in DIFFERENCES]
    return "\n".join(["| Apache Pulsar's client | ours | why |", "| --- | --- | --- |", *rows])
