"""Watches what the client writes and reads on its connections, and holds it against the rules of `core.sequences`.

Brokers repair much of what a client does wrong: they refuse a sequence that is out of order, and recognise a duplicate. So
a broken rule often costs only time, and no record. Here it is seen where it happens, with the knowledge that the client has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from aioproducer.core.produce_error_codes import may_be_written
from aioproducer.errors import ProtocolError
from aioproducer.protocol import ErrorCode, FrameReader
from aioproducer.protocol.frames import decode_request_header, decode_response_header
from aioproducer.protocol.messages import ProduceRequest, ProduceResponse
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.testing.broker.fake_cluster import FakeCluster

__all__ = ["Watch"]

_PRODUCE: Final = ProduceRequest.api_key
_MOST: Final = 1 << 26
#: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp, producer id, epoch,
#: base sequence, count
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_SEQUENCES: Final = 2**31
#: A broker remembers so many batches of a producer for each partition.
_REMEMBERED: Final = 5
_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class Fate(Enum):
    """The last thing that the client knows of a batch."""

    IN_FLIGHT = "in flight"
    WRITTEN = "written"
    REFUSED = "refused"
    IN_DOUBT = "in doubt"


class _Name(NamedTuple):
    """A batch as brokers know it."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class _Batch:
    name: _Name
    count: int
    crc: int
    topic_id: UUID
    fate: Fate = Fate.IN_FLIGHT
    is_doubtful: bool = False  # an attempt may have been written
    is_too_large: bool = False  # parts follow in its place

    @property
    def end(self) -> int:
        return (self.name.sequence + self.count) % _SEQUENCES


@dataclass(slots=True)
class _Line:
    """The batches of a producer for a partition, under one epoch, in the order in which they were first sent."""

    batches: dict[int, _Batch] = field(default_factory=dict[int, _Batch])
    next: int = 0
    written_up_to: int = 0
    is_acknowledged: bool = False
    wholes: list[_Batch] = field(default_factory=list[_Batch])  # those that were too large


@dataclass(slots=True)
class _Connection:
    frames: FrameReader = field(default_factory=lambda: FrameReader(_MOST))
    #: The requests that were not answered: correlation id, version, and batches, if it is a Produce request.
    requests: list[tuple[int, int, list[_Batch]]] = field(default_factory=list[tuple[int, int, list[_Batch]]])


