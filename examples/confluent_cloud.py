"""Send to Confluent Cloud with the client.properties that its console prints for Java."""

from __future__ import annotations

import asyncio

from _secured import config_of

from aioproducer import Producer
from aioproducer.testing import Logins

PRINTED = """
bootstrap.servers=pkc-00000.europe-west1.gcp.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='SECRET';
sasl.mechanism=PLAIN
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
schema.registry.url=https://psrc-00000.europe-west1.gcp.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=SR_KEY:SR_SECRET
"""


async def main() -> None:
    async with Producer(config_of("CONFLUENT_PROPERTIES", PRINTED, Logins({"KEY": "SECRET"}))) as producer:
        metadata = await producer.send("orders", b"tea")
        print(f"the order is in {metadata.topic_partition} at offset {metadata.offset}")


if __name__ == "__main__":
    asyncio.run(main())
