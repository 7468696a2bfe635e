"""Send a few records, and continue after each one only when it is in the log."""

from __future__ import annotations

import asyncio
import json

from _broker import bootstrap_servers

from aioproducer import Producer


async def main() -> None:
    async with Producer(bootstrap_servers(), compression_type="zstd") as producer:
        for number in range(3):
            metadata = await producer.send(
                "orders",
                json.dumps({"order": number, "item": "tea"}),
                key=f"customer-{number}",
                headers={"source": "script.py"},
            )
            print(f"order {number} is in {metadata.topic_partition} at offset {metadata.offset}")


if __name__ == "__main__":
    asyncio.run(main())
