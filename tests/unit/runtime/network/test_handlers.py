"""How calls end whose handlers raise."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from pulsarish.model.errors import (
    AuthenticationError,
    AuthorizationError,
    InvalidArgument,
    ServiceNotReady,
    TooManyRequests,
)
from pulsarish.runtime.network.handlers import CallRefused, answer_call
from pulsarish.security.credentials import Caller

if TYPE_CHECKING:
    from pulsarish.runtime.seams import Tasks


@pytest.mark.parametrize(
    ("error", "failures"),
    [
        (AuthenticationError("wrong"), 0),
        (AuthorizationError("not permitted"), 0),
        (InvalidArgument("field"), 0),
        (ServiceNotReady("no place for a check"), 0),
        (TooManyRequests("wait"), 0),
        (ValueError("a defect"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_refusal_is_no_failure_of_the_process(error: Exception, failures: int) -> None:
    async def handler(request: bytes, caller: Caller) -> bytes:
        raise error

    tasks = Counting()
    with pytest.raises(CallRefused, match=f"{type(error).__name__}: {error}"):
        asyncio.run(answer_call(cast("Tasks", tasks), "a.call", handler, b"", Caller("peer")))
    assert tasks.failures == failures


class Counting:
    def __init__(self) -> None:
        self.failures = 0

    def contain(self, task: str, error: BaseException, scope: object) -> None:
        self.failures += 1
