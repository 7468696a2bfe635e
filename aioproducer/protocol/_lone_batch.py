"""Small Produce requests, and plain responses to them, without message objects.

The messages in `messages.produce` are the reference: a `LoneBatch` writes and reads the same bytes, but only for the shape
of a single ``send()``, a `SmallRequest` for some small batches. Everything else is left to them. The native twin does the
same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.wire import write_uvarint

__all__ = ["FIRST_VERSION", "LoneBatch", "Part", "SmallRequest", "Written"]

#: The first version with compact lengths and tagged fields; earlier ones are left to the messages.
FIRST_VERSION: Final = 9
#: The first version that names a topic by its id.
_FIRST_VERSION_WITH_IDS: Final = 13

_FRAME: Final = struct.Struct(">ihhi")  # size, api key, version, correlation id
_RESPONSE_START: Final = struct.Struct(">iib")  # size, correlation id, no tags
_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_PARTITION: Final = struct.Struct(">i")
_PARTITION_AND_CODE: Final = struct.Struct(">ih")
_OFFSETS: Final = struct.Struct(">qqq")  # base offset, log append time, log start offset

_NO_TAGS: Final = b"\0"
_ONE: Final = b"\2"  # the length of an array with one element
_SIZE: Final = 4
#: No record errors, error message, tags of partition and topic, throttle time, tags of the response.
_NOTHING_ELSE: Final = b"\1\0\0\0" + bytes(4) + _NO_TAGS
_OFFSETS_END: Final = 2**63
#: No record errors, error message, tags of the partition.
_NOTHING_ELSE_OF_PARTITION: Final = b"\1\0\0"
_THROTTLE_AND_TAGS: Final = bytes(4) + _NO_TAGS


class Written(NamedTuple):
    """The position of a written batch; -1 if the broker does not report it."""

    base_offset: int
    log_append_time_ms: int


class LoneBatch:
    """Requests with one batch for one partition, in one version, and their responses.

    ``topic`` and ``topic_id`` are the same topic; the version decides which of the two is sent.
    """

    __slots__ = ("_after", "_behind_id", "_expected", "_length", "_whole", "topic_id", "version")

    def __init__(
        self,
        version: int,
        client_id: str,
        transactional_id: str | None,
        acks: int,
        timeout_ms: int,
        topic: str,
        topic_id: UUID,
        partition: int,
    ) -> None:
        self.version = version
        self.topic_id = topic_id
        name = _topic(version, topic, topic_id)
        #: The bytes between the correlation id and the length of the batch.
        self._behind_id = b"".join(
            (_common(client_id, transactional_id, acks, timeout_ms), _ONE, name, _ONE, _PARTITION.pack(partition))
        )
        self._after = _NO_TAGS * 3  # of the partition, the topic and the request
        self._length = _FRAME.size - _SIZE + len(self._behind_id) + len(self._after)
        self._expected = _ONE + name + _ONE + _PARTITION_AND_CODE.pack(partition, 0)
        #: The size of a frame with a plain response, including its length.
        self._whole = _RESPONSE_START.size + len(self._expected) + _OFFSETS.size + len(_NOTHING_ELSE)

    def encode(self, header: bytes, records: bytes, correlation_id: int) -> bytes:
        """The frame of a request with the batch that consists of this header and these records."""
        batch = len(header) + len(records)
        length = bytearray()
        write_uvarint(length, batch + 1)
        size = self._length + len(length) + batch
        start = _FRAME.pack(size, ApiKey.PRODUCE, self.version, correlation_id)
        return b"".join((start, self._behind_id, length, header, records, self._after))

    def read_frame(self, count: int, data: bytes, correlation_id: int) -> Written | None:
        """As `read`, for all received bytes; None also if they are not exactly one frame with this correlation id."""
        start = (self._whole - _SIZE, correlation_id, 0)
        if len(data) != self._whole or _RESPONSE_START.unpack_from(data) != start:
            return None
        return self.read(data[_RESPONSE_START.size :], count)

    def read(self, body: bytes, count: int) -> Written | None:
        """The position of the ``count`` written records; None if the response says anything else."""
        at = len(self._expected)
        if len(body) != at + _OFFSETS.size + len(_NOTHING_ELSE):
            return None
        if not body.startswith(self._expected) or not body.endswith(_NOTHING_ELSE):
            return None
        base_offset, log_append_time_ms, _ = _OFFSETS.unpack_from(body, at)
        if not -1 <= base_offset <= _OFFSETS_END - count:
            return None
        return Written(base_offset, log_append_time_ms)


#: One batch of a `SmallRequest`: `SmallRequest.topic` of its topic, partition, number of records, header and records.
Part: TypeAlias = tuple[bytes, int, int, bytes, bytes]

_topic_of: Final = itemgetter(0)


class SmallRequest:
    """Requests with some batches, each for another partition, in one version, and their responses.

    The parts of one topic must follow one another.
    """

    __slots__ = ("_behind_id", "version")

    def __init__(self, version: int, client_id: str, transactional_id: str | None, acks: int, timeout_ms: int) -> None:
        self.version = version
        self._behind_id = _common(client_id, transactional_id, acks, timeout_ms)

    def topic(self, topic: str, topic_id: UUID) -> bytes:
        """The bytes that stand for a topic in requests and responses of this version."""
        return _topic(self.version, topic, topic_id)

    def encode(self, parts: Sequence[Part], correlation_id: int) -> bytes:
        """The frame of a request with these batches."""
        topics = [(topic, list(of_topic)) for topic, of_topic in groupby(parts, _topic_of)]
        body = bytearray(self._behind_id)
        write_uvarint(body, len(topics) + 1)
        for topic, of_topic in topics:
            body += topic
            write_uvarint(body, len(of_topic) + 1)
            for _, partition, _, header, records in of_topic:
                body += _PARTITION.pack(partition)
                write_uvarint(body, len(header) + len(records) + 1)
                body += header
                body += records
                body += _NO_TAGS
            body += _NO_TAGS
        body += _NO_TAGS
        return _FRAME.pack(_FRAME.size - _SIZE + len(body), ApiKey.PRODUCE, self.version, correlation_id) + body

    def read_frame(self, parts: Sequence[Part], data: bytes, correlation_id: int) -> list[Written] | None:
        """As `read`, for all received bytes; None also if they are not exactly one frame with this correlation id."""
        if len(data) <= _RESPONSE_START.size:
            return None
        if _RESPONSE_START.unpack_from(data) != (len(data) - _SIZE, correlation_id, 0):
            return None
        return self.read(parts, data[_RESPONSE_START.size :])

    def read(self, parts: Sequence[Part], body: bytes) -> list[Written] | None:
        """The position of each batch, in the order of the parts; None if the response says anything else.

        Brokers may order topics and partitions otherwise than the request.
        """
        found: dict[tuple[bytes, int], Written] = {}
        counts = {(topic, partition): count for topic, partition, count, _, _ in parts}
        topics = {topic: len(list(of_topic)) for topic, of_topic in groupby(parts, _topic_of)}
        rest = _after(body, _length(len(topics)))
        for _ in range(len(topics)):
            topic = next((each for each in topics if rest is not None and rest.startswith(each)), None)
            if rest is None or topic is None:
                return None
            size = topics.pop(topic)
            rest = _after(rest, topic + _length(size))
            for _ in range(size):
                if rest is None or len(rest) < _PARTITION_AND_CODE.size + _OFFSETS.size:
                    return None
                partition, code = _PARTITION_AND_CODE.unpack_from(rest)
                base_offset, log_append_time_ms, _ = _OFFSETS.unpack_from(rest, _PARTITION_AND_CODE.size)
                count = counts.pop((topic, partition), None)
                if code or count is None or not -1 <= base_offset <= _OFFSETS_END - count:
                    return None
                found[topic, partition] = Written(base_offset, log_append_time_ms)
                rest = _after(rest[_PARTITION_AND_CODE.size + _OFFSETS.size :], _NOTHING_ELSE_OF_PARTITION)
            rest = _after(rest, _NO_TAGS)
        return [found[topic, partition] for topic, partition, *_ in parts] if rest == _THROTTLE_AND_TAGS else None


def _after(data: bytes | None, start: bytes) -> bytes | None:
    """The bytes behind ``start``; None if they do not begin with it."""
    return data[len(start) :] if data is not None and data.startswith(start) else None


def _length(count: int) -> bytes:
    out = bytearray()
    write_uvarint(out, count + 1)
    return bytes(out)


def _common(client_id: str, transactional_id: str | None, acks: int, timeout_ms: int) -> bytes:
    """The bytes between the correlation id and the topics."""
    client = client_id.encode()
    transaction = b"\0" if transactional_id is None else _compact(transactional_id.encode())
    start = struct.pack(">h", len(client)) + client + _NO_TAGS
    return start + transaction + _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)


def _topic(version: int, topic: str, topic_id: UUID) -> bytes:
    return topic_id.bytes if version >= _FIRST_VERSION_WITH_IDS else _compact(topic.encode())


def _compact(text: bytes) -> bytes:
    out = bytearray()
    write_uvarint(out, len(text) + 1)
    return bytes(out + text)
