"""The metadata that a client accepts, and the metadata that it ignores."""

from __future__ import annotations

from uuid import UUID

import pytest

from aioproducer.core.cluster import ClusterMetadata, Loss, Node, PartitionMetadata
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


def test_at_first_nothing_is_known() -> None:
    cluster = ClusterMetadata()

    assert (cluster.nodes, cluster.topics, cluster.wanted) == ({}, {}, [])
    assert (cluster.cluster_id, cluster.controller_id) == (None, -1)


def test_an_answer_names_the_leaders(cluster: ClusterMetadata) -> None:
    assert [cluster.leader("t", index) for index in range(3)] == [(1, 5), (2, 5), (3, 5)]
    assert cluster.topics["t"].partition_count == 3
    assert not cluster.is_unsettled


def test_an_answer_names_the_cluster_and_its_controller_and_a_later_one_need_not_repeat_the_cluster() -> None:
    cluster = ClusterMetadata()

    cluster.update(MetadataResponse(brokers=[], cluster_id="c", controller_id=2, topics=[]))
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 2)

    cluster.update(MetadataResponse(brokers=[], cluster_id=None, controller_id=3, topics=[]))
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 3)


def test_a_broker_with_the_id_0_is_one_like_any_other_and_a_negative_id_is_none() -> None:
    cluster = ClusterMetadata()

    cluster.update(answer(topic(partition(0, 0, 5), partition(1, 1, 5)), nodes=(-1, 0, 1)))
    assert list(cluster.nodes) == [0, 1]
    assert cluster.leader("t", 0) == (0, 5)

    assert cluster.apply_leader_hint("t", 1, 0, 6, [])
    assert cluster.leader("t", 1) == (0, 6)


def test_a_broker_that_has_moved_has_its_new_address(cluster: ClusterMetadata) -> None:
    assert cluster.update(answer(port=9093))

    assert [cluster.nodes[node].address for node in (1, 2, 3)] == [("k1", 9093), ("k2", 9093), ("k3", 9093)]


def test_the_answers_about_a_topic_are_counted_good_or_bad(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(error=ErrorCode.LEADER_NOT_AVAILABLE), topic(partition(0), name="u")), now=5.0)
    cluster.update(answer(), now=6.0)

    assert cluster.answers == {"t": 2, "u": 1}
    assert cluster.answered_at == {"t": 5.0, "u": 5.0}


@pytest.mark.parametrize("index", [-1, 3, 1000])
def test_a_partition_that_is_not_there_has_no_leader(cluster: ClusterMetadata, index: int) -> None:
    assert cluster.leader("t", index) is None


def test_a_leader_without_a_known_address_is_none(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(partition(0, 9, 6), partition(1, 2, 5), partition(2, 3, 5))))

    assert cluster.leader("t", 0) is None
    assert cluster.is_unsettled


@pytest.mark.parametrize(("epoch", "leader"), [(0, (1, 5)), (4, (1, 5)), (5, (3, 5)), (6, (3, 6)), (-1, (3, -1))])
def test_an_older_epoch_is_no_news(cluster: ClusterMetadata, epoch: int, leader: tuple[int, int]) -> None:
    cluster.update(answer(topic(partition(0, 3, epoch), partition(1, 2, 5), partition(2, 3, 5))))

    assert cluster.leader("t", 0) == leader


def test_an_older_epoch_is_believed_after_the_leader_refused(cluster: ClusterMetadata) -> None:
    reported = answer(topic(partition(0, 3, 4), partition(1, 3, 4), partition(2, 3, 5)))
    cluster.distrust_leader("t", 0, 1)
    cluster.distrust_leader("t", 1, 1)  # that is not the one which is taken for the leader

    cluster.update(reported)

    assert cluster.leader("t", 0) == (3, 4)
    assert cluster.leader("t", 1) == (2, 5)


def test_a_leader_that_refused_remains_the_leader_until_metadata_names_another(cluster: ClusterMetadata) -> None:
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


def test_an_unreachable_leader_remains_the_leader_until_metadata_names_another(cluster: ClusterMetadata) -> None:
    cluster.unreachable.add(1)

    cluster.update(answer(topic(partition(1, 2, 5))))

    assert cluster.leader("t", 0) == (1, -1)


@pytest.mark.parametrize("leader", [-1, 99])
@pytest.mark.parametrize("epoch", [6, 2**31 - 1])
def test_an_older_epoch_is_believed_if_no_leader_is_known(cluster: ClusterMetadata, leader: int, epoch: int) -> None:
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
    assert cluster.topics["t"].partitions[1] == PartitionMetadata(1, leader=-1, leader_epoch=-1, error_code=0)
    assert cluster.leader("t", 1) is None


def test_an_answer_may_leave_out_about_half_of_the_partitions() -> None:
    cluster = ClusterMetadata()

    cluster.update(answer(topic(partition(0), partition(4))))

    assert cluster.topics["t"].partition_count == 5


@pytest.mark.parametrize("indices", [(2**31 - 1,), (0, 5), (0, 2**31 - 1)])
def test_an_answer_that_leaves_out_more_than_that_is_not_believed(indices: tuple[int, ...]) -> None:
    cluster = ClusterMetadata()

    cluster.update(answer(topic(*map(partition, indices))))

    assert cluster.topics == {}
    assert cluster.is_unsettled


