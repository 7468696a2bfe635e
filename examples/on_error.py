"""Handle records that cannot be delivered: how failures are reported, what is certain, and how nothing gets lost.

Always with a fake broker, because only that one fails on demand.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from aioproducer import CloseReport, DeliveryError, NotWritten, Producer, ProducerRecord, Unknown
from aioproducer.testing import FakeBroker


def alert(error: DeliveryError) -> None:
    """Called for each failed record that is not awaited."""
    fate = "was not written" if isinstance(error, NotWritten) else "may have been written"
    print(
        f"  on_delivery_error: a record for {error.topic} {fate}; its value was {error.record and error.record.value!r}"
    )


async def a_failure_shows_what_is_certain(broker: FakeBroker) -> None:
    print("NotWritten or Unknown:")
    async with Producer(
        broker.bootstrap_servers, delivery_timeout_ms=1000, request_timeout_ms=500, linger_ms=0
    ) as producer:
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        try:
            await producer.send("payments", b"10 EUR")
        except NotWritten as error:
            print(f"  safe to send again: {error}")

        broker.swallow("Produce", times=None)
        try:
            await producer.send("payments", b"20 EUR", timeout=0.3)
        except Unknown as error:
            print(f"  check before sending again: {error}")
        broker.clear_faults()


async def an_unawaited_failure_is_reported(broker: FakeBroker) -> None:
    print("The delivery is not awaited:")
    async with Producer(broker.bootstrap_servers, on_delivery_error=alert) as producer:
        broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        await producer.enqueue("payments", b"30 EUR")


async def what_is_left_at_the_end_is_kept(broker: FakeBroker, spool: Path) -> None:
    print("Kafka is down while the service has to stop:")
    producer = Producer(broker.bootstrap_servers, on_delivery_error=lambda error: None)
    await producer.start()
    await producer.send("payments", b"40 EUR")
    broker.stop_node(1)
    for amount in (50, 60, 70):
        await producer.enqueue("payments", f"{amount} EUR", key="customer-7")

    report = await producer.close(timeout=0.3)
    save(report, spool)
    print(f"  {report.delivered} delivered, {len(report.undelivered)} saved to {spool.name}")

    broker.start_node(1)
    async with Producer(broker.bootstrap_servers) as next_one:
        result = await next_one.send_many("payments", load(spool))
    print(f"  {result.count} sent after the restart")


def save(report: CloseReport, spool: Path) -> None:
    """Records that may be in the log are marked: sending them again may duplicate them."""
    with spool.open("w") as file:
        for certain, records in ((False, report.maybe_written), (True, report.not_written)):
            for record in records:
                kept = {"topic": record.topic, "key": text(record.key), "value": text(record.value), "certain": certain}
                file.write(json.dumps(kept) + "\n")


def load(spool: Path) -> list[ProducerRecord]:
    kept = [json.loads(line) for line in spool.read_text().splitlines()]
    return [ProducerRecord(each["topic"], each["value"], each["key"]) for each in kept]


def text(data: object) -> str | None:
    return data.decode() if isinstance(data, bytes) else None


async def main() -> None:
    with FakeBroker(topics={"payments": 1}) as broker, tempfile.TemporaryDirectory() as directory:
        await a_failure_shows_what_is_certain(broker)
        await an_unawaited_failure_is_reported(broker)
        await what_is_left_at_the_end_is_kept(broker, Path(directory, "spool.jsonl"))


if __name__ == "__main__":
    asyncio.run(main())
