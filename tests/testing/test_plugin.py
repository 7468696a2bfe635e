"""The pytest plugin as its users have it, in its own process, with and without plugins that run coroutines."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

pytest_plugins = ["pytester"]

ASYNC_TESTS = """
    import pytest

    from aioproducer import Producer

    {mark}

    async def test_a_topic_is_created_when_it_is_written_to(kafka_broker):
        async with Producer(kafka_broker.bootstrap_servers) as producer:
            metadata = await producer.send("orders", b"3 books", key="alice")

        assert (metadata.partition, metadata.offset) == (0, 0)
        kafka_broker.assert_sent("orders", key="alice", value=b"3 books")

    async def test_each_test_has_its_own_broker(kafka_broker):
        assert kafka_broker.records() == []
        assert kafka_broker.requests == []

    @pytest.fixture
    {fixture_mark}
    async def producer(kafka_broker):
        async with Producer(kafka_broker.bootstrap_servers) as producer:
            yield producer

    @pytest.mark.kafka_broker(topics={{"shop.orders": 3}})
    async def test_a_fixture_of_the_users_builds_on_it(producer, kafka_broker):
        kafka_broker.create_topic("clicks", 2)
        assert [len(await producer.partitions_for(topic)) for topic in ("shop.orders", "clicks")] == [3, 2]
"""

SYNC_TESTS = """
    import threading

    import pytest

    from aioproducer import SyncProducer

    pytestmark = pytest.mark.kafka_broker(topics={"orders": 3}, num_partitions=2)
    seen = []

    def test_a_sync_producer(kafka_broker):
        seen.append(kafka_broker)
        with SyncProducer(kafka_broker.bootstrap_servers) as producer:
            producer.send("orders", b"3 books")
            assert len(producer.partitions_for("orders")) == 3
            assert len(producer.partitions_for("another")) == 2
        kafka_broker.assert_sent("orders")

    class TestClass:
        pytestmark = pytest.mark.kafka_broker(brokers=2, topics={"clicks": 1})

        @pytest.mark.kafka_broker(topics={"orders": 6})
        def test_markers_add_up_and_the_nearest_one_counts(self, kafka_broker):
            assert len(kafka_broker.addresses) == 2
            with SyncProducer(kafka_broker.bootstrap_servers) as producer:
                found = [len(producer.partitions_for(topic)) for topic in ("orders", "clicks", "another")]
            assert found == [6, 1, 2]

    def test_it_is_stopped_after_its_test(kafka_broker):
        assert kafka_broker is not seen[0]
        assert seen[0].connections() == []
        assert [thread.name for thread in threading.enumerate()].count("FakeBroker") == 1
"""

UNITTESTS = """
    import unittest

    from aioproducer import Producer, SyncProducer
    from aioproducer.testing import FakeBroker

    class OrderTest(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self):
            self.broker = self.enterContext(FakeBroker(topics={"orders": 3}))
            self.producer = await self.enterAsyncContext(Producer(self.broker.bootstrap_servers))

        async def test_orders_are_sent(self):
            await self.producer.send("orders", b"3 books", key="42")
            self.broker.assert_sent("orders", key="42")

    class SyncTest(unittest.TestCase):
        def test_orders_are_sent(self):
            with FakeBroker() as broker:
                with SyncProducer(broker.bootstrap_servers) as producer:
                    producer.send("orders", b"3 books", key="42")
                broker.assert_sent("orders", key="42")

    if __name__ == "__main__":
        unittest.main()
