"""Encodes metrics as OpenTelemetry's MetricsData, which brokers pass to their reporters (KIP-714).

Needs opentelemetry-proto (``aioproducer[telemetry]``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    Gauge,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as OtlpMetric

from aioproducer._version import __version__
from aioproducer.metrics.points import Point

__all__ = ["encode"]


def encode(points: Iterable[Point], resource: Mapping[str, str], now: int, is_delta: bool) -> bytes:
    """Return the points as MetricsData.

    ``resource`` describes the client, ``now`` is in nanoseconds since 1970; ``is_delta``: totals have only their growth.
    """
    metrics: dict[str, OtlpMetric] = {}
    for point in points:
        metric = metrics.get(point.name)
        if metric is None:
            metric = metrics[point.name] = _metric(point, is_delta)
        data = metric.sum.data_points if point.is_total else metric.gauge.data_points
        number = NumberDataPoint(
            time_unix_nano=now, as_double=point.number, attributes=_attributes(dict(point.attributes))
        )
        if point.is_total:
            number.start_time_unix_nano = point.began
        data.append(number)
    scope = ScopeMetrics(metrics=metrics.values())
    scope.scope.name, scope.scope.version = "aioproducer", __version__
    whole = ResourceMetrics(scope_metrics=[scope])
    whole.resource.attributes.extend(_attributes(resource))
    return MetricsData(resource_metrics=[whole]).SerializeToString()


def _metric(point: Point, is_delta: bool) -> OtlpMetric:
    metric = OtlpMetric(name=point.name, unit=point.unit, description=point.meaning)
    if point.is_total:
        temporality = AGGREGATION_TEMPORALITY_DELTA if is_delta else AGGREGATION_TEMPORALITY_CUMULATIVE
        metric.sum.CopyFrom(Sum(aggregation_temporality=temporality, is_monotonic=True))
    else:
        metric.gauge.CopyFrom(Gauge())
    return metric


def _attributes(attributes: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in attributes.items()]
