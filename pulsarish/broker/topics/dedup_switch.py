"""Switch deduplication of a topic in use on and off as its policy says.

Rule 15 holds all the time: the marks are rebuilt from the whole log before the first entry is
checked against them. Most of this runs while producers publish. Only for the end of it must
producers wait, and they connect again.
"""

from __future__ import annotations

from pulsarish.broker.publishing.dedup_log import DEDUP_CURSOR
from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import ServiceNotReady
from pulsarish.model.policies import DEDUPLICATION

__all__ = ["settle_deduplication"]


async def settle_deduplication(topic: Topic) -> None:
    """Switch deduplication until it is as the policy says.

    Raises the errors of the log and its cursors. The next call completes a switch that failed
    halfway.
    """
    while topic.closed is None:
        wanted = topic.topic_limits.policies[DEDUPLICATION]
        if wanted and not topic.deduplication:
            await _switch_on(topic)
        elif not wanted and topic.deduplication:
            topic.publishing.use_dedup(None)
        elif not wanted and DEDUP_CURSOR in topic.log.cursor_names():
            await topic.log.delete_cursor(DEDUP_CURSOR)  # it would hold back trimming forever
        else:
            return


async def _switch_on(topic: Topic) -> None:
    dedup = await topic.publishing.begin_dedup()
    await dedup.catch_up()
    topic.topic_limits.switching = ServiceNotReady(
        f"deduplication of topic {topic.name} is being switched on; connect again"
    )
    try:
        topic.publishing.close_producers(topic.topic_limits.switching)
        await topic.publishing.flights.all_landed()
        await dedup.catch_up()
        if topic.closed is None:
            topic.publishing.use_dedup(dedup)
    finally:
        topic.topic_limits.switching = None
