"""Send a table (from polars here; pyarrow, pandas and duckdb also work) without creating a Python object per row."""

from __future__ import annotations

import asyncio

import polars as pl
from _broker import bootstrap_servers

from aioproducer import Producer, SendManyError

COUNT = 100_000


def measurements() -> pl.DataFrame:
    numbers = pl.select(number=pl.int_range(COUNT))
    return numbers.with_columns(
        sensor=pl.format("sensor-{}", pl.col("number") % 40),
        celsius=20 + pl.col("number") % 7,
        at=pl.lit(1_700_000_000_000) + pl.col("number"),
    )


async def main() -> None:
    table = measurements().with_columns(line=pl.format("{} {}", "sensor", "celsius"))
    async with Producer(bootstrap_servers(), compression_type="lz4") as producer:
        try:
            result = await producer.send_table("lines", table, key="sensor", value="line", timestamp="at")
            print(f"{result.count:,} of {COUNT:,} acknowledged, {result.serialized_bytes / 1e6:.1f} MB")
            # No column is the value already, so the others become JSON.
            result = await producer.send_table("measurements", table.head(1000), key="sensor", value_format="json")
        except SendManyError as error:
            print(f"Stopped after {error.result.count:,} records: {error.error}")
            raise
        for partition, (first, last) in sorted(result.offsets.items()):
            print(f"{partition}: offsets {first} to {last}")


if __name__ == "__main__":
    asyncio.run(main())
