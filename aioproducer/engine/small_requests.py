"""Sends small Produce requests, and reads plain responses to them, without message objects.

Most requests of a service carry a few batches with a few records each: there the message objects cost more than the bytes.
`SmallRequest` writes and reads the same bytes; a request that it cannot write, and a response that says more than where the
batches were written, are left to the messages.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from aioproducer.config import ProducerConfig
from aioproducer.core.answers import ProduceAnswer, read_produce_answer
from aioproducer.core.batches import ProducerBatch
from aioproducer.core.cluster import TopicMetadata
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Answered, Read, ReadFrame
from aioproducer.protocol.lone_batch import FIRST_VERSION, Part, SmallRequest, Written
from aioproducer.protocol.messages import ProduceRequest, ProduceResponse
from aioproducer.protocol.wire import ZERO_UUID

__all__ = ["SmallRequests"]

#: Larger requests are not copied into one piece, in bytes.
_LARGEST = 65_536
#: Produce 13 names topics by their id (KIP-516).
_LAST_VERSION_WITH_TOPIC_NAMES = 12
_MOST_TOPICS = 1000

#: The position of each batch in order, or a response that says more.
_Answer: TypeAlias = list[Written] | ProduceAnswer


class _Form:
    """The form of the requests in one version, with the bytes of their topics."""

    __slots__ = ("_topics", "request", "version")

    def __init__(self, version: int, request: SmallRequest) -> None:
        self.version = version
        self.request = request
        self._topics: dict[str, tuple[TopicMetadata, bytes]] = {}

    def topic(self, name: str, known: TopicMetadata | None) -> bytes | None:
        """The bytes that stand for the topic; None if this version cannot name it."""
        cached = self._topics.get(name)
        if cached is not None and cached[0] is known:
            return cached[1]
        if known is None or (self.version > _LAST_VERSION_WITH_TOPIC_NAMES and known.topic_id == ZERO_UUID):
            return None
        if len(self._topics) >= _MOST_TOPICS:
            self._topics.clear()
        written = self.request.topic(name, known.topic_id)
        self._topics[name] = known, written
        return written


class SmallRequests:
    """Sends the batches of a small request, or leaves them to the messages."""

    #: Tests turn it off.
    enabled = True

    def __init__(self, config: ProducerConfig, client_id: str, client: NetworkClient) -> None:
        self._config = config
        self._client_id = client_id
        self._client = client
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._is_answered = config.acks != 0
        self._form: _Form | None = None

    def send(
        self,
        node: int,
        version: int,
        batches: list[ProducerBatch],
        callback: Answered[Any],
    ) -> bool:
        """Send the batches to a node that can take a request and return True, or return False with nothing done.

        ``callback`` gets the position of each batch, in the order of ``batches``, which are sorted by topic here; or what
        `NetworkClient.send` returns.
        """
        if not self.enabled or not self._is_answered or version < FIRST_VERSION:
            return False
        broker = self._client.frame_broker(node)
        if broker is None:
            return False
        form = self._form
        if form is None or form.version != version:
            form = self._form = self._new_form(version)
        parts = self._parts(form, batches)
        if parts is None:
            return False
        read: Read[Any] = partial(_read, form.request, parts, batches)
        read_frame: ReadFrame[Any] = partial(form.request.read_frame, parts)
        frame, timeout_s = partial(form.request.encode, parts), self._request_timeout_s
        self._client.send_frame(broker, frame, ProduceRequest, version, callback, timeout_s, read, read_frame)
        return True

    def _new_form(self, version: int) -> _Form:
        config = self._config
        request = SmallRequest(
            version, self._client_id, config.transactional_id, config.acks, config.request_timeout_ms
        )
        return _Form(version, request)

    def _parts(self, form: _Form, batches: list[ProducerBatch]) -> list[Part] | None:
        """The batches as they are encoded, the topics one after the other; None if messages must encode them."""
        known = self._client.metadata.topics
        topics: dict[str, bytes] = {}
        parts: list[Part] = []
        size = 0
        for batch in batches:
            name, partition = batch.partition
            topic = topics.get(name)
            if topic is None:
                topic = form.topic(name, known.get(name))
                if topic is None:
                    return None
                topics[name] = topic
            header, records = batch.pieces
            size += len(header) + len(records)
            if size > _LARGEST:
                return None
            parts.append((topic, partition, batch.count, header, records))
        if len(topics) > 1:
            batches.sort(key=lambda batch: topics[batch.partition.topic])
            parts.sort(key=lambda part: part[0])
        return parts


def _read(request: SmallRequest, parts: list[Part], batches: list[ProducerBatch], version: int, body: bytes) -> _Answer:
    written = request.read(parts, body)
    if written is not None:
        return written
    names: dict[UUID, str] = {}
    if version > _LAST_VERSION_WITH_TOPIC_NAMES:
        names = {UUID(bytes=part[0]): batch.partition.topic for part, batch in zip(parts, batches, strict=True)}
    return read_produce_answer(batches, names, ProduceResponse.decode(version, body))
