"""What is still asked of a cursor that was deleted meanwhile."""

from __future__ import annotations

import pytest

from pulsarish.model.errors import SubscriptionNotFound
from tests.support.logs import Shelf, simulate


def test_properties_for_a_cursor_that_was_just_deleted_do_not_end_the_topic() -> None:
    async def scenario(shelf: Shelf) -> None:
        log, _ = await shelf.open("b1")
        cursor = await shelf.on("b1", lambda world: log.open_cursor("s"))
        await shelf.on("b1", lambda world: log.delete_cursor("s"))
        with pytest.raises(SubscriptionNotFound):
            await shelf.on("b1", lambda world: cursor.set_subscription_properties({"a": "b"}))
        assert not log.fenced

    simulate(scenario)
