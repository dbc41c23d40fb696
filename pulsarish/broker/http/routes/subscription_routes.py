"""Subscriptions: lists come from metadata, the topic's owner does everything else; for a
partitioned topic the partitions' owners.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.http.hole_report import hole_report
from pulsarish.broker.http.json_bodies import (
    BacklogAnalysisBody,
    FilterBody,
    HolesBody,
    MessageIdBody,
    PositionBody,
    RecoverBody,
)
from pulsarish.broker.http.message_view import message_in
from pulsarish.broker.http.owner_calls import OwnerCall, OwnerCalls
from pulsarish.broker.http.partitions import each_done
from pulsarish.broker.http.route import (
    AFTER,
    AUTHORITATIVE,
    LIMIT,
    Call,
    Handler,
    Parameter,
    Route,
    answer,
    no_content,
)
from pulsarish.broker.http.routes.topic_routes import FORCE, TOPIC
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.topic_limits import check_subscription_properties
from pulsarish.broker.publishing.dedup_log import DEDUP_CURSOR
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import (
    AlreadyExists,
    InvalidArgument,
    NotAllowedError,
    NotFound,
    OperationNotSupported,
    TopicNotFound,
)
from pulsarish.model.message_filter import FILTER_PROPERTY, parse_filter
from pulsarish.model.position import EARLIEST, LATEST, Position
from pulsarish.model.topic_name import TopicName, decode_segment
from pulsarish.runtime.seams import HttpResponse, World
from pulsarish.wire.entry import parse_metadata

__all__ = ["SubscriptionRoutes"]

_SUBSCRIPTION: Final = TOPIC + "/subscription/{subscription}"
_PEEK_MAX: Final = 10_000
_POSITION: Final = PositionBody | Literal["earliest", "latest"]
_POSITION_TEXT: Final = re.compile("([0-9]{1,19}):([0-9]{1,19})")
_SECONDS: Final = Parameter(
    "seconds", "Messages that were published longer ago than this are skipped.", int, minimum=0
)


class SubscriptionRoutes:
    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        records: Records,
        namespaces: Namespaces,
        owners: OwnerCalls,
        topics: LoadedTopics,
    ) -> None:
        self._world = world
        self._records = records
        self._namespaces = namespaces
        self._owners = owners
        self._topics = topics
        self._config = config

    def routes(self) -> list[Route]:
        purge, consume = Permission.PURGE, Permission.CONSUME
        number = Parameter(
            "number", "Which unacknowledged message, from 1.", int, minimum=1, maximum=_PEEK_MAX
        )
        count = Parameter("count", "How many messages.", int, minimum=1)
        start = Parameter("from", "Only holes from this position on, as LEDGER:ENTRY.")
        holes = Parameter(
            "limit", "How many holes are listed.", int, minimum=1, maximum=1_000, default=20
        )
        timestamp = Parameter("timestamp", "Milliseconds since the epoch.", int, minimum=0)
        replicated = Parameter(
            "replicated",
            "Whether the subscription is replicated to other clusters.",
            bool,
            default=False,
        )
        return [
            Route(
                "GET",
                TOPIC + "/subscriptions",
                self._list,
                consume,
                "List the subscriptions of a topic.",
                parameters=(AFTER, LIMIT, AUTHORITATIVE),
                answers=list[str],
            ),
            _on(
                "PUT",
                "",
                self._create,
                consume,
                "Create a subscription, at the end of the topic or at a position.",
                replicated,
                body=_POSITION,
                more=(409, 501),
            ),
            _on("DELETE", "", self._delete, purge, "Delete a subscription.", FORCE),
            Route(
                "GET",
                _SUBSCRIPTION + "/position/{number}",
                self._peek,
                consume,
                "Return an unacknowledged message of a subscription.",
                parameters=(number,),
                answers=bytes,
                answer_type="application/octet-stream",
                large=True,
                statuses=(405, 501),
                owner=True,
            ),
            Route(
                "GET",
                _SUBSCRIPTION + "/properties",
                self._properties,
                consume,
                "Show the properties of a subscription.",
                parameters=(AUTHORITATIVE,),
                answers=dict[str, str],
                owner=True,
            ),
            _on(
                "PUT",
                "/properties",
                self._set_properties,
                consume,
                "Replace the properties of a subscription.",
                body=dict[str, str],
                required=True,
            ),
            Route(
                "GET",
                _SUBSCRIPTION + "/filter",
                self._filter,
                consume,
                "Show the filter of a subscription.",
                parameters=(AUTHORITATIVE,),
                answers=FilterBody,
                owner=True,
            ),
            _on(
                "PUT",
                "/filter",
                self._set_filter,
                consume,
                "Replace the filter of a subscription; its consumers subscribe again.",
                body=FilterBody,
                required=True,
            ),
            _on(
                "DELETE",
                "/filter",
                self._remove_filter,
                consume,
                "Remove the filter of a subscription; its consumers subscribe again.",
            ),
            _on(
                "POST",
                "/skip/{count}",
                self._skip,
                purge,
                "Skip a number of messages of a subscription.",
                count,
                more=(405,),
            ),
            _on("POST", "/skip_all", self._skip_all, purge, "Skip all messages of a subscription."),
            _on(
                "POST",
                "/resetcursor",
                self._reset,
                purge,
                "Reset a subscription to a message.",
                body=_POSITION,
                required=True,
                more=(405,),
            ),
            _on(
                "POST",
                "/resetcursor/{timestamp}",
                self._reset_to_time,
                purge,
                "Reset a subscription to a publish time.",
                timestamp,
            ),
            _on(
                "POST",
                "/expireMessages/{seconds}",
                self._expire,
                purge,
                "Skip the old messages of a subscription.",
                _SECONDS,
            ),
            _on(
                "POST",
                "/expireMessages",
                self._expire_to,
                purge,
                "Skip the messages of a subscription up to a message.",
                body=PositionBody,
                required=True,
                more=(405,),
            ),
            Route(
                "POST",
                TOPIC + "/all_subscription/expireMessages/{seconds}",
                self._expire_all,
                purge,
                "Skip the old messages of every subscription of a topic.",
                parameters=(_SECONDS,),
                owner=True,
            ),
            Route(
                "POST",
                _SUBSCRIPTION + "/recover",
                self._recover,
                Permission.ADMIN_TOPIC,
                "Go on without its ledger of acknowledgements, which is gone for good; refused "
                "while it may be read.",
                body=RecoverBody,
                body_required=True,
                answers=MessageIdBody,
                owner=True,
                statuses=(405,),
            ),
            Route(
                "GET",
                _SUBSCRIPTION + "/holes",
                self._holes,
                consume,
                "List the holes of a subscription: what is not acknowledged below the highest "
                "acknowledged entry, and who has it.",
                parameters=(start, holes),
                answers=HolesBody,
                statuses=(405,),
                owner=True,
            ),
            Route(
                "POST",
                _SUBSCRIPTION + "/analyzeBacklog",
                self._analyze,
                consume,
                "Count the entries and messages of a subscription's backlog from the log.",
                body=PositionBody,
                answers=BacklogAnalysisBody,
                statuses=(405,),
                owner=True,
            ),
        ]

    async def _list(self, call: Call) -> HttpResponse:
        name = call.topic()
        partitions = await self._namespaces.partition_names(name)
        if partitions is None and not await self._namespaces.topic_exists(name):
            raise TopicNotFound(f"topic {name} does not exist")
        names: dict[str, None] = {}
        for topic in partitions or [name]:
            names.update(
                dict.fromkeys(
                    map(decode_segment, await self._records.children(paths.cursors(topic)))
                )
            )
        names.pop(DEDUP_CURSOR, None)
        return answer(call.page(names, str))

    async def _partitions(self, call: Call, errand: OwnerCall) -> HttpResponse | None:
        """Run a request on every partition; ``None`` when the topic is not partitioned."""
        words = ("subscription", call["subscription"], *errand.words)
        whole = OwnerCall(errand.method, words, errand.query, errand.body)
        return await each_done(call, self._namespaces, self._owners, whole)

    async def _subscription(self, call: Call) -> Subscription:
        name = await self._whole(call)
        return (await self._owners.topic(call, name)).subscription(call["subscription"])

    async def _whole(self, call: Call) -> TopicName:
        """Return the topic, for work that cannot cover all partitions at once.

        Raises ``NotAllowedError`` for a partitioned topic.
        """
        name = call.topic()
        if await self._namespaces.partitions(name) is not None:
            raise NotAllowedError(
                f"{name} is a partitioned topic; name one of its partitions, "
                f"{name.with_partition(0)} and on"
            )
        return name

    # -- creating and deleting

    async def _create(self, call: Call) -> HttpResponse:
        if call.flag("replicated"):
            raise OperationNotSupported(
                "subscriptions are not replicated: there is one cluster; create it without "
                "replicated"
            )
        body = call.body
        symbolic = not isinstance(body, PositionBody) or body.ledger_id in (
            LATEST.ledger_id,
            EARLIEST.ledger_id,
        )
        if not symbolic and await self._namespaces.partitions(call.topic()) is not None:
            raise NotAllowedError(
                "a message id belongs to one partition; create it at earliest or latest, or on "
                "that partition"
            )
        done = await self._partitions(call, OwnerCall("PUT", body=body))
        if done is not None:
            return done
        name, subscription = call.topic(), call["subscription"]
        topic = await self._owners.topic(call, name)
        if subscription in topic.subscriptions:
            raise AlreadyExists(f"subscription {subscription!r} of {name} exists already")
        properties = body.properties if isinstance(body, PositionBody) else None
        await topic.create_subscription(
            subscription, LATEST if body is None else _start(body), properties=properties
        )
        return no_content()

    async def _properties(self, call: Call) -> HttpResponse:
        return answer(await self._properties_of_one(call))

    async def _properties_of_one(self, call: Call) -> dict[str, str]:
        names = await self._namespaces.partition_names(call.topic())
        # All partitions have the same subscriptions.
        topic = await self._owners.topic(call, call.topic() if names is None else names[0])
        return topic.subscription(call["subscription"]).cursor.subscription_properties

    async def _set_properties(self, call: Call) -> HttpResponse:
        done = await self._partitions(call, OwnerCall("PUT", ("properties",), body=call.body))
        if done is not None:
            return done
        check_subscription_properties(call.body)
        await (await self._subscription(call)).set_properties(call.body)
        return no_content()

    async def _filter(self, call: Call) -> HttpResponse:
        properties = await self._properties_of_one(call)
        return answer(FilterBody(properties.get(FILTER_PROPERTY)))

    async def _set_filter(self, call: Call) -> HttpResponse:
        if call.body.filter is not None:
            parse_filter(call.body.filter)
        return await self._replace_filter(call, call.body.filter)

    async def _remove_filter(self, call: Call) -> HttpResponse:
        return await self._replace_filter(call, None)

    async def _replace_filter(self, call: Call, text: str | None) -> HttpResponse:
        errand = OwnerCall("PUT", ("filter",), body=FilterBody(text))
        done = await self._partitions(call, errand)
        if done is not None:
            return done
        subscription = await self._subscription(call)
        properties = dict(subscription.cursor.subscription_properties)
        properties.pop(FILTER_PROPERTY, None)
        if text is not None:
            properties[FILTER_PROPERTY] = text
        check_subscription_properties(properties)
        await subscription.set_properties(properties)
        return no_content()

    async def _delete(self, call: Call) -> HttpResponse:
        force = {"force": "true"} if call.flag("force") else {}
        done = await self._partitions(call, OwnerCall("DELETE", query=force))
        if done is not None:
            return done
        topic = await self._owners.topic(call, call.topic())
        await topic.unsubscribe(call["subscription"], force=call.flag("force"))
        return no_content()

    # -- reading

    async def _peek(self, call: Call) -> HttpResponse:
        number = call.number("number")
        subscription = await self._subscription(call)
        left = number
        for entry in await subscription.unacknowledged(number):
            found = message_in(entry.payload, left - 1)
            if isinstance(found, int):
                left -= found
                continue
            position = entry.position
            message_id = f"{position.ledger_id}:{position.entry_id}:{found.batch_index}"
            headers = {"X-Pulsar-Message-ID": message_id, **found.headers}
            return HttpResponse(200, found.payload, "application/octet-stream", headers)
        raise NotFound(
            f"subscription {subscription.name!r} has fewer than {number} unacknowledged messages"
        )

    async def _analyze(self, call: Call) -> HttpResponse:
        subscription = await self._subscription(call)
        call.waits_for = f"the backlog of {subscription.name!r} to be read"
        scan_max = self._config.subscription_backlog_scan_max_entries
        entries = await subscription.unacknowledged(scan_max + 1)
        start = None if call.body is None else _position(call.body)
        seen = [entry for entry in entries[:scan_max] if start is None or entry.position >= start]
        messages = markers = 0
        for entry in seen:
            metadata = parse_metadata(entry.payload)
            markers += metadata.HasField("marker_type")
            left = subscription.cursor.ack_set(entry.position)
            messages += metadata.num_messages_in_batch if left is None else left.bit_count()
        first, last = (str(seen[0].position), str(seen[-1].position)) if seen else ("", "")
        return answer(
            BacklogAnalysisBody(len(seen), messages, markers, len(entries) > scan_max, first, last)
        )

    async def _holes(self, call: Call) -> HttpResponse:
        start = _named_position(call.text("from"))
        subscription = await self._subscription(call)
        return answer(
            await hole_report(
                subscription,
                self._world.clock,
                start,
                call.number("limit"),
                wait_seconds=self._config.stats_read_wait_ms / 1000,
            )
        )

    # -- moving the cursor

    async def _skip(self, call: Call) -> HttpResponse:
        await (await self._subscription(call)).skip(call.number("count"))
        return no_content()

    async def _skip_all(self, call: Call) -> HttpResponse:
        done = await self._partitions(call, OwnerCall("POST", ("skip_all",)))
        if done is None:
            await (await self._subscription(call)).skip(None)
        return done or no_content()

    async def _reset(self, call: Call) -> HttpResponse:
        position = _start(call.body)
        if position in (EARLIEST, LATEST):
            done = await self._partitions(
                call,
                OwnerCall(
                    "POST", ("resetcursor",), body="earliest" if position == EARLIEST else "latest"
                ),
            )
            if done is not None:
                return done
        await (await self._subscription(call)).seek(position, 0)
        return no_content()

    async def _reset_to_time(self, call: Call) -> HttpResponse:
        done = await self._partitions(call, OwnerCall("POST", ("resetcursor", call["timestamp"])))
        if done is None:
            await (await self._subscription(call)).seek(None, call.number("timestamp"))
        return done or no_content()

    async def _recover(self, call: Call) -> HttpResponse:
        """Move a subscription past a lost cursor ledger.

        Answers the mark-delete position after which it delivers again.
        """
        name = await self._whole(call)
        await self._owners.require(call, name)
        call.waits_for = (
            f"the bookies to say whether they have the ledger of {call['subscription']!r}"
        )
        mark = await self._topics.lost.recover_subscription(
            name, call["subscription"], call.body.given_up_bookies
        )
        return answer(MessageIdBody(mark.ledger_id, mark.entry_id, name.partition))

    async def _expire(self, call: Call) -> HttpResponse:
        """Skip messages that were published more than ``seconds`` ago."""
        done = await self._partitions(call, OwnerCall("POST", ("expireMessages", call["seconds"])))
        if done is None:
            await (await self._subscription(call)).expire(self._before_ms(call))
        return done or no_content()

    def _before_ms(self, call: Call) -> int:
        return self._world.clock.wall_ms() - call.number("seconds") * 1000

    async def _expire_to(self, call: Call) -> HttpResponse:
        subscription = await self._subscription(call)
        await subscription.skip_through(_position(call.body))
        return no_content()

    async def _expire_all(self, call: Call) -> HttpResponse:
        name = call.topic()
        errand = OwnerCall("POST", ("all_subscription", "expireMessages", call["seconds"]))
        done = await each_done(call, self._namespaces, self._owners, errand)
        if done is not None:
            return done
        topic = await self._owners.topic(call, name)
        for subscription in list(topic.subscriptions.values()):
            call.waits_for = f"subscription {subscription.name!r}"
            await subscription.expire(self._before_ms(call))
        return no_content()


def _on(
    method: str,
    words: str,
    handler: Handler,
    permission: Permission,
    summary: str,
    *parameters: Parameter,
    body: Any = None,
    required: bool = False,
    more: tuple[int, ...] = (),
) -> Route:
    """Return a route below a subscription, run by the topic's owner and answered without a body."""
    return Route(
        method,
        _SUBSCRIPTION + words,
        handler,
        permission,
        summary,
        parameters=parameters,
        body=body,
        body_required=required,
        statuses=more,
        owner=True,
    )


def _start(body: PositionBody | str) -> Position:
    """Return where delivery is to begin: at the named message or, if it is excluded, after it."""
    position = _position(body)
    if (
        isinstance(body, PositionBody)
        and (body.is_excluded or body.excluded)
        and position not in (EARLIEST, LATEST)
    ):
        # A batch is one entry: it is redelivered as a whole unless the last of its messages is
        # excluded.
        is_past = body.batch_index < 0 or body.batch_index + 1 == body.batch_size
        position = Position(position.ledger_id, body.entry_id + is_past)
    return position


def _named_position(text: str) -> Position:
    """Return the position of the parameter ``from``; without one, the earliest."""
    if not text:
        return EARLIEST
    if (found := _POSITION_TEXT.fullmatch(text)) is None:
        raise InvalidArgument(f"from {text!r} is no position; give LEDGER:ENTRY, like 12:345")
    return Position(int(found[1]), int(found[2]))


def _position(body: PositionBody | str) -> Position:
    if isinstance(body, PositionBody):
        if LATEST.ledger_id in (body.ledger_id, body.entry_id):
            return LATEST
        return EARLIEST if body.ledger_id < 0 else Position(body.ledger_id, max(body.entry_id, 0))
    return EARLIEST if body == "earliest" else LATEST
