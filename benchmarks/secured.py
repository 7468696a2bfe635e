"""The cost of TLS and a login: the same records with and without them, with three clients, on one real broker.

``python -m benchmarks.secured [SECONDS]`` needs Java 17, Maven and the extra ``bench``; prints a table. Each client sends
records of 1 KiB for some seconds, all acknowledged; the share that TLS takes is the part of the plaintext rate that is
missing.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aioproducer import Producer
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.kafka import KafkaCluster
from aioproducer.testing.kafka.security import KafkaSecurity
from benchmarks.brokers.kafka import RUN_FAST

__all__ = ["main"]

_TOPIC: Final = "secured"
_CHUNK: Final = 500
_BATCH: Final = 262_144
_LONE_SENDS: Final = 300

#: JSON-like text, as compressible as such things are.
_VALUES: Final = [
    (b'{"id": %d, "text": "' % number + bytes(random.Random(number).choices(b"abcdefgh ", k=980)) + b'"}')[:1024]
    for number in range(1000)
]


class _Bench:
    def __init__(self, kafka: KafkaCluster, ca_file: str) -> None:
        self._kafka = kafka
        self._ca_file = ca_file

    def _options(self, listener: str) -> dict[str, Any]:
        if listener == "CLIENT":
            return {}
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self._ca_file,
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "alice",
            "sasl_password": "alice-secret",
        }

    async def aioproducer(self, listener: str, compression: str, seconds: float) -> float:
        options: dict[str, Any] = {"compression_type": compression, "batch_size": _BATCH, **self._options(listener)}
        async with Producer(self._kafka.bootstrap(listener), **options) as producer:
            await producer.send(_TOPIC, b"warm")
            began, sent = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                for _ in range(_CHUNK):
                    await producer.enqueue(_TOPIC, _VALUES[sent % 1000])
                    sent += 1
            await producer.flush()
            return sent / (time.perf_counter() - began)

    async def confluent_kafka(self, listener: str, compression: str, seconds: float) -> float:
        from confluent_kafka import Producer as Confluent

        ours = self._options(listener)
        theirs: Mapping[str, str] = {
            "security_protocol": "security.protocol",
            "ssl_cafile": "ssl.ca.location",
            "sasl_mechanism": "sasl.mechanisms",
            "sasl_username": "sasl.username",
            "sasl_password": "sasl.password",
        }
        config: dict[str, Any] = {theirs[name]: value for name, value in ours.items()} | {
            "bootstrap.servers": self._kafka.bootstrap(listener),
            "enable.idempotence": True,
            "compression.type": compression,
            "batch.size": _BATCH,
            "linger.ms": 5,
        }
        producer = Confluent(config)
        producer.produce(_TOPIC, b"warm")
        producer.flush()
        began, sent = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            for _ in range(_CHUNK):
                while True:
                    try:
                        producer.produce(_TOPIC, _VALUES[sent % 1000])
                        break
                    except BufferError:
                        producer.poll(0.05)
                sent += 1
            producer.poll(0)
        producer.flush()
        return sent / (time.perf_counter() - began)

    async def aiokafka(self, listener: str, compression: str, seconds: float) -> float:
        from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]  # it has no types
        from aiokafka.helpers import create_ssl_context  # type: ignore[import-untyped]

        options: dict[str, Any] = {}
        if listener != "CLIENT":
            options = {
                "security_protocol": "SASL_SSL",
                "ssl_context": create_ssl_context(cafile=self._ca_file),
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "alice",
                "sasl_plain_password": "alice-secret",
            }
        producer = AIOKafkaProducer(
            bootstrap_servers=self._kafka.bootstrap(listener),
            enable_idempotence=True,
            compression_type=None if compression == "none" else compression,
            max_batch_size=_BATCH,
            linger_ms=5,
            **options,
        )
        await producer.start()
        try:
            await producer.send_and_wait(_TOPIC, b"warm")
            began, sent = time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                for _ in range(_CHUNK):
                    await producer.send(_TOPIC, _VALUES[sent % 1000])
                    sent += 1
            await producer.flush()
            return sent / (time.perf_counter() - began)
        finally:
            await producer.stop()

    async def lone_send(self, listener: str) -> float:
        """The median time of one awaited send, in milliseconds."""
        async with Producer(self._kafka.bootstrap(listener), **self._options(listener)) as producer:
            await producer.send(_TOPIC, b"warm")
            times: list[float] = []
            for number in range(_LONE_SENDS):
                began = time.perf_counter()
                await producer.send(_TOPIC, _VALUES[number])
                times.append(time.perf_counter() - began)
            return statistics.median(times) * 1000


async def _compare(bench: _Bench, seconds: float) -> None:
    print("| client | compression | plaintext, records/s | SASL_SSL | of the rate that TLS takes |")
    print("|---|---|---:|---:|---:|")
    clients = {"aioproducer": bench.aioproducer, "confluent-kafka": bench.confluent_kafka, "aiokafka": bench.aiokafka}
    for compression in ("none", "zstd"):
        for name, run in clients.items():
            rates: dict[str, list[float]] = {"CLIENT": [], "SASL_SSL": []}
            for _ in range(3):  # in turns, so that a noisy moment hits both
                for listener, found in rates.items():
                    found.append(await run(listener, compression, seconds))
            plain, secured = (statistics.median(found) for found in rates.values())
            print(f"| {name} | {compression} | {plain:,.0f} | {secured:,.0f} | {1 - secured / plain:.0%} |", flush=True)
    for listener in ("CLIENT", "SASL_SSL"):
        print(f"\nA lone send, {listener}: {await bench.lone_send(listener):.2f} ms in the median")


def main() -> None:
    """Run and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    authority = CertificateAuthority()
    security = KafkaSecurity(authority, {"alice": "alice-secret"}, super_users=["alice"])
    with TemporaryDirectory() as directory, KafkaCluster(security=security, heap="1g", jvm_options=RUN_FAST) as kafka:
        kafka.create_topic(_TOPIC, 3, config={"retention.bytes": "200000000"})
        asyncio.run(_compare(_Bench(kafka, authority.write(Path(directory) / "ca.pem")), seconds))


if __name__ == "__main__":
    main()
