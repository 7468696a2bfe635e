"""Test doubles for programs that produce to Kafka, and for this package itself.

``FakeBroker`` is a strict, scriptable Kafka cluster inside the test process; the names that are listed here are imported
when they are first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioproducer.testing.broker_log import LoggedBatch, LoggedRecord, TopicConfig
    from aioproducer.testing.broker_logins import Logins
    from aioproducer.testing.broker_request import Hangup, ReceivedRequest, RequestContext
    from aioproducer.testing.broker_server import BrokerConnection
    from aioproducer.testing.cluster_state import TopicSpec
    from aioproducer.testing.fake_broker import FakeBroker
    from aioproducer.testing.fake_cluster import FakeCluster
    from aioproducer.testing.faults import Hold
    from aioproducer.testing.transaction_coordinator import TwoPhaseCommit

__all__ = [
    "BrokerConnection",
    "FakeBroker",
    "FakeCluster",
    "Hangup",
    "Hold",
    "LoggedBatch",
    "LoggedRecord",
    "Logins",
    "ReceivedRequest",
    "RequestContext",
    "TopicConfig",
    "TopicSpec",
    "TwoPhaseCommit",
]

_HOME = {
    "BrokerConnection": "broker_server",
    "FakeBroker": "fake_broker",
    "FakeCluster": "fake_cluster",
    "Hangup": "broker_request",
    "Hold": "faults",
    "LoggedBatch": "broker_log",
    "LoggedRecord": "broker_log",
    "Logins": "broker_logins",
    "ReceivedRequest": "broker_request",
    "RequestContext": "broker_request",
    "TopicConfig": "broker_log",
    "TopicSpec": "cluster_state",
    "TwoPhaseCommit": "transaction_coordinator",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
