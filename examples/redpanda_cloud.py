"""Send to Redpanda Cloud as a user with a SCRAM password."""

from __future__ import annotations

import asyncio

from _secured import config_of

from aioproducer import Producer
from aioproducer.testing import Logins

PRINTED = """
bootstrap.servers=abc123.any.eu-central-1.mpx.prd.cloud.redpanda.com:9092
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.username=alice
sasl.password=SECRET
"""


async def main() -> None:
    async with Producer(config_of("REDPANDA_PROPERTIES", PRINTED, Logins({"alice": "SECRET"}))) as producer:
        metadata = await producer.send("orders", b"tea")
        print(f"the order is in {metadata.topic_partition} at offset {metadata.offset}")


if __name__ == "__main__":
    asyncio.run(main())
