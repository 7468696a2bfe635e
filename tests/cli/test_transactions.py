"""``aioproducer transactions`` shows transactions as kafka-transactions.sh does, and aborts only those that hang."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aioproducer.cli.main import main
from aioproducer.cli.verb import ExitCode
from aioproducer.protocol.messages import WriteTxnMarkersRequest
from aioproducer.testing import FakeBroker
from aioproducer.testing.broker.cluster_state import CoordinatorType
from aioproducer.testing.broker.request import RequestContext
from aioproducer.testing.broker.transaction_state import ProducerIdAndEpoch, Transaction
from tests.testing.raw_transactions import OLDEST, TV2, RawTransactions, Versions, Who

HOUR_MS = 3_600_000
HALF_A_MINUTE_MS = 30_000


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    with FakeBroker(brokers=2, topics={"orders": 3, "payments": 1}) as broker:
        for index in range(3):
            broker.move_leader("orders", index, 1)
        monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        yield broker


def run(*arguments: str) -> int:
    return main(["transactions", *arguments])


def found(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the rows, and what was said beside them."""
    code = run(*arguments, "--json")
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def begun(broker: FakeBroker, transactional_id: str, *partitions: int, versions: Versions = TV2) -> Who:
    """The producer of a transaction that is open, with two records in each of these partitions of 'orders'."""
    broker.cluster.move_coordinator(CoordinatorType.TRANSACTION, transactional_id, 1)
    steps = RawTransactions(broker.addresses[1], versions, transactional_id, "orders", "group")
    who = steps.init()
    steps.begin(who, *partitions)
    for index in partitions:
        steps.write(who, index, "a", "b")
    assert all(note[3] == "NONE" for note in steps.notes if note[0] == "write"), steps.notes
    return who


def state(broker: FakeBroker, transactional_id: str) -> Transaction:
    return broker.cluster.transactions.transactions[transactional_id]


def left_behind(broker: FakeBroker, transactional_id: str, *partitions: int, hours: int = 1) -> Who:
    """The producer of such a transaction, which its coordinator has forgotten; it wrote the last record so long ago."""
    who = begun(broker, transactional_id, *partitions)
    del broker.cluster.transactions.transactions[transactional_id]
    age(broker, who, *partitions, hours=hours)
    return who


def age(broker: FakeBroker, who: Who, *partitions: int, hours: int = 1) -> None:
    for index in partitions:
        broker.cluster.partition("orders", index).log.producers[who.producer_id].last_timestamp_ms -= hours * HOUR_MS


def is_open(broker: FakeBroker, who: Who, partition: int) -> bool:
    return who.producer_id in broker.cluster.partition("orders", partition).log.open_transactions


# -- list and describe -------------------------------------------------------------------------------------------------


