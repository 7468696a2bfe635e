"""Runs all ways of writing side by side, round by round, each on its own topic, in one Spark session."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks.brokers import BROKERS, Broker, count_committed, count_records, wait_led
from benchmarks.cases import Case
from benchmarks.comparison import WrongCount
from benchmarks.job import Job
from benchmarks.measure import Figures
from benchmarks.results import Results, Run
from benchmarks.spark.cold import run_cold
from benchmarks.spark.jars import spark_kafka_jars
from benchmarks.spark.rows import COLD, MICRO_BATCHES, PARTITIONS, cached_rows, write_files
from benchmarks.spark.session import cpu_seconds, session
from benchmarks.spark.streams import COUNT, GUARANTEES, run_query
from benchmarks.spark.ways import WAYS, Way
from benchmarks.unavailable import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkComparison"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SparkComparison:
    """The cases to run."""

    brokers: Sequence[str]
    cases: Sequence[Case]
    rounds: int
    #: In each job, and in each micro-batch; None: what the case says.
    rows: int | None = None
    micro_batches: int = 8
    #: Jobs of each way until the JVM has compiled what moves the rows; after one or two it still takes twice as long.
    warm_ups: int = 5

    def run(self, results: Results, tell: Callable[[str], None], finished: Callable[[str, Case], None]) -> None:
        """Add everything to the results; ``finished`` is called with the broker's kind and the case after each one."""
        jars = spark_kafka_jars() if "kafka" in self.brokers else ()
        with session(jars) as spark:
            for kind in self.brokers:
                try:
                    with BROKERS[kind]() as broker:
                        results.about[kind] = broker.title
                        _Comparing(self, results, spark, jars, kind, broker, tell).run(finished)
                except Unavailable as error:
                    results.missing.append((kind, "", "", str(error)))
                    tell(str(error))

    def count(self, case: Case) -> int:
        """The number of rows of the case."""
        return case.records if self.rows is None else min(case.records, self.rows)


class _Comparing:
    """The rounds on one broker."""

    def __init__(
        self,
        comparison: SparkComparison,
        results: Results,
        spark: SparkSession,
        jars: Sequence[str],
        kind: str,
        broker: Broker,
        tell: Callable[[str], None],
    ) -> None:
        self._comparison = comparison
        self._results = results
        self._spark = spark
        self._jars = jars
        self._kind = kind
        self._broker = broker
        self._report = tell

    def run(self, finished: Callable[[str, Case], None]) -> None:
        """Run each case that makes sense on this broker."""
        for case in self._comparison.cases:
            if self._kind in case.brokers:
                if case is MICRO_BATCHES:
                    self._compare_guarantees()
                elif case is COLD:
                    self._compare_cold()
                else:
                    self._compare_jobs(case)
                finished(self._kind, case)

    def _compare_jobs(self, case: Case) -> None:
        rows = cached_rows(self._spark, case, self._comparison.count(case))
        ways = [way for way in WAYS.values() if way.can(case, self._kind)]
        for way in ways:
            self._report(f"{self._kind}: {case.name}: {way.name} is warmed up")
            for _ in range(self._warm_ups):
                self._job(case, rows, way)
        for number, way in self._turns(ways, case):
            self._add(case, way.name, number, self._job(case, rows, way), way.sends)
        rows.unpersist(blocking=True)

    @property
    def _warm_ups(self) -> int:
        """Warm up: code that the JVM has compiled for one case also serves the others."""
        return min(self._comparison.warm_ups, 1) if self._results.runs else self._comparison.warm_ups

    def _job(self, case: Case, rows: DataFrame, way: Way) -> Figures:
        count = self._comparison.count(case)
        with self._topic(f"{case.name}-{way.name}") as topic:
            job = Job(case, self._broker.servers, topic, count, mock=self._broker.is_mock)
            cpu, began = cpu_seconds(self._spark), time.perf_counter()
            way.write(rows, job)
            seconds = time.perf_counter() - began
            cpu = cpu_seconds(self._spark) - cpu
            if way.sends:
                counted = count_committed if way.is_transactional else count_records
                _check(way.title, counted(self._broker.servers, topic, count), count)
        return {"records_per_s": count / seconds, "ms": seconds * 1e3, "cpu_us": cpu / count * 1e6}

    def _compare_cold(self) -> None:
        count = self._comparison.count(COLD)
        ways = [way for way in WAYS.values() if way.cold]
        for number, way in self._turns(ways, COLD):
            with self._topic(f"{COLD.name}-{way.name}") as topic:
                figures = run_cold(way, Job(COLD, self._broker.servers, topic, count), self._jars)
                _check(way.title, count_records(self._broker.servers, topic, 2 * count), 2 * count)
            self._add(COLD, way.name, number, figures, way.sends)

    def _compare_guarantees(self) -> None:
        count = self._comparison.count(MICRO_BATCHES)
        batches = self._comparison.micro_batches + 1
        with tempfile.TemporaryDirectory(prefix="aioproducer-benchmark-") as directory:
            write_files(Path(directory), batches, count)
            for guarantee in GUARANTEES[: self._comparison.warm_ups]:
                self._report(f"{self._kind}: {MICRO_BATCHES.name}: {guarantee} is warmed up")
                self._query(Path(directory), guarantee, count * batches)
            for number, guarantee in self._turns(GUARANTEES, MICRO_BATCHES):
                figures = self._query(Path(directory), guarantee, count * batches)
                self._add(MICRO_BATCHES, guarantee, number, figures, guarantee != COUNT)

    def _query(self, files: Path, guarantee: str, expected: int) -> Figures:
        with self._topic(guarantee) as topic:
            job = Job(MICRO_BATCHES, self._broker.servers, topic, expected, mock=self._broker.is_mock)
            figures = run_query(self._spark, files, job, guarantee)
            if guarantee != COUNT:
                _check(guarantee, count_committed(self._broker.servers, topic, expected), expected)
        return figures

    def _turns(self, all_ways: Sequence[_T], case: Case) -> Iterator[tuple[int, _T]]:
        """Every way in each round, which begins with another one each time, so that none is always after the same."""
        for number in range(self._comparison.rounds):
            self._report(f"{self._kind}: {case.name}, round {number + 1} of {self._comparison.rounds}")
            turn = number % len(all_ways)
            for way in [*all_ways[turn:], *all_ways[:turn]]:
                yield number, way

    def _add(self, case: Case, way: str, number: int, figures: Figures, is_counted: bool = True) -> None:
        self._results.runs.append(Run(self._kind, case.name, way, number, figures, is_counted))

    @contextmanager
    def _topic(self, name: str) -> Generator[str]:
        topic = f"spark-{name}-{uuid.uuid4().hex[:8]}"
        self._broker.create_topic(topic, PARTITIONS)
        wait_led(self._broker.servers, topic)
        try:
            yield topic
        finally:
            self._broker.delete_topic(topic)


def _check(way: str, found: int, expected: int) -> None:
    if found != expected:
        raise WrongCount(f"{way} was to write {expected} records, and the topic holds {found}.")
