"""One Spark for the whole session, on two threads of this machine; and a cluster of two hosts, where one is needed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import pytest

from tests.spark.local_spark import need, start
from tests.spark.standalone import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark 4.0 and 4.1 leave the sockets to the collector through which `collect` fetches rows."""
    with suppress(PackageNotFoundError):
        if version("pyspark").startswith(("4.0.", "4.1.")):
            for item in items:
                if "spark" in getattr(item, "fixturenames", ()):
                    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


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


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master, and two workers that run one task each at a time; separate programs use it."""
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as cluster:
        yield cluster
