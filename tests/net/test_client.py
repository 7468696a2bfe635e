"""The client on a cluster that moves: who can take a request, fresh metadata, and nothing more often than it must be."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from aioproducer.config import ProducerConfig
from aioproducer.errors import (
    BrokerConnectionError,
    BrokerError,
    InvalidRecord,
    KafkaTimeoutError,
    ProducerClosed,
    UnsupportedVersion,
)
from aioproducer.net.client import NetworkClient, whole
from aioproducer.protocol.messages import (
    FinalizedFeatureKey,
    InitProducerIdRequest,
    MetadataRequest,
    MetadataResponse,
    NodeEndpoint,
)
from aioproducer.runtime.log import ClientLog
from aioproducer.testing import FakeBroker, RequestContext
from tests.conftest import Clock, turns, until
from tests.net.peers import (
    Connecting,
    FirstIsFirst,
    client_of,
    metadata_answer,
    peer,
    read_request,
    refusing,
    soon,
    versions_answer,
)
from tests.net.virtual import run_virtually, turns_so_far, virtual_client

INIT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)

#: The pauses that users have.
AS_CONFIGURED: dict[str, Any] = {
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 1000,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 1000,
}


async def connected(client: NetworkClient, node: int) -> None:
    await until(lambda: client.can_send(node))


def ask_metadata(client: NetworkClient, node: int, reported: list[Any], timeout_s: float = 20.0) -> None:
    client.send(
        node,
        MetadataRequest(topics=[]),
        client.usable_version(node, MetadataRequest),
        reported.append,
        timeout_s,
        read=whole,
    )


# -- connections ------------------------------------------------------------------------------------------------------


async def test_one_connection_serves_as_bootstrap_server_and_as_the_node_it_turns_out_to_be(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        await client.wait_ready(soon())
        await client.wait_topic("orders", None, soon())
        await connected(client, 1)

        assert len(broker.connections(closed=True)) == 1
        assert client.connected_nodes() == [1]
        assert broker.count("ApiVersions") == 1


async def test_a_bootstrap_server_under_another_name_is_parted_with_after_its_answer(broker: FakeBroker) -> None:
    port = broker.addresses[1][1]
    async with client_of(f"127.1.1.1:{port},localhost:{port}") as client:
        await client.wait_ready(soon())
        await until(lambda: len(broker.connections()) == 1)

        assert client.connected_nodes() == [1]


async def test_a_request_is_in_flight_until_its_answer(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        await client.wait_ready(soon())
        reported: list[Any] = []
        ask_metadata(client, 1, reported)
        assert client.in_flight(1) == 1
        await until(lambda: reported)

        assert isinstance(reported[0], MetadataResponse)
        assert client.in_flight(1) == 0


async def test_a_broker_with_enough_in_flight_can_take_no_more_and_is_no_reason_to_rebootstrap() -> None:
    clock, connecting = Clock(), Connecting()
    with FakeBroker(topics={"t": 1}) as broker:
        async with client_of(broker, connect=connecting, max_in_flight_requests_per_connection=2) as client:
            await client.wait_ready(soon())
            with broker.hold("Metadata"):
                reported: list[Any] = []
                ask_metadata(client, 1, reported)
                ask_metadata(client, 1, reported)
                assert not client.can_send(1)
                waiting = asyncio.create_task(client.request(INIT, read=whole, timeout_s=20))
                for _ in range(10):
                    await turns()
                    clock.advance(1)
                assert len(connecting.tried) == 1, "this cluster was not bootstrapped elsewhere"
            answer = await waiting

            assert answer.error_code == 0
            assert client.last_error is None


async def test_a_request_for_any_broker_goes_to_the_least_busy_one() -> None:
    with FakeBroker(brokers=2) as broker:
        async with client_of(broker) as client:
            await client.wait_ready(soon())
            await connected(client, 1)
            await connected(client, 2)
            with broker.hold("Metadata"):
                ask_metadata(client, 1, [])
                await client.request(INIT, read=whole)

        assert [request.node for request in broker.requests_of("InitProducerId")] == [2]


async def test_a_request_to_an_unknown_node_times_out_and_asks_for_metadata(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        await client.wait_ready(soon())
        before = broker.count("Metadata")
        with pytest.raises(
            KafkaTimeoutError, match="InitProducerIdRequest could not be sent: broker 9 was not reached"
        ):
            await client.request(INIT, read=whole, node_id=9, timeout_s=0.05)

        await until(lambda: broker.count("Metadata") > before)


async def test_sending_to_a_broker_that_is_not_connected_is_reported_soon() -> None:
    with refusing() as nowhere:
        async with client_of(nowhere) as client:
            reported: list[Any] = []
            client.send(1, INIT, 0, reported.append, 1, read=whole)
            assert reported == []
            await asyncio.sleep(0)

            assert isinstance(reported[0], BrokerConnectionError)
            with pytest.raises(UnsupportedVersion):
                client.usable_version(1, MetadataRequest)


async def test_a_connection_that_breaks_is_reported_and_made_again(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        await client.wait_ready(soon())
        reported: list[Any] = []
        with broker.hold("Metadata", times=1):
            ask_metadata(client, 1, reported)
            await until(lambda: broker.count("Metadata") >= 2)
            broker.disconnect()
            await until(lambda: reported)
        assert isinstance(reported[0], BrokerConnectionError)

        await connected(client, 1)
        await client.request(INIT, read=whole)

        assert client.last_error is None


async def test_idle_connections_are_closed_and_that_is_no_trouble(broker: FakeBroker) -> None:
    async with client_of(broker, connections_max_idle_ms=30) as client:
        await client.wait_ready(soon())
        asked = broker.count("Metadata")
        await until(lambda: not client.connected_nodes())

        assert client.last_error is None
        assert broker.count("Metadata") == asked
        await connected(client, 1)


async def test_a_connection_with_something_in_flight_is_not_idle(broker: FakeBroker) -> None:
    clock = Clock()
    async with client_of(broker, connections_max_idle_ms=2000) as client:
        await connected(client, 1)  # which is looked at in the same turn in which it is asked
        reported: list[Any] = []
        with broker.hold("Metadata"):
            ask_metadata(client, 1, reported)
            for _ in range(6):
                await turns()
                clock.advance(1)
            assert reported == []
        await until(lambda: reported)

        assert isinstance(reported[0], MetadataResponse)


def test_an_idle_client_sleeps() -> None:
    async def scenario() -> None:
        async with virtual_client([]) as client:
            assert client.connected_nodes() == [1]
            await asyncio.sleep(1)  # what was still under way is over then
            before = turns_so_far()
            await asyncio.sleep(100)

            assert turns_so_far() - before <= 5, "looking about each second would be a hundred"

    run_virtually(scenario())


async def test_on_ready_may_fail_without_harm(broker: FakeBroker) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    config = ProducerConfig(broker.bootstrap_servers)
    client = NetworkClient(config, client_id="test", log=ClientLog("test"), random=Random(1), on_ready=fail)
    running = asyncio.create_task(client.run())

    await client.wait_ready(soon())
    await client.close()
    await running

    assert {type(each["exception"]) for each in reported} == {ZeroDivisionError}


async def test_after_close_nothing_is_done_and_everybody_is_reported(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        await client.wait_ready(soon())
        reported: list[Any] = []
        with broker.hold("Metadata"):
            ask_metadata(client, 1, reported)
            waiting = asyncio.create_task(client.wait_topic("other", None, soon(30)))
            await asyncio.sleep(0)
            await client.close()
            await client.close()

        assert isinstance(reported[0], ProducerClosed)
        with pytest.raises(ProducerClosed):
            await waiting
        assert not client.can_send(1)
        with pytest.raises(ProducerClosed):
            await client.request(INIT, read=whole)
        await client.run()


async def test_cancelling_a_request_leaves_the_connection_in_order(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        await client.wait_ready(soon())
        with broker.hold("InitProducerId"):
            asking = asyncio.create_task(client.request(INIT, read=whole))
            await until(lambda: broker.count("InitProducerId"))
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        await client.request(INIT, read=whole)

        assert len(broker.connections(closed=True)) == 1


# -- throttle (KIP-219) -----------------------------------------------------------------------------------------------


def ask_for_a_break(context: RequestContext) -> Any:
    """One of a minute, which the broker itself does not wait for: whatever comes meanwhile is heard at once."""
    answer: Any = context.apply()
    answer.throttle_time_ms = 60_000
    return answer


async def test_a_throttled_broker_gets_nothing_until_the_time_is_over_and_the_sender_is_reported() -> None:
    clock = Clock()
    with FakeBroker(brokers=1) as broker:
        reported: list[bool] = []
        async with client_of(broker, on_ready=lambda: reported.append(True)) as client:
            await client.wait_ready(soon())
            await client.request(INIT, read=whole)
            broker.control("InitProducerId", ask_for_a_break)
            await client.request(INIT, read=whole)
            reported.clear()
            waiting = asyncio.create_task(client.request(INIT, read=whole, timeout_s=100))
            for _ in range(5):
                assert not client.can_send(1)
                clock.advance(10)
                await turns()
                assert client.in_flight(1) == 0
                assert not waiting.done()
            assert broker.count("InitProducerId") == 2

            clock.advance(11)
            await waiting

            assert reported
            assert len(broker.connections(closed=True)) == 1


async def test_requests_on_their_way_to_a_throttled_broker_have_so_much_longer() -> None:
    clock = Clock()
    with FakeBroker(brokers=1) as broker:
        async with client_of(broker) as client:
            await client.wait_ready(soon())
            reported: list[Any] = []
            broker.control("InitProducerId", ask_for_a_break)
            with broker.hold("Metadata"):
                client.send(1, INIT, client.usable_version(1, InitProducerIdRequest), reported.append, 10, read=whole)
                ask_metadata(client, 1, reported, 10)
                await until(lambda: reported)
                clock.advance(30)
                await turns()
                assert len(reported) == 1
            await until(lambda: len(reported) == 2)

            assert isinstance(reported[1], MetadataResponse), "it came after 30 s, and its 10 s were extended"


# -- metadata ---------------------------------------------------------------------------------------------------------


def topics_of(request: Any) -> list[str]:
    return [topic.name for topic in request.body.topics]


async def test_the_first_question_names_the_topics_that_came_up_while_connecting(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        await asyncio.gather(*(client.wait_topic("orders", None, soon()) for _ in range(50)))

        assert [topics_of(request) for request in broker.requests_of("Metadata")] == [["orders"]]


async def test_a_new_topic_waits_for_no_pause_and_is_asked_for_alone() -> None:
    with FakeBroker(topics={"a": 1, "b": 1, "c": 1}) as broker:
        async with client_of(broker, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as client:
            for name in "abc":
                await client.wait_topic(name, None, soon())

            assert [topics_of(request) for request in broker.requests_of("Metadata")] == [["a"], ["b"], ["c"]]


async def test_a_new_topic_does_not_wait_for_a_refresh_that_hangs() -> None:
    with FakeBroker(brokers=2, topics={"a": 1, "b": 1}) as broker:
        async with client_of(broker) as client:
            await client.wait_topic("a", None, soon())
            await connected(client, 1)
            await connected(client, 2)
            with broker.hold("Metadata", node=1) as first, broker.hold("Metadata", node=2) as second:
                client.request_update()
                await until(lambda: first.waiting or second.waiting)
                broker.clear_faults()
                await client.wait_topic("b", None, soon())


async def test_waiters_for_a_topic_are_served_in_turn_and_never_overtaken(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        served: list[int] = []

        async def come(number: int) -> None:
            if client.topic("orders") is None:
                await client.wait_topic("orders", 0 if number % 2 else None, soon())
            served.append(number)

        coming = [asyncio.create_task(come(number)) for number in range(3)]
        while not served:
            await asyncio.sleep(0)
            coming.append(asyncio.create_task(come(len(coming))))
            client._changed.notify_all()
        await asyncio.gather(*coming)

        assert served == sorted(served)


async def test_a_waiter_for_a_future_partition_does_not_delay_others(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        await client.wait_topic("orders", None, soon())
        with broker.hold("Metadata"):
            waiting = asyncio.create_task(client.wait_topic("orders", 3, soon()))
            await asyncio.sleep(0)
            assert client.topic("orders") is not None
            await client.wait_topic("orders", 2, soon())
            broker.add_partitions("orders", 4)

        assert (await waiting).partition_count == 4


async def test_topics_that_are_new_together_are_asked_for_together(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        await client.wait_ready(soon())
        broker.forget_requests()
        await asyncio.gather(*(client.wait_topic(f"new-{number}", None, soon()) for number in range(30)))

        assert broker.count("Metadata") <= 3


async def test_a_topic_that_does_not_exist_is_asked_for_with_growing_pauses() -> None:
    clock = Clock()
    with FakeBroker(auto_create_topics=False) as broker:
        async with client_of(broker, retry_backoff_ms=10_000, retry_backoff_max_ms=100_000) as client:
            await client.wait_ready(soon())
            broker.forget_requests()
            waiting = [asyncio.create_task(client.wait_topic("nowhere", None, soon(100))) for _ in range(20)]
            for asked, pause in enumerate((10, 20, 40), 1):
                await until(lambda: client.metadata.answers.get("nowhere") == asked)  # noqa: B023 - asked in this round only
                clock.advance(pause - 5)
                await turns()
                assert (broker.count("Metadata"), client.in_flight(1)) == (asked, 0)
                clock.advance(5.5)
            clock.advance(40)
            reported = await asyncio.gather(*waiting, return_exceptions=True)

        assert all(isinstance(error, KafkaTimeoutError) for error in reported)
        assert "UNKNOWN_TOPIC_OR_PARTITION" in str(reported[0].__cause__)  # type: ignore[union-attr]


async def test_refreshes_that_are_asked_for_again_and_again_are_few(broker: FakeBroker) -> None:
    async with client_of(broker, **AS_CONFIGURED) as client:
        await client.wait_topic("orders", None, soon())
        broker.forget_requests()
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(30):
            while broker.count("Metadata") < 4:
                client.request_update("orders")
                await asyncio.sleep(0)

        assert loop.time() - began > 3 * 0.079, "100 ms each, less 20 %"


async def test_metadata_that_grow_old_are_asked_for_again_but_not_without_pause(broker: FakeBroker) -> None:
    async with client_of(broker, metadata_max_age_ms=0, **AS_CONFIGURED) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await client.wait_ready(soon())
        await until(lambda: broker.count("Metadata") >= 3)

        assert loop.time() - began > 0.079 + 0.159, "100 and 200 ms, less 20 %: the answers had nothing new"


async def test_answers_that_fail_are_no_reason_to_storm_even_when_the_metadata_are_old(broker: FakeBroker) -> None:
    async with client_of(broker, metadata_max_age_ms=1, **AS_CONFIGURED) as client:
        await client.wait_ready(soon())
        broker.forget_requests()
        broker.drop_connection("Metadata", times=None)
        began = asyncio.get_running_loop().time()
        await until(lambda: broker.count("Metadata") >= 4)

        assert asyncio.get_running_loop().time() - began > 2 * 0.079, "100 ms each, less 20 %"


async def test_a_partition_without_leader_is_asked_for_until_it_has_one() -> None:
    clock = Clock()
    with FakeBroker(brokers=2, topics={"t": 1}) as broker:
        broker.move_leader("t", 0, -1)
        async with client_of(broker) as client:
            await client.wait_topic("t", None, soon())
            assert client.metadata.leader("t", 0) is None
            broker.move_leader("t", 0, 2)

            await until(lambda: client.metadata.leader("t", 0) is not None)
            asked = broker.count("Metadata")
            for _ in range(10):
                await until(lambda: client.in_flight(1) == client.in_flight(2) == 0)
                clock.advance(1)
                await turns()

            assert broker.count("Metadata") <= asked + 1, "and then no more"


async def test_a_topic_that_is_being_created_is_waited_for() -> None:
    with FakeBroker() as broker:
        broker.cluster.auto_create_lag = 2
        async with client_of(broker) as client:
            topic = await client.wait_topic("fresh", None, soon())

            assert topic.partition_count == 1
            assert client.topic_failure("fresh") is None


async def test_an_impossible_topic_is_reported_at_once(broker: FakeBroker) -> None:
    broker.fail("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="orders", times=None)
    async with client_of(broker) as client:
        for _ in range(2):
            with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
                await client.wait_topic("orders", None, soon(30))
        broker.clear_faults()

        assert (await client.wait_topic("orders", None, soon())).partition_count == 3


async def test_a_partition_that_is_not_there_is_reported_after_a_fresh_answer(broker: FakeBroker) -> None:
    async with client_of(broker) as client:
        with pytest.raises(InvalidRecord, match=r"partition=3: topic 'orders' has 3 partition\(s\), 0 to 2"):
            await client.wait_topic("orders", 3, soon(30))
        broker.add_partitions("orders", 4)

        assert (await client.wait_topic("orders", 3, soon())).partition_count == 4


async def test_an_unknown_topic_has_its_own_patience() -> None:
    with FakeBroker(auto_create_topics=False) as broker:
        async with client_of(broker, unknown_topic_timeout_ms=30) as client:
            with pytest.raises(KafkaTimeoutError) as caught:
                await client.wait_topic("nowhere", None, soon(30))

            assert "UNKNOWN_TOPIC_OR_PARTITION" in str(caught.value.__cause__)


async def test_the_patience_with_unknown_topics_is_not_about_brokers_that_are_down() -> None:
    with FakeBroker(topics={"t": 1}) as broker:
        broker.stop_node(1)
        clock = Clock()
        async with client_of(broker, unknown_topic_timeout_ms=2000) as client:
            waiting = asyncio.create_task(client.wait_topic("t", None, soon(100)))
            for _ in range(10):
                await turns()
                clock.advance(1)
            assert not waiting.done()
            broker.start_node(1)

            assert (await waiting).partition_count == 1


async def test_unused_topics_are_no_longer_requested() -> None:
    with FakeBroker(topics={"a": 1, "b": 1}) as broker:
        async with client_of(broker) as client:
            await client.wait_topic("a", None, soon())
            await client.wait_topic("b", None, soon())
            client.metadata._used_at["a"] -= 1000
            client.topic("b")
            client._updater._used.discard("a")
            client.request_update()
            await until(lambda: client.metadata.leader("a", 0) is None)
            await until(lambda: topics_of(broker.requests_of("Metadata")[-1]) == ["b"])

            assert client.metadata.leader("b", 0) is not None


# -- a cluster that moves ---------------------------------------------------------------------------------------------


async def test_a_node_that_moved_is_connected_at_its_new_address() -> None:
    with FakeBroker(brokers=2, topics={"t": 1}) as broker:
        async with client_of(broker) as client:
            await client.wait_ready(soon())
            await connected(client, 2)
            broker.restart_on_new_port(2)

            await until(lambda: client.metadata.nodes[2].port == broker.addresses[2][1] and client.can_send(2))


async def test_a_node_that_leaves_still_answers_what_it_was_asked() -> None:
    with FakeBroker(brokers=2, topics={"t": 1}) as broker:
        async with client_of(broker) as client:
            await client.wait_ready(soon())
            await connected(client, 1)
            await connected(client, 2)
            reported: list[Any] = []
            with broker.hold("InitProducerId", node=2):
                client.send(2, INIT, client.usable_version(2, InitProducerIdRequest), reported.append, 20, read=whole)
                await until(lambda: broker.count("InitProducerId"))
                broker.cluster.nodes[2].registered = False
                client.request_update()
                await until(lambda: 2 not in client.metadata.nodes)
                assert not client.can_send(2)
                assert reported == []
            await until(lambda: reported)

            assert not isinstance(reported[0], Exception)
            await until(lambda: client.connected_nodes() == [1])


async def test_when_all_brokers_have_moved_the_bootstrap_servers_are_asked_again() -> None:
    with FakeBroker() as old, FakeBroker() as new:
        async with client_of(f"{old.bootstrap_servers},{new.bootstrap_servers}") as client:
            await client.wait_ready(soon())
            assert client.metadata.nodes[1].port == old.addresses[1][1]
            old.stop_node(1)

            await until(lambda: client.metadata.nodes[1].port == new.addresses[1][1])
            await connected(client, 1)
            assert new.connections()


async def test_known_brokers_that_come_back_are_found_although_the_bootstrap_servers_are_gone() -> None:
    with FakeBroker(brokers=2, topics={"t": 1}) as broker:
        host, port = broker.addresses[1]
        async with client_of(f"{host}:{port}") as client:
            await client.wait_ready(soon())
            await connected(client, 1)
            broker.stop_node(1)
            broker.stop_node(2)
            await until(lambda: client._brokers.known(-1) is not None)
            broker.start_node(2)

            await connected(client, 2)
            await client.request(INIT, read=whole)


async def test_a_leader_hint_leads_to_a_node_that_is_in_no_metadata(broker: FakeBroker) -> None:
    async with client_of(broker, metadata_cluster_check_enable=False) as client:  # node 5 is node 1 in truth
        await client.wait_topic("orders", None, soon())
        host, port = broker.addresses[1]
        endpoint = NodeEndpoint(node_id=5, host=host, port=port)
        assert client.metadata.apply_leader_hint("orders", 0, 5, 9, [endpoint])

        await connected(client, 5)

        assert client.can_send(1), "the others stay connected"


async def test_with_strategy_none_the_known_brokers_are_all_there_is() -> None:
    with FakeBroker() as old, FakeBroker() as new:
        servers = f"{old.bootstrap_servers},{new.bootstrap_servers}"
        connecting = Connecting()
        async with client_of(servers, connect=connecting, metadata_recovery_strategy="none") as client:
            await client.wait_ready(soon())
            old.stop_node(1)
            await until(lambda: len(connecting.tried) > 10)
            assert set(connecting.ports()) == {old.addresses[1][1]}
            old.start_node(1)

            await connected(client, 1)


async def test_no_answer_in_time_is_no_reason_to_leave_the_known_brokers_with_strategy_none() -> None:
    with FakeBroker(topics={"t": 1}) as broker:
        options: dict[str, Any] = {
            "metadata_recovery_strategy": "none",
            "request_timeout_ms": 20,
            "metadata_max_age_ms": 20,
        }
        async with client_of(broker, **options) as client:
            await client.wait_topic("t", None, soon())
            broker.stop_node(1)
            await until(lambda: isinstance(getattr(client._updater.failure, "error", None), KafkaTimeoutError))
            await asyncio.sleep(0)

            assert client.metadata.leader("t", 0) == (1, 0)
            broker.start_node(1)
            await connected(client, 1)


async def test_a_cluster_that_answers_no_metadata_for_long_is_bootstrapped_again() -> None:
    with FakeBroker() as old, FakeBroker() as new:
        servers = f"{old.bootstrap_servers},{new.bootstrap_servers}"
        async with client_of(servers, metadata_recovery_rebootstrap_trigger_ms=40) as client:
            await client.wait_ready(soon())
            old.mute(1)
            client.request_update()

            await until(lambda: client.metadata.nodes and client.metadata.nodes[1].port == new.addresses[1][1])


async def test_a_broker_may_ask_for_a_rebootstrap() -> None:
    def elsewhere(context: RequestContext) -> MetadataResponse:
        return MetadataResponse(brokers=[], topics=[], error_code=129)

    with FakeBroker(topics={"t": 2}) as broker:
        async with client_of(broker) as client:
            await client.wait_topic("t", None, soon())
            connections = len(broker.connections(closed=True))
            broker.control("Metadata", elsewhere, times=1)
            client.request_update()
            await until(lambda: len(broker.connections(closed=True)) > connections)
            await until(lambda: client.metadata.leader("t", 0) is not None)

            assert client.metadata.topics["t"].partition_count == 2


async def test_age_alone_is_no_reason_to_bootstrap_again(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    """The time without metadata counts from the first unanswered request, not from the last answer."""
    clock = Clock()
    options: dict[str, Any] = {"metadata_max_age_ms": 60_000, "metadata_recovery_rebootstrap_trigger_ms": 50_000}
    async with client_of(broker, **options) as client:
        await client.wait_ready(soon())
        broker.drop_connection("Metadata")
        for _ in range(2):
            answered_at = client.metadata.refreshed_at
            clock.advance(61)
            await until(lambda: client.metadata.refreshed_at > answered_at)  # noqa: B023 - asked in this round only

        assert broker.count("Metadata") == 4, "the first one; one unanswered, and its repetition; one more"
        assert "Bootstrapping again" not in caplog.text


async def test_a_bootstrap_order_is_by_chance(broker: FakeBroker) -> None:
    servers = [f"127.0.0.1:{port}" for port in range(1, 9)]

    def order(seed: int) -> list[int]:
        client = NetworkClient(
            ProducerConfig(servers),
            client_id="test",
            log=ClientLog("test"),
            random=Random(seed),
            on_ready=lambda: None,
            connect=None,
        )
        return [each.node.port for each in client._brokers._known.values()]

    assert len({tuple(order(seed)) for seed in range(5)}) > 1
    assert order(3) == order(3)


async def test_features_of_the_cluster_are_known_from_any_broker() -> None:
    feature = FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, _ = await read_request(reader)
            if header.api_key == 18:
                writer.write(versions_answer(header, finalized_features=[feature], finalized_features_epoch=1))
            else:
                writer.write(metadata_answer(header, it.port))

    async with peer(serve) as it, client_of(it.address) as client:
        assert client.finalized_feature("transaction.version") == 0
        await client.wait_ready(soon())

        assert client.finalized_feature("transaction.version") == 2
        assert client.finalized_feature("no.such.feature") == 0


async def test_sockets_can_be_opened_in_another_way(broker: FakeBroker) -> None:
    opened: list[str] = []

    async def connect(make: Any, address: Any) -> Any:
        opened.append(str(address))
        _, connection = await asyncio.get_running_loop().create_connection(make, address.host, address.port)
        return connection

    config = ProducerConfig(broker.bootstrap_servers)
    client = NetworkClient(
        config, client_id="test", log=ClientLog("test"), random=FirstIsFirst(1), on_ready=lambda: None, connect=connect
    )
    running = asyncio.create_task(client.run())
    await client.wait_ready(soon())
    await client.close()
    await running

    assert opened == [broker.bootstrap_servers]
