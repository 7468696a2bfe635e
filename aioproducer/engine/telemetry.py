"""Pushes a producer's metrics to brokers that subscribe to them (KIP-714, and KIP-1076 for metrics of the application).

Follows Java's ClientTelemetryReporter. It runs beside everything else, and nothing depends on it: whatever fails here, the
records are sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

import anyio
import anyio.to_thread

from aioproducer.config import ProducerConfig
from aioproducer.core.telemetry import Next, Subscription, after_push, after_refusal, check_push, read_subscription
from aioproducer.errors import BrokerConnectionError, ConfigError, KafkaError
from aioproducer.metrics.points import Point, broker_points, producer_points, topic_points
from aioproducer.metrics.producer import ProducerMetrics
from aioproducer.metrics.reported import Reported
from aioproducer.net.client import NetworkClient
from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.messages import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from aioproducer.protocol.wire import ZERO_UUID
from aioproducer.record import Codec, compress, require
from aioproducer.runtime.deadline import Deadline
from aioproducer.runtime.log import ClientLog

__all__ = ["Telemetry"]

#: The pause after a failure before there was a subscription, in seconds: brokers' default interval, as in Java.
_USUAL_INTERVAL_S: Final = 300.0
#: The most that the last push may add to the time of ``close()``, in seconds.
_LAST_PUSH_S: Final = 2.0

#: With more topics than this, those of topics are not pushed: encoding them would slow down the event loop's thread.
_MOST_TOPICS: Final = 1_000

_Encode: TypeAlias = Callable[..., bytes]


class _Source(NamedTuple):
    """The numbers of one moment; those of the producer are read in a worker thread, the application's before."""

    now: float  # the event loop's time
    application: Sequence[Point]


