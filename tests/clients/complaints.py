"""What the clients in Go and Java log when something is wrong: any warning, but for what a scenario
provokes.
"""

from __future__ import annotations

import re

from tests.clients.programs import Complaints

__all__ = ["GO_COMPLAINTS", "JAVA_ADMIN_SCENARIOS", "JAVA_COMPLAINTS", "JAVA_SCENARIOS"]

GO_COMPLAINTS = Complaints(
    re.compile(r"level=(WARN|ERROR)"),
    allowed={
        **dict.fromkeys(("json_schema", "avro_schema"), re.compile("IncompatibleSchema")),
        "access_modes": re.compile("ProducerFenced|ProducerBusy"),
        # It closes a consumer while a redelivery and permits of it are on their way.
        "batches": re.compile(
            "Failed to redeliver closing or closed consumer|unable to send permits.*closing or "
            "closed"
        ),
        # its words for a producer that an unloading broker closes
        "compacted": re.compile('"Connection was closed".*producerID'),
        "encrypted": re.compile("subscription=blind|crypto/rsa: decryption error"),
    },
)

JAVA_SCENARIOS = (
    "zero_queue",
    "retry_letters",
    "unloaded",
    "several_topics",
    "transactions_refused",
)
JAVA_ADMIN_SCENARIOS = (
    "admin_tenants",
    "admin_topics",
    "admin_partitions",
    "admin_subscriptions",
    "admin_namespace_policies",
    "admin_topic_policies",
    "admin_schemas",
    "admin_brokers",
)
_ADMIN_REFUSAL = r"BaseResource - .* Failed to perform http"
_REFUSAL = re.compile(
    r"Received error from server|Failed to (create producer|subscribe to topic)|consumer cannot "
    r"be (created|subscribed)"
)
JAVA_COMPLAINTS = Complaints(
    # The timer of its HTTP client says so of a task of its own, as when the machine has stood
    # still: no answer of ours is in it.
    re.compile(r" (WARN|ERROR) (?!.*HashedWheelTimer - An exception was thrown by TimerTask)"),
    allowed={
        **dict.fromkeys(JAVA_ADMIN_SCENARIOS, re.compile(_ADMIN_REFUSAL)),
        "admin_namespace_policies": re.compile(
            f"{_ADMIN_REFUSAL}|Received error from server|error that does not support to retry"
        ),
        "admin_topics": re.compile(
            f"{_ADMIN_REFUSAL}|Received error from server|error that does not support to retry"
        ),
        "access_modes": _REFUSAL,
        "avro_schema": _REFUSAL,
        # names of old, which it asks for first
        "retry_letters": re.compile(r"\[.*/s-(RETRY|DLQ)\] failed to get Partitioned metadata"),
        "transactions_refused": re.compile(""),
        "encrypted": re.compile(r"\[blind\]"),
        "deduplication": re.compile("can not determine whether is duplicate"),
        "json_schema": _REFUSAL,
        # it does not ask the broker
        "non_persistent": re.compile(
            r"Cannot create a \[Durable\] subscription for a NonPersistentTopic"
        ),
        "primitive_schemas": _REFUSAL,
        # It comes back while the next unload goes on.
        "unloaded": re.compile(
            "is being unloaded; look it up again|Failed to subscribe to topic on"
        ),
    },
)
