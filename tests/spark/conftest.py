"""One Spark for the whole session, on two threads of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.spark.local_spark import need, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark that retries tasks as a cluster does; its tests take seconds, so they are marked `slow`.

    Without Java 17 or PySpark the test is skipped; it fails instead where the variable CI is set.
    """
    need()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = start()
    yield session
    session.stop()
