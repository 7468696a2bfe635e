"""The pytest plugin: a fake broker, and real Kafka, as fixtures for this project's tests and for those of its users.

pytest loads it in every run of an environment that has aioproducer, so it imports nothing but pytest until a test asks.
No fixture is a coroutine: they need no other plugin, and serve pytest-asyncio, anyio and plain tests alike.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from aioproducer.testing.broker.fake_broker import FakeBroker
    from aioproducer.testing.broker.secured import SecuredBroker
    from aioproducer.testing.kafka import Kafka, KafkaCluster, KafkaUnavailable
    from aioproducer.testing.mock_producer import MockProducer
    from aioproducer.testing.virtual_clock import VirtualClock


class KafkaFactory(Protocol):
    """The value of the ``kafka_factory`` fixture."""

    def __call__(
        self,
        version: str | None = None,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
    ) -> KafkaCluster:
        """The session's cluster of that version, size, broker properties and feature levels; started on the first call.

        Tests share it: one that kills a broker starts it again. Without a version it is that of ``--kafka-version``.
        """
        ...


class TopicFactory(Protocol):
    """The value of the ``kafka_topic`` fixture."""

    def __call__(
        self, partitions: int = 1, replication_factor: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """The name of a new, empty topic of the ``kafka`` fixture's cluster, made for this test alone."""
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--kafka-version`` and ``--kafka-bootstrap``."""
    group = parser.getgroup("aioproducer", "real Kafka (aioproducer)")
    group.addoption("--kafka-version", default="4.3.1", help="the Kafka that the `kafka` fixture runs (default: 4.3.1)")
    group.addoption(
        "--kafka-bootstrap",
        metavar="HOST:PORT,...",
        help="use this Kafka for the `kafka` fixture instead of running one (plaintext, no login)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers ``kafka_broker`` and ``mock_producer``."""
    config.addinivalue_line(
        "markers",
        "kafka_broker(topics={'orders': 3}, brokers=1, ...): "
        "what the FakeBroker of the fixture `kafka_broker` is created with (aioproducer)",
    )
    config.addinivalue_line(
        "markers",
        "mock_producer(topics={'orders': 3}, auto_complete=False, ...): "
        "what the MockProducer of the fixture `mock_producer` is created with (aioproducer)",
    )


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Generator[FakeBroker, None, None]:
    """A `FakeBroker` that runs during the test, for it alone: ``Producer(kafka_broker.bootstrap_servers)``.

    Topics are created with one partition when they are first used. The marker
    ``@pytest.mark.kafka_broker(topics={"orders": 3})`` takes what `FakeBroker` takes; ``kafka_broker.create_topic`` works
    as well. Markers of the test, its class and its module add up.
    """
    from aioproducer.testing.broker.fake_broker import FakeBroker

    with FakeBroker(**_broker_options(request, FakeBroker)) as broker:
        yield broker


@pytest.fixture
def mock_producer(request: pytest.FixtureRequest) -> MockProducer:
    """A `MockProducer` for the test alone, not started: the code under test enters it, or the test does.

    The marker ``@pytest.mark.mock_producer(topics={"orders": 3})`` takes the keyword arguments of `MockProducer`. Of the
    markers of the test, its class and its module the nearest one counts for each argument.
    """
    from aioproducer.testing.mock_producer import MockProducer

    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("mock_producer"))):
        if marker.args:
            pytest.fail(
                '@pytest.mark.mock_producer takes keyword arguments only, such as topics={"orders": 3}.', pytrace=False
            )
        options.update(marker.kwargs)
    return MockProducer(**options)


@pytest.fixture
def virtual_clock() -> Generator[VirtualClock, None, None]:
    """A `VirtualClock` for the event loop in which the test uses it; the loop gets its clock back after the test."""
    from aioproducer.testing.virtual_clock import VirtualClock

    with VirtualClock() as clock:
        yield clock


