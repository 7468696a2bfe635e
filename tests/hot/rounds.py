"""Every way of the hot path, round after round, for the tests that look at what is left of it."""

from __future__ import annotations

import pytest

from aioproducer.errors import NotWritten
from aioproducer.types import TopicPartition
from tests.hot.twins import World, result_class

__all__ = ["Failure", "rounds"]

ORDERS = TopicPartition("orders", 0)


class Failure:
    """Why the records failed."""

    def error_for(self, index: int) -> NotWritten:
        return NotWritten(f"record {index}")


async def rounds(world: World, count: int) -> None:
    """Enqueue and await in every way there is."""
    key, value, headers = b"key" * 10, b"value" * 10, [("trace", b"1")]
    new_result = result_class(world.twin)
    for number in range(count):
        call = world.fast_path.enqueue("orders", value, key=key, headers=headers, timestamp_ms=10**12 + number)
        delivery = await call
        delivery.mark_observed()
        world.fast_path.enqueue_nowait("orders", value).mark_observed()
        await world.fast_path.enqueue("unknown", value, key=key, headers=headers)
        world.fast_path.enqueue("orders", value, headers=headers).close()
        world.appender.append_run("orders", [value, None, "text"], 0, headers, None)
        outcome = delivery.located()
        if number % 3 == 0:
            outcome.succeed()
            await delivery
            delivery.result()
        elif number % 3 == 1:
            outcome.failure = Failure()
            delivery.exception()
            with pytest.raises(NotWritten):
                await delivery
        else:
            part = new_result(ORDERS)
            outcome.parts = [part] * 10
            outcome.is_split = True
            assert delivery.located() is part
            part.failure = Failure()
            with pytest.raises(NotWritten):
                delivery.result()
        for _, _, batch in world.batches():
            world.close(batch)
        world.results.clear()
        world.reported.clear()
