"""What is believed of the cluster, and what is not."""

from __future__ import annotations

from uuid import UUID

import pytest

from aioproducer.core.cluster import ClusterMetadata, Loss, Node
from aioproducer.protocol.error_codes import ErrorCode
from aioproducer.protocol.messages import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    NodeEndpoint,
)
from aioproducer.protocol.wire import ZERO_UUID

ONE, OTHER = UUID(int=1), UUID(int=2)


def partition(index: int, leader: int = 1, epoch: int = 0, error: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error, partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[], isr_nodes=[]
    )


def topic(
    *partitions: MetadataResponsePartition, name: str = "t", topic_id: UUID = ONE, error: int = 0
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=list(partitions))


def answer(*topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2, 3), port: int = 9092) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=node, host=f"k{node}", port=port) for node in nodes]
    return MetadataResponse(brokers=brokers, cluster_id="c", topics=list(topics))


@pytest.fixture
def cluster() -> ClusterMetadata:
    """A topic of three partitions, each led by the node of its number plus one, under epoch 5."""
    cluster = ClusterMetadata()
    cluster.touch("t", 0.0)
    cluster.update(answer(topic(*(partition(index, index + 1, 5) for index in range(3)))))
    return cluster


def test_an_answer_tells_the_leaders(cluster: ClusterMetadata) -> None:
    assert [cluster.leader("t", index) for index in range(3)] == [(1, 5), (2, 5), (3, 5)]
    assert cluster.topics["t"].partition_count == 3


@pytest.mark.parametrize("index", [-1, 3, 1000])
def test_a_partition_that_is_not_there_has_no_leader(cluster: ClusterMetadata, index: int) -> None:
    assert cluster.leader("t", index) is None


def test_a_leader_whose_address_nobody_told_is_none(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(partition(0, 9, 6), partition(1, 2, 5), partition(2, 3, 5))))

    assert cluster.leader("t", 0) is None
    assert cluster.is_unsettled


@pytest.mark.parametrize(("epoch", "leader"), [(4, (1, 5)), (5, (3, 5)), (6, (3, 6)), (-1, (3, -1))])
def test_an_older_epoch_is_no_news(cluster: ClusterMetadata, epoch: int, leader: tuple[int, int]) -> None:
    cluster.update(answer(topic(partition(0, 3, epoch), partition(1, 2, 5), partition(2, 3, 5))))

    assert cluster.leader("t", 0) == leader


def test_an_older_epoch_is_believed_after_the_leader_refused(cluster: ClusterMetadata) -> None:
    told = answer(topic(partition(0, 3, 4), partition(1, 3, 4), partition(2, 3, 5)))
    cluster.distrust_leader("t", 0, 1)
    cluster.distrust_leader("t", 1, 1)  # that is not the one which is taken for the leader

    cluster.update(told)

    assert cluster.leader("t", 0) == (3, 4)
    assert cluster.leader("t", 1) == (2, 5)


def test_a_leader_that_refused_is_the_leader_until_an_answer_says_otherwise(cluster: ClusterMetadata) -> None:
    cluster.distrust_leader("t", 0, 1)
    assert cluster.leader("t", 0) == (1, -1)

    cluster.update(answer(topic(partition(0, 1, 5))))
    cluster.update(answer(topic(partition(0, 3, 4))))

    assert cluster.leader("t", 0) == (1, 5)


@pytest.mark.parametrize(("name", "index"), [("t", -1), ("t", 3), ("u", 0)])
def test_distrust_of_what_is_not_known_changes_nothing(cluster: ClusterMetadata, name: str, index: int) -> None:
    cluster.distrust_leader(name, index, 1)

    assert cluster.leader("t", 0) == (1, 5)


def test_an_older_epoch_is_believed_while_the_leader_cannot_be_reached(cluster: ClusterMetadata) -> None:
    cluster.unreachable.add(1)

    cluster.update(answer(topic(partition(0, 3, 4))))

    assert cluster.leader("t", 0) == (3, 4)


@pytest.mark.parametrize("leader", [-1, 99])
@pytest.mark.parametrize("epoch", [6, 2**31 - 1])
def test_an_older_epoch_is_believed_where_nobody_is_known_to_lead(
    cluster: ClusterMetadata, leader: int, epoch: int
) -> None:
    cluster.update(answer(topic(partition(0, leader, epoch))))

    cluster.update(answer(topic(partition(0, 1, 5))))

    assert cluster.leader("t", 0) == (1, 5)


def test_epochs_before_version_9_are_not_compared(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(partition(0, 3, 4))), reliable_epochs=False)

    assert cluster.leader("t", 0) == (3, -1)


def test_a_topic_with_another_id_is_another_topic(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(partition(0, 2, 0), topic_id=OTHER)))

    assert cluster.leader("t", 0) == (2, 0)
    assert cluster.topics["t"].partition_count == 1


