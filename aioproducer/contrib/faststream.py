"""FastStream's `KafkaBroker`, which publishes with our `AIOKafkaProducer`: a program changes one import.

::

    from faststream import FastStream

    from aioproducer.contrib.faststream import KafkaBroker

    broker = KafkaBroker("localhost:9092")
    app = FastStream(broker)

Options, publishers, middlewares and FastStream's ``TestKafkaBroker`` work unchanged. Subscribers and the admin client
are still aiokafka's, and aiokafka checks the options first: some values of ``compression_type`` need its extras.
`aioproducer.contrib.aiokafka.AIOKafkaProducer` lists the differences from aiokafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aiokafka.partitioner import DefaultPartitioner  # type: ignore[import-untyped]  # it has no types
from faststream.kafka import KafkaBroker as FastStreamKafkaBroker
from faststream.kafka.publisher.producer import AioKafkaFastProducerImpl

from aioproducer.contrib.aiokafka import AIOKafkaProducer

if TYPE_CHECKING:
    from collections.abc import Callable

    from fast_depends.library.serializer import SerializerProto

__all__ = ["KafkaBroker", "KafkaBrokerProducer"]


class KafkaBrokerProducer(AioKafkaFastProducerImpl):
    """FastStream's adapter of a producer, over ours."""

    __slots__ = ("_ours",)

    def __init__(self, producer: AIOKafkaProducer, *, parser: Any = None, decoder: Any = None) -> None:
        super().__init__(parser=parser, decoder=decoder)
        self._ours = producer

    async def connect(self, producer: Any, serializer: SerializerProto | None, codec: Any = None) -> None:
        """Start our producer in place of the one that FastStream has created, which is not started yet.

        Raises what `AIOKafkaProducer.start` raises. Cancellation: the producer is stopped.
        """
        await producer.stop()  # otherwise it warns that it was not closed
        await super().connect(cast("Any", self._ours), serializer, codec)

    @property
    def closed(self) -> bool:
        """Whether records cannot be published, because the broker is not connected."""
        return not self


class KafkaBroker(FastStreamKafkaBroker):
    """FastStream's broker with our producer; constructor and methods are FastStream's.

    aiokafka's own partitioner, the default, is replaced by our implementation of the same hash; others are called.
    """

    async def _connect(self) -> Callable[..., Any]:
        config = self.config.broker_config
        if not config.consumer_only:
            config.producer = KafkaBrokerProducer(
                AIOKafkaProducer(**_options(self._connection_kwargs)),
                parser=config.broker_parser,
                decoder=config.broker_decoder,
            )
        return await super()._connect()


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of our producer: those that FastStream passes to aiokafka's, without defaults that are objects."""
    options = dict(given)
    if type(options.get("partitioner")) is DefaultPartitioner:  # a subclass may do anything
        del options["partitioner"]
    if not isinstance(options.get("acks"), (int, str)):  # aiokafka's mark of an absent argument
        options.pop("acks", None)
    return options
