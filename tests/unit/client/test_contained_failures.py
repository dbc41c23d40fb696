"""What fails in the client in a way that nobody has thought of reaches the program: nothing waits
for it forever.
"""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.client.api.table_view import AsyncTableView
from pulsarish.client.connection.publish_stream import PublishStream
from pulsarish.model.errors import UnknownError
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.sim.world.connections import SimConnections
from tests.support.client_world import Cast, play


class Defect(Exception):
    """What nobody has thought of."""


def failing_once(raised: list[object]) -> Any:
    def make(was: Any) -> object:
        def call(this: object, *arguments: Any, **named: Any) -> Any:
            if not raised:
                raised.append(this)
                raise Defect
            return was(this, *arguments, **named)

        return call

    return make


@pytest.mark.parametrize(
    ("kind", "method"),
    [(PublishStream, "_handle"), (PublishStream, "_gather"), (SimConnections, "open")],
)
def test_a_stream_that_fails_in_the_client_is_opened_again(kind: type, method: str) -> None:
    async def scenario(cast: Cast) -> None:
        cast.sim.nodes["app"].expect(Defect)
        raised: list[object] = []
        with replaced(kind, method, failing_once(raised)):
            producer = await cast.client().create_producer("t", batching_enabled=False)
            await producer.send(b"1")
        assert raised

    play(scenario)


def test_a_table_view_that_fails_says_so() -> None:
    async def scenario(cast: Cast) -> None:
        cast.sim.nodes["app"].expect(Defect)
        client = cast.client()
        producer = await client.create_producer("t", batching_enabled=False)
        await producer.send(b"1", partition_key="k")
        view = await client.create_table_view("t")
        assert view.get("k") == b"1"
        with replaced(AsyncTableView, "_apply", failing_once([])):
            await producer.send(b"2", partition_key="k")
            await cast.sleep(1.0)
        with pytest.raises(UnknownError, match="Defect"):
            view.get("k")

    play(scenario)