@pytest.fixture(scope="session")
def kafka_factory(request: pytest.FixtureRequest) -> Generator[KafkaFactory, None, None]:
    """Clusters by version and size, each started once and ended with the session.

    Where Java, Maven or the network is missing the test is skipped; it fails instead when the variable CI is set, so
    that a build cannot pass without having run it.
    """
    default_version = str(request.config.getoption("kafka_version"))
    clusters: dict[str, KafkaCluster | KafkaUnavailable] = {}

    with contextlib.ExitStack() as running:

        def cluster(
            version: str | None = None,
            brokers: int = 1,
            properties: Mapping[str, str] | None = None,
            features: Mapping[str, int] | None = None,
        ) -> KafkaCluster:
            version = version or default_version
            key = repr((version, brokers, sorted((properties or {}).items()), sorted((features or {}).items())))
            if key not in clusters:
                clusters[key] = _new_cluster(running, version, brokers, properties, features)
            return _available(clusters[key])

        yield cluster


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """A Kafka with one broker, shared by all tests of the session: ``kafka.bootstrap_servers``."""
    bootstrap_servers: str | None = request.config.getoption("kafka_bootstrap")
    if bootstrap_servers:
        from aioproducer.testing.kafka import Kafka

        return Kafka(bootstrap_servers)
    factory: KafkaFactory = request.getfixturevalue("kafka_factory")
    return factory()


@pytest.fixture(scope="session")
def kafka_cluster(kafka_factory: KafkaFactory) -> KafkaCluster:
    """A Kafka with three brokers, shared by all tests of the session; one that stops a broker starts it again."""
    return kafka_factory(brokers=3)


@pytest.fixture
def secured_broker() -> Generator[SecuredBroker, None, None]:
    """A fake broker that wants TLS and a login: ``Producer(broker.bootstrap_servers, **broker.client_options)``.

    ``broker.logins`` says who may log in, and may be changed; `client_options` are alice's. Needs
    ``pip install 'aioproducer[testing]'``.
    """
    from aioproducer.testing.broker.secured import secured_fake_broker

    with secured_fake_broker() as broker:
        yield broker


@pytest.fixture
def kafka_topic(kafka: Kafka, request: pytest.FixtureRequest) -> Generator[TopicFactory, None, None]:
    """Creates topics that are named after the test; they are deleted after it."""
    import uuid

    test: str = request.node.name
    prefix = re.sub(r"[^a-zA-Z0-9._-]+", "-", test)[:60]
    with contextlib.ExitStack() as made:

        def topic(partitions: int = 1, replication_factor: int = 1, config: Mapping[str, str] | None = None) -> str:
            name = f"{prefix}-{uuid.uuid4().hex[:8]}"
            kafka.create_topic(name, partitions, replication_factor, config)
            made.callback(_delete_topic, kafka, name)
            return name

        yield topic


def _broker_options(request: pytest.FixtureRequest, takes: type[FakeBroker]) -> dict[str, Any]:
    """The arguments of the markers, merged: the nearest one counts, and their topics are combined."""
    import inspect

    known = list(inspect.signature(takes).parameters)
    options: dict[str, Any] = {}
    topics: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("kafka_broker"))):
        if marker.args:
            pytest.fail(
                '@pytest.mark.kafka_broker takes keyword arguments only, such as topics={"orders": 3}.', pytrace=False
            )
        for name in marker.kwargs:
            if name not in known:
                pytest.fail(
                    f"@pytest.mark.kafka_broker has no argument {name!r}. It takes what FakeBroker takes: "
                    f"{', '.join(known)}.",
                    pytrace=False,
                )
        options.update(marker.kwargs)
        topics.update(marker.kwargs.get("topics") or {})
    return options | {"topics": topics}


def _new_cluster(
    running: contextlib.ExitStack,
    version: str,
    brokers: int,
    properties: Mapping[str, str] | None,
    features: Mapping[str, int] | None,
) -> KafkaCluster | KafkaUnavailable:
    from aioproducer.testing.kafka import KafkaCluster, KafkaUnavailable

    try:
        return running.enter_context(KafkaCluster(version, brokers, properties=properties, features=features))
    except KafkaUnavailable as error:
        return error  # kept, so that a missing network is not waited for by every test


def _available(cluster: KafkaCluster | KafkaUnavailable) -> KafkaCluster:
    if not isinstance(cluster, Exception):
        return cluster
    if os.environ.get("CI"):
        pytest.fail(str(cluster), pytrace=False)
    pytest.skip(str(cluster))


def _delete_topic(kafka: Kafka, name: str) -> None:
    from aioproducer.errors import KafkaError

    with contextlib.suppress(KafkaError):  # the test may have deleted it, or killed the broker
        kafka.admin.delete_topic(name)
