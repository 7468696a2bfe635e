"""Send to Amazon MSK as an IAM role, with the credentials that AWS's own tools use."""

from __future__ import annotations

import asyncio
import os

from _secured import config_of

from aioproducer import Producer
from aioproducer.testing import Logins
from aioproducer.testing.broker.msk_iam import AwsKeys

PRINTED = """
bootstrap.servers=b-1.cluster.abc123.c2.kafka.eu-central-1.amazonaws.com:9098
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""


async def main() -> None:
    if "MSK_PROPERTIES" not in os.environ:  # for the stand-in
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "example",
            "AWS_REGION": "eu-central-1",
        }
        os.environ.pop("AWS_SESSION_TOKEN", None)
    async with Producer(
        config_of("MSK_PROPERTIES", PRINTED, Logins(aws=AwsKeys("AKIDEXAMPLE", "example", "eu-central-1")))
    ) as producer:
        metadata = await producer.send("orders", b"tea")
        print(f"the order is in {metadata.topic_partition} at offset {metadata.offset}")


if __name__ == "__main__":
    asyncio.run(main())