"""

ASYNCIO, ANYIO = (
    ("-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function"),
    ("-p", "anyio.pytest_plugin"),
)


@pytest.fixture(autouse=True)
def _no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the plugins that a test names: the others of this environment take most of the time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, *options: str, by_name: bool = True) -> pytest.RunResult:
    """Run what was written, where what is left open fails a test."""
    if by_name:
        options = ("-p", "aioproducer.testing.plugin", *options)
    strictly = ["-W", "error::ResourceWarning", "-W", "error::pytest.PytestUnraisableExceptionWarning"]
    return pytester.runpytest_subprocess("-q", "--strict-markers", *strictly, "-p", "no:cacheprovider", *options)


@pytest.mark.parametrize(
    ("mark", "fixture_mark", "options"),
    [
        pytest.param(
            "pytestmark = pytest.mark.asyncio", None, [*ASYNCIO, "-o", "asyncio_mode=strict"], id="asyncio-strict"
        ),
        pytest.param("", "", [*ASYNCIO, "-o", "asyncio_mode=auto"], id="asyncio-auto"),
        pytest.param("", "", [*ANYIO, *ASYNCIO, "-o", "asyncio_mode=auto"], id="asyncio-auto-beside-anyio"),
        pytest.param("pytestmark = pytest.mark.anyio", "", ANYIO, id="anyio"),
    ],
)
def test_the_broker_serves_coroutines_in_every_mode(
    pytester: pytest.Pytester, mark: str, fixture_mark: str | None, options: Sequence[str]
) -> None:
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n")
    tests = ASYNC_TESTS.format(mark=mark, fixture_mark=fixture_mark or "")
    if fixture_mark is None:  # strict: a fixture that is a coroutine has its own decorator
        tests = tests.replace("@pytest.fixture\n", "@pytest_asyncio.fixture\n").replace(
            "import pytest\n", "import pytest\n    import pytest_asyncio\n", 1
        )
    pytester.makepyfile(tests)

    run(pytester, *options).assert_outcomes(passed=3)


def test_the_broker_serves_tests_without_an_event_loop_and_without_other_plugins(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SYNC_TESTS)

    run(pytester).assert_outcomes(passed=3)


def test_pytest_finds_it_by_its_entry_point(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    pytester.makepyfile("def test_it(kafka_broker):\n    assert kafka_broker.bootstrap_servers\n")

    run(pytester, by_name=False).assert_outcomes(passed=1)


def test_unittest_enters_a_broker_as_a_context_manager(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(UNITTESTS)

    run(pytester).assert_outcomes(passed=2)
    assert pytester.runpython(path).ret == 0


def test_a_mock_producer_is_created_with_the_markers_and_is_not_started(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        pytestmark = pytest.mark.mock_producer(topics={"orders": 3}, client_id="module")

        @pytest.mark.mock_producer(client_id="nearest")
        def test_it(mock_producer):
            async def main():
                async with mock_producer as producer:
                    await producer.send("orders", b"3 books")
                    return len(await producer.partitions_for("orders"))

            assert mock_producer.client_id == "nearest"
            assert mock_producer.health().status == "created"
            assert asyncio.run(main()) == 3
            assert len(mock_producer.history()) == 1

        def test_another_has_its_own(mock_producer):
            assert (mock_producer.history(), mock_producer.client_id) == ([], "module")
        """
    )

    run(pytester).assert_outcomes(passed=2)


def test_a_wrong_marker_fails_the_test_and_lists_its_arguments(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.kafka_broker({"orders": 3})
        def test_positional(kafka_broker): ...

        @pytest.mark.kafka_broker(topic={"orders": 3})
        def test_unknown(kafka_broker): ...
        """
    )

    result = run(pytester)

    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        ["*takes keyword arguments only, such as topics={*", "*no argument 'topic'*brokers, topics*"], consecutive=False
    )


def test_the_marker_and_the_fixture_are_listed_with_their_help(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("")

    markers = run(pytester, "--markers").stdout.str()
    assert "@pytest.mark.kafka_broker(" in markers
    assert "@pytest.mark.mock_producer(" in markers
    assert "kafka_broker --" in run(pytester, "--fixtures").stdout.str()


def test_loading_the_plugin_imports_nothing_until_a_test_asks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_without_it():
            ours = {name for name in sys.modules if name.partition(".")[0] == "aioproducer"}
            assert ours <= {"aioproducer", "aioproducer._version", "aioproducer.testing", "aioproducer.testing.plugin"}
        """
    )
    code = (
        "import sys, pytest, _pytest.pytester; before = set(sys.modules); import aioproducer.testing.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    run(pytester).assert_outcomes(passed=1)
    assert done.stdout.split() == [
        "aioproducer",
        "aioproducer._version",
        "aioproducer.testing",
        "aioproducer.testing.plugin",
    ]
