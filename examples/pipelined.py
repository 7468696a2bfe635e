"""Send as fast as Kafka accepts records, and still learn the outcome of each one.

`enqueue` returns as soon as the record is in the buffer; if the buffer is full it waits, so that memory stays bounded. Each
call returns a Delivery, which can be awaited later, or never.
"""

from __future__ import annotations

import asyncio
import time

from _broker import bootstrap_servers

from aioproducer import Producer

COUNT = 20_000


async def main() -> None:
    async with Producer(bootstrap_servers()) as producer:
        began = time.perf_counter()
        deliveries = [await producer.enqueue("clicks", f"click {n}", key=f"user-{n % 100}") for n in range(COUNT)]
        await producer.flush()
        seconds = time.perf_counter() - began

        ends: dict[int, int] = {}
        for delivery in deliveries:
            metadata = await delivery  # done already; it would raise if this record had failed
            ends[metadata.partition] = metadata.offset
        print(
            f"{COUNT:,} records acknowledged in {seconds:.2f} s; last offsets by partition: {dict(sorted(ends.items()))}"
        )


if __name__ == "__main__":
    asyncio.run(main())
