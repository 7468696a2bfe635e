"""The first job of a session that has just been started, and the second one, in a separate process.

python -m benchmarks.spark.cold aioproducer 127.0.0.1:9092 TOPIC 1000000 [JAR ...]      # prints seconds as JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks import CHECKOUT
from benchmarks.job import Job
from benchmarks.measure import Figures
from benchmarks.spark.rows import COLD, made_rows
from benchmarks.spark.session import session
from benchmarks.spark.ways import WAYS, Way

__all__ = ["run_cold"]


def run_cold(way: Way, job: Job, jars: Sequence[str]) -> Figures:
    """The times of the first two jobs of a new session."""
    command = [sys.executable, "-m", "benchmarks.spark.cold", way.name, job.servers, job.topic, str(job.records), *jars]
    done = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, timeout=600, check=True)
    output = json.loads(done.stdout.splitlines()[-1])
    return {
        "start_ms": output["start"] * 1e3,
        "ms": output["first"] * 1e3,
        "second_ms": output["second"] * 1e3,
        "records_per_s": job.records / output["first"],
    }


def main(arguments: Sequence[str]) -> None:
    """Run the jobs and print what they took."""
    name, servers, topic, count, *jars = arguments
    job = Job(COLD, servers, topic, int(count))
    began = time.perf_counter()
    with session(jars) as spark:
        seconds = [time.perf_counter() - began]
        for _ in range(2):
            at = time.perf_counter()
            WAYS[name].write(made_rows(spark, COLD, job.records), job)
            seconds.append(time.perf_counter() - at)
    print(json.dumps(dict(zip(("start", "first", "second"), seconds, strict=True))))


if __name__ == "__main__":
    main(sys.argv[1:])
