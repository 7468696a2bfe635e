"""Test doubles for programs that produce to Kafka, and for this package itself.

``FakeBroker`` is a strict, scriptable Kafka cluster inside the test process; ``MockProducer`` is a producer that needs no
cluster at all; ``VirtualClock`` lets time pass that nothing waits for. The names listed here are imported on first use, so
that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.testing.broker.cluster_state import TopicSpec
    from aioproducer.testing.broker.fake_broker import FakeBroker
    from aioproducer.testing.broker.fake_cluster import FakeCluster
    from aioproducer.testing.broker.faults import Hold
    from aioproducer.testing.broker.log import LoggedBatch, LoggedRecord, TopicConfig
    from aioproducer.testing.broker.logins import Logins
    from aioproducer.testing.broker.request import Hangup, ReceivedRequest, RequestContext
    from aioproducer.testing.broker.server import BrokerConnection
    from aioproducer.testing.broker.telemetry import PushedMetrics, Telemetry
    from aioproducer.testing.broker.transaction_coordinator import TwoPhaseCommit
    from aioproducer.testing.mock_producer import MockProducer, SentRecord
    from aioproducer.testing.virtual_clock import VirtualClock

__all__ = [
    "BrokerConnection",
    "FakeBroker",
    "FakeCluster",
    "Hangup",
    "Hold",
    "LoggedBatch",
    "LoggedRecord",
    "Logins",
    "MockProducer",
    "PushedMetrics",
    "ReceivedRequest",
    "RequestContext",
    "SentRecord",
    "Telemetry",
    "TopicConfig",
    "TopicSpec",
    "TwoPhaseCommit",
    "VirtualClock",
]

_HOME = {
    "BrokerConnection": "broker.server",
    "FakeBroker": "broker.fake_broker",
    "FakeCluster": "broker.fake_cluster",
    "Hangup": "broker.request",
    "Hold": "broker.faults",
    "LoggedBatch": "broker.log",
    "LoggedRecord": "broker.log",
    "Logins": "broker.logins",
    "MockProducer": "mock_producer",
    "PushedMetrics": "broker.telemetry",
    "ReceivedRequest": "broker.request",
    "RequestContext": "broker.request",
    "SentRecord": "mock_producer",
    "Telemetry": "broker.telemetry",
    "TopicConfig": "broker.log",
    "TopicSpec": "broker.cluster_state",
    "TwoPhaseCommit": "broker.transaction_coordinator",
    "VirtualClock": "virtual_clock",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
