"""Exhibits about compaction: readers of compacted views, horizons, and what is left when brokers
restart meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

import msgspec

from pulsarish.broker.compaction.compaction import CompactionState
from pulsarish.broker.compaction.keys import Audience
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.message_id import MessageId
from pulsarish.managed_ledger import takeover
from pulsarish.managed_ledger.options import Retention
from pulsarish.managed_ledger.view_log import ViewWriter
from pulsarish.managed_ledger.views import Views
from pulsarish.metadata.records import CompactedView, TopicRecord
from pulsarish.model.errors import PulsarishError, ServiceNotReady
from pulsarish.model.position import Position
from pulsarish.runtime.seams import World
from pulsarish.sim.mutants.catalogue import MUTANTS
from pulsarish.sim.workloads.safeguard import replaced, replacing
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.wire._pb import broker_pb2 as pb
from tests.museum.exhibit import Defect, Exhibit, Kind, from_mutant
from tests.simulation.test_compaction_crashes import EXPECTED, FIRST, SECOND, compacted, table
from tests.support.brokered import Brokered, play_with_brokers
from tests.support.brokers import ConsumeClient, find
from tests.support.logs import Shelf, names, simulate

__all__ = ["EXHIBITS"]

TOPIC: Final = "persistent://public/default/t"
KEYS: Final = 6
STEPS_MAX: Final = 2_000
STEP_SECONDS: Final = 0.00001


async def _publish(client: AsyncClient, values: range) -> None:
    producer = await client.create_producer(TOPIC)
    for value in values:
        await producer.send(b"%d" % value, partition_key=f"key {value % KEYS}")
    await producer.close()


async def _compact(brokered: Brokered) -> None:
    compaction = brokered.topic(TOPIC).compaction
    await compaction.settled()
    compaction.start()
    await brokered.until(lambda: not compaction.running)
    assert compaction.state == "SUCCESS", compaction.last_error


# -- apache/pulsar#25294 and #25998


def _check_reader_after_unload(seed: int) -> None:
    """A reader acknowledges cumulatively what only the view has, at the owner that has just loaded
    the topic.
    """

    async def scenario(brokered: Brokered) -> None:
        await _publish(brokered.client(), range(4 * KEYS))
        await _compact(brokered)
        log = brokered.topic(TOPIC).log
        await log.roll()
        await log.trimmer.trim(Retention())
        assert log.entries == 0
        options: dict[str, Any] = {"read_compacted": True, "durable": False}
        first = await ConsumeClient.connect(
            brokered.world, await find(brokered.world, ["broker0"], TOPIC)
        )
        await first.subscribe(1, TOPIC, "reader", permits=2, **options)
        got = await first.take(2)
        await first.stream.finish()
        brokered.node("broker0").crash()
        await brokered.cluster.start_broker("broker0")
        again = await ConsumeClient.connect(
            brokered.world, await find(brokered.world, ["broker0"], TOPIC)
        )
        last = got[-1]
        start = {"start": pb.MessageId(ledger=last.ledger, entry=last.entry + 1)}
        await again.subscribe(1, TOPIC, "reader", permits=0, **options, **start)
        await again.ack(1, [(last.ledger, last.entry)], cumulative=True)
        await again.flow(1, 100)
        try:
            async with brokered.world.clock.timeout(10):
                more = await again.take(KEYS - 2)
        except TimeoutError:
            raise AssertionError("the reader gets nothing more of the view") from None
        assert [each.sequence_id for each in [*got, *more]] == list(range(3 * KEYS, 4 * KEYS))

    play_with_brokers(scenario, seeds=1, max_virtual_seconds=120)


def _read_position_moves(was: Any) -> object:
    """An acknowledgement moves the place where reading goes on to the first entry that the log
    still has.
    """

    def acknowledge_through(subscription: Subscription, position: Position) -> None:
        was(subscription, position)
        reads = subscription.dispatcher.reads
        reads.position = max(reads.position, subscription.cursor.read_from)

    return acknowledge_through


# -- apache/pulsar#21969


def _check_plain_reader(seed: int) -> None:
    """Only the view has messages; a reader that does not read compacted asks whether there is one
    for it.
    """

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        await _publish(client, range(2 * KEYS))
        await _compact(brokered)
        log = brokered.topic(TOPIC).log
        await log.roll()
        await log.trimmer.trim(Retention())
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        assert not await reader.has_message_available(), (
            "a reader is promised a message that only compacted reads are given"
        )

    play_with_brokers(scenario, seeds=1, max_virtual_seconds=120)


def _last_of_the_view(was: Any) -> object:
    async def last_message(subscription: Subscription) -> tuple[Position, int]:
        found: tuple[Position, int] = await was(subscription)
        log = subscription.log
        reader = await log.views.reader() if found[0].entry_id < 0 else None
        last = None if reader is None else await reader.last(Audience.ALL)
        return found if last is None else (last.position, -1)

    return last_message


# -- apache/pulsar#25118


def _check_interrupted(seed: int) -> None:
    """The owner dies at many points of a second compaction: the horizon never goes back, and the
    next compaction works.
    """
    for steps in range(1, STEPS_MAX, 16):
        if simulate(lambda shelf, steps=steps: _interrupt(shelf, steps), seed + 1):  # type: ignore[misc]
            return
    raise AssertionError("the second compaction never ended")


async def _interrupt(shelf: Shelf, steps: int) -> bool:
    log, _ = await shelf.open("b1")
    await shelf.append(log, FIRST)
    assert (
        await shelf.on("b1", lambda world: compacted(world, log))
    ).state is CompactionState.SUCCESS
    before = log.views.horizon
    assert before is not None
    await shelf.append(log, SECOND)

    async def second(world: World) -> None:
        await compacted(world, log)

    node = shelf.sim.nodes["b1"]
    running = asyncio.ensure_future(node.run(second))
    for _ in range(steps):
        await asyncio.sleep(STEP_SECONDS)
    ended = running.done()
    node.crash()
    with contextlib.suppress(NodeDied):
        await running
    after, _ = await shelf.open("b2")
    assert after.views.horizon is not None
    assert after.views.horizon >= before, (
        f"the horizon went back from {before} to {after.views.horizon}"
    )
    assert (
        await shelf.on("b2", lambda world: compacted(world, after))
    ).state is CompactionState.SUCCESS
    assert await shelf.on("b2", lambda world: table(after)) == EXPECTED
    return ended


def _back_to_the_first_kept(was: Any) -> object:
    """Writing a view begins with a seek to the first message that is kept, which counts as what is
    compacted.
    """

    async def make(views: Views, *options: Any) -> ViewWriter:
        writer: ViewWriter = await was(views, *options)
        current = views.current
        if current is not None:
            first = CompactedView(
                current.horizon_ledger,
                0,
                made_ms=1,
                ledger_id=current.ledger_id,
                entries=current.entries,
            )
            await views._change(lambda record: _with_view(record, first))
        return writer

    return make


def _with_view(record: TopicRecord, view: CompactedView) -> TopicRecord:
    return msgspec.structs.replace(record, compacted=view)


# -- apache/pulsar#26486


def _check_failed_commit(seed: int) -> None:
    """The commit that makes a view the topic's fails: readers, and the next owner, go by the view
    before.
    """

    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")
        await shelf.append(log, FIRST)
        assert (
            await shelf.on("b1", lambda world: compacted(world, log))
        ).state is CompactionState.SUCCESS
        before = log.views.current
        await shelf.append(log, SECOND)

        def cut_off(was: Any) -> object:
            async def close(writer: ViewWriter) -> Any:
                closed = await was(writer)
                shelf.sim.network.cut("b1", METADATA)
                return closed

            return close

        with replaced(ViewWriter, "close", cut_off):
            assert (
                await shelf.on("b1", lambda world: compacted(world, log))
            ).state is CompactionState.ERROR
        assert log.views.current == before, "readers are served from a view that is not the topic's"
        after, _ = await shelf.open("b2")
        assert after.views.current == before

    simulate(scenario, seed + 1)


def _installed_anyway(was: Any) -> object:
    """The view is in use whatever becomes of its commit."""

    async def exchange(views: Views, made: CompactedView | None) -> None:
        cell = views._topic._cell
        try:
            await was(views, made)
        except PulsarishError:
            cell.record = msgspec.structs.replace(cell.record, compacted=made)
            raise

    return exchange


# -- apache/pulsar#20968 and #21074


def _check_restarts(seed: int) -> None:
    """One owner after another dies while messages are published, rolled, compacted and trimmed; all
    are read at the end.
    """

    async def scenario(shelf: Shelf) -> None:
        confirmed: list[bytes] = []
        for number in range(5):
            node = f"b{number}"
            log, heard = await shelf.open(node)
            await shelf.append(log, names(10 * number, 10 * number + 10), node)
            confirmed += [bytes(each) for each in heard.confirmed]  # type: ignore[call-overload]
            if number % 2:
                await shelf.on(node, lambda world, log=log: log.roll())  # type: ignore[misc]
            shelf.sim.nodes[node].crash()
        log, _ = await shelf.open("last")
        found = await shelf.read_all(log, "last")
        assert found == confirmed, (
            f"{len(confirmed)} messages were confirmed, and {len(found)} are there"
        )

    async def keys(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")
        await shelf.append(log, FIRST)
        assert (
            await shelf.on("b1", lambda world: compacted(world, log))
        ).state is CompactionState.SUCCESS
        await shelf.append(log, SECOND)
        log.trimmer.retention = Retention()

        async def unload(was: Any, views: Views, *options: Any) -> ViewWriter:
            await was(views, *options)
            await log.roll()
            await log.trimmer.trim()
            raise ServiceNotReady("the topic is unloaded")

        with replaced(Views, "make", lambda was: lambda *given: unload(was, *given)):
            assert (
                await shelf.on("b1", lambda world: compacted(world, log))
            ).state is CompactionState.ERROR
        shelf.sim.nodes["b1"].crash()
        after, _ = await shelf.open("b2")
        kept = await shelf.on("b2", lambda world: table(after))
        assert kept == EXPECTED, (
            f"after a compaction that was interrupted a reader ends with {kept}"
        )

    simulate(scenario, seed + 1)
    simulate(keys, seed + 1)


def _check_end_of_survey(seed: int) -> None:
    """Messages that come after a compaction has looked at the log are read behind its view."""

    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")
        await shelf.append(log, FIRST)
        assert (
            await shelf.on("b1", lambda world: compacted(world, log))
        ).state is CompactionState.SUCCESS
        await shelf.append(log, SECOND)
        found = await shelf.on("b1", lambda world: table(log))
        assert found == EXPECTED, f"a compacted reader ends with {found}"

    simulate(scenario, seed + 1)


def _beyond_the_survey(was: Any) -> object:
    async def use(views: Views, writer: ViewWriter | None, horizon: Position, made_ms: int) -> None:
        await was(views, writer, Position(horizon.ledger_id, horizon.entry_id + 2), made_ms)

    return use


def _open_ledgers_dropped(was: Any) -> object:
    """The next owner takes over the ledgers that are closed, and forgets the one that was
    written.
    """

    async def recovered_chain(topic: Any, *rest: Any) -> Any:
        record = topic.record
        closed = tuple(found for found in record.ledgers if found.closed_ms)
        topic._cell.record = _with_ledgers(record, closed)
        return await was(topic, *rest)

    return recovered_chain


def _with_ledgers(record: TopicRecord, ledgers: tuple[Any, ...]) -> TopicRecord:
    return msgspec.structs.replace(record, ledgers=ledgers)


def _nothing_held_back(was: Any) -> object:
    def safe_mark(_views: Views, mark: Position, *, until_compacted: bool) -> Position:
        return mark

    return safe_mark


EXHIBITS: Final = (
    Exhibit(
        name="compacted_reader_passed_its_view",
        upstream=("apache/pulsar#25294", "apache/pulsar#25998"),
        wrong=(
            "An acknowledgement of a trimmed position moves a compacted reader's read "
            "position behind the horizon: it is stuck for good."
        ),
        here=(
            "A reader comes back to the next owner, acknowledges what only the view has, and "
            "must get the rest of the view."
        ),
        kind=Kind.SCENARIO,
        check=_check_reader_after_unload,
        defects=(
            Defect(
                "read_position_moves",
                "an acknowledgement does not move the place where reading goes on",
                replacing(Subscription, "_acknowledge_through", _read_position_moves),
            ),
        ),
    ),
    Exhibit(
        name="promised_what_only_the_view_has",
        upstream=("apache/pulsar#21969",),
        wrong=(
            "A reader that does not read compacted hears that a message is available, which "
            "only the compacted ledger has: it is stuck."
        ),
        here="Trims all that was compacted: such a reader must hear that there is nothing for it.",
        kind=Kind.SCENARIO,
        check=_check_plain_reader,
        defects=(
            Defect(
                "last_of_the_view",
                "only compacted reads go by the view",
                replacing(Subscription, "last_message", _last_of_the_view),
            ),
        ),
    ),
    Exhibit(
        name="horizon_thrown_back",
        upstream=("apache/pulsar#25118", "apache/pulsar#25119"),
        wrong=(
            "A compaction that is interrupted leaves its cursor at the first message kept: "
            "the horizon goes back by hundreds of ledgers."
        ),
        here=(
            "Impossible: there is no cursor, and the horizon is in the commit that exchanges "
            "the views; owners die at many points."
        ),
        kind=Kind.IMPOSSIBLE,
        check=_check_interrupted,
        defects=(
            Defect(
                "horizon_at_the_first_kept",
                "the horizon moves with the view, in one commit",
                replacing(Views, "make", _back_to_the_first_kept),
            ),
        ),
    ),
    Exhibit(
        name="view_used_before_it_is_stored",
        upstream=("apache/pulsar#26486",),
        wrong=(
            "A new compacted ledger serves reads before the commit that names it is durable; "
            "after a reload the old one is back."
        ),
        here=(
            "Cuts the owner off before that commit, and looks at which view readers and the "
            "next owner go by."
        ),
        kind=Kind.SCENARIO,
        check=_check_failed_commit,
        defects=(
            Defect(
                "installed_anyway",
                "a view is used once its commit is durable",
                replacing(Views, "_exchange", _installed_anyway),
            ),
        ),
    ),
    Exhibit(
        name="messages_lost_over_restarts",
        upstream=("apache/pulsar#20968", "apache/pulsar#21074"),
        wrong=(
            "Brokers restart while topics are written, read and compacted, and confirmed "
            "messages are gone (no single cause is named)."
        ),
        here=(
            "Five owners die one after another, and one in the middle of a compaction; all "
            "messages and all keys must be there."
        ),
        kind=Kind.SCENARIO,
        check=_check_restarts,
        defects=(
            Defect(
                "open_ledger_dropped",
                "the next owner recovers the ledger that was written",
                replacing(takeover, "_recovered_chain", _open_ledgers_dropped),
            ),
            Defect(
                "trimmed_while_compacted",
                "what is being compacted is not trimmed",
                replacing(Views, "safe_mark", _nothing_held_back),
            ),
        ),
    ),
    Exhibit(
        name="second_phase_does_not_stop",
        upstream=("apache/pulsar#20988",),
        wrong=(
            "The second phase of a compaction reads on behind the end of the first; messages "
            "of which that knows nothing are dropped."
        ),
        here=(
            "Publishes behind a compaction: a compacted reader must end with the newest "
            "message of each key."
        ),
        kind=Kind.SCENARIO,
        check=_check_end_of_survey,
        defects=(
            Defect(
                "beyond_the_survey",
                "a view goes as far as was looked at, and no further",
                replacing(Views, "use", _beyond_the_survey),
            ),
        ),
    ),
    from_mutant(
        MUTANTS["trim_without_cursors"],
        ("apache/pulsar#24855", "apache/pulsar#25087"),
        "Trimming deletes ledgers to which the stored position of a cursor still points.",
        seed=0,
    ),
)
