"""Brings the jars of Spark's own Kafka source, which PySpark comes without, as Maven has them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from aioproducer.testing.kafka_jars import cache_directory, locked
from tests.needs import not_here

#: All that the source needs beside Spark. This version runs on every PySpark that the tests run on, 4.0 to 4.3.
ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
)


@functools.cache
def kafka_source_jars() -> Sequence[str]:
    """Their paths; fetched once, about 10 MB. Without Maven the test is skipped; it fails where the variable CI is set."""
    directory = cache_directory() / "spark-kafka-4.0.0"
    with locked(cache_directory() / "fetch.lock"):
        if not directory.is_dir():
            _fetch(directory)
    return sorted(str(jar) for jar in directory.glob("*.jar"))


def _fetch(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        not_here("Spark's Kafka source is fetched with Maven, and there is no `mvn`; install it.")
    with tempfile.TemporaryDirectory(dir=directory.parent) as work:
        jars = Path(work) / "jars"
        for artifact in ARTIFACTS:
            copy = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jars}"]
            done = subprocess.run(copy, cwd=work, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                not_here(f"{artifact} cannot be fetched: {done.stdout[-500:]}")
        jars.rename(directory)
