from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pytest

from aioproducer.record import _pure
from aioproducer.record._murmur2 import murmur2, partition_for_key, partitions_for_keys

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from aioproducer.record import RecordBatchBuilder
    from aioproducer.types import BytesLike


class Twin(NamedTuple):
    """One implementation of the record encoder, whichever is in use."""

    builder_class: type[RecordBatchBuilder]
    record_size_upper_bound: Callable[..., int]
    murmur2: Callable[[BytesLike], int]
    partition_for_key: Callable[[BytesLike, int], int]
    partitions_for_keys: Callable[[Buffer, Buffer, int], bytes]


TWINS = {
    "python": Twin(
        _pure.RecordBatchBuilder, _pure.record_size_upper_bound, murmur2, partition_for_key, partitions_for_keys
    )
}
try:
    from aioproducer.record import _native
except ImportError:  # tests/record/test_twins.py says where that is wrong
    pass
else:
    TWINS["native"] = Twin(
        _native.RecordBatchBuilder,  # type: ignore[arg-type]  # the same but for its class
        _native.record_size_upper_bound,
        _native.murmur2,
        _native.partition_for_key,
        _native.partitions_for_keys,
    )


@pytest.fixture(scope="session", params=TWINS.values(), ids=list(TWINS))
def twin(request: pytest.FixtureRequest) -> Twin:
    """Each implementation of the encoder in turn; whatever holds of one must hold of all."""
    implementation: Twin = request.param
    return implementation


@pytest.fixture(scope="session")
def builder_class(twin: Twin) -> type[RecordBatchBuilder]:
    return twin.builder_class


@pytest.fixture(scope="session")
def size_upper_bound(twin: Twin) -> Callable[..., int]:
    return twin.record_size_upper_bound


@pytest.fixture(scope="session")
def key_hash(twin: Twin) -> Callable[[BytesLike], int]:
    return twin.murmur2


@pytest.fixture(scope="session")
def partition_of(twin: Twin) -> Callable[[BytesLike, int], int]:
    return twin.partition_for_key


@pytest.fixture(scope="session")
def partitions_of(twin: Twin) -> Callable[[Buffer, Buffer, int], bytes]:
    return twin.partitions_for_keys
