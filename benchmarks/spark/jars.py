"""The jars of Spark's own source and sink for Kafka, which PySpark comes without, as Maven has them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from aioproducer.testing.kafka.jars import cache_directory, locked
from benchmarks.unavailable import Unavailable

__all__ = ["spark_kafka_jars"]

_VERSION: Final = "4.0.0"
#: All that is needed beside Spark. This version runs on every PySpark that the tests run on, 4.0 to 4.3.
_ARTIFACTS: Final = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{_VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{_VERSION}",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
)


@functools.cache
def spark_kafka_jars() -> Sequence[str]:
    """Their paths; fetched once, about 10 MB. Raises `Unavailable` where Maven is missing or cannot reach them."""
    directory = cache_directory() / f"spark-kafka-{_VERSION}"
    with locked(cache_directory() / "fetch.lock"):
        if not directory.is_dir():
            _fetch(directory)
    return sorted(str(jar) for jar in directory.glob("*.jar"))


def _fetch(directory: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable("Spark's own Kafka sink is fetched with Maven, and there is no `mvn`; install it.")
    with tempfile.TemporaryDirectory(dir=directory.parent) as work:
        jars = Path(work) / "jars"
        for artifact in _ARTIFACTS:
            copy = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jars}"]
            done = subprocess.run(copy, cwd=work, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                raise Unavailable(f"{artifact} cannot be fetched: {done.stdout[-500:]}")
        jars.rename(directory)