class Telemetry:
    """The pushes of one producer.

    ``gauges`` returns the metrics of this moment that only the engine knows, ``by_broker`` those of each broker, in any
    thread.
    """

    def __init__(
        self,
        config: ProducerConfig,
        client: NetworkClient,
        metrics: ProducerMetrics,
        *,
        log: ClientLog,
        random: Callable[[], float],
        gauges: Callable[[], Mapping[str, float]],
        by_broker: Callable[[], Mapping[int, Mapping[str, float]]],
        learned: Callable[[UUID], object],
    ) -> None:
        """``learned`` is called with the id that the cluster has given this client."""
        self._config = config
        self._client = client
        self._metrics = metrics
        self._log = log.named(__name__)
        self._random = random
        self._gauges = gauges
        self._by_broker = by_broker
        self._learned = learned
        self._loop = asyncio.get_running_loop()
        self._timeout_s = config.request_timeout_ms / 1000
        self._id: UUID = ZERO_UUID
        self._node: int | None = None  # the broker that is asked, as long as it is connected
        self._interval_s = _USUAL_INTERVAL_S
        self._subscription: Subscription | None = None  # with metrics that can be pushed
        self._pushing = asyncio.Lock()  # two pushes at a time would report the same growth
        self._is_ending = False
        self._encode: _Encode | None = None
        self._codec = Codec.NONE
        self._refused: set[Codec] = set()
        self._reported = Reported(time.time_ns())

    async def run(self) -> None:
        """Subscribe and push until cancelled, or until a broker refuses for good."""
        try:
            await self._run()
        except Exception as error:  # nothing here may end the producer
            self._log.warning("Metrics are no longer pushed to brokers: %r", error, exc_info=True)
        finally:
            self._subscription = None

    async def _run(self) -> None:
        while True:
            found = await self._subscribe()
            if isinstance(found, Subscription):
                if not await self._can_encode():
                    return
                codecs = [codec for codec in found.known_codecs if codec not in self._refused]
                self._codec, self._subscription = _usable(codecs), found
                following = await self._push_in_turn(found)
                self._subscription = None
            else:
                following = found
            if following is Next.STOP:
                self._log.info("Metrics are not pushed to brokers: they refuse the requests for it.")
                return
            if following is Next.SUBSCRIBE_LATER:
                await asyncio.sleep(self._interval_s)

    # -- the subscription -------------------------------------------------------------------------------------------------

    async def _subscribe(self) -> Subscription | Next:
        """Ask for the subscription; if there is none, or it asks for nothing, return the step that follows."""
        try:
            answer: Subscription | int = await self._client.request(
                GetTelemetrySubscriptionsRequest(client_instance_id=self._id),
                read=read_subscription,
                node_id=self._choose_node(),
                timeout_s=self._timeout_s,
            )
        except KafkaError as error:
            self._log.debug("The request for a telemetry subscription failed: %s", error)
            self._node = None
            return Next.SUBSCRIBE_LATER
        if isinstance(answer, int):
            self._log.debug("No telemetry subscription: %s", broker_error(answer))
            return after_refusal(answer)
        self._interval_s = answer.push_interval_s
        if self._id != answer.client_instance_id:
            self._id = answer.client_instance_id
            self._learned(self._id)
        return answer if answer.prefixes else Next.SUBSCRIBE_LATER

    def _choose_node(self) -> int | None:
        """The broker that was asked before, or another one if it is not connected; None: whichever can be reached."""
        able = self._client.connected_nodes(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
        if self._node not in able:
            self._node = able[int(self._random() * len(able))] if able else None
        return self._node

    async def _can_encode(self) -> bool:
        """Whether the library for the encoding is there; it is imported in a thread: that takes up to 100 ms."""
        if self._encode is None:
            try:
                module = await anyio.to_thread.run_sync(
                    import_module, "aioproducer.metrics.otlp", abandon_on_cancel=True
                )
            except ImportError as error:
                self._log.info(
                    "The brokers subscribe to metrics of this client, which cannot be pushed: %s. Install "
                    "'aioproducer[telemetry]', or set enable_metrics_push=False.",
                    error,
                )
                return False
            self._encode = module.encode
        return True

    # -- pushing --------------------------------------------------------------------------------------------------------

    async def _push_in_turn(self, subscription: Subscription) -> Next:
        """Push at each interval, until a push is refused. The first is not at the same time as those of other clients."""
        pause = subscription.push_interval_s * (0.5 + self._random())
        while True:
            await asyncio.sleep(pause)
            try:
                async with self._pushing:
                    code = await self._push(subscription, terminating=False, timeout_s=self._timeout_s)
            except KafkaError as error:
                self._log.debug("A push of metrics failed: %s", error)
                self._node = None
                return Next.SUBSCRIBE_LATER
            except Exception as error:  # of one push; the next one may succeed
                self._log.warning("Metrics could not be pushed to brokers: %r", error, exc_info=True)
                return Next.SUBSCRIBE_LATER
            if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
                self._refused.add(self._codec)
            if after_push(code) is not Next.PUSH:
                self._log.debug("A push of metrics was refused: %s", broker_error(code))
                return after_push(code)
            pause = subscription.push_interval_s

    async def end(self, deadline: Deadline) -> None:
        """Push for the last time, if that is possible soon and before the deadline of ``close()``.

        Cancellation: perhaps nothing was pushed.
        """
        subscription = self._subscription
        if subscription is None or not self._client.connected_nodes():
            return
        try:
            async with asyncio.timeout(_LAST_PUSH_S), deadline.limit(), self._pushing:
                self._is_ending = True
                await self._push(subscription, terminating=True, timeout_s=_LAST_PUSH_S)
        except (TimeoutError, KafkaError) as error:
            self._log.debug("The last push of metrics failed: %r", error)
        except Exception as error:  # as in `run`
            self._log.warning("The last metrics were not pushed to brokers: %r", error, exc_info=True)

    async def _push(self, subscription: Subscription, *, terminating: bool, timeout_s: float) -> int:
        """Push once, and return the broker's error code; after the last push, do nothing."""
        if self._is_ending and not terminating:
            return ErrorCode.NONE
        now = time.time_ns()
        source = _Source(self._loop.time(), self._application_points())
        payload, points = await anyio.to_thread.run_sync(
            self._payload, subscription, source, now, abandon_on_cancel=True
        )
        if payload is None:
            return ErrorCode.NONE
        request = PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=terminating,
            compression_type=int(self._codec),
            metrics=payload,
        )
        try:
            code = await self._client.request(
                request, read=check_push, node_id=self._choose_node(), timeout_s=timeout_s
            )
        except BrokerConnectionError:
            self._reported.note(points, now)  # perhaps it was taken: a growth is rather lost than reported twice
            raise
        if code == ErrorCode.NONE:
            self._reported.note(points, now)
        return code

    def _application_points(self) -> list[Point]:
        points: list[Point] = []
        for name, metric in list(self._metrics.application.items()):
            try:
                number = float(metric.read())
            except Exception:  # foreign code
                self._log.warning(
                    "The application's metric %r could not be read; it is not pushed.", name, exc_info=True
                )
                continue
            attributes = tuple(metric.attributes.items())
            points.append(Point(name, number, metric.is_total, metric.unit, metric.meaning, attributes))
        return points

    # -- in a worker thread -----------------------------------------------------------------------------------------------

    def _payload(self, subscription: Subscription, source: _Source, now: int) -> tuple[bytes | None, Sequence[Point]]:
        """The bytes of a push, and its points; None if the broker accepts less than the producer's own metrics need."""
        own, brokers, topics = self._read(source)
        assert self._encode is not None
        is_delta, reported = subscription.is_delta, self._reported
        for parts in ((own, brokers, topics), (own, brokers), (own,)):
            points = [point for part in parts for point in part if subscription.wants(point.name)]
            shown = reported.growth(points) if is_delta else reported.whole(points)
            payload = compress(self._codec, self._encode(shown, self._resource(), now, is_delta))
            if len(payload) <= subscription.max_bytes:
                return payload, points
        self._log.debug("The metrics need more than the %d bytes that the broker accepts.", subscription.max_bytes)
        return None, ()

    def _read(self, source: _Source) -> tuple[list[Point], list[Point], list[Point]]:
        metrics, now = self._metrics, source.now
        own = [*producer_points({**metrics.as_mapping(now), **self._gauges()}), *source.application]
        by_topic = metrics.by_topic(now)
        topics = [] if len(by_topic) > _MOST_TOPICS else list(topic_points(by_topic))
        return own, list(broker_points(self._by_broker())), topics

    def _resource(self) -> dict[str, str]:
        transactional_id = self._config.transactional_id
        return {} if transactional_id is None else {"transactional_id": transactional_id}


def _usable(codecs: Sequence[Codec]) -> Codec:
    """The first codec whose library is installed."""
    for codec in codecs:
        with suppress(ConfigError):
            require(codec)
            return codec
    return Codec.NONE
