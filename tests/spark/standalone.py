"""A Spark cluster on this machine: a master and two workers, each worker on its own loopback address.

Spark takes an address for a host. It starts a twin of a slow task on another host only, and an executor that dies takes its
shuffle files with it: none of that can be had with ``local[...]``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import pytest

from aioproducer.testing.kafka.process_guard import ProcessGuard
from tests.spark.local_spark import ROOT, need
from tests.spark.processes import command_of, environment_of, kill, processes

__all__ = ["HOST", "HOSTS", "Executor", "StandaloneCluster"]

HOSTS: Final = ("127.0.0.2", "127.0.0.3")

#: The variable in which every process of a worker finds the host that it runs on.
HOST: Final = "AIOPRODUCER_TEST_HOST"

#: The variable that every process of a cluster has, by which the last of them is found.
_CLUSTER: Final = "AIOPRODUCER_TEST_CLUSTER"

_START_TIMEOUT: Final = 120.0
_END_TIMEOUT: Final = 30.0
_POLL_INTERVAL: Final = 0.05


class Executor(NamedTuple):
    """The JVM of an executor."""

    pid: int
    host: str


class StandaloneCluster:
    """Spark's master and workers, ready when the block begins; no process of theirs is left when it has ended.

    ``cores`` is how many tasks each of the two workers runs at once. ``directory`` takes the logs. A program reaches the
    cluster by ``--master``, `master`; the Python workers of its executors import what the tests do.
    """

    def __init__(self, directory: Path, cores: int = 1) -> None:
        self.master = ""
        self._directory = directory
        self._cores = cores
        self._id = uuid.uuid4().hex
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        need()
        if sys.platform != "linux":
            pytest.skip("Only Linux has the addresses 127.0.0.2 and 127.0.0.3 without configuration.")
        self._guard = ProcessGuard(self._directory / "work")
        try:
            log = self._start("master", "127.0.0.1", "--port", "0")
            self.master = self._wait_for_line(log, r"Starting Spark master at (spark://\S+)")
            logs = [
                self._start("worker", host, "--cores", str(self._cores), "--memory", "1g", self.master)
                for host in HOSTS
            ]
            for log in logs:
                self._wait_for_line(log, r"(Successfully registered with master)")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def executors(self) -> Sequence[Executor]:
        """Those that run now."""
        return [
            Executor(pid, environment_of(pid).get(HOST, ""))
            for pid in self._members()
            if "CoarseGrainedExecutorBackend" in command_of(pid)
        ]

    def kill_executor(self, host: str) -> None:
        """SIGKILL for every executor on this host. Its Python workers notice, and end a little later by themselves."""
        found = [each for each in self.executors() if each.host == host]
        assert found, f"no executor runs on {host}"
        for each in found:
            kill(each.pid)

    def wait_executors(self, count: int) -> None:
        """Wait until exactly so many run: those of a program that was killed end a little later than it."""
        self._wait(lambda: len(self.executors()) == count, f"not {count} executors")

    # -- processes ----------------------------------------------------------------------------------------------------

    def _start(self, role: str, host: str, *arguments: str) -> Path:
        spec = find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        home = Path(spec.origin).parent
        work = self._directory / "work" / f"{role}-{host}"
        work.mkdir(parents=True)
        log = self._directory / f"{role}-{host}.log"
        own = {
            _CLUSTER: self._id,
            HOST: host,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(work),
            "SPARK_WORKER_DIR": str(work),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        main = f"org.apache.spark.deploy.{role}.{role.capitalize()}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), main, "--host", host, "--webui-port", "0", *arguments],
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=self._guard.group,
            )
        self._processes.append(process)
        return log

    def _members(self) -> Iterator[int]:
        return (pid for pid in processes() if environment_of(pid).get(_CLUSTER) == self._id)

    def _end(self) -> None:
        self._guard.kill()
        for process in self._processes:
            process.wait()

        def is_over() -> bool:
            # Daemons of Python workers have their own process groups.
            left = list(self._members())
            for pid in left:
                kill(pid)
            return not left

        self._wait(is_over, "processes of the cluster are left")

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait_for_line(self, log: Path, pattern: str) -> str:
        reported: list[str] = []

        def is_there() -> bool:
            assert all(process.poll() is None for process in self._processes), f"Spark ended: {_tail(log)}"
            reported[:] = re.findall(pattern, log.read_text(errors="replace"))
            return bool(reported)

        try:
            self._wait(is_there, f"{log.name} does not tell {pattern!r}", _START_TIMEOUT)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{_tail(log)}") from None
        return reported[0]

    def _wait(self, condition: Callable[[], bool], otherwise: str, timeout: float = _END_TIMEOUT) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"After {timeout:g} s: {otherwise}.")
            time.sleep(_POLL_INTERVAL)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
