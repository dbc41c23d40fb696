"""The production world draws its ids, tokens and passwords from the operating system."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.runtime.background import ClientWorld
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.world import production


def test_what_was_drawn_does_not_tell_what_comes() -> None:
    async def run() -> None:
        parts, client = production(outside=OutsideWork()), ClientWorld()
        for random in (parts.random, client.random):
            # A generator with a state can be recovered from what it gave out, and this one has
            # none.
            with pytest.raises(NotImplementedError):
                random.getstate()
        await client.close()
        await parts.close()

    asyncio.run(run())