@pytest.mark.parametrize("reported", [topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), topic()])
def test_a_topic_with_an_error_or_without_partitions_keeps_those_it_had(
    cluster: ClusterMetadata, reported: MetadataResponseTopic
) -> None:
    cluster.update(answer(reported))

    assert cluster.leader("t", 1) == (2, 5)
    assert cluster.errors["t"] in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


@pytest.mark.parametrize(
    ("error", "is_passing"),
    [
        (ErrorCode.LEADER_NOT_AVAILABLE, True),
        (ErrorCode.REPLICA_NOT_AVAILABLE, True),
        (ErrorCode.LISTENER_NOT_FOUND, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
def test_one_topic_with_a_passing_error_makes_the_cluster_unsettled(
    cluster: ClusterMetadata, error: ErrorCode, is_passing: bool
) -> None:
    cluster.update(answer(topic(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED), topic(name="u", error=error)))

    assert cluster.is_unsettled == is_passing


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


def test_only_what_was_asked_for_and_not_forgotten_since_is_kept(cluster: ClusterMetadata) -> None:
    cluster.touch("forgotten", 0.0)
    cluster.forget_idle(10.0, 5.0)
    cluster.touch("asked for", 10.0)
    cluster.touch("in use", 10.0)

    cluster.update(
        answer(*(topic(partition(0), name=name) for name in ("asked for", "in use", "forgotten", "neither"))),
        requested={"asked for", "forgotten"},
    )

    assert list(cluster.topics) == list(cluster.answers) == ["asked for"]


def test_a_topic_without_a_name_is_left_out(cluster: ClusterMetadata) -> None:
    """A broker that does not know the id of a topic returns no name."""
    nameless = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=OTHER, partitions=[])

    assert not cluster.update(answer(nameless))

    assert list(cluster.answers) == ["t"]


def test_a_topic_is_new_once(cluster: ClusterMetadata) -> None:
    assert cluster.touch("u", 1.0)
    assert not cluster.touch("u", 2.0)
    assert cluster.wanted == ["t", "u"]


def test_unused_topics_are_forgotten(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    cluster.touch("u", 8.0)
    version = cluster.version

    cluster.forget_idle(10.0, 5.0)

    assert cluster.wanted == ["u"]
    assert (cluster.topics, cluster.errors, cluster.answers, cluster.answered_at) == ({}, {}, {}, {})
    assert cluster.lost("t", 0) is None
    assert cluster.version > version

    version = cluster.version
    cluster.forget_idle(10.0, 5.0)
    assert cluster.version == version, "there was nothing to forget"


def test_an_answer_without_brokers_takes_none_away(cluster: ClusterMetadata) -> None:
    cluster.update(answer(nodes=()))

    assert list(cluster.nodes) == [1, 2, 3]


def test_forgetting_the_nodes_keeps_the_partitions(cluster: ClusterMetadata) -> None:
    version = cluster.version

    cluster.forget_nodes()

    assert cluster.leader("t", 0) is None
    assert cluster.topics["t"].partition_count == 3
    assert cluster.version > version


def endpoint(node: int) -> NodeEndpoint:
    return NodeEndpoint(node_id=node, host=f"k{node}", port=9999)


def test_a_hint_with_a_newer_epoch_is_believed_and_other_nodes_stay(cluster: ClusterMetadata) -> None:
    assert cluster.apply_leader_hint("t", 0, 4, 6, [endpoint(4), endpoint(7)])

    assert cluster.leader("t", 0) == (4, 6)
    assert list(cluster.nodes) == [1, 2, 3, 4], "only who leads is of interest"


def test_a_hint_to_a_leader_takes_the_error_from_the_partition(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(partition(0, -1, 6, ErrorCode.LEADER_NOT_AVAILABLE))))
    version = cluster.version

    assert cluster.apply_leader_hint("t", 0, 0, 7, [endpoint(0)])

    assert cluster.leader("t", 0) == (0, 7)
    assert cluster.topics["t"].partitions[0] == PartitionMetadata(0, leader=0, leader_epoch=7, error_code=0)
    assert cluster.version > version


def test_a_hint_to_a_known_node_needs_no_address_and_does_not_move_it(cluster: ClusterMetadata) -> None:
    assert cluster.apply_leader_hint("t", 0, 2, 6, [endpoint(2)])

    assert cluster.leader("t", 0) == (2, 6)
    assert cluster.nodes[2].port == 9092


@pytest.mark.parametrize(
    ("name", "index", "leader", "epoch"),
    [("t", 0, 2, 5), ("t", 0, 2, 4), ("t", 0, 8, 6), ("t", 3, 2, 6), ("t", -1, 2, 6), ("u", 0, 2, 6), ("t", 0, -1, 6)],
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
    [(Node(0, "k", 9092), "0 (k:9092)"), (Node(-1, "k", 9092), "k:9092"), (Node(-2, "::1", 9092), "[::1]:9092")],
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


def test_a_loss_that_is_over_before_anyone_asked_is_none(cluster: ClusterMetadata) -> None:
    cluster.update(answer(topic(partition(0), topic_id=OTHER)), now=5.0)
    cluster.update(answer(topic(*map(partition, range(3)), topic_id=OTHER)), now=6.0)

    assert cluster.take_new_losses() == {}


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
