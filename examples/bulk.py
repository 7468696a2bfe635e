"""Send everything that a generator yields (a file, a query, a million rows), in order and in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from _broker import bootstrap_servers

from aioproducer import JsonSerializer, Producer, SendManyError, SendManyResult

COUNT = 50_000


def measurements() -> Iterator[dict[str, object]]:
    for number in range(COUNT):
        yield {"sensor": f"sensor-{number % 40}", "number": number, "celsius": 20 + number % 7}


def show(so_far: SendManyResult) -> None:
    print(f"{so_far.count:>7,} of {COUNT:,} acknowledged, {so_far.serialized_bytes / 1e6:.1f} MB")


async def main() -> None:
    async with Producer(bootstrap_servers(), value_serializer=JsonSerializer(), compression_type="lz4") as producer:
        try:
            result = await producer.send_many(
                "measurements",
                measurements(),
                key=lambda measurement: measurement["sensor"],
                on_progress=show,
            )
        except SendManyError as error:
            print(f"Stopped after {error.result.count:,} records: {error.error}")
            raise
        for partition, (first, last) in sorted(result.offsets.items()):
            print(f"{partition}: offsets {first} to {last}")


if __name__ == "__main__":
    asyncio.run(main())