def test_all_coordinators_list_their_transactions(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = begun(broker, "orders-1", 0), begun(broker, "orders-2", 0)
    broker.cluster.move_coordinator(CoordinatorType.TRANSACTION, "orders-2", 2)

    assert found(capsys, "list") == (
        ExitCode.OK,
        [
            {
                "transactional_id": "orders-1",
                "coordinator_id": 1,
                "producer_id": first.producer_id,
                "transaction_state": "Ongoing",
            },
            {
                "transactional_id": "orders-2",
                "coordinator_id": 2,
                "producer_id": second.producer_id,
                "transaction_state": "Ongoing",
            },
        ],
        "",
    )


def test_the_table_is_javas(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    who = begun(broker, "orders-1", 0)

    assert run("list") == ExitCode.OK

    heading, row, nothing = capsys.readouterr().out.split("\n")
    assert heading == "TransactionalId\tCoordinator\tProducerId\tTransactionState\t"
    assert row == f"orders-1       \t1          \t{who.producer_id:<10}\tOngoing         \t"
    assert nothing == ""


def test_filters_of_a_list(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = begun(broker, "orders-1", 0), begun(broker, "payments-1", 0)
    RawTransactions(broker.addresses[1], TV2, "payments-1", "orders", "group").commit(second)
    state(broker, "orders-1").started_ms -= HALF_A_MINUTE_MS  # less than its timeout

    def ids(*arguments: str) -> list[str]:
        code, rows, _ = found(capsys, "list", *arguments)
        assert code == ExitCode.OK
        return [row["transactional_id"] for row in rows]

    assert ids("--state", "CompleteCommit") == ["payments-1"]
    assert ids("--state", "CompleteCommit", "--state", "Ongoing") == ["orders-1", "payments-1"]
    assert ids("--producer-id", str(first.producer_id)) == ["orders-1"]
    assert ids("--transactional-id-pattern", "pay.*") == ["payments-1"]
    assert ids("--duration-filter", "20000", "--state", "Ongoing") == ["orders-1"]


def test_a_filter_that_a_broker_would_ignore_is_refused(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """In a version without the field the request would list everything."""
    broker.set_versions("3.9")

    assert run("list", "--transactional-id-pattern", "pay.*") == ExitCode.USAGE
    assert "too old for this: it needs ListTransactionsRequest version 2" in capsys.readouterr().err
    assert run("list", "--duration-filter", "1") == ExitCode.OK

    assert run("list", "--transactional-id-pattern", "(") == ExitCode.USAGE


def test_an_invalid_pattern(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--transactional-id-pattern", "(") == ExitCode.USAGE
    assert "INVALID_REGULAR_EXPRESSION" in capsys.readouterr().err


def test_nothing_to_list(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(capsys, "list") == (ExitCode.OK, [], "No coordinator lists a transaction.\n")


def test_a_coordinator_that_is_loading_is_awaited(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    begun(broker, "orders-1", 0)
    for api in ("ListTransactions", "DescribeTransactions"):
        broker.fail(api, "COORDINATOR_LOAD_IN_PROGRESS", node=1)

    assert len(found(capsys, "list")[1]) == 1
    assert len(found(capsys, "describe", "orders-1")[1]) == 1


def test_a_description(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    who = begun(broker, "orders-1", 0, 2)
    broker.cluster.move_coordinator(CoordinatorType.TRANSACTION, "orders-1", 2)
    state(broker, "orders-1").started_ms -= HALF_A_MINUTE_MS  # less than its timeout

    code, (row,), _ = found(capsys, "describe", "orders-1")

    assert code == ExitCode.OK
    assert HALF_A_MINUTE_MS <= row.pop("transaction_duration_ms") < HOUR_MS
    assert row == {
        "coordinator_id": 2,
        "transactional_id": "orders-1",
        "producer_id": who.producer_id,
        "producer_epoch": who.epoch,
        "transaction_state": "Ongoing",
        "transaction_timeout_ms": 60_000,
        "transaction_start_time_ms": state(broker, "orders-1").started_ms,
        "topic_partitions": ["orders-0", "orders-2"],
    }
    assert run("describe", "--transactional-id", "orders-1") == ExitCode.OK
    assert "\torders-0,orders-2\t" in capsys.readouterr().out


def test_ids_that_are_not_known(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    begun(broker, "orders-1", 0)

    code, rows, said = found(capsys, "describe", "orders-1", "orders-2")

    assert (code, [row["transactional_id"] for row in rows]) == (ExitCode.BAD, ["orders-1"])
    assert said == "No coordinator knows the transactional id 'orders-2'.\n"
    assert broker.count("FindCoordinator") == 0  # it would create the coordinators' topic
    assert run("describe") == ExitCode.USAGE
    assert "Name a transactional id" in capsys.readouterr().err


def test_the_right_that_a_description_needs(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.fail("DescribeTransactions", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", times=None)

    assert run("describe", "orders-1") == ExitCode.USAGE
    assert "It needs DESCRIBE" in capsys.readouterr().err


# -- the producers of a partition --------------------------------------------------------------------------------------


def test_the_producers_of_a_partition(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    first = begun(broker, "orders-1", 0)
    second = begun(broker, "orders-2", 0)
    ended = RawTransactions(broker.addresses[1], TV2, "orders-1", "orders", "group").commit(first)

    code, rows, _ = found(capsys, "describe-producers", "--topic", "orders", "--partition", "0")

    assert code == ExitCode.OK
    times = [row.pop("last_timestamp") for row in rows]
    assert all(abs(each - time.time() * 1000) < HOUR_MS for each in times)
    assert [row.pop("coordinator_epoch") >= 0 for row in rows] == [True, False]
    assert rows == [
        {
            "producer_id": first.producer_id,
            "producer_epoch": ended.epoch,
            "last_sequence": -1,
            "current_txn_start_offset": None,
        },
        {
            "producer_id": second.producer_id,
            "producer_epoch": second.epoch,
            "last_sequence": 1,
            "current_txn_start_offset": 2,
        },
    ]


def test_a_leader_that_moves_is_looked_up_again(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    begun(broker, "orders-1", 0)
    broker.fail("DescribeProducers", "NOT_LEADER_OR_FOLLOWER")

    assert len(found(capsys, "describe-producers", "--topic", "orders", "--partition", "0")[1]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topic", "missing", "--partition", "0"), "UNKNOWN_TOPIC_OR_PARTITION"),
        (("--topic", "orders", "--partition", "3"), "Topic 'orders' has no partition 3; it has 0 to 2."),
        (
            ("--topic", "orders", "--partition", "0", "--broker-id", "9"),
            "The cluster has no broker 9; it has 1, 2.",
        ),
    ],
)
def test_places_that_do_not_exist(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run("describe-producers", *arguments) == ExitCode.USAGE
    assert said in capsys.readouterr().err


def test_a_partition_without_a_leader(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.move_leader("orders", 1, -1)

    assert run("describe-producers", "--topic", "orders", "--partition", "1") == ExitCode.USAGE
    assert "orders-1 has no leader at present." in capsys.readouterr().err

    code, _, said = found(capsys, "find-hanging")
    assert code == ExitCode.BAD
    assert "orders-1 was not read: LEADER_NOT_AVAILABLE" in said


# -- transactions that hang --------------------------------------------------------------------------------------------


def test_a_transaction_that_its_coordinator_forgot(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    who = left_behind(broker, "orders-1", 1)
    broker.move_leader("orders", 2, 2)

    code, (row,), said = found(capsys, "find-hanging")

    assert code == ExitCode.BAD
    assert row.pop("last_timestamp") < (time.time() - 3000) * 1000
    assert row == {
        "topic": "orders",
        "partition": 1,
        "producer_id": who.producer_id,
        "producer_epoch": who.epoch,
        "coordinator_epoch": -1,
        "start_offset": 0,
        "duration_minutes": 60,
    }
    assert said.endswith("aioproducer transactions abort --topic orders --partition 1 --start-offset 0\n")
    assert {node for node in (1, 2) if broker.count("DescribeProducers", node=node)} == {1, 2}


def test_a_partition_that_its_coordinator_does_not_know_of(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other partition of the same transaction gets its marker."""
    who = begun(broker, "orders-1", 0, 1)
    age(broker, who, 0, 1)
    state(broker, "orders-1").partitions.remove(("orders", 1))

    _, rows, _ = found(capsys, "find-hanging")

    assert [(row["topic"], row["partition"]) for row in rows] == [("orders", 1)]


def test_transactions_that_do_not_hang(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """One is old, but its coordinator will end it; one was forgotten, but may be the transaction of a moment ago."""
    age(broker, begun(broker, "orders-1", 0), 0)
    left_behind(broker, "orders-2", 1, hours=0)

    assert found(capsys, "find-hanging") == (ExitCode.OK, [], "No transaction hangs in 4 partitions.\n")
    for state_of in broker.cluster.partition("orders", 1).log.producers.values():
        state_of.last_timestamp_ms -= 1000
    assert found(capsys, "find-hanging", "--max-transaction-timeout", "0")[0] == ExitCode.BAD


def test_one_that_ends_while_its_coordinator_is_asked(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    who = begun(broker, "orders-1", 0)
    age(broker, who, 0)

    def commit(context: RequestContext) -> None:
        producer = ProducerIdAndEpoch(*who)
        context.cluster.transactions.end("orders-1", producer, committed=True, bumps_epoch=True, now_ms=context.now_ms)

    broker.control("ListTransactions", commit)

    assert found(capsys, "find-hanging")[:2] == (ExitCode.OK, [])


@pytest.mark.parametrize(
    ("arguments", "partitions"),
    [
        ((), [0, 2]),
        (("--topic", "orders"), [0, 2]),
        (("--topic", "orders", "--partition", "2"), [2]),
        (("--topic", "payments"), []),
        (("--broker-id", "1"), [0]),
    ],
)
def test_a_part_of_the_cluster(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], partitions: list[int]
) -> None:
    left_behind(broker, "orders-1", 0, 2)
    broker.cluster.partition("orders", 0).replicas[:] = [1]
    broker.cluster.partition("orders", 2).replicas[:] = [2]
    broker.move_leader("orders", 2, 2)

    assert [row["partition"] for row in found(capsys, "find-hanging", *arguments)[1]] == partitions


def test_partitions_that_may_not_be_read(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    left_behind(broker, "orders-1", 0)
    broker.fail("DescribeProducers", "TOPIC_AUTHORIZATION_FAILED", times=None, topic="payments")

    code, rows, said = found(capsys, "find-hanging")

    assert (code, len(rows)) == (ExitCode.BAD, 1)
    assert "payments-0 was not read: TOPIC_AUTHORIZATION_FAILED" in said
    assert "needs READ on it" in said


# -- aborting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["--start-offset", "--producer-id"])
def test_a_hanging_transaction_is_aborted(broker: FakeBroker, capsys: pytest.CaptureFixture[str], by: str) -> None:
    who = left_behind(broker, "orders-1", 1)
    value = {"--start-offset": 0, "--producer-id": who.producer_id}[by]

    assert run("abort", "--topic", "orders", "--partition", "1", by, str(value)) == ExitCode.OK

    assert f"Aborted the transaction of producer {who.producer_id}, epoch {who.epoch}, in orders-1" in (
        capsys.readouterr().err
    )
    log = broker.cluster.partition("orders", 1).log
    assert not log.open_transactions
    assert log.last_stable_offset == log.end_offset == 3
    assert log.records(committed=True) == []
    assert found(capsys, "find-hanging")[0] == ExitCode.OK


def test_one_that_does_not_hang_is_left_alone(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    who = begun(broker, "orders-1", 1)
    age(broker, who, 1)
    abort = ("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0")

    assert run(*abort) == ExitCode.BAD
    assert "does not hang, its coordinator will end it" in capsys.readouterr().err
    assert is_open(broker, who, 1)
    assert run(*abort, "--force") == ExitCode.OK
    assert not is_open(broker, who, 1)


def test_no_such_transaction(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    who = left_behind(broker, "orders-1", 1)
    abort = ("abort", "--topic", "orders", "--partition")

    assert run(*abort, "1", "--start-offset", "1") == ExitCode.BAD
    assert "orders-1 has no such open transaction; open are those from 0 on." in capsys.readouterr().err
    assert run(*abort, "0", "--start-offset", "0") == ExitCode.BAD
    assert "orders-0 has no such open transaction; none is open there." in capsys.readouterr().err
    assert run(*abort, "1") == ExitCode.USAGE
    assert run(*abort, "1", "--start-offset", "0", "--producer-id", str(who.producer_id)) == ExitCode.USAGE
    assert is_open(broker, who, 1)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("CLUSTER_AUTHORIZATION_FAILED", "needs ALTER, or CLUSTER_ACTION, on the cluster"),
        ("TRANSACTION_COORDINATOR_FENCED", "TRANSACTION_COORDINATOR_FENCED"),
    ],
)
def test_a_marker_that_is_refused(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], error: str, said: str
) -> None:
    who = left_behind(broker, "orders-1", 1)
    broker.fail("WriteTxnMarkers", error)

    assert run("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0") == ExitCode.USAGE
    assert said in (error_text := capsys.readouterr().err)
    assert "Nothing was aborted" in error_text
    assert is_open(broker, who, 1)


@pytest.mark.parametrize("epochs", [("--producer-epoch", "7"), ("--coordinator-epoch", "3")])
def test_epochs_that_are_given_are_used(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], epochs: tuple[str, str]
) -> None:
    left_behind(broker, "orders-1", 1)

    run("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0", *epochs)

    (request,) = broker.requests_of("WriteTxnMarkers")
    assert isinstance(request.body, WriteTxnMarkersRequest)
    (marker,) = request.body.markers
    field = {"--producer-epoch": marker.producer_epoch, "--coordinator-epoch": marker.coordinator_epoch}[epochs[0]]
    assert field == int(epochs[1])


def test_an_answer_that_is_lost(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    who = left_behind(broker, "orders-1", 1)
    broker.drop_connection("WriteTxnMarkers", when="after")

    assert run("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0") == ExitCode.UNKNOWN
    assert "It is not known whether the transaction of producer" in capsys.readouterr().err
    assert not is_open(broker, who, 1)


def test_an_answer_that_does_not_come(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    left_behind(broker, "orders-1", 1)
    hold = broker.hold("WriteTxnMarkers")

    code = run("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0", "--timeout", "2")
    hold.release()

    assert code == ExitCode.UNKNOWN
    assert "It is not known" in capsys.readouterr().err


@pytest.mark.parametrize("error", ["NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT"])
def test_a_marker_that_may_be_written(broker: FakeBroker, capsys: pytest.CaptureFixture[str], error: str) -> None:
    who = left_behind(broker, "orders-1", 1)
    broker.fail_after_apply("WriteTxnMarkers", error)

    assert run("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0") == ExitCode.UNKNOWN
    assert "It is not known" in capsys.readouterr().err
    assert not is_open(broker, who, 1)


def test_a_coordinator_that_moves_while_the_brokers_are_asked(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """It moves to the broker that was asked before: its transactions are in no list then."""
    who = begun(broker, "orders-1", 1)
    broker.cluster.move_coordinator(CoordinatorType.TRANSACTION, "orders-1", 2)

    def move(context: RequestContext) -> None:
        context.cluster.move_coordinator(CoordinatorType.TRANSACTION, "orders-1", 1)

    broker.control("ListTransactions", move, node=2)

    assert run("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0") == ExitCode.BAD
    assert "does not hang" in capsys.readouterr().err
    assert is_open(broker, who, 1)


def test_a_listed_transaction_that_no_broker_describes(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    who = begun(broker, "orders-1", 1)
    broker.fail("DescribeTransactions", "NOT_COORDINATOR", times=None)

    code = run("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0", "--timeout", "1")

    assert code == ExitCode.USAGE
    assert "no broker coordinates the transactional id 'orders-1'" in capsys.readouterr().err
    assert is_open(broker, who, 1)


def test_a_coordinator_that_is_missing(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    who = left_behind(broker, "orders-1", 1)
    broker.create_topic("__transaction_state", 2)
    broker.move_leader("__transaction_state", 1, -1)

    assert run("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0") == ExitCode.USAGE
    assert "Partition 1 of __transaction_state has no leader" in capsys.readouterr().err
    assert is_open(broker, who, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("abort", "--topic", "orders", "--partition", "1", "--start-offset", "0", "--producer-epoch", "70000"),
        ("list", "--producer-id", str(2**70)),
        ("find-hanging", "--max-transaction-timeout", "-5"),
    ],
)
def test_numbers_out_of_range(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit):
        run(*arguments)
    assert "must be 0 to" in capsys.readouterr().err


def test_a_topic_without_partitions(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    broker.cluster.topics["payments"].lag = 1000
    assert run("find-hanging", "--topic", "payments", "--partition", "0") == ExitCode.USAGE
    assert "Topic 'payments' has no partitions yet." in capsys.readouterr().err


# -- the cluster -------------------------------------------------------------------------------------------------------


def test_the_cluster_may_be_named_before_the_action_and_after_it(
    broker: FakeBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(broker, "orders-1", 0)
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS")
    servers = ("--bootstrap-server", broker.bootstrap_servers)

    assert run(*servers, "--json", "-X", "client.id=a", "list", "-X", "linger_ms=1") == ExitCode.OK
    assert run("list", *servers, "--json") == ExitCode.OK
    assert capsys.readouterr().out.count('"orders-1"') == 2
    assert run(*servers, "-X", "lingerr=1", "list", "-X", "linger_ms=1") == ExitCode.USAGE
    assert "lingerr" in capsys.readouterr().err
    assert run("list") == ExitCode.USAGE
    assert "No cluster is given." in capsys.readouterr().err


def test_a_broker_that_does_not_answer(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    hold = broker.hold("ListTransactions", node=2)

    code = run("list", "--timeout", "1")
    hold.release()

    assert code == ExitCode.USAGE
    assert "broker 2" in capsys.readouterr().err


def test_old_brokers(broker: FakeBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Before Kafka 3.0 coordinators could not be asked."""
    broker.set_versions("2.8")
    who = begun(broker, "orders-1", 0, versions=OLDEST)
    age(broker, who, 0)

    assert run("list") == ExitCode.USAGE
    assert "does not support ListTransactionsRequest" in capsys.readouterr().err
    assert run("abort", "--topic", "orders", "--partition", "0", "--start-offset", "0", "--force") == ExitCode.OK
    assert not is_open(broker, who, 0)
