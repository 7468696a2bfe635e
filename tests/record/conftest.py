from __future__ import annotations

import pytest

from aioproducer.record import _pure
from aioproducer.record.batch import RecordBatchBuilder

#: Every encoder there is: the one in plain Python, and the one that is in use where that is another.
BUILDERS = list(dict.fromkeys([_pure.RecordBatchBuilder, RecordBatchBuilder]))


@pytest.fixture(scope="session", params=BUILDERS, ids=lambda builder: builder.__module__.rpartition(".")[2])
def builder_class(request: pytest.FixtureRequest) -> type[RecordBatchBuilder]:
    """Each encoder in turn; whatever holds of one must hold of all."""
    builder: type[RecordBatchBuilder] = request.param
    return builder
