"""The spans and measurements of a producer, as OpenTelemetry's SDK exports them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from opentelemetry import trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aioproducer.contrib.opentelemetry import OpenTelemetryInterceptor
from aioproducer.testing import FakeBroker

__all__ = ["Seen", "carried", "ids"]


class Seen:
    """The spans and measurements that an SDK exports of a producer."""

    def __init__(self) -> None:
        self.spans_of = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans_of))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])
        self.tracer = self.tracers.get_tracer("test")

    def interceptor(
        self, propagator: TextMapPropagator | None = None, bulk: Literal["call", "record", "none"] = "call"
    ) -> OpenTelemetryInterceptor:
        return OpenTelemetryInterceptor(
            tracer_provider=self.tracers, meter_provider=self.meters, propagator=propagator, bulk=bulk
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans of records that have ended."""
        return [span for span in self.spans_of.get_finished_spans() if span.kind is SpanKind.PRODUCER]

    @property
    def span(self) -> ReadableSpan:
        (span,) = self.spans
        return span

    def measured(self, *names: str) -> list[Mapping[tuple[tuple[str, object], ...], float]]:
        """The number of measurements of each instrument, by attributes."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found: dict[str, dict[tuple[tuple[str, object], ...], float]] = {name: {} for name in names}
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points if metric.name in names else ():
                        assert isinstance(point, HistogramDataPoint | NumberDataPoint)
                        key = tuple(sorted((point.attributes or {}).items()))
                        found[metric.name][key] = point.count if isinstance(point, HistogramDataPoint) else point.value
        return list(found.values())


def ids(span: ReadableSpan) -> tuple[int, int]:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def carried(broker: FakeBroker) -> list[tuple[int, int]]:
    """The trace and span that each record carries."""
    found: list[tuple[int, int]] = []
    for record in broker.records("orders"):
        carrier = {name: value.decode() for name, value in record.headers if value is not None}
        context = TraceContextTextMapPropagator().extract(carrier)
        at = trace.get_current_span(context).get_span_context()
        found.append((at.trace_id, at.span_id))
    return found
