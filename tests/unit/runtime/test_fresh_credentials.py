"""Credentials of a provider that takes its time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pulsarish.model.errors import AuthenticationError, ConnectError
from pulsarish.runtime.fresh_credentials import FreshCredentials
from pulsarish.runtime.seams import StreamBroken
from pulsarish.security.client_security import HttpScheme
from pulsarish.security.credentials import NO_CREDENTIALS, Credentials, Secret


class Slow:
    """Answers when the test lets it."""

    is_immediate = False
    http_scheme: HttpScheme = "Bearer"

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Event()
        self.error: Exception | None = None

    def credentials(self) -> Credentials:
        self.asked += 1
        assert self.may_answer.wait(60)
        if self.error is not None:
            raise self.error
        return Credentials("token", Secret(f"{self.asked}"))


def test_openings_at_the_same_time_share_one_question_and_the_loop_goes_on() -> None:
    async def main() -> None:
        slow = Slow()
        fresh = FreshCredentials(slow)
        waiting = [asyncio.ensure_future(fresh.renew()) for _ in range(5)]
        await asyncio.sleep(0.05)
        assert not any(each.done() for each in waiting)
        assert fresh.latest() == NO_CREDENTIALS
        slow.may_answer.set()
        await asyncio.gather(*waiting)
        assert fresh.latest() == Credentials("token", Secret("1"))
        await fresh.renew()
        assert fresh.latest() == Credentials("token", Secret("2"))

    asyncio.run(main())


def test_one_that_stops_waiting_leaves_the_question_to_the_others() -> None:
    async def main() -> None:
        slow = Slow()
        fresh = FreshCredentials(slow)
        first, second = (asyncio.ensure_future(fresh.renew()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        slow.may_answer.set()
        await second
        assert first.cancelled()
        assert slow.asked == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (AuthenticationError("refused"), AuthenticationError),
        (ConnectError("the issuer is down"), StreamBroken),
    ],
)
def test_a_failure_is_told_to_all_and_asked_again(
    raised: Exception, becomes: type[Exception]
) -> None:
    async def main() -> None:
        slow = Slow()
        slow.error = raised
        fresh = FreshCredentials(slow)
        waiting = [asyncio.ensure_future(fresh.renew()) for _ in range(2)]
        await asyncio.sleep(0)
        slow.may_answer.set()
        for each in waiting:
            with pytest.raises(becomes, match=str(raised)):
                await each
        slow.error = None
        await fresh.renew()
        assert fresh.latest().data == Secret("2")

    asyncio.run(main())


def test_a_provider_that_does_not_answer() -> None:
    async def main() -> None:
        slow = Slow()
        fresh = FreshCredentials(slow)
        with pytest.raises(StreamBroken, match=r"did not come within 0\.05 s"):
            await fresh.renew(0.05)
        slow.may_answer.set()
        await fresh.renew()
        assert fresh.latest().data == Secret("1")

    asyncio.run(main())
