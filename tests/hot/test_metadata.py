"""The metadata that deliveries return are plain values, the same in Python and in native code."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aioproducer._metadata import _python
from aioproducer.types import RecordMetadata, TimestampType, TopicPartition
from tests.hot.twins import Twin, World, each_twin, result_class

ORDERS = TopicPartition("orders", 2)
ROOT = Path(__file__).parents[2]
FIELDS = ("orders", 2, 8, 5, -1, 3, TimestampType.CREATE_TIME)
NAMES = (
    "topic",
    "partition",
    "offset",
    "timestamp_ms",
    "serialized_key_size",
    "serialized_value_size",
    "timestamp_type",
)
#: More than are kept for the next ones.
MANY = 600

CLASSES: dict[str, Any] = {"python": _python.RecordMetadata}
with suppress(ImportError):  # tests/record/test_twins.py says where that is wrong
    CLASSES["native"] = import_module("aioproducer._metadata._native").RecordMetadata

each_class = pytest.mark.parametrize("kind", CLASSES.values(), ids=list(CLASSES))


def made_by(twin: Twin) -> Any:
    """The class of a twin's metadata: Python takes the one in use, which may be Python's although native code was built."""
    return RecordMetadata if twin.name == "python" else CLASSES["native"]


def make(twin: Twin, offset: int = 7) -> RecordMetadata:
    result = result_class(twin)(ORDERS)
    delivery = twin.delivery(result, 1, 5, -1, 3)
    result.succeed(offset)
    metadata: RecordMetadata = delivery.result()
    return metadata


# -- as values ---------------------------------------------------------------------------------------------------------


@each_class
def test_metadata_have_names_and_can_be_unpacked(kind: Any) -> None:
    metadata = kind(*FIELDS)

    topic, partition, offset, *_, timestamp_type = metadata

    assert (topic, partition, offset, timestamp_type) == ("orders", 2, 8, TimestampType.CREATE_TIME)
    assert tuple(metadata) == FIELDS == tuple(getattr(metadata, name) for name in NAMES)
    assert metadata._asdict() == dict(zip(NAMES, FIELDS, strict=True))
    assert json.loads(json.dumps(metadata._asdict()))["offset"] == 8
    assert type(metadata.timestamp_type) is TimestampType
    assert type(metadata.topic_partition) is TopicPartition
    assert metadata.topic_partition == ORDERS


@each_class
def test_metadata_are_matched_by_their_names_and_by_their_order(kind: Any) -> None:
    match kind(*FIELDS):
        case kind("orders", partition, timestamp_ms=5):
            assert partition == 2
        case other:
            pytest.fail(f"{other} was not matched")


@each_class
def test_rarely_given_fields_have_defaults(kind: Any) -> None:
    metadata = kind("orders", partition=0, offset=-1, timestamp_ms=-1)

    assert tuple(metadata) == ("orders", 0, -1, -1, -1, -1, TimestampType.CREATE_TIME)
    assert not metadata.has_offset
    assert kind("orders", 0, 0, 0).has_offset
    assert kind(*FIELDS[:-1], TimestampType.LOG_APPEND_TIME).timestamp_type is TimestampType.LOG_APPEND_TIME


@each_class
def test_metadata_are_equal_where_all_of_them_is(kind: Any) -> None:
    others = [("payments", 9, 9, 9, 9, 9, TimestampType.LOG_APPEND_TIME)[at] for at in range(len(FIELDS))]

    assert kind(*FIELDS) == kind(*FIELDS)
    assert hash(kind(*FIELDS)) == hash(kind(*FIELDS))
    assert len({kind(*FIELDS), kind(*FIELDS)}) == 1
    for at, other in enumerate(others):
        assert kind(*FIELDS) != kind(*FIELDS[:at], other, *FIELDS[at + 1 :])
    assert kind(*FIELDS) != FIELDS
    assert kind(*FIELDS) != None  # noqa: E711 - the operator is what is tested


def test_both_print_and_hash_alike() -> None:
    assert {repr(kind(*FIELDS)) for kind in CLASSES.values()} == {
        "RecordMetadata(topic='orders', partition=2, offset=8, timestamp_ms=5, serialized_key_size=-1, "
        "serialized_value_size=3, timestamp_type=<TimestampType.CREATE_TIME: 0>)"
    }
    assert len({hash(kind(*FIELDS)) for kind in CLASSES.values()}) == 1
    assert len({(kind.__name__, kind.__doc__, kind.__match_args__) for kind in CLASSES.values()}) == 1


@each_class
def test_metadata_cannot_be_changed(kind: Any) -> None:
    metadata = kind(*FIELDS)

    for name in (*NAMES, "has_offset", "more"):
        with pytest.raises(
            (AttributeError, TypeError)
        ):  # TypeError: bpo-46269, of classes with slots up to Python 3.11
            setattr(metadata, name, 5)

    assert tuple(metadata) == FIELDS


@each_class
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_is_of_the_class_that_is_in_use(kind: Any, again: Any) -> None:
    other = again(kind(*FIELDS))

    assert type(other) is RecordMetadata
    assert other == RecordMetadata(*FIELDS)


@pytest.mark.broker  # starts programs
@each_twin
def test_pickled_metadata_can_be_read_where_native_modules_are_absent(twin: Twin) -> None:
    read = "import pickle, sys; print(*pickle.load(sys.stdin.buffer), sep=',')"

    done = subprocess.run(
        [sys.executable, "-c", read],
        input=pickle.dumps(make(twin)),
        env={**os.environ, "AIOPRODUCER_PURE": "1"},
        cwd=ROOT,
        capture_output=True,
        check=True,
    )

    assert done.stdout.decode().strip() == "orders,2,8,5,-1,3,0"


@pytest.mark.skipif("native" not in CLASSES, reason="the native extension was not built here")
@pytest.mark.parametrize(
    ("fields", "error"),
    [((5, 0, 0, 0), TypeError), (("t", "0", 0, 0), TypeError), (("t", 0, -2, 0), OverflowError)],
)
def test_native_metadata_take_nothing_but_what_they_can_hold(fields: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        CLASSES["native"](*fields)


# -- as they come and go -----------------------------------------------------------------------------------------------


@each_twin
def test_a_delivery_makes_them_of_its_outcome(twin: Twin) -> None:
    result = result_class(twin)(ORDERS)
    delivery = twin.delivery(result, 1, 5, -1, 3)

    result.log_append_time_ms = 9
    result.succeed(7)

    assert type(make(twin)) is made_by(twin)
    assert make(twin) == made_by(twin)(*FIELDS)
    assert make(twin, -1).offset == -1
    assert delivery.result() == made_by(twin)("orders", 2, 8, 9, -1, 3, TimestampType.LOG_APPEND_TIME)


@each_twin
def test_many_metadata_come_and_go_without_a_trace(twin: Twin) -> None:
    topic, kind = ORDERS.topic, TimestampType.CREATE_TIME

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(each) for each in (RecordMetadata, topic, kind)]

    def come_and_go() -> None:
        made = [make(twin, number) for number in range(MANY)]
        held = made[::3]
        del made
        more = [make(twin, -number) for number in range(MANY)]
        assert [each.offset for each in held] == [number + 1 for number in range(0, MANY, 3)]
        assert len({id(each) for each in held + more}) == len(held) + len(more)

    come_and_go()
    before = counts()

    for _ in range(2):
        come_and_go()

    assert counts() == before


@each_twin
def test_a_topic_of_a_derived_class_does_not_lead_anywhere(twin: Twin) -> None:
    """The collector does not look into native metadata."""

    class Topic(str):
        more: Any

    topic = Topic("orders")
    result = result_class(twin)((topic, 2))
    delivery = twin.delivery(result, 1, 5, -1, 3)
    result.succeed(7)

    metadata = delivery.result()
    topic.more = metadata

    assert metadata == made_by(twin)(*FIELDS)
    assert gc.is_tracked(metadata) or type(metadata.topic) is str


@each_twin
def test_metadata_may_end_in_other_threads_than_they_came_from(twin: Twin) -> None:
    metadata = [[make(twin, number) for number in range(at, 4 * MANY, 4)] for at in range(4)]
    offsets = [[each.offset for each in some] for some in metadata]
    threads = [threading.Thread(target=each.clear) for each in metadata]

    for thread in threads:
        thread.start()
    others = [make(twin, number) for number in range(MANY)]
    for thread in threads:
        thread.join()

    assert sum(map(len, offsets)) == 4 * MANY
    assert [each.offset for each in others] == [number + 1 for number in range(MANY)]


@each_twin
async def test_awaited_metadata_take_no_memory_that_is_not_given_back(twin: Twin) -> None:
    world = World(twin)
    world.attach(asyncio.get_running_loop())
    delivery = await world.fast_path.enqueue("orders", b"x")
    delivery.located().succeed(41)
    count = 200_000 if twin.name == "native" else 20_000

    async def await_often() -> int:
        before = sys.getallocatedblocks()
        for _ in range(count):
            await delivery
        return sys.getallocatedblocks() - before

    await await_often()

    assert await await_often() < 100
