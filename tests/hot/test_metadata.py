"""The metadata that deliveries answer are values like any other, however their memory is come by."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from aioproducer.types import RecordMetadata, TimestampType, TopicPartition
from tests.hot.twins import Twin, World, each_twin, result_class

ORDERS = TopicPartition("orders", 2)
ROOT = Path(__file__).parents[2]
#: More than are kept for the next ones.
MANY = 600


class Derived(RecordMetadata):
    """With a dictionary, as classes have it."""


class Slim(RecordMetadata):
    """Without one."""

    __slots__ = ()


def make(twin: Twin, offset: int = 7) -> RecordMetadata:
    result = result_class(twin)(ORDERS)
    delivery = twin.delivery(result, 1, 5, -1, 3)
    result.succeed(offset)
    metadata: RecordMetadata = delivery.result()
    return metadata


def fields(offset: int = 8) -> tuple[Any, ...]:
    return ("orders", 2, offset, 5, -1, 3, TimestampType.CREATE_TIME)


@each_twin
def test_metadata_are_a_tuple_with_names(twin: Twin) -> None:
    metadata = make(twin)

    topic, partition, offset, *_, kind = metadata

    assert type(metadata) is RecordMetadata
    assert (topic, partition, offset, kind) == ("orders", 2, 8, TimestampType.CREATE_TIME)
    assert metadata == fields() == tuple(metadata) == RecordMetadata(*fields())
    assert hash(metadata) == hash(fields())
    assert metadata._asdict() == dict(zip(RecordMetadata._fields, fields(), strict=True))
    assert metadata.topic_partition == ORDERS
    assert sys.getsizeof(metadata) == sys.getsizeof(RecordMetadata(*fields()))


@each_twin
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it)), lambda it: it._replace()]
)
def test_what_is_made_of_metadata_outlives_them(twin: Twin, again: Any) -> None:
    metadata = make(twin)
    other = again(metadata)

    del metadata
    others = [make(twin, number) for number in range(MANY)]

    assert type(other) is RecordMetadata
    assert other == fields()
    assert [each.offset for each in others] == [number + 1 for number in range(MANY)]


@each_twin
def test_many_metadata_come_and_go_without_a_trace(twin: Twin) -> None:
    topic, kind = ORDERS.topic, TimestampType.CREATE_TIME

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(each) for each in (RecordMetadata, Derived, Slim, topic, kind)]

    def come_and_go() -> None:
        made = [make(twin, number) for number in range(MANY)]
        held = made[::3]
        del made
        more = [make(twin, -number) for number in range(MANY)]
        assert [each.offset for each in held] == [number + 1 for number in range(0, MANY, 3)]
        assert len({id(each) for each in held + more}) == len(held) + len(more)
        for kind_of in (RecordMetadata, Derived, Slim):
            plain = [kind_of(*fields(number)) for number in range(MANY)]
            plain += [each._replace(offset=1) for each in plain]
            # However many fields they have.
            plain += [tuple.__new__(kind_of, fields()[:count] * 2) for count in range(8)]
            assert all(type(each) is kind_of for each in plain)

    come_and_go()
    before = counts()

    for _ in range(2):
        come_and_go()

    assert counts() == before


@each_twin
def test_metadata_may_become_of_another_class_and_others_become_metadata(twin: Twin) -> None:
    make(twin)
    before = [sys.getrefcount(each) for each in (RecordMetadata, Slim)]

    for size in (0, 2, 7, 20):
        metadata: Any = make(twin)
        metadata.__class__ = Slim
        other: Any = tuple.__new__(Slim, fields()[:2] * (size // 2) + fields()[: size % 2])
        other.__class__ = RecordMetadata
        assert (type(metadata), type(other)) == (Slim, RecordMetadata)
        del metadata, other

    assert [sys.getrefcount(each) for each in (RecordMetadata, Slim)] == before
    assert make(twin) == fields()


@each_twin
def test_a_derived_class_goes_with_its_last_instance(twin: Twin) -> None:
    make(twin)

    class Local(RecordMetadata):
        pass

    local = Local(*fields())
    local.more = local  # type: ignore[attr-defined]  # a cycle, too
    gone, class_gone = weakref.ref(local.__class__), weakref.ref(Local)
    del Local
    gc.collect()
    assert gone() is not None

    del local
    gc.collect()

    assert gone() is class_gone() is None


@each_twin
def test_the_collector_finds_a_cycle_through_metadata(twin: Twin) -> None:
    class Local:
        pass

    make(twin)
    for kind in (RecordMetadata, Derived, Slim):
        local: Any = Local()
        local.metadata = kind(local, *fields()[1:])
        gone = weakref.ref(local)

        del local
        gc.collect()

        assert gone() is None


@each_twin
@pytest.mark.parametrize("kind", [RecordMetadata, Derived, Slim])
def test_metadata_in_metadata_end_however_deep(twin: Twin, kind: type[RecordMetadata]) -> None:
    make(twin)
    before = sys.getrefcount(kind)
    nested: Any = None
    for _ in range(60_000):
        nested = kind(nested, *fields()[1:])

    del nested

    assert sys.getrefcount(kind) == before
    assert make(twin) == fields()


@each_twin
def test_a_finalizer_is_called_once_and_may_keep_what_it_is_called_for(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    called: list[type] = []

    def keep(metadata: RecordMetadata) -> None:
        called.append(type(metadata))
        kept.append(metadata)

    monkeypatch.setattr(RecordMetadata, "__del__", keep, raising=False)
    assert make(twin) == fields()
    assert kept.pop() == fields()  # and goes for good
    for kind in (RecordMetadata, Slim, Derived):
        assert kind(*fields()) == fields()
        assert kept.pop() == fields()

    assert called == [RecordMetadata, RecordMetadata, Slim, Derived]
    assert not kept
    monkeypatch.undo()
    assert make(twin) == fields()


@each_twin
def test_what_ends_with_metadata_may_make_others_and_let_them_go(twin: Twin) -> None:
    class Topic(str):
        def __del__(self) -> None:
            inner.extend(make(twin, number) for number in range(3))
            del inner[::2]

    inner: list[RecordMetadata] = []
    metadata = []
    for number in range(MANY):
        result = result_class(twin)((Topic("orders"), 2))
        delivery = twin.delivery(result, 1, 5, -1, 3)
        result.succeed(number)
        metadata.append(delivery.result())
    del delivery, result

    while metadata:
        metadata.pop()

    assert len({id(each) for each in inner}) == len(inner) > 0
    assert {each[:2] for each in inner} == {("orders", 2)}
    assert {each.offset for each in inner} <= {1, 2, 3}


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


_ALL_OF_THIS = """
import sys
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/hot/test_metadata.py", "-k", "not deep"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("switch", [{"PYTHONMALLOC": "debug"}, {"PYTHONTRACEMALLOC": "5"}])
def test_where_memory_is_checked_all_of_this_holds(switch: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _ALL_OF_THIS],
        cwd=ROOT,
        env={**os.environ, **switch},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


CHANGES_ITS_CLASS = """
import sys
from aioproducer.hot import _append
from aioproducer.types import RecordMetadata, TimestampType
import aioproducer.hot

class Slim(RecordMetadata):
    __slots__ = ()

def change(metadata):
    metadata.__class__ = Slim

RecordMetadata.__del__ = change
before = sys.getrefcount(RecordMetadata), sys.getrefcount(Slim)
for number in range(1000):
    RecordMetadata("orders", 0, number, 5, -1, 3, TimestampType.CREATE_TIME)
assert (sys.getrefcount(RecordMetadata), sys.getrefcount(Slim)) == before
"""


@pytest.mark.broker  # a program of its own
@pytest.mark.parametrize("pure", ["", "1"])
def test_a_finalizer_may_make_another_class_of_it(pure: str) -> None:
    """In a process of its own, which that has ended already."""
    environment = {**os.environ, "AIOPRODUCER_PURE": pure}

    subprocess.run([sys.executable, "-c", CHANGES_ITS_CLASS], env=environment, cwd=ROOT, check=True)
