"""How many topics a broker loads at a time, and in which order."""

import asyncio

from pulsarish.broker.topics.load_turns import LoadTurns


async def _turn_of_the_loop() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_loads_beyond_the_limit_wait_in_the_order_in_which_they_came() -> None:
    async def scenario() -> None:
        limit = 2
        turns = LoadTurns(lambda: limit)
        begun: list[int] = []

        async def load(number: int) -> None:
            await turns.take()
            begun.append(number)

        tasks = [asyncio.create_task(load(number)) for number in range(7)]
        await _turn_of_the_loop()
        assert (begun, turns.waiting_count) == ([0, 1], 5)
        turns.end()
        # One that comes now does not pass those that wait.
        tasks.append(asyncio.create_task(load(7)))
        await _turn_of_the_loop()
        assert (begun, turns.taken_count, turns.waiting_count) == ([0, 1, 2], 2, 5)
        limit = 4
        turns.end()
        await _turn_of_the_loop()
        assert begun == [0, 1, 2, 3, 4, 5]
        limit = 1
        for _ in range(3):
            turns.end()
            await _turn_of_the_loop()
            assert len(begun) == 6
        for _ in range(2):
            turns.end()
            await _turn_of_the_loop()
        assert begun == list(range(8))
        turns.end()
        assert (turns.taken_count, turns.waiting_count) == (0, 0)
        await asyncio.gather(*tasks)

    asyncio.run(scenario())
