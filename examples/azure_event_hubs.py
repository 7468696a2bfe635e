"""Send to Azure Event Hubs with the connection string of a namespace."""

from __future__ import annotations

import asyncio

from _secured import config_of

from aioproducer import Producer
from aioproducer.testing import Logins

CONNECTION = "Endpoint=sb://NAMESPACE.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=KEY="
PRINTED = f"""
bootstrap.servers=NAMESPACE.servicebus.windows.net:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="$ConnectionString" \
password="{CONNECTION}";
"""


async def main() -> None:
    async with Producer(
        config_of("EVENT_HUBS_PROPERTIES", PRINTED, Logins({"$ConnectionString": CONNECTION}))
    ) as producer:
        metadata = await producer.send("orders", b"tea")
        print(f"the order is in {metadata.topic_partition} at offset {metadata.offset}")


if __name__ == "__main__":
    asyncio.run(main())