def test_a_broker_that_knows_no_ids_does_not_take_the_id_away(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(partition(0, 2, 6), topic_id=ZERO_UUID)))

    assert cluster.topics["t"].topic_id == ONE
    assert cluster.leader("t", 0) == (2, 6)


def test_a_partition_that_an_answer_leaves_out_stays(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(partition(0, 1, 5), partition(2, 3, 5))))

    assert cluster.leader("t", 1) == (2, 5)
    assert cluster.topics["t"].partition_count == 3


def test_a_partition_that_even_the_first_answer_leaves_out_is_counted() -> None:
    """Or keys would go to other partitions until the next answer."""
    cluster = ClusterMetadata()

    cluster.update(answer(topic(partition(0), partition(2))))

    assert cluster.topics["t"].partition_count == 3
    assert cluster.leader("t", 1) is None


def test_an_answer_that_leaves_out_nearly_everything_is_not_believed() -> None:
    cluster = ClusterMetadata()

    cluster.update(answer(topic(partition(2**31 - 1))))

    assert cluster.topics == {}
    assert cluster.is_unsettled


@pytest.mark.parametrize("told", [topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), topic()])
def test_a_topic_with_an_error_or_without_partitions_keeps_those_it_had(
    cluster: ClusterMetadata, told: MetadataResponseTopic
) -> None:
    cluster.update(answer(told))

    assert cluster.leader("t", 1) == (2, 5)
    assert cluster.errors["t"] in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


def test_a_topic_that_an_answer_leaves_out_stays(cluster: ClusterMetadata) -> None:
    cluster.update(answer())

    assert cluster.leader("t", 1) == (2, 5)


def test_a_partition_that_lost_its_leader_has_none(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(partition(0, -1, 6, ErrorCode.LEADER_NOT_AVAILABLE))))

    assert cluster.leader("t", 0) is None
    assert cluster.is_unsettled


def test_the_version_grows_with_changes_only(cluster: ClusterMetadata) -> None:
    version = cluster.version

    changed = cluster.update(answer(topic(*(partition(index, index + 1, 5) for index in range(3)))))

    assert not changed
    assert cluster.version == version
    assert cluster.update(answer(topic(partition(0, 2, 6))))
    assert cluster.version > version


def test_what_nobody_asked_for_is_not_kept(cluster: ClusterMetadata) -> None:
    cluster.touch("forgotten", 0.0)
    cluster.forget_idle(10.0, 5.0)

    cluster.update(
        answer(topic(partition(0), name="u"), topic(partition(0), name="forgotten")), requested={"forgotten"}
    )

    assert cluster.topics == {}


def test_topics_that_nobody_uses_are_forgotten(cluster: ClusterMetadata) -> None:
    cluster.touch("u", 8.0)

    cluster.forget_idle(10.0, 5.0)

    assert cluster.wanted == ["u"]
    assert cluster.topics == {}


def test_an_answer_without_brokers_takes_none_away(cluster: ClusterMetadata) -> None:
    cluster.update(answer(nodes=()))

    assert list(cluster.nodes) == [1, 2, 3]


def test_forgetting_the_nodes_keeps_the_partitions(cluster: ClusterMetadata) -> None:
    cluster.forget_nodes()

    assert cluster.leader("t", 0) is None
    assert cluster.topics["t"].partition_count == 3


def endpoint(node: int) -> NodeEndpoint:
    return NodeEndpoint(node_id=node, host=f"k{node}", port=9999)


def test_a_hint_with_a_newer_epoch_is_believed_and_other_nodes_stay(cluster: ClusterMetadata) -> None:
    assert cluster.apply_leader_hint("t", 0, 4, 6, [endpoint(4), endpoint(7)])

    assert cluster.leader("t", 0) == (4, 6)
    assert list(cluster.nodes) == [1, 2, 3, 4], "only who leads is of interest"


def test_a_hint_to_a_known_node_needs_no_address_and_does_not_move_it(cluster: ClusterMetadata) -> None:
    assert cluster.apply_leader_hint("t", 0, 2, 6, [endpoint(2)])

    assert cluster.leader("t", 0) == (2, 6)
    assert cluster.nodes[2].port == 9092


@pytest.mark.parametrize(
    ("name", "index", "leader", "epoch"),
    [("t", 0, 2, 5), ("t", 0, 2, 4), ("t", 0, 8, 6), ("t", 9, 2, 6), ("t", -1, 2, 6), ("u", 0, 2, 6), ("t", 0, -1, 6)],
)
def test_a_hint_that_is_old_or_about_something_unknown_changes_nothing(
    cluster: ClusterMetadata, name: str, index: int, leader: int, epoch: int
) -> None:
    version = cluster.version

    assert not cluster.apply_leader_hint(name, index, leader, epoch, [endpoint(-1)])

    assert cluster.version == version
    assert list(cluster.nodes) == [1, 2, 3]


