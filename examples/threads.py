"""Send from threads, without an event loop."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from _broker import bootstrap_servers

from aioproducer import RecordMetadata, SyncProducer


def main() -> None:
    with SyncProducer(bootstrap_servers()) as producer:
        # Each call waits for its acknowledgement; records of other threads share its batches.
        def send(number: int) -> RecordMetadata:
            return producer.send("jobs", f"job {number}", key=f"worker-{number % 4}")

        with ThreadPoolExecutor(max_workers=8) as threads:
            offsets = [metadata.offset for metadata in threads.map(send, range(100))]
        print(f"{len(offsets)} jobs sent by 8 threads, the highest offset is {max(offsets)}")

        # Or wait only for the buffer, and check the outcome later.
        deliveries = [producer.enqueue("jobs", f"later {number}") for number in range(1000)]
        print(f"the last one is at {deliveries[-1].result(timeout=10)}")

        result = producer.send_many("jobs", (f"many {number}" for number in range(5000)))
        print(f"{result.count:,} more, {result.serialized_bytes:,} bytes")


if __name__ == "__main__":
    main()