class Watch:
    """Everything that the client has sent and received so far, and the rules that it has broken."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.problems: list[str] = []
        #: Other producers use the same producer ids.
        self.has_rivals = False
        self.batches = 0
        #: Called whenever the client writes.
        self.look: Callable[[], object] = lambda: None
        self._cluster = cluster
        self._names: dict[UUID, str] = {}
        self._lines: dict[tuple[str, int, int], dict[int, _Line]] = {}
        self._numbered_again: set[_Name] = set()
        self._connections: dict[int, _Connection] = {}

    def assume(self, partition: tuple[str, int], producer_id: int, epoch: int, next_sequence: int) -> None:
        """Everything before this sequence was written before the simulation began."""
        line = _Line(next=next_sequence, written_up_to=next_sequence, is_acknowledged=True)
        self._lines[(*partition, producer_id)] = {epoch: line}

    def number_again(self, partition: tuple[str, int], producer_id: int, epoch: int, sequence: int) -> None:
        """A batch that had a number gets this one, in a new epoch."""
        self._numbered_again.add(_Name(*partition, producer_id, epoch, sequence))

    def has_open_beginning(self, topic: str) -> bool:
        """Whether a copy of the first batch of an epoch may be on its way: a forgetful broker would accept it."""
        return any(
            batch.name.sequence == 0 and (batch.is_doubtful or batch.fate is not Fate.WRITTEN)
            for (name, _, _), epochs in self._lines.items()
            if name == topic
            for line in epochs.values()
            for batch in (*line.batches.values(), *line.wholes)
        )

    # -- what the client does -----------------------------------------------------------------------------------------

    def sent(self, connection: int, data: bytes) -> None:
        """The client writes whole requests."""
        self.look()
        watched = self._connections.setdefault(connection, _Connection())
        requests = FrameReader(_MOST)
        requests.feed(data)
        for frame in requests:
            header, body = decode_request_header(frame)
            batches: list[_Batch] = []
            if header.api_key == _PRODUCE:
                request = ProduceRequest.decode(header.api_version, body)
                batches = [each for each in map(self._look, self._in(request)) if each is not None]
            watched.requests.append((header.correlation_id, header.api_version, batches))

    def received(self, connection: int, data: bytes) -> None:
        """The client reads bytes of responses."""
        self._learn_names()  # before it uses the ids in them
        watched = self._connections.get(connection)
        if watched is None:
            return
        try:
            watched.frames.feed(data)
            for frame in watched.frames:
                self._answer(watched, bytes(frame))
        except (ProtocolError, IndexError):  # damaged: the client ends the connection
            self.lost(connection)

    def lost(self, connection: int) -> None:
        """The client knows that nothing will be answered any more."""
        watched = self._connections.pop(connection, None)
        for _, _, batches in watched.requests if watched is not None else ():
            for batch in batches:
                batch.fate, batch.is_doubtful = Fate.IN_DOUBT, True

    def _answer(self, watched: _Connection, frame: bytes) -> None:
        expected, version, batches = watched.requests[0]
        if not batches:
            if int.from_bytes(frame[:4], "big") != expected:
                raise ProtocolError("another correlation id")
            del watched.requests[0]
            return
        correlation_id, body = decode_response_header(frame, ProduceRequest, version)
        if correlation_id != expected:
            raise ProtocolError("another correlation id")
        response = ProduceResponse.decode(version, body)
        codes = {
            (self._name(topic.name, topic.topic_id), each.index): each.error_code
            for topic in response.responses
            for each in topic.partition_responses
        }
        if not all((batch.name.topic, batch.name.partition) in codes for batch in batches):
            raise ProtocolError("not all batches are answered")
        del watched.requests[0]
        for batch in batches:
            self._decide(batch, codes[batch.name.topic, batch.name.partition])

    def _decide(self, batch: _Batch, code: int) -> None:
        if code in _WRITTEN:
            batch.fate = Fate.WRITTEN
            line = self._lines[batch.name.topic, batch.name.partition, batch.name.producer_id][batch.name.epoch]
            if not line.is_acknowledged or _precedes(line.written_up_to, batch.end):
                line.written_up_to = batch.end
            line.is_acknowledged = True
        elif may_be_written(code):
            batch.fate, batch.is_doubtful = Fate.IN_DOUBT, True
        else:
            batch.fate = Fate.REFUSED
            if code == ErrorCode.MESSAGE_TOO_LARGE:  # this goes for the same bytes at any time
                batch.is_doubtful, batch.is_too_large = False, batch.count > 1

    # -- what is in a request -----------------------------------------------------------------------------------------

    def _name(self, name: str, topic_id: UUID) -> str:
        if topic_id == ZERO_UUID:
            return name
        return self._names.get(topic_id, str(topic_id))

    def _learn_names(self) -> None:
        for name, topic in self._cluster.topics.items():
            self._names[topic.topic_id] = name

    def _in(self, request: ProduceRequest) -> Iterator[_Batch]:
        for topic in request.topic_data:
            name = self._name(topic.name, topic.topic_id)
            for each in topic.partition_data:
                header: Sequence[Any] = _HEADER.unpack_from(b"".join(map(bytes, _pieces(each.records))))
                producer_id, epoch, sequence, count = header[9:13]
                yield _Batch(_Name(name, each.index, producer_id, epoch, sequence), count, header[4], topic.topic_id)

    # -- the rules ----------------------------------------------------------------------------------------------------

    def _look(self, batch: _Batch) -> _Batch | None:
        """The batch as it is known from now on; None if it has no number."""
        topic, partition, producer_id, epoch, sequence = batch.name
        self.batches += 1
        if producer_id < 0:
            return None
        epochs = self._lines.setdefault((topic, partition, producer_id), {})
        line = epochs.setdefault(epoch, _Line())
        for problem in self._broken(batch, epochs, line):
            self.problems.append(f"{problem}: {topic}-{partition}, sequence {sequence} of {producer_id}/{epoch}")
        known = line.batches.get(sequence)
        if known is not None and known.crc == batch.crc:
            known.fate, known.topic_id = Fate.IN_FLIGHT, batch.topic_id
            return known
        if not _is_part(batch, line):
            line.next = batch.end
        line.batches[sequence] = batch
        if known is not None and known.count > batch.count:
            line.wholes.append(known)
        return batch

    def _broken(self, batch: _Batch, epochs: dict[int, _Line], line: _Line) -> Iterator[str]:
        known = line.batches.get(batch.name.sequence)
        is_new = known is None or known.crc != batch.crc
        lines = [line] if self.has_rivals else epochs.values()
        in_flight = [each for every in lines for each in every.batches.values() if each.fate is Fate.IN_FLIGHT]
        if any(each.name.epoch != batch.name.epoch for each in in_flight):
            yield "an epoch begins while batches of another one are in flight"
        if not self.has_rivals and any(epoch > batch.name.epoch for epoch in epochs):
            yield "a batch has an epoch that is over"
        if any(each.topic_id != batch.topic_id for each in in_flight):
            yield "a batch is sent to a topic that was created again while others are in flight to the old one"
        if len(in_flight) >= _REMEMBERED:
            yield "more batches are in flight than a broker remembers"
        if not line.is_acknowledged and any(each.name != batch.name for each in in_flight):
            yield "several batches are in flight before the first one is written"
        if known is not None and not is_new and known.fate is Fate.IN_FLIGHT:
            yield "a batch is in flight twice"
        is_part = _is_part(batch, line)
        if known is not None and is_new and not is_part and (known.is_doubtful or known.fate is not Fate.REFUSED):
            yield f"a sequence is used again, for another batch, while the first one is {known.fate.value}"
        if known is None and batch.name.sequence != line.next and not _is_within(batch, line):
            yield f"a sequence is left out: {line.next} is next"
        if is_new and not is_part:
            yield from self._overtaken(batch, line)

    def _overtaken(self, batch: _Batch, line: _Line) -> Iterator[str]:
        if batch.name in self._numbered_again:
            return  # those that got their numbers with it may be given up by now: this one decides their fate
        for each in line.batches.values():
            is_open = each.fate in (Fate.REFUSED, Fate.IN_DOUBT)
            is_behind_written = line.is_acknowledged and _precedes(each.name.sequence, line.written_up_to)
            if is_open and not is_behind_written and _precedes(each.name.sequence, batch.name.sequence):
                yield f"a new batch is sent before sequence {each.name.sequence}, which is {each.fate.value}"


def _is_within(batch: _Batch, line: _Line) -> bool:
    """Whether it begins within a batch that was too large: the last parts may be given up before they are sent."""
    return _ends_within(batch.name.sequence, 1, line)


def _is_part(batch: _Batch, line: _Line) -> bool:
    """Whether it is a part of a batch that was too large."""
    return _ends_within(batch.name.sequence, batch.count, line)


def _ends_within(sequence: int, count: int, line: _Line) -> bool:
    return any(
        each.is_too_large and (sequence - each.name.sequence) % _SEQUENCES + count <= each.count
        for each in (*line.batches.values(), *line.wholes)
    )


def _precedes(sequence: int, other: int) -> bool:
    return sequence != other and (other - sequence) % _SEQUENCES < _SEQUENCES // 2


def _pieces(records: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", records) if isinstance(records, (list, tuple)) else (records,)