def test_an_older_view_does_not_take_the_hinted_leader_away(cluster: ClusterMetadata) -> None:
    cluster.apply_leader_hint("t", 0, 4, 6, [endpoint(4)])

    cluster.update(answer(topic(partition(0, 1, 5), partition(1, 2, 5), partition(2, 3, 5))))

    assert cluster.leader("t", 0) == (4, 6)


@pytest.mark.parametrize(
    ("node", "text"),
    [(Node(1, "k", 9092), "1 (k:9092)"), (Node(-1, "k", 9092), "k:9092"), (Node(-2, "::1", 9092), "[::1]:9092")],
)
def test_a_node_is_called_by_what_a_user_knows_of_it(node: Node, text: str) -> None:
    assert str(node) == text


# -- partitions that are gone -----------------------------------------------------------------------------------------


def test_a_partition_that_a_recreated_topic_does_not_have_is_lost(cluster: ClusterMetadata) -> None:
    assert cluster.lost("t", 2) is None
    cluster.update(answer(topic(partition(0), topic_id=OTHER)), now=5.0)
    cluster.update(answer(topic(partition(0, 2, 1), topic_id=OTHER)), now=6.0)

    assert cluster.lost("t", 1) == cluster.lost("t", 2) == Loss(had=3, has=1, since=5.0, answers=2)
    assert cluster.lost("t", 0) is None
    assert cluster.lost("t", 3) is None, "it never had that one"
    assert cluster.take_new_losses() == {"t": Loss(3, 1, 5.0)}
    assert cluster.take_new_losses() == {}

    cluster.update(answer(topic(partition(0), partition(1), topic_id=OTHER)), now=7.0)
    assert cluster.lost("t", 1) is None
    assert cluster.lost("t", 2) == Loss(3, 2, 7.0)

    cluster.update(answer(topic(*map(partition, range(3)), topic_id=OTHER)), now=8.0)
    assert cluster.lost("t", 2) is None


def test_a_loss_is_final_as_soon_as_two_answers_agree(cluster: ClusterMetadata) -> None:
    fewer = answer(topic(partition(0), topic_id=OTHER))
    cluster.update(fewer, now=5.0)
    assert cluster.final_losses == {}

    assert cluster.update(fewer, now=6.0), "it wakes the Sender"
    assert cluster.final_losses == {"t": Loss(3, 1, 5.0, answers=2)}
    assert not cluster.update(fewer, now=7.0)

    cluster.update(answer(topic(partition(0), partition(1), topic_id=OTHER)), now=8.0)
    assert cluster.final_losses == {}
    cluster.update(answer(topic(*map(partition, range(3)), topic_id=OTHER)), now=9.0)
    assert cluster.lost("t", 2) is None


def test_a_final_loss_is_over_when_the_partitions_are_there(cluster: ClusterMetadata) -> None:
    fewer = answer(topic(partition(0), topic_id=OTHER))
    cluster.update(fewer, now=5.0)
    cluster.update(fewer, now=6.0)

    cluster.update(answer(topic(*map(partition, range(3)), topic_id=OTHER)), now=7.0)

    assert cluster.final_losses == {}


def test_a_topic_that_is_forgotten_has_no_final_loss(cluster: ClusterMetadata) -> None:
    fewer = answer(topic(partition(0), topic_id=OTHER))
    cluster.update(fewer, now=5.0)
    cluster.update(fewer, now=6.0)

    cluster.forget_idle(1e9, 1.0)

    assert cluster.final_losses == {}


def test_a_topic_that_brokers_do_not_know_any_more_is_never_a_final_loss(cluster: ClusterMetadata) -> None:
    for now in range(5):
        cluster.update(answer(topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)), now=float(now))

    assert cluster.final_losses == {}


def test_a_topic_that_brokers_do_not_know_any_more_has_lost_all_partitions(cluster: ClusterMetadata) -> None:
    unknown = answer(topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    cluster.update(unknown, now=5.0)
    cluster.update(answer(topic(error=ErrorCode.LEADER_NOT_AVAILABLE)), now=6.0)
    cluster.update(unknown, now=7.0)

    assert cluster.lost("t", 0) == Loss(had=3, has=0, since=5.0, answers=2)

    cluster.update(answer(topic(partition(0), topic_id=OTHER)), now=8.0)
    assert cluster.lost("t", 0) is None
    assert cluster.lost("t", 1) == Loss(3, 1, 8.0)


def test_another_error_of_a_topic_is_no_loss(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(error=ErrorCode.LEADER_NOT_AVAILABLE)), now=5.0)
    cluster.update(answer(topic(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)), now=6.0)

    assert cluster.lost("t", 0) is None
    assert cluster.take_new_losses() == {}
