"""A broker that was restarted remembers one batch of each producer: the last. Older ones it calls out of order."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import Unknown
from aioproducer.testing import FakeBroker
from tests.conftest import opened


def forget_all_but_the_last_batch(broker: FakeBroker) -> None:
    """As a broker does that loads the state of producers from a snapshot (ProducerStateManager.readSnapshot)."""
    for log in broker.cluster.logs():
        for state in log.producers.values():
            while len(state.batches) > 1:
                state.batches.popleft()


@pytest.mark.parametrize("written", range(6))
async def test_batches_that_the_broker_wrote_and_forgot_are_not_written_twice(broker: FakeBroker, written: int) -> None:
    async with opened(broker, batch_size=0) as producer:
        await producer.send("orders", b"first", partition=0)
        if written:
            broker.swallow("Produce")
        sent = [await producer.enqueue("orders", b"%d" % at, partition=0) for at in range(written)]
        await broker.wait_for_async(1 + written)
        if written < 5:
            broker.swallow("Produce", applied=False)
            sent.append(await producer.enqueue("orders", b"lost", partition=0))
            await broker.wait_for_async(lambda broker: broker.count("Produce") >= 1 + written)
        forget_all_but_the_last_batch(broker)
        broker.clear_faults()
        broker.disconnect(1)
        async with asyncio.timeout(20):
            outcomes = await asyncio.gather(*sent, return_exceptions=True)
            await producer.send("orders", b"later", partition=0)

    values = [record.value for record in broker.records("orders")]
    assert len(values) == len(set(values)), "none twice"
    assert all(isinstance(each, Unknown) for each in outcomes if isinstance(each, BaseException))
    assert values[0] == b"first"
    assert values[-1] == b"later"
    assert values[1 : 1 + written] == [b"%d" % at for at in range(written)]
