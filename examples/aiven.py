"""Send to Aiven with the three files that its console offers, under librdkafka's names."""

from __future__ import annotations

import asyncio

from _secured import config_of

from aioproducer import Producer

PRINTED = """
metadata.broker.list=kafka-project.aivencloud.com:12691
security.protocol=ssl
"""
#: In your file: ssl.ca.location=ca.pem, ssl.certificate.location=service.cert, ssl.key.location=service.key


async def main() -> None:
    async with Producer(config_of("AIVEN_PROPERTIES", PRINTED, None)) as producer:
        metadata = await producer.send("orders", b"tea")
        print(f"the order is in {metadata.topic_partition} at offset {metadata.offset}")


if __name__ == "__main__":
    asyncio.run(main())
