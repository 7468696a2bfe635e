"""No client at all: requests that were encoded before are written to a blocking socket. Nothing can be quicker.

One record at a time it is the ping-pong that latencies are compared with; in bulk it is what sending the encoded batches
alone costs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from aioproducer.protocol import decode_response_header, encode_request
from aioproducer.protocol.messages import InitProducerIdRequest, ProduceRequest
from aioproducer.record import RecordBatchBuilder, encode_batch
from aioproducer.testing.raw_client import RawClient, produce
from benchmarks.cases import Workload
from benchmarks.job import BATCH_SIZE, Job
from benchmarks.measure import Figures, Stopwatch, lone_blocking, throughput

__all__ = ["WORKLOADS", "BareSocket", "check"]

#: Topics go by name in it, and the mock cluster also speaks it.
_PRODUCE_VERSION: Final = 9
_INIT_PRODUCER_ID_VERSION: Final = 4
_IN_FLIGHT: Final = 5
_TIMEOUT: Final = 60.0


class BareSocket:
    """A connection with an idempotent producer's id, and the requests that it numbers."""

    def __init__(self, job: Job) -> None:
        host, _, port = job.servers.rpartition(":")
        self._job = job
        self.raw = RawClient((host, int(port)), client_id="bare-socket", timeout=_TIMEOUT)
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = self.raw.ask(request, _INIT_PRODUCER_ID_VERSION)
        self._producer = answer.producer_id, answer.producer_epoch
        self._sequences = dict.fromkeys(range(job.case.partitions), 0)
        self._encoded = 0

    def requests(self, count: int, batch_size: int) -> Iterator[bytes]:
        """Frames of one batch each, for one partition after the other."""
        now = int(time.time() * 1000)
        keys = self._job.keys(count) if self._job.case.keyed else itertools.repeat(None, count)
        builder = RecordBatchBuilder()
        for key, value in zip(keys, self._job.values(count), strict=True):
            if builder.count and builder.size + len(value) > batch_size:
                yield self._request(builder)
                builder = RecordBatchBuilder()
            builder.append(now, key, value)
        yield self._request(builder)

    def _request(self, builder: RecordBatchBuilder) -> bytes:
        partition = self._encoded % self._job.case.partitions
        self._encoded += 1
        batch = encode_batch(builder)
        batch.stamp(*self._producer, self._sequences[partition])
        self._sequences[partition] += batch.count
        request = produce(self._job.topic, {partition: b"".join(batch.pieces)})
        return b"".join(encode_request(self._encoded, "bare-socket", request, _PRODUCE_VERSION))

    def send(self, requests: Sequence[bytes]) -> list[bytes]:
        """Write them all, with five in flight; returns the answers."""
        answers: list[bytes] = []
        for number, request in enumerate(requests):
            if number >= _IN_FLIGHT:
                answers.append(self.raw.read_frame())
            self.raw.send_bytes(request)
        answers += [self.raw.read_frame() for _ in range(len(requests) - len(answers))]
        return answers


def check(answers: Sequence[bytes]) -> None:
    """Raise unless the broker took every batch."""
    for frame in answers:
        _, body = decode_response_header(frame, ProduceRequest, _PRODUCE_VERSION)
        answer = ProduceRequest.response_type.decode(_PRODUCE_VERSION, body)
        errors = {partition.error_code for topic in answer.responses for partition in topic.partition_responses}
        if errors != {0}:
            raise RuntimeError(f"The broker refused a batch that the benchmark encoded: {answer}.")


def _lone(job: Job) -> Figures:
    connection = BareSocket(job)
    requests = iter(list(connection.requests(job.sent, batch_size=1)))
    answers: list[bytes] = []

    def one() -> None:
        connection.raw.send_bytes(next(requests))
        answers.append(connection.raw.read_frame())

    lone_blocking(one, job.warm_up)
    figures = lone_blocking(one, job.records)
    check(answers)
    return figures


def _bulk(job: Job) -> Figures:
    connection = BareSocket(job)
    check(connection.send(list(connection.requests(job.warm_up, BATCH_SIZE))))
    requests = list(connection.requests(job.records, BATCH_SIZE))
    with Stopwatch() as watch:
        answers = connection.send(requests)
    check(answers)
    return throughput(watch, job)


WORKLOADS: Final[Mapping[Workload, Callable[[Job], Figures]]] = {
    Workload.LONE: _lone,
    Workload.BULK: _bulk,
    Workload.TABLE: _bulk,
}
